"""Judged translations: what is read from the files, and which part a source belongs to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.data.judgements import PARTS, TENTHS, read_judgements, read_outputs, tenth
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips

ROWS = [(f"Source {n}.", f"Ziel {n}.", n) for n in range(40)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "quality"
    folder.mkdir()
    for part in ("train", "dev", "test20", "test21"):
        lines = [f"{source}\t{target}\t{n / 10}\t{50 + n}" for source, target, n in ROWS]
        (folder / f"mlqe-da.en-de.{part}.tsv").write_text("\n".join(["src\tmt\tz_mean\tmean", *lines]) + "\n")
    lines = [f"{source}\t{target}\t{n}\t1" for source, target, n in ROWS]
    (folder / "mqm-2021_en-ru.tsv").write_text("\n".join(["src\tmt\tmqm_penalty\tn_raters", *lines]) + "\n")
    return tmp_path


def test_every_part_has_its_sets(data: Path) -> None:
    names = {part: [own.name for own in read_judgements(data, part, Skips())] for part in PARTS}
    assert names == {
        "train": ["da.en-de.train", "mqm.en-ru.train"],
        "dev": ["da.en-de.dev", "mqm.en-ru.dev"],
        "test": ["da.en-de.test20", "da.en-de.test21", "mqm.en-ru.test"],
    }


def test_scores_rise_with_the_quality(data: Path) -> None:
    assessed, penalised = read_judgements(data, "dev", Skips())
    assert [(row.score, row.mean) for row in assessed.rows[:2]] == [(0.0, 50.0), (0.1, 51.0)]
    numbers = [int(row.source.split()[1].rstrip(".")) for row in penalised.rows]
    assert [row.score for row in penalised.rows] == [-n for n in numbers]
    assert {row.mean for row in penalised.rows} == {None}


def test_a_source_is_in_one_part_alone(data: Path) -> None:
    parts = [{row.source for row in read_judgements(data, part, Skips())[-1].rows} for part in PARTS]
    assert sorted(source for part in parts for source in part) == sorted(source for source, _, _ in ROWS)
    assert sorted(n for part in TENTHS.values() for n in part) == list(range(10))


def test_without_files_it_says_what_is_expected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no judgements in .*: expected mlqe-da\.XX-YY\.dev\.tsv"):
        read_judgements(tmp_path, "dev", Skips())


def test_a_line_with_too_few_columns_is_named(data: Path) -> None:
    with (data / "quality" / "mlqe-da.en-de.dev.tsv").open("a") as file:
        file.write("alone\n")
    with pytest.raises(UserError, match=r"mlqe-da\.en-de\.dev\.tsv:42 has 1 columns: expected 3"):
        read_judgements(data, "dev", Skips())


def test_outputs_are_sorted_by_direction_and_part(tmp_path: Path) -> None:
    path = tmp_path / "outputs.jsonl"
    rows = [
        {"direction": d, "source": s, "target": t, "chrf": float(n)} for d in ("en-fi", "cs-en") for s, t, n in ROWS
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    parts = {part: read_outputs(path, part, Skips()) for part in PARTS}
    assert [own.name for own in parts["dev"]] == ["chrf.cs-en.dev", "chrf.en-fi.dev"]
    assert all(tenth(row.source) in TENTHS[part] for part, sets in parts.items() for own in sets for row in own.rows)
    assert sum(len(own.rows) for sets in parts.values() for own in sets) == len(rows)
