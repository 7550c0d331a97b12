"""The retriever over a memory: the stored sentences that are most similar to what the translation will be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from rapidfuzz import fuzz, process

from rag_mt.base.types import Floats, Hint, Hit, Recalled, Sentence, Span
from rag_mt.text.words import terms_in
from retrievers.dense import IndexRetriever
from retrievers.index.search import Index, LeftOut
from retrievers.memory.features import Candidates, Gatherer
from retrievers.memory.similarity import Similarity
from retrievers.memory.units import KIND, MemoryUnits, language_difference

AT_ONCE = 64
"""Sentences of a block: each has some 60 candidates."""
LOOKED_AT = 12
"""The most similar candidates, of which those to show are chosen."""
MOST_HITS = 4
"""Hits of a sentence."""
LEAST_SIMILARITY = 0.2
"""Of the best hit, from which on hints are shown: nearly always, because the choice among several answers forgives
wrong ones (reports/domains-dev.md)."""
NEAR_COPY = 90.0
"""rapidfuzz's ratio, in percent, from which on a hit is a near copy of a more similar one."""


class MemoryRetriever(IndexRetriever):
    """Whole sentences that are similar to a draft and a source sentence (a DraftRetriever), at most MOST_HITS, by one
    similarity: the chrF that they are expected to have as the translation (see `Similarity`).

    They are shown where the best one is as similar as LEAST_SIMILARITY and one of them has a word that the draft does
    not have. Hits that are less similar than `cut_off` are dropped.
    """

    maker: MemoryUnits

    def __init__(
        self,
        name: str,
        index: Index,
        maker: MemoryUnits,
        source: str,
        similarity: Similarity,
        cut_off: float | None = None,
    ) -> None:
        super().__init__(name, index, maker, cut_off)
        self.source, self.similarity = source, similarity
        self._gatherer = Gatherer(index, source)

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change what is recalled, and whether it is shown."""
        return {
            **super().settings,
            "source": self.source,
            "similarity": {kind: model.as_dict() for kind, model in self.similarity.models.items()},
            "least similarity": LEAST_SIMILARITY,
        }

    def recall(
        self,
        sentences: Sequence[Sentence],
        drafts: Sequence[str],
        without: Sequence[LeftOut] | None = None,
    ) -> list[Recalled]:
        """For each sentence and its draft the hints, the most similar first, and whether they are shown. A blank draft
        is none: the sentence alone is searched by then. `without` is as in `retrieve`."""
        hints = self._hints([sentence.text for sentence in sentences], drafts, without)
        return [self._recalled(own, draft) for own, draft in zip(hints, drafts, strict=True)]

    @property
    def bilingual(self) -> bool:
        """Whether it knows of stored sentences what they translate."""
        return self.index.has_originals

    def known(self, sentences: Sequence[Sentence]) -> list[Hit | None]:
        """For each sentence a stored translation of just that sentence, spaces at its ends aside: the first
        one of several. Only a memory that was built from translations has any."""
        units = [self._known.get(sentence.text.strip()) for sentence in sentences]
        return [None if unit is None else self.index.hit(unit, 1.0) for unit in units]

    @cached_property
    def _known(self) -> dict[str, int]:
        """By what it translates, the number of a stored sentence."""
        if not self.bilingual:
            return {}
        units = np.arange(len(self.index)) if self.index.chosen is None else np.flatnonzero(self.index.chosen)
        units = units[::-1]  # of several translations the first one stays
        originals = zip(map(str.strip, self.index.originals(units)), units.tolist(), strict=True)
        return {original: unit for original, unit in originals if original}

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        return self._hints(texts, [""] * len(texts), without)

    def candidates(
        self, texts: Sequence[str], drafts: Sequence[str], without: Sequence[LeftOut] | None = None
    ) -> Candidates:
        """The stored sentences that may be similar, with their features; blank texts have none."""
        there = [n for n, text in enumerate(texts) if text.strip()]
        if not there:
            nothing = np.zeros(0, np.int64)
            return Candidates(nothing, nothing, [], {}, np.zeros(len(texts), bool))
        own, other = [texts[n] for n in there], [drafts[n] for n in there]
        asked = [draft if draft.strip() else text for text, draft in zip(own, other, strict=True)]
        vectors = self.maker.encoder.encode([*own, *asked], KIND)
        vectors[: len(own)] = self._turn(vectors[: len(own)])
        left_out = None if without is None else [without[n] for n in there]
        found = self._gatherer.gather(own, other, (vectors[: len(own)], vectors[len(own) :]), left_out)
        drafted = np.zeros(len(texts), bool)
        drafted[there] = found.drafted
        return Candidates(np.array(there)[found.rows], found.units, found.texts, found.features, drafted)

    @cached_property
    def _difference(self) -> Floats:
        """The mean vector of the source language less that of the memory's, of the same sentences in both."""
        return language_difference(self.maker.encoder, self.source, self.index.manifest.language)

    def _turn(self, vectors: Floats) -> Floats:
        """Vectors of the source language (n, dimension), as if they were of the memory's, of length 1."""
        turned = vectors - self._difference
        lengths = np.linalg.norm(turned, axis=1, keepdims=True)
        return np.asarray(turned / np.maximum(lengths, 1e-9), np.float32)

    def _hints(
        self, texts: Sequence[str], drafts: Sequence[str], without: Sequence[LeftOut] | None
    ) -> list[tuple[Hint, ...]]:
        """The hints of each text: the most similar candidates that are no near copies of each other."""
        hints: list[tuple[Hint, ...]] = []
        for begin in range(0, len(texts), AT_ONCE):
            part = slice(begin, begin + AT_ONCE)
            hints += self._hints_at_once(texts[part], drafts[part], None if without is None else without[part])
        return hints

    def _hints_at_once(
        self, texts: Sequence[str], drafts: Sequence[str], without: Sequence[LeftOut] | None
    ) -> list[tuple[Hint, ...]]:
        """Those of a block of texts."""
        found = self.candidates(texts, drafts, without)
        scores = self.similarity.of(found)
        order = np.lexsort((found.units, -scores, found.rows))
        bounds = np.searchsorted(found.rows[order], np.arange(len(texts) + 1)).tolist()
        hints = []
        for number, text in enumerate(texts):
            best = order[bounds[number] : bounds[number + 1]][:LOOKED_AT]
            best = best[self._trusted(scores[best], found.units[best])]
            chosen = best[_apart([found.texts[n] for n in best.tolist()])].tolist()
            whole = Span(0, len(text))
            hints.append(tuple(Hint(whole, self.index.hit(int(found.units[n]), float(scores[n]))) for n in chosen))
        return hints

    def _recalled(self, hints: tuple[Hint, ...], draft: str) -> Recalled:
        """What was recalled for a draft, and whether it is shown."""
        language = self.index.manifest.language
        similar = bool(hints) and hints[0].hit.score >= LEAST_SIMILARITY
        return Recalled(hints, similar and any(says_new(hint.phrase, draft, language) for hint in hints))


def _apart(texts: Sequence[str]) -> list[int]:
    """The numbers of the first texts, at most MOST_HITS, of which none is a near copy of an earlier one."""
    if not texts:
        return []
    alike = process.cdist(texts, texts, scorer=fuzz.ratio, dtype=np.float32) >= NEAR_COPY
    chosen: list[int] = []
    for number in range(len(texts)):
        if len(chosen) < MOST_HITS and not alike[number, chosen].any():
            chosen.append(number)
    return chosen


def says_new(hit: str, draft: str, language: str) -> bool:
    """Whether a hit has a word, ends cut off, that a draft in the same language does not have."""
    terms = terms_in(language)
    return not set(terms.of(hit)) <= set(terms.of(draft))
