"""Reports on domains: the primary test by blocks, trainings as a level, gains by similarity."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from eval.comet.score import triples_of
from eval.data.domains import BLOCK, DOMAINS, normalised
from eval.metrics.formulas import open_chrf
from eval.report.__main__ import contents, main
from eval.report.blocks import Table
from eval.report.nearest import nearest_chrf, nearest_of
from eval.report.reading import read_runs
from eval.report.runs import Runs
from eval.significance import compare
from eval.translation.__main__ import main as translate
from eval.translation.records import RECORDS, read_records
from rag_mt.base.errors import UserError
from tests.eval.conftest import ENGLISH, spelled_backwards

CELLS = ["help.de-en", "game.de-en"]
HALF = len(ENGLISH) // 2


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Help and game in the made-up language; the first half of the sentences in one block, the others in the next."""
    folder = tmp_path_factory.mktemp("domains")
    for name in ("train", "domains", "texts"):
        (folder / name).mkdir()
    fillers = [f"filler number {n}" for n in range(2 * BLOCK - len(ENGLISH))]
    train = [*ENGLISH[:HALF], *fillers[: BLOCK - HALF], *ENGLISH[HALF:], *fillers[BLOCK - HALF :]]
    pairs = [
        f"{text}\t{spelled_backwards(text)}\ttech-docs\t{DOMAINS[cell.partition('.')[0]].collection}.de-en\n"
        for cell in CELLS
        for text in train
    ]
    (folder / "train" / "de-en.tsv").write_text("".join(pairs))
    for cell in CELLS:
        domain = cell.partition(".")[0]
        rows = "".join(f"{text}\t{spelled_backwards(text)}\n" for text in ENGLISH)
        (folder / "domains" / f"{domain}.de-en.test.tsv").write_text(rows)
        (folder / "domains" / f"{domain}.excluded.txt").write_text("".join(f"{normalised(t)}\n" for t in train))
        (folder / "texts" / f"{domain}.en.txt").write_text(f"{ENGLISH[0]}\nthe old bridge stands in a village\n")
    return folder


