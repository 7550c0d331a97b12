"""Retrievers that look at some files of an index: hints of these alone, from every engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.only import Only
from rag_mt.base.types import Encoder, Origin, Sentence, TranslatedSentence
from retrievers.index.copying import copy_index
from retrievers.memory.retriever import MemoryRetriever
from retrievers.registry import build_for, encoder_for, open_retriever

FILES = ("law.txt", "news.txt", "travel.txt")
ONLY = Only(("law.txt", "travel.txt"))
ENGINES = ("", "lance:", "qdrant:")


def in_files(sentences: list[Sentence]) -> list[Sentence]:
    """The sentences, one after the other from each of the files."""
    return [Sentence(s.text, s.language, Origin(FILES[n % 3], n)) for n, s in enumerate(sentences)]


def hints_of(name: str, place: Path, encoder: Any, sources: list[Sentence], only: Only | None = None) -> list[Any]:
    retriever = open_retriever(name, place, encoder, source_language="de", target_language="en", only=only)
    return retriever.retrieve(sources)


def same(ours: list[Any], theirs: list[Any]) -> None:
    """Assert that hints are the same, up to rounding in their scores."""
    for mine, other in zip(ours, theirs, strict=True):
        assert [(h.source_span, h.hit.span, h.hit.sentence) for h in mine] == [
            (h.source_span, h.hit.span, h.hit.sentence) for h in other
        ]
        np.testing.assert_allclose([h.hit.score for h in mine], [h.hit.score for h in other], atol=1e-5)


@pytest.mark.parametrize("name", ["sentence", "phrases", "ccpr", "xpr", "passage", "bm25", "hybrid", "memory"])
def test_hints_are_from_the_files_that_are_asked_for(
    tmp_path: Path, name: str, parallel: dict[str, list[Sentence]]
) -> None:
    """Those whose scores depend on no other sentence are what an index of these files alone gives."""
    encoder, english = encoder_for(name), in_files(parallel["en"])
    build_for(name, tmp_path / "i", english, encoder, "en", show=False)
    ours = hints_of(name, tmp_path / "i", encoder, parallel["de"], ONLY)
    files = {hint.hit.sentence.source.file for hints in ours for hint in hints}
    every = {
        hint.hit.sentence.source.file
        for hints in hints_of(name, tmp_path / "i", encoder, parallel["de"])
        for hint in hints
    }
    assert files and files <= {"law.txt", "travel.txt"} and (name == "bm25" or every == set(FILES))
    if name in ("sentence", "phrases", "ccpr", "passage"):
        chosen = [sentence for sentence in english if sentence.source.file != "news.txt"]
        build_for(name, tmp_path / "alone", chosen, encoder, "en", show=False)
        same(ours, hints_of(name, tmp_path / "alone", encoder, parallel["de"]))


@pytest.mark.parametrize("engine", ENGINES[1:])
@pytest.mark.parametrize("name", ["sentence", "hybrid", "memory"])
def test_engines_show_what_a_folder_shows(
    tmp_path: Path, e5: Encoder, engine: str, name: str, parallel: dict[str, list[Sentence]]
) -> None:
    pytest.importorskip({"lance:": "lancedb", "qdrant:": "qdrant_client"}[engine])
    place = Path(f"{engine}{tmp_path}/copy")
    build_for(name, tmp_path / "i", in_files(parallel["en"]), e5, "en", show=False)
    copy_index(tmp_path / "i", place)
    same(*(hints_of(name, index, e5, parallel["de"], ONLY) for index in (tmp_path / "i", place)))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_memory_knows_the_translations_of_the_files_that_are_asked_for(
    tmp_path: Path, e5: Encoder, engine: str, parallel: dict[str, list[Sentence]]
) -> None:
    english, german = in_files(parallel["en"]), parallel["de"]
    memory = [
        s if s.source.file == "news.txt" else TranslatedSentence(s.text, "en", s.source, german[n].text)
        for n, s in enumerate(english)
    ]
    build_for("memory", tmp_path / "i", memory, e5, "en", show=False)
    place = tmp_path / "i"
    if engine:
        pytest.importorskip({"lance:": "lancedb", "qdrant:": "qdrant_client"}[engine])
        place = Path(f"{engine}{tmp_path}/copy")
        copy_index(tmp_path / "i", place)

    def opened(only: Only | None) -> MemoryRetriever:
        retriever = open_retriever("memory", place, e5, source_language="de", target_language="en", only=only)
        assert isinstance(retriever, MemoryRetriever)
        return retriever

    for only, files in (
        (None, {"law.txt", "travel.txt"}),
        (Only("law.txt"), {"law.txt"}),
        (Only("news.txt"), set[str]()),
    ):
        retriever = opened(only)
        known = [hit.sentence.source.file for hit in retriever.known(german) if hit]
        assert set(known) == files and len(known) == 4 * len(files) and retriever.bilingual == bool(files)
        recalled = [hint.hit for found in retriever.recall(german, [s.text for s in english]) for hint in found.hints]
        assert {hit.sentence.source.file for hit in recalled} == (set(only.files) if only else set(FILES))


def test_settings_tell_which_files_are_looked_at(
    tmp_path: Path, e5: Encoder, parallel: dict[str, list[Sentence]]
) -> None:
    """A job goes on if the files are the same, however they were asked for, and whatever is said of others."""
    build_for("sentence", tmp_path / "i", in_files(parallel["en"]), e5, "en", show=False)

    def settings(only: Only | None) -> Any:
        languages = {"source_language": "de", "target_language": "en"}
        return open_retriever("sentence", tmp_path / "i", e5, **languages, only=only).settings

    assert settings(ONLY) == settings(Only(("*l*",))) and settings(None) == settings(Only())
    assert settings(ONLY) != settings(None) != settings(Only("law.txt")) != settings(ONLY)
    with pytest.raises(UserError, match="has no file named sport"):
        settings(Only("sport*"))
