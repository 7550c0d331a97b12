"""`rag-mt check`: findings as lines and as a page, exit codes, mistakes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from lxml import html

from rag_mt.base.types import Origin
from rag_mt.checks.rules import Pair
from rag_mt.checks.segments import INCONSISTENT, Checker
from rag_mt.cli.main import main

SOURCES = ["Seite 12 von 30", "Wo ist der Bahnhof?", "Guten <b>Morgen</b>", "Ja."]
TARGETS = ["Page 21 of 30", "Where is the station.", "Good <b>morning</b>", "Yes."]


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    """A German text and its translation with a wrong number and a wrong mark."""
    for name, lines in (("a.de.txt", SOURCES), ("a.en.txt", TARGETS)):
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [str(tmp_path / "a.de.txt"), str(tmp_path / "a.en.txt")]


def test_findings_are_lines_with_their_places(texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *texts, "--src", "de"]) == 1
    told = capsys.readouterr()
    assert told.out.splitlines() == [
        f"{texts[1]}:1: error: number changed: 12 → 21 [numbers]",
        f"{texts[1]}:2: warning: ends with a full stop, the source with a question mark [ends]",
    ]
    assert "4 translations checked, 2 with findings: 1 errors, 1 warnings" in told.err


@pytest.mark.parametrize(
    ("options", "code", "rules"),
    [
        (["--skip", "numbers"], 0, ["ends"]),
        (["--skip", "numbers", "--fail-on", "warning"], 1, ["ends"]),
        (["--fail-on", "nothing"], 0, ["numbers", "ends"]),
        (["--rules", "numbers,length"], 1, ["numbers"]),
        (["--rules", "placeholders"], 0, []),
    ],
)
def test_rules_and_exit_codes(
    options: list[str], code: int, rules: list[str], texts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *texts, "--src", "de", *options]) == code
    assert [line.rpartition("[")[2] for line in capsys.readouterr().out.splitlines()] == [f"{name}]" for name in rules]


def test_a_page_shows_all_findings(texts: list[str], tmp_path: Path) -> None:
    page = tmp_path / "findings.html"
    assert main(["check", *texts, "--src", "de", "--html", str(page)]) == 1
    root = html.fromstring(page.read_text(encoding="utf-8"))
    rows = [[" ".join(cell.text_content().split()) for cell in row.xpath("td")] for row in root.xpath("//table[2]//tr")]
    assert rows[1:] == [
        [f"{texts[1]}:1", SOURCES[0], TARGETS[0], "number changed: 12 → 21 error, numbers"],
        [
            f"{texts[1]}:2",
            SOURCES[1],
            TARGETS[1],
            "ends with a full stop, the source with a question mark warning, ends",
        ],
    ]
    assert root.xpath("//td[@lang='de']") and not root.xpath("//script")


def test_a_finding_of_several_lines_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(r'{"de": "Zur <a\nhref=\"x\">Seite</a>", "en": "To the page"}', encoding="utf-8")
    assert main(["check", str(file), "--src", "de", "--rules", "placeholders"]) == 1
    told = capsys.readouterr().out.splitlines()
    assert told[0] == f'{file}:1: error: placeholder lost: <a href="x"> [placeholders]' and len(told) == 2


def test_a_page_does_not_take_the_place_of_what_is_read(
    texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = [Path(text).read_bytes() for text in texts]
    folder = str(tmp_path)
    for page, told in ((texts[0], f"would overwrite the input {texts[0]}"), (folder, f"--html {folder} is no file")):
        assert main(["check", *texts, "--src", "de", "--html", page]) == 2
        error = capsys.readouterr().err
        assert told in error and error.count("\n") == 1
    assert [Path(text).read_bytes() for text in texts] == before


def test_a_name_of_a_file_that_is_no_utf8_can_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, page = tmp_path / os.fsdecode(b"\xfc.tsv"), tmp_path / "a.html"
    table.write_text("de\ten\nSeite 12\tPage 21\n", encoding="utf-8")
    assert main(["check", str(table), "--src", "de", "--rules", "numbers", "--html", str(page)]) == 1
    place = f"{tmp_path}/\\udcfc.tsv:2"
    assert capsys.readouterr().out.startswith(f"{place}: error") and place in page.read_text(encoding="utf-8")


def test_what_is_hostile_stays_text(tmp_path: Path) -> None:
    table, page = tmp_path / "a.tsv", tmp_path / "a.html"
    table.write_text("en\tde\n<script>1</script>\t<img src=x onerror=2>\n", encoding="utf-8")
    assert main(["check", str(table), "--src", "en", "--tgt", "de", "--html", str(page)]) == 1
    root = html.fromstring(page.read_text(encoding="utf-8"))
    assert not root.xpath("//script | //img") and "<script>1</script>" in root.text_content()


def test_a_text_that_is_translated_in_two_ways_is_found_once_each_time() -> None:
    checker = Checker()
    pairs = [
        Pair("Open file", text, "en", "de") for text in ("Datei öffnen", "datei  öffnen", "Öffne Datei", "Datei öffnen")
    ]
    findings = [checker.check(pair, Origin("a.po", n)).findings for n, pair in enumerate(pairs, 1)]
    assert [[finding.rule for finding in own] for own in findings] == [[], [], [INCONSISTENT], []]
    assert findings[2][0].message == "translated before as 'Datei öffnen' (a.po:1)"
    assert checker.counts == {INCONSISTENT: 1} and checker.segments == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--src", "en", "--tgt", "en", "{0}"], "source and target are both English: give another --src or --tgt"),
        (["--src", "de", "{0}"], "1 plain texts were given: give two, the source and its translation"),
        (["--src", "de", "{0}", "{1}", "{0}"], "3 plain texts were given"),
        (["--src", "de", "{0}", "{2}"], "lines, .*: give texts whose lines belong together"),
        (
            ["--src", "de", "{0}", "{1}", "--rules", "spelling"],
            "there is no rule 'spelling': choose from empty, numbers",
        ),
        (
            ["--src", "de", "{0}", "{1}", "--rules", "ends,stops", "--skip", "stops,ends"],
            "--skip leaves none of the rules ends, stops",
        ),
        (["--src", "de", "nowhere.xlf"], "nowhere.xlf"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = tmp_path / "short.txt"
    short.write_text("One\n", encoding="utf-8")
    assert main(["check", *(argument.format(*texts, short) for argument in arguments)]) == 2
    told = capsys.readouterr()
    assert re.search(message, told.err) and not told.out