@pytest.fixture(scope="module")
def command(data: Path, systems_file: Path, random_llm: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A baseline, a system that was trained twice, and one whose index is that of the domain."""
    folder = tmp_path_factory.mktemp("domain-systems")
    for cell in CELLS:
        shutil.copytree(systems_file.parent / "sentence-en", folder / f"{cell.partition('.')[0]}.sentence.en")
    path = folder / "systems.toml"
    path.write_text(
        f"""
[defaults]
llm = "{random_llm}"
wrapper = "alpaca"
max_new_tokens = 12
batch_size = 4

[systems.plain]
retriever = "none"

[systems."memory@1"]
retriever = "sentence"
index = "{{domain}}.sentence.{{tgt}}"

[systems."memory@2"]
like = "memory@1"
max_new_tokens = 7
""",
        encoding="utf-8",
    )
    return ["--suite", "domains", "--data", str(data), "--config", str(path), "--quiet", "--directions", "de-en"]


@pytest.fixture(scope="module")
def runs(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("domain-runs")
    assert translate([*command, "--output", str(folder)]) == 0
    return folder


def table(runs: Runs, first: str, nth: int = 0) -> dict[str, dict[str, str]]:
    """The n-th table that has this head in a column: its rows by their first cell, by heads."""
    blocks = list(contents(runs, "title", 0, [], "x"))
    own = [block for block in blocks if isinstance(block, Table) and first in block.head][nth]
    return {row[0]: dict(zip(own.head, row, strict=True)) for row in own.rows}


def test_runs_have_the_names_of_their_cells(runs: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("plain", "memory@1", "memory@2"):
        for cell in CELLS:
            assert len(read_records(runs / name / f"{cell}{RECORDS}")) == len(ENGLISH)
    assert len(triples_of(runs)) >= len(ENGLISH)
    assert translate([*command, "--output", str(runs), "--score-only", "--metrics", "chrf"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert [line for line in lines if line[0] == "chrF"] == [["chrF", cell] for cell in CELLS]


def test_an_index_by_domain_needs_domains(command: list[str], data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "test").mkdir(exist_ok=True)
    shutil.copy(data / "domains" / "help.de-en.test.tsv", data / "test" / "de-en.tsv")
    assert translate(["--suite", "wmt16", *command[2:], "--systems", "memory@1"]) == 2
    assert "memory@1 has the index" in (told := capsys.readouterr().err) and "--suite domains" in told


def test_the_primary_test_is_over_all_cells_by_blocks(runs: Path) -> None:
    found = read_runs(runs)
    assert found.systems == ("plain", "memory") and found.of_domains
    assert found.groups == {"help": CELLS[:1], "game": CELLS[1:]} and found.whole == CELLS
    assert list(found.averaged) == ["help", "game", "all cells"]
    trained = [found.by_place["memory@1", cell].scores["chrF"].statistics for cell in CELLS]
    again = [found.by_place["memory@2", cell].scores["chrF"].statistics for cell in CELLS]
    plain = [found.by_place["plain", cell].scores["chrF"].statistics for cell in CELLS]
    blocks = [np.repeat([f"{cell.partition('.')[0]}.{n}" for n in (0, 1)], HALF) for cell in CELLS]
    both = [np.stack(pair) for pair in zip(trained, again, strict=True)]
    expected = compare(both, plain, "chrf", blocks, trials=found.trials, other_trainings=True)
    assert found.comparison("memory", CELLS, "chrF") == expected
    alone = read_runs(runs, ["plain", "memory@1"])
    assert alone.systems == ("plain", "memory@1")
    assert alone.comparison("memory@1", CELLS[:1], "chrF") == compare(
        trained[:1], plain[:1], "chrf", blocks[:1], trials=alone.trials
    )
    row = table(found, "gain by seed")["memory"]
    assert row["gain"] == f"{expected.value:+.2f}" and row["p"] == row["p by Holm"] == f"{expected.p:.4f}"
    assert row["p, these trainings"] == f"{compare(both, plain, 'chrf', blocks, trials=found.trials).p:.4f}"
    first, second = map(float, re.findall(r"[+-]\d+\.\d\d", row["gain by seed"]))
    assert (first + second) / 2 == pytest.approx(expected.value, abs=0.011) and first != second
    assert row["cells"] == "2" and row["better in"].endswith(" of 2")


def test_single_cells_are_tested_by_the_primary_metric_only(runs: Path) -> None:
    found = read_runs(runs)
    tested = {(names, metric) for _, names, metric in found.comparisons}
    assert {metric for names, metric in tested if len(names) == 2} == {"BLEU", "chrF", "chrF++"}
    gains = table(found, "significantly")["memory"]
    assert gains["cells"] == "all cells" and gains["better"].endswith("of 2")
    assert found.trials == 10_000


def test_scores_of_trainings_are_averaged_with_their_spread(runs: Path) -> None:
    found = read_runs(runs)
    means = table(found, "chrF")  # by domain, and all
    values = [[found.by_place[name, cell].scores["chrF"].corpus for cell in CELLS] for name in ("memory@1", "memory@2")]
    mean, spread = np.mean(values), np.std(np.mean(values, axis=1), ddof=1)
    assert means["memory"]["all cells"].startswith(f"{mean:.2f} ± {spread:.2f}")
    assert " ± " not in means["plain"]["all cells"]


def test_trainings_of_the_baseline_are_paired_by_seed(runs: Path, tmp_path: Path) -> None:
    for name, copy in (
        ("plain", "plain@1"),
        ("memory@1", "plain@2"),
        ("memory@1", "memory@1"),
        ("memory@2", "memory@2"),
    ):
        shutil.copytree(runs / name, tmp_path / copy)
        for path in (tmp_path / copy).glob("*-en.json"):
            path.write_text(path.read_text().replace(f'"system": "{name}"', f'"system": "{copy}"'))
    found = read_runs(tmp_path)
    assert found.systems == ("plain", "memory")
    run = found.by_place["memory@2", CELLS[0]]
    assert found.baseline_of(run) is found.by_place["plain@2", CELLS[0]]
    assert found.baseline_of(found.by_place["plain@2", CELLS[0]]) is None
    assert found.common("memory", CELLS) == CELLS
    (tmp_path / "plain@2" / f"{CELLS[1]}.json").unlink()
    assert read_runs(tmp_path).common("memory", CELLS) == CELLS[:1]


def test_gains_are_binned_by_the_best_hit_and_by_the_nearest_sentence(runs: Path, data: Path) -> None:
    found = read_runs(runs)
    best = table(found, "similarity")
    assert best["all"]["sentences"] == str(2 * 2 * len(ENGLISH)) and best["all"]["of all"] == "100.0 %"
    assert sum(int(row["sentences"]) for name, row in best.items() if name != "all") == 2 * 2 * len(ENGLISH)
    shown = [max(h.hit.score for h in r.translation.hints) for run in found.of("memory") for r in run.records]
    assert int(best["0.9 and more"]["sentences"]) == sum(score >= 0.9 for score in shown) > 0
    nearest = nearest_of(found, data / "texts", show=False)
    assert nearest["help", "en", ENGLISH[0]] == pytest.approx(1) and len(nearest) == 2 * len(ENGLISH)
    blocks = list(contents(found, "title", 0, [], "x", nearest))
    own = [block for block in blocks if isinstance(block, Table) and "similarity" in block.head][1]
    assert {row[0]: row[1] for row in own.rows}["0.9 and more"] == str(2 * 2)


def test_what_cannot_be_compared_is_said(
    runs: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(runs), "--index-text", str(tmp_path)]) == 2
    assert "python -m eval.data.domain_text" in capsys.readouterr().err
    shutil.copytree(runs, tmp_path / "mixed")
    path = tmp_path / "mixed" / "plain" / f"{CELLS[0]}.json"
    path.write_text(re.sub(r'"blocks": \[[^\]]*\]', '"blocks": []', path.read_text()))
    with pytest.raises(UserError, match="a folder of its own"):
        read_runs(tmp_path / "mixed")


def test_the_report_is_written_in_both_forms(runs: Path, data: Path, tmp_path: Path) -> None:
    markdown, page = tmp_path / "r.md", tmp_path / "r.html"
    options = ["--index-text", str(data / "texts"), "--output", str(markdown), "--html", str(page)]
    assert main([str(runs), *options]) == 0
    text = markdown.read_text("utf-8")
    assert text.index("## Primary test") < text.index("## Scores") and "2 cells" in text
    assert "by chrF of the nearest index sentence" in text and "--index-text texts" in text
    assert "all cells" in page.read_text("utf-8")


def test_the_nearest_sentence_is_that_of_all_by_chrf() -> None:
    rng = np.random.default_rng(1)
    words = [" ".join(rng.permutation(text.split())) for text in ENGLISH]
    texts = [" ".join(rng.choice(words, 2)) for _ in range(60)]
    metric = open_chrf()
    best = [max(metric._counter.sentence_score(text, [reference]).score for text in texts) for reference in ENGLISH]
    assert nearest_chrf(ENGLISH, texts) == pytest.approx(best, abs=2)
    assert nearest_chrf(["a", "", "xyz"], ["b", "abc"]).shape == (3,)
    assert nearest_chrf([ENGLISH[3]], ["no", ENGLISH[3]]) == pytest.approx([100])
