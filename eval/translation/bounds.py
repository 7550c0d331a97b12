"""Hints that show what hints can do: none of the sentence's own, all of them right, or the retrieved ones without the
sentence's own translation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from eval.data.phrase_pairs import Frequent, all_phrase_pairs
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Hint, Hit, Origin, Retriever, Sentence, Span, Unit
from retrievers.dense import MAX_HINTS, IndexRetriever, longest_apart
from retrievers.encoders.alignment import Links
from retrievers.index.search import Index

REFERENCE = "reference"


class Shuffled:
    """Another retriever's hints, each sentence with those of others (a Retriever); see `shuffled`."""

    def __init__(self, retriever: Retriever, seed: int) -> None:
        self.name, self.unit = retriever.name, retriever.unit
        self.settings: Mapping[str, Any] = {**retriever.settings, "shuffled": seed}
        self._retriever, self._seed = retriever, seed

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """For each sentence as many hints as its own, for the same parts of it."""
        return shuffled(self._retriever.retrieve(sentences), self._seed)


def shuffled(hints: Sequence[Sequence[Hint]], seed: int) -> list[tuple[Hint, ...]]:
    """The source spans of each sentence with the hits of other sentences.

    The sentences are put into a random order that depends on the seed and their number; a sentence gets the hits of
    those that follow it there, as many as it has spans. Only if all others together have fewer does it get fewer.
    """
    order = np.random.default_rng(seed).permutation(len(hints)).tolist()
    hits = [hint.hit for n in order for hint in hints[n]]
    made: list[tuple[Hint, ...]] = [()] * len(hints)
    end = 0
    for n in order:
        own = hints[n]
        end += len(own)
        count = min(len(own), len(hits) - len(own))
        made[n] = tuple(Hint(own[i].source_span, hits[(end + i) % len(hits)]) for i in range(count))
    return made


class Fixed:
    """Hints that are known before (a Retriever): those of the sentence whose origin has that line."""

    def __init__(self, name: str, hints: Mapping[int, tuple[Hint, ...]]) -> None:
        self.name = name
        self.unit: Unit = "phrase"
        self.settings: Mapping[str, Any] = {"hints": settings_hash(sorted(hints.items()))}
        self._hints = hints

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """The hints of each sentence, in order."""
        return [self._hints[s.source.line] for s in sentences]


def oracle_hints(
    sources: Sequence[str], references: Sequence[str], links: Sequence[Links], language: str, max_words: int
) -> list[tuple[Hint, ...]]:
    """Phrases cut from the references, for the parts of the sources that they are aligned with.

    Of all consistent pairs of spans of at most `max_words` words (Koehn, Och and Marcu 2003) the longest that do not
    overlap are taken. The context of a hint is the phrase alone: the rest of the reference is not shown.
    """
    made = []
    pairs = all_phrase_pairs(sources, references, links, Frequent(), max_words)
    for reference, own in zip(references, pairs, strict=True):
        rows = own[longest_apart(own[:, 0], own[:, 1], MAX_HINTS)].tolist()
        made.append(tuple(Hint(Span(a, b), _whole(reference[c:d], language)) for a, b, c, d in rows))
    return made


def _whole(phrase: str, language: str) -> Hit:
    return Hit(Sentence(phrase, language, Origin(REFERENCE)), Span(0, len(phrase)), 1.0)


class WithoutReferences:
    """A retriever over an index that holds the references, as if each sentence's own were not there (a Retriever)."""

    def __init__(self, retriever: IndexRetriever, references: Sequence[str]) -> None:
        """`references[i]` is that of the sentence whose origin has the line i + 1."""
        self.name, self.unit = retriever.name, retriever.unit
        self.settings: Mapping[str, Any] = {**retriever.settings, "without": settings_hash(list(references))}
        self._retriever = retriever
        index = retriever.index
        assert isinstance(index, Index)
        places: dict[str, list[int]] = {}
        for number in range(index.manifest.sentences):
            places.setdefault(index.sentence(number).text, []).append(number)
        self._places = [places.get(text, []) for text in references]

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """For each sentence its hints, strongest first."""
        return self._retriever.retrieve(sentences, [self._places[s.source.line - 1] for s in sentences])
