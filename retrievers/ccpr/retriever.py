"""The retriever of CCPR: the phrases of a sentence, the nearest phrase of the index for each, and what to trust."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Floats, Hint, Hit, Span
from rag_mt.text.words import surface, words_in
from retrievers.ccpr.confidence import Confidence
from retrievers.ccpr.features import CHANCE, back_features, joint_features, search_features, string_features
from retrievers.ccpr.units import CcprUnits
from retrievers.dense import MAX_HINTS, IndexRetriever, Searched, search_each
from retrievers.index.index import Index, LeftOut
from retrievers.overlap import best_apart
from retrievers.units.phrases import MAX_WORDS

Segmentation = Literal["learned", "ngrams"]
"""Which spans of a sentence are looked up: those that the segmentation head sees, or all of up to four words."""

NEIGHBOURS = 10
"""Hits that are looked at for each phrase: the best one and those it is compared with."""

ALL = -1.0
"""A threshold below every probability."""

ALONE = 0.5
"""The weight of a phrase's vector out of context, that in context having 1. Chosen on development data: 1 finds a
little more in an index of other text, and much less where the translation itself is in the index."""


@dataclass(frozen=True)
class Candidates:
    """All spans of some texts with their vectors, int32 (spans, 3) and (spans, dimension), ordered by text, start and
    end; `chances`, the probability that each is a phrase, or None; the rows `asked` that are looked up, and the vectors
    they are looked up by, (asked, dimension), or None for those that they have."""

    spans: NDArray[np.int32]
    vectors: Floats
    chances: Floats | None
    asked: NDArray[np.int64]
    by: Floats | None = None

    @property
    def queries(self) -> Floats:
        """The vectors (asked, dimension) to search with."""
        return self.vectors[self.asked] if self.by is None else self.by


@dataclass(frozen=True)
class Answers:
    """The best hit of each phrase that was looked up and found something: `spans` int32 (n, 3) text number, start, end;
    `hits`, with the score of the search; `features` by name, arrays (n,); `unlike` (n,), numbers that differ."""

    spans: NDArray[np.int32]
    hits: tuple[Hit, ...]
    features: dict[str, Floats]
    unlike: NDArray[np.bool_]

    def take(self, rows: NDArray[np.int64]) -> Answers:
        """Those answers."""
        features = {name: own[rows] for name, own in self.features.items()}
        return Answers(self.spans[rows], tuple(self.hits[n] for n in rows.tolist()), features, self.unlike[rows])


class CcprRetriever(IndexRetriever):
    """The phrases of a sentence that the `segmentation` asks for, each with its best hit.

    The score of a hit is the confidence in it, from 0 to 1: the probability that it translates the phrase (see
    `Confidence`). Hits below `cut_off`, and hits with other numbers than the phrase, are not shown. Of hits of the same
    surface the one with the highest similarity counts. Source spans of hints do not overlap.
    """

    maker: CcprUnits
    segmentation: Segmentation = "learned"

    def __init__(
        self, name: str, index: Index, maker: CcprUnits, confidence: Confidence, cut_off: float | None = None
    ) -> None:
        super().__init__(name, index, maker, confidence.minimum if cut_off is None else cut_off)
        self.confidence = confidence

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that could change the hints of a sentence."""
        confidence = settings_hash(asdict(self.confidence))
        return {**super().settings, "segmentation": self.segmentation, "confidence": confidence}

    def _block(self, texts: Sequence[str], without: Sequence[LeftOut] | None) -> list[tuple[Hint, ...]]:
        found = answers(self.index, texts, candidates(self.maker, texts, self.segmentation), without)
        trust = self.confidence.of(found.features, found.unlike)
        kept = np.flatnonzero((trust > 0) & (trust >= (self.cut_off or 0)))
        bounds = np.searchsorted(found.spans[kept, 0], np.arange(len(texts) + 1)).tolist()
        hints = []
        for low, high in pairwise(bounds):
            own = kept[low:high]
            best = own[best_apart(found.spans[own, 1], found.spans[own, 2], trust[own], MAX_HINTS)]
            hints.append(tuple(_hint(found, row, float(trust[row])) for row in best.tolist()))
        return hints


