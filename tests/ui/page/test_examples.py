"""The examples row: whole, parallel, and with hints for every text in the systems that the demo opens."""

from __future__ import annotations

import pytest

from rag_mt.base.defaults import DEFAULT_RETRIEVER
from rag_mt.base.types import Encoder, Sentence
from rag_mt.text.splitting import split
from retrievers.calibration import default_index
from retrievers.registry import encoder_for, open_retriever
from ui.page.menus import SUBJECTS, example, example_languages

LANGUAGES = ["cs", "de", "en", "fi", "ro", "ru", "tr"]


def sentences(subject: str, code: str) -> list[Sentence]:
    text = example(subject, code)
    return [Sentence(span.of(text), code) for span in split(text, code)]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    """The one that the demo searches with."""
    return encoder_for(DEFAULT_RETRIEVER, None, "cpu", "auto")


def examples_without_hints(encoder: Encoder, source: str, target: str) -> list[str]:
    """The subjects whose text gets no hint from the sample index."""
    retriever = open_retriever(
        DEFAULT_RETRIEVER,
        default_index(DEFAULT_RETRIEVER, target, encoder),
        encoder,
        source_language=source,
        target_language=target,
    )
    return [subject for subject in SUBJECTS if not any(retriever.retrieve(sentences(subject, source)))]


def test_every_subject_has_two_sentences_in_every_language() -> None:
    assert sorted(example_languages()) == LANGUAGES
    lengths = {(subject, code): len(sentences(subject, code)) for subject in SUBJECTS for code in LANGUAGES}
    assert [place for place, length in lengths.items() if length != 2] == []


@pytest.mark.parametrize("source", [code for code in LANGUAGES if code != "en"])
def test_every_example_into_english_has_hints(encoder: Encoder, source: str) -> None:
    assert examples_without_hints(encoder, source, "en") == []


@pytest.mark.slow
@pytest.mark.parametrize("target", [code for code in LANGUAGES if code != "en"])
def test_every_english_example_has_hints(encoder: Encoder, target: str) -> None:
    assert examples_without_hints(encoder, "en", target) == []
