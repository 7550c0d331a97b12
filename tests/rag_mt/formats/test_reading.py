"""Sentences for an index: files, folders and data sets, each sentence with its place."""

from __future__ import annotations

import gzip
import json
import logging
import os
from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Sentence, Skips
from rag_mt.formats.reading import read_sentences


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.txt").write_text("Hidden.\n")
    (tmp_path / "b" / "z.txt.gz").write_bytes(gzip.compress(b"One. Two.\n\nThree.\n"))
    (tmp_path / "b" / "a.jsonl").write_text('{"text": "Four."}\n')
    (tmp_path / "a.tsv").write_text("de\ten\nEins.\tFive. 12.\n2.\t---\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    return tmp_path


def test_a_folder_is_read_in_order_with_provenance(corpus: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "rag_mt")
    skips = Skips()
    assert list(read_sentences([str(corpus)], "en", skips=skips)) == [
        Sentence("Five.", "en", Origin(str(corpus / "a.tsv"), 2)),
        Sentence("Four.", "en", Origin(str(corpus / "b" / "a.jsonl"), 1)),
        Sentence("One.", "en", Origin(str(corpus / "b" / "z.txt.gz"), 1)),
        Sentence("Two.", "en", Origin(str(corpus / "b" / "z.txt.gz"), 1)),
        Sentence("Three.", "en", Origin(str(corpus / "b" / "z.txt.gz"), 3)),
    ]
    assert skips.counts == {"no letters": 2}
    assert any("1 files without a suffix" in message for message in caplog.messages)


def test_a_name_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    """One that an old archive has in Latin-1, say."""
    file = tmp_path / os.fsdecode(b"\xfcbersicht.txt")
    file.write_text("One.\n", encoding="utf-8")
    for name in (str(file), str(tmp_path)):
        with pytest.raises(UserError, match=r"the name of file .*\\udcfcbersicht.txt is not valid UTF-8: rename"):
            read_sentences([name], "en", skips=Skips())


def test_several_names_formats_and_columns(corpus: Path) -> None:
    def texts(*names: str, **options: str) -> list[str]:
        found = read_sentences([str(corpus / n) for n in names], "de", skips=Skips(shown=0), **options)  # type: ignore[arg-type]
        return [sentence.text for sentence in found]

    assert texts("b/a.jsonl", "a.tsv") == ["Four.", "Eins."]
    assert texts("b", format="jsonl") == ["Four."]
    assert texts("a.tsv", column="en") == ["Five. 12."]
    assert texts("a.tsv", format="text") == ["de\ten", "Eins.", "Five. 12."]


def test_without_splitting_long_segments_are_skips(tmp_path: Path) -> None:
    path, skips = tmp_path / "a.txt", Skips()
    path.write_text(f" One. Two. \n{'word ' * 30}\n")
    found = read_sentences([str(path)], "en", split=False, skips=skips, max_chars=100)
    assert [s.text for s in found] == ["One. Two."]
    assert skips.counts == {"longer than 100 characters": 1}
    cut = [s.text for s in read_sentences([str(path)], "en", skips=skips, max_chars=100)]
    assert cut == ["One.", "Two.", ("word " * 20).strip(), ("word " * 10).strip()]


def test_reading_is_lazy_but_names_are_checked_first(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("One.\n")
    for names, sentence in [
        ([str(path), str(tmp_path / "none.txt")], "none.txt does not exist"),
        ([str(path), "-"], "standard input"),
        ([str(tmp_path / "empty")], "holds no file with a suffix"),
    ]:
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=sentence):
            read_sentences(names, "en", skips=Skips())
    with pytest.raises(UserError, match="unknown format 'nope'"):
        read_sentences([str(path)], "en", format="nope", skips=Skips())
    path.write_text("\n".join(f"Sentence {n}." for n in range(100_000)))
    assert next(read_sentences([str(path)], "en", skips=Skips())).text == "Sentence 0."


def test_data_sets_are_read_like_files(tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "train.jsonl").write_text(json.dumps({"translation": {"en": "One. Two."}}))
    name = f"hf:{tmp_path}"
    found = list(read_sentences([name], "en", skips=Skips()))
    assert found == [Sentence("One.", "en", Origin(name, 1)), Sentence("Two.", "en", Origin(name, 1))]