def _hint(found: Answers, row: int, confidence: float) -> Hint:
    hit = found.hits[row]
    return Hint(Span(*found.spans[row, 1:].tolist()), Hit(hit.sentence, hit.span, confidence))


def candidates(
    maker: CcprUnits, texts: Sequence[str], segmentation: Segmentation = "learned", threshold: float | None = None
) -> Candidates:
    """All spans of the texts; asked are those of the segmentation (learned: above a threshold, by default the maker's
    for queries), by what they mean in their sentence and by themselves (see `with_themselves`)."""
    vectors, spans, chances = maker.scored(texts, ALL)
    least = maker.thresholds["query"] if threshold is None else threshold
    asked = np.flatnonzero(chances > least if segmentation == "learned" else words_in(texts, spans) <= MAX_WORDS)
    return Candidates(spans, vectors, chances, asked, with_themselves(maker, texts, spans[asked], vectors[asked]))


def with_themselves(maker: CcprUnits, texts: Sequence[str], spans: NDArray[np.int32], vectors: Floats) -> Floats:
    """The vectors (spans, dimension) of phrases with a share of those added that they have when they are read as a text
    of their own, of the length that the model gives all vectors.

    In context alone the nearest phrase is often one with another meaning from a like sentence: an index of other text
    has the word, but seldom in the same context.
    """
    phrases = [texts[n][a:b] for n, a, b in spans.tolist()]
    rows = {phrase: row for row, phrase in enumerate(dict.fromkeys(phrases))}
    whole = np.array([(row, 0, len(phrase)) for phrase, row in rows.items()], np.int32).reshape(-1, 3)
    alone = maker.span_vectors(list(rows), whole)
    mixed = vectors + ALONE * alone[[rows[phrase] for phrase in phrases]] if rows else vectors
    normalised = maker.encoder.heads.settings.normalised
    lengths = np.maximum(np.linalg.norm(mixed, axis=1, keepdims=True), 1e-9) if normalised else 1 + ALONE
    return (mixed / lengths).astype(np.float32, copy=False)


def answers(
    index: Searched,
    texts: Sequence[str],
    asked: Candidates,
    without: Sequence[LeftOut] | None = None,
    k: int = NEIGHBOURS,
) -> Answers:
    """Look up what is asked and describe the best hit of each; phrases without any hit are left out.

    `without[i]` is what is left out of the index for text i.
    """
    bounds = np.searchsorted(asked.spans[asked.asked, 0], np.arange(len(texts) + 1))
    scores, ids = search_each(index, asked.queries, bounds, k, without)
    return described(index, texts, asked, scores, ids)


def described(
    index: Searched, texts: Sequence[str], asked: Candidates, scores: Floats, ids: NDArray[np.int64]
) -> Answers:
    """The best hits among `ids` (asked, k), best first, -1 where there is none, with their features."""
    there = np.flatnonzero(ids[:, 0] >= 0)
    rows, scores, ids = asked.asked[there], scores[there], ids[there]
    units, places = np.unique(ids, return_inverse=True)
    known = {unit: index.hit(unit, 0.0) for unit in units.tolist() if unit >= 0}
    numbers: dict[str, int] = {}
    surfaces = np.array(
        [-1 if u < 0 else numbers.setdefault(surface(known[u].text), len(numbers)) for u in units.tolist()], np.int64
    )[places.reshape(ids.shape)]
    hits = tuple(
        Hit(known[unit].sentence, known[unit].span, score)
        for unit, score in zip(ids[:, 0].tolist(), scores[:, 0].tolist(), strict=True)
    )
    spans = asked.spans[rows]
    queries = [(texts[n], a, b) for n, a, b in spans.tolist()]
    letters, unlike = string_features(queries, [(h.sentence.text, h.span.start, h.span.end) for h in hits])
    features = search_features(scores, surfaces) | letters
    features |= back_features(index.reconstruct(ids[:, 0]), rows, asked.vectors, asked.spans)
    features |= joint_features(features)
    if asked.chances is not None:
        chance = np.clip(asked.chances[rows].astype(np.float64), 1e-6, 1 - 1e-6)
        features[CHANCE] = np.log(chance / (1 - chance)).astype(np.float32)
    return Answers(spans, hits, features, unlike)
