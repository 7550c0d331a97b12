"""Sentences of an index that give a reference away are found, and hints never come from them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest.mock import patch
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetune.lora import hints as lora_hints
from finetune.lora.config import DataConfig
from finetune.lora.examples import Pair
from finetune.lora.hints import Indexes, retrieved
from finetune.lora.references import nearly_equal, nearly_equal_sentences
from rag_mt.base.types import Sentence, TokenStates
from rag_mt.text.words import word_spans
from retrievers.registry import build_for

SENTENCE = "The city council has decided to build a new bridge over the river."


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (SENTENCE, True),
        ("the city council has decided to build a new bridge over the river", True),
        ("The city council has decided to build a new tunnel over the river .", True),
        (f"{SENTENCE} Work begins in spring, and it will take at least three years to finish.", True),
        ("council has decided to build a new", True),
        ("The city council has decided to close the school.", False),
        ("a new bridge", False),
        ("", False),
    ],
)
def test_what_is_nearly_equal(other, alike):
    assert nearly_equal(SENTENCE, other) is alike
    assert nearly_equal(other, SENTENCE) is alike


WORDS = st.lists(st.sampled_from("abcdefghijklmn"), min_size=1, max_size=12)
TEXTS = st.lists(WORDS.map(" ".join), min_size=1, max_size=12)


@given(TEXTS, TEXTS)
@settings(max_examples=150)
def test_one_pass_finds_what_comparing_all_pairs_finds(targets, sentences):
    wanted = [[n for n, text in enumerate(sentences) if nearly_equal(target, text)] for target in targets]
    assert nearly_equal_sentences(targets, sentences) == wanted


class WordEncoder:
    """Vectors of words and texts that depend on these alone, so that an equal sentence is always the nearest."""

    id, fingerprint, dimension, hidden, layers = "words", "w1", 16, 8, 3

    def encode(self, texts, kind="query"):
        return np.array([seeded(text, self.dimension) for text in texts], np.float32).reshape(-1, self.dimension)

    def states(self, texts, layer):
        for text in texts:
            spans = word_spans(text)
            rows = [seeded(text[a:b], self.hidden) for a, b in spans.tolist()]
            yield TokenStates(np.array(rows, np.float32).reshape(-1, self.hidden), spans)


def seeded(text, width):
    vector = np.random.default_rng(crc32(text.encode())).standard_normal(width).astype(np.float32)
    return vector / np.linalg.norm(vector)


@pytest.fixture(scope="module", autouse=True)
def fake_encoder():
    with patch.object(lora_hints, "encoder_for", lambda *_: WordEncoder()):
        yield


def hints_of(folder, retriever, targets, sentences):
    """The hints for targets that are their own sources, so that the index would answer with the reference itself."""
    build_for(retriever, folder, [Sentence(t, "en") for t in sentences], WordEncoder(), "en", show=False)
    pairs = [Pair("de", "en", target, target) for target in targets]
    indexes = Indexes({"en": folder}, "sentence" if retriever == "sentence" else "phrase")
    return retrieved(pairs, indexes, DataConfig())


@pytest.mark.parametrize("retriever", ["sentence", "phrases"])
@given(TEXTS, TEXTS)
@settings(max_examples=25)
def test_no_hint_comes_from_the_own_target(retriever, targets, others):
    with tempfile.TemporaryDirectory() as place:
        found = hints_of(Path(place) / "index", retriever, targets, [*targets, *others])
        for target, hints, left_out in zip(targets, found.hints, found.left_out, strict=True):
            assert left_out >= 1
            assert not any(nearly_equal(target, hint.hit.sentence.text) for hint in hints)


def test_other_sentences_are_found_as_before(tmp_path):
    """Without the leaving out the test above would fail; and what is not left out is still there."""
    targets, others = ["a b c d e f", "g h i j k l"], ["a b c x y z"]
    found = hints_of(tmp_path / "index", "phrases", targets, [*targets, *others])
    assert found.left_out == [1, 1]
    phrases = {hint.phrase for hint in found.hints[0] if hint.hit.sentence.text == others[0]}
    assert phrases & {"a", "b", "c", "a b", "b c", "a b c"}
    with patch.object(lora_hints, "nearly_equal_sentences", lambda targets, *_: [[] for _ in targets]):
        shown = hints_of(tmp_path / "again", "phrases", targets, [*targets, *others])
    assert any(hint.hit.sentence.text == targets[0] for hint in shown.hints[0])
