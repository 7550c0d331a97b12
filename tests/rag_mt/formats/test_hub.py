"""Data sets: the parts of a name, rows of local folders through the same code, and sentences for what fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.format import Side
from rag_mt.formats.reading import hub_name, hub_segments

datasets = pytest.importorskip("datasets")


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder with a `train` and a `test` split, named relative to the working directory."""
    folder = tmp_path / "folder"
    folder.mkdir()
    pairs = [{"de": "Hallo Welt.", "en": "Hello world."}, {"de": "Zwei.", "en": "Two."}, {"de": None, "en": "Three."}]
    (folder / "train.jsonl").write_text("\n".join(json.dumps({"translation": pair}) for pair in pairs))
    datasets.Dataset.from_list([{"translation": {"de": "Probe.", "en": "Test."}}]).to_json(folder / "test.jsonl")
    monkeypatch.chdir(tmp_path)
    return "hf:./folder"


@pytest.mark.parametrize(
    ("name", "candidates", "split"),
    [
        ("hf:wmt16/de-en", [("wmt16", "de-en"), ("wmt16/de-en", None)], "train"),
        ("hf:Helsinki-NLP/opus-100/de-en@validation", [("Helsinki-NLP/opus-100", "de-en")], "validation"),
        ("hf:allenai/c4", [("allenai/c4", None), ("allenai", "c4")], "train"),
        ("hf:imdb@test", [("imdb", None)], "test"),
        ("hf:./a/b/c/d", [("a/b/c/d", None)], "train"),
    ],
)
def test_names(name: str, candidates: list[tuple[str, str | None]], split: str) -> None:
    assert hub_name(name) == (candidates, split)


@pytest.mark.parametrize("name", ["hf:", "hf:a/b/c/d", "hf:a//b"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UserError, match=r"hf:NAME\[/CONFIG\]\[@SPLIT\]"):
        hub_name(name)


def test_rows_have_provenance_and_empty_ones_are_skips(rows: str) -> None:
    skips = Skips()
    segments = list(hub_segments(rows, Side("de"), skips))
    assert [(s.text, s.origin) for s in segments] == [("Hallo Welt.", Origin(rows, 1)), ("Zwei.", Origin(rows, 2))]
    assert skips.counts == {"no field 'de' or 'text'": 1}
    assert [s.text for s in hub_segments(f"{rows}@test", Side("en"), Skips())] == ["Test."]


def test_parquet_with_a_text_column(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"id": [1, 2], "body": ["One.", "Two."]}).to_parquet(tmp_path / "train.parquet")
    segments = hub_segments(f"hf:{tmp_path}", Side("en", "body"), Skips())
    assert [s.text for s in segments] == ["One.", "Two."]


def test_a_data_set_without_the_text_is_given_up_early(tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"id": list(range(500)), "body": ["One."] * 500}).to_parquet(tmp_path / "train.parquet")
    with pytest.raises(UserError, match=r"in 100 rows: choose one of id, body with --column"):
        list(hub_segments(f"hf:{tmp_path}", Side("en"), Skips(shown=0)))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("hf:wmt16/de-en", "data set hf:wmt16/de-en cannot be read .*name local files instead"),
        ("hf:./folder@nope", "Available splits"),
        ("hf:./empty", "cannot be read"),
    ],
)
def test_offline_and_unknown_are_one_sentence(rows: str, name: str, sentence: str) -> None:
    Path("empty").mkdir()
    with pytest.raises(UserError, match=sentence):
        list(hub_segments(name, Side("de"), Skips()))


def test_a_broken_row_in_the_middle_is_one_sentence(rows: str) -> None:
    with Path("folder/train.jsonl").open("a") as file:
        file.write('\n{"translation": ')
    with pytest.raises(UserError, match="cannot be read"):
        list(hub_segments(rows, Side("de"), Skips(shown=0)))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match=r"pip install 'datasets>=4.0'"):
        list(hub_segments("hf:wmt16/de-en", Side("de"), Skips()))
