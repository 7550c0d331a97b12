"""Right hints: known pairs, the places that count, and what is too frequent."""

from __future__ import annotations

import numpy as np

from finetune.lora.examples import Pair
from finetune.lora.references import right_hints
from rag_mt.base.types import Origin

TEXTS = ["We saw the old house.", "An old house stands here.", "Old wine", "A lake, a lake"]
FILLER = [f"Sentence number {n} has other words" for n in range(1000)]


class WordByWord:
    """An aligner that links the n-th words of both sides."""

    method, settings = "intersection", {}

    def align(self, pairs):
        return [
            np.stack([np.arange(min(len(s.split()), len(t.split())))] * 2, axis=1).astype(np.int32) for s, t in pairs
        ]


def pair(source: str, target: str) -> Pair:
    return Pair("de", "en", source, target, "news", Origin("x", 1))


def found(source: str, target: str, near=frozenset(), texts=TEXTS):
    (hints,) = right_hints([pair(source, target)], [near], [*texts, *FILLER], WordByWord())
    return [(h.source_span.of(source), h.phrase, h.hit.sentence.text, h.hit.score) for h in hints]


def test_the_longest_phrases_that_the_index_has() -> None:
    assert found("altes Haus brennt", "old house burns") == [("altes Haus", "old house", TEXTS[0], 1.0)]
    assert found("Rotes Haus", "Red house") == [("Haus", "house", TEXTS[0], 1.0)]
    assert found("nichts davon", "nothing like that") == []


def test_places_that_do_not_count() -> None:
    assert found("altes Haus", "Old House", near={0}) == [("altes Haus", "old house", TEXTS[1], 1.0)]
    assert found("altes Haus", "Old House", near={0, 1}) == [("altes", "Old", TEXTS[2], 1.0)]


def test_what_many_sentences_have_is_no_hint() -> None:
    assert found("der Satz", "the sentence", texts=["the cat"] * 20) == []
    assert found("der See", "the lake") == [("der", "the", TEXTS[0], 1.0), ("See", "lake", TEXTS[3], 1.0)]


def test_no_pairs() -> None:
    assert right_hints([], [], TEXTS, WordByWord()) == []
