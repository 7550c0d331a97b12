"""Suites of domains: cells, blocks, and text that holds nothing of what is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.data.domain_text import main
from eval.data.domains import BLOCK, blocks_of, normalised
from eval.data.suites import Cell, open_suite
from rag_mt.base.errors import UserError

HELD_OUT = range(BLOCK, 2 * BLOCK)
"""The second block of the lead language: sentences 40 to 79."""


def english(n: int) -> str:
    return f"Sentence no. {n}: press the button."


def german(n: int) -> str:
    return f"Satz Nr. {n}: drücken Sie den Knopf."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Help in German, the lead language, with blocks 0, 1 and 2, and in Finnish with every third sentence."""
    for folder in ("train", "domains"):
        (tmp_path / folder).mkdir()
    pairs = [(english(n), german(n)) for n in range(100)]
    noise = "News of the day.\tNachricht des Tages.\tnews\tnewstest.de-en\n"
    lines = [f"{a}\t{b}\ttech-docs\tlohelp.de-en\n" for a, b in pairs]
    lines.append(f"{english(5)}\t{german(105)}\ttech-docs\tlohelp.de-en\n")
    lines.append(f"Another one.\t{german(50).upper()}\ttech-docs\tlohelp.de-en\n")
    (tmp_path / "train" / "de-en.tsv").write_text(noise + noise.join(lines), encoding="utf-8")
    finnish = [f"{english(n)}\tLause {n}.\ttech-docs\tlohelp.fi-en\n" for n in range(0, 100, 3)]
    finnish.append("Only in Finnish.\tVain suomeksi.\ttech-docs\tlohelp.fi-en\n")
    (tmp_path / "train" / "fi-en.tsv").write_text("".join(finnish), encoding="utf-8")
    held_out = sorted(normalised(english(n)) for n in HELD_OUT)
    folder = tmp_path / "domains"
    (folder / "help.excluded.txt").write_text("\n".join(held_out) + "\n", encoding="utf-8")
    for name, numbers in (("help.de-en.test", (41, 50, 60)), ("help.de-en.dev", (70, 71)), ("help.fi-en.test", (60,))):
        rows = [f"{english(n)}\t{german(n) if 'de' in name else f'Lause {n}.'}\n" for n in numbers]
        (folder / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    return tmp_path


def test_cells_are_chosen_by_name_domain_and_direction(data: Path) -> None:
    suite = open_suite("domains", data)
    there, finnish, back, lause = suite.cells
    assert [cell.name for cell in suite.cells] == ["help.de-en", "help.fi-en", "help.en-de", "help.en-fi"]
    assert there == Cell("de", "en", "help")
    assert suite.chosen("help.en-fi,help.de-en,help.en-fi") == (lause, there)
    assert suite.chosen("en-de") == (back,) and suite.chosen("help") == suite.cells
    assert suite.chosen("fi-en,help")[:2] == (finnish, there)
    assert [cell.name for cell in open_suite("domains-dev", data).cells] == ["help.de-en", "help.en-de"]
    for name in ("manual.de-en", "manual", "de-fi", ""):
        with pytest.raises(UserError, match=f"no direction '{name}': choose from help.de-en"):
            suite.chosen(name)
    with pytest.raises(UserError, match=r"--data DIR with domains/help.de-en.dev.tsv"):
        open_suite("domains-dev")
    with pytest.raises(UserError, match="--data DIR"):
        open_suite("domains", data / "train")


def test_pairs_of_one_block_are_known_in_all_directions(data: Path) -> None:
    suite = open_suite("domains", data)
    part, turned = suite.part("de", "en", domain="help"), suite.part("en", "de", domain="help")
    assert (part.name, part.lines, part.available) == ("help.de-en", (1, 2, 3), 3)
    assert part.sources == turned.references == tuple(map(german, (41, 50, 60)))
    assert part.blocks == turned.blocks == ("help.1",) * 3
    assert suite.part("fi", "en", domain="help").blocks == ("help.1",)
    assert len(suite.part("de", "en", 2, domain="help").blocks) == 2
    with pytest.raises(UserError, match=r"'Sentence no. 3: .* in no block"):
        blocks_of(data, "help", [english(3)])


def test_blocks_begin_at_every_fortieth_pair_of_the_lead_language(data: Path) -> None:
    path = data / "domains" / "help.excluded.txt"
    path.write_text("".join(f"{normalised(english(n))}\n" for n in (*range(39), *range(40, 100))), encoding="utf-8")
    assert blocks_of(data, "help", [english(40), english(79)]) == ("help.1", "help.1")
    for n in (0, 38, 99):  # 39 of 40 are excluded, and not all of the last 22
        with pytest.raises(UserError, match="in no block"):
            blocks_of(data, "help", [english(n)])


def test_texts_hold_the_rest_of_each_domain_once(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = data / "texts"
    assert main(["--data", str(data), "--output", str(out), "--quiet"]) == 0
    rest = [n for n in range(100) if n not in HELD_OUT]
    assert (out / "help.de.txt").read_text("utf-8").splitlines() == [*map(german, rest), german(105)]
    expected = [*map(english, rest), "Another one.", "Only in Finnish."]
    assert (out / "help.en.txt").read_text("utf-8").splitlines() == expected
    finnish = (out / "help.fi.txt").read_text("utf-8").splitlines()
    assert finnish == [*(f"Lause {n}." for n in rest if n % 3 == 0), "Vain suomeksi."]
    told = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert told["help.de"] == "61 sentences; skipped 41 lines: 40 in a held-out block, 1 seen before or excluded"
    assert told["help.fi"].startswith(f"{len(finnish)} sentences; skipped 13 lines: 13 in a held-out block")


def test_texts_are_chosen_by_name(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = data / "texts"
    assert main(["--data", str(data), "--output", str(out), "--cells", "help.fi", "--quiet"]) == 0
    assert [path.name for path in out.iterdir()] == ["help.fi.txt"]
    assert main(["--data", str(data), "--output", str(out), "--cells", "help.cs"]) == 2
    assert "no text 'help.cs': choose from help.de, help.fi, help.en" in capsys.readouterr().err
    assert main(["--data", str(data / "train"), "--output", str(out)]) == 2
    (data / "domains" / "help.excluded.txt").unlink()
    assert main(["--data", str(data), "--output", str(out), "--cells", "help.de", "--quiet"]) == 2
    assert "help.excluded.txt: give --data DIR" in capsys.readouterr().err
