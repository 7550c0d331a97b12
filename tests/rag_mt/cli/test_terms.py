"""`rag-mt terms extract`."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from rag_mt.base.types import Skips
from rag_mt.cli.main import main
from rag_mt.glossary.reading import read_glossary
from rag_mt.translation.index import Index
from tests.rag_mt.glossary.test_extraction import PAIRS


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    file = tmp_path / "memory.tsv"
    rows = ["en\tde", *(f"{one}\t{other}" for one, other in PAIRS)]
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def test_what_is_proposed_is_a_glossary(memory: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("terms.csv", "terms.tsv"):
        output = tmp_path / name
        assert main(["terms", "extract", str(memory), "--src", "en", "--tgt", "de", "-o", str(output)]) == 0
        assert f"{output}: 3 terms from en into de" in capsys.readouterr().err
        glossary = read_glossary([output], "en", "de", skips := Skips())
        assert {term.source: term.allowed for term in glossary.terms} == {
            "password": ("Kennwort",), "text document": ("Textdokument",), "table": ("Tabelle",)
        }  # fmt: skip
        assert not skips.total
    assert main(["terms", "extract", str(memory), "--src", "en", "--tgt", "de", "--limit", "1"]) == 0
    head, row = csv.reader(capsys.readouterr().out.splitlines())
    assert head == ["en", "de", "score", "count", "example", "translated example"]
    assert row[:4] == ["password", "Kennwort", "1.00", "4"]


def test_terms_do_not_take_the_place_of_the_translations(memory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = memory.read_bytes()
    assert main(["terms", "extract", str(memory), "--src", "en", "--tgt", "de", "-o", str(memory)]) == 2
    assert f"-o {memory} would overwrite the input {memory}" in capsys.readouterr().err
    assert memory.read_bytes() == before


def test_terms_of_a_text_by_an_index(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "de.txt"
    text.write_text("\n".join(other for _, other in PAIRS * 3), encoding="utf-8")
    folder = tmp_path / "index"
    Index.build(folder, [text], language="de", retriever="ccpr", show=False)
    source = tmp_path / "en.txt"
    source.write_text("\n".join(one for one, _ in PAIRS), encoding="utf-8")
    arguments = ["terms", "extract", str(source), "--src", "en", "--index", str(folder)]
    assert main(arguments) == 0
    rows = {row[0]: row[1] for row in csv.reader(capsys.readouterr().out.splitlines()[1:])}
    assert "Kennwort" in rows["password"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--src", "en", "--tgt", "en"], "source and target are both English"),
        (["--src", "en", "--tgt", "de", "-o", "terms.xlsx"], "-o terms.xlsx is no table"),
        (["--src", "en", "--index", "nowhere"], "nowhere"),
    ],
)
def test_mistakes(memory: Path, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["terms", "extract", str(memory), *arguments]) == 2
    error = capsys.readouterr().err
    assert told in error and "Traceback" not in error and error.count("\n") == 1
