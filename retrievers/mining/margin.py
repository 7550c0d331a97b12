"""How far a pair of sentences stands out among their neighbours, and which pairs to take.

The score is the ratio margin of Artetxe and Schwenk (2019), equation 5 of the mDPR paper: the cosine of two sentences
over the mean cosine of each one's `k` nearest sentences of the other side,

    score(x, y) = cos(x, y) / (sum over NN_k(x) of cos(x, z) / 2k + sum over NN_k(y) of cos(y, z) / 2k).

A cosine alone would favour sentences that are near to everything. No step loops over sentences in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from retrievers.mining.neighbours import Neighbours

Strategy = Literal["max", "intersection", "forward", "backward"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

SMALLEST_MEAN = 1e-6
"""A mean cosine below this counts as this: vectors of two sides that point away from each other have no ratio."""

_FIELDS = ("sources", "targets", "scores")

Scoring = Callable[[Floats, Floats, Floats], Floats]
"""Cosines of pairs and, for both of their sentences, the mean cosine of the neighbours, to scores."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """Sentence pairs, best first: numbers in both sides, int64 (pairs,), and scores, float32 (pairs,)."""

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    scores: Floats

    def __len__(self) -> int:
        return len(self.scores)

    def at_least(self, threshold: float) -> Pairs:
        """The pairs that score at least that."""
        return self.where(self.scores >= np.float32(threshold))

    def where(self, kept: NDArray[np.bool_]) -> Pairs:
        """Some of the pairs, in their order."""
        return Pairs(self.sources[kept], self.targets[kept], self.scores[kept])


def ratio(cosines: Floats, source_means: Floats, target_means: Floats) -> Floats:
    """The ratio margin of pairs."""
    return (cosines / np.maximum((source_means + target_means) / 2, SMALLEST_MEAN)).astype(np.float32)


def absolute(cosines: Floats, source_means: Floats, target_means: Floats) -> Floats:
    """The cosine itself: what the margin is compared with."""
    return cosines


def mined(forward: Neighbours, backward: Neighbours, strategy: Strategy = "max", scoring: Scoring = ratio) -> Pairs:
    """One-to-one pairs of the two sides, best first.

    `forward` are the neighbours of each source sentence, `backward` those of each target sentence. A sentence's
    candidate is the neighbour that it scores highest with. `forward` and `backward` take the candidates of one side,
    `intersection` those that both sides agree on, and `max` all of both; of pairs that share a sentence the one with
    the higher score wins, of equal ones that with the lower numbers.
    """
    means = (_means(forward), _means(backward))
    ahead = _candidates(forward, means, scoring)
    back = _candidates(backward, means[::-1], scoring)
    back = Pairs(back.targets, back.sources, back.scores)
    match strategy:
        case "forward":
            found = ahead
        case "backward":
            found = back
        case "intersection":
            best = np.full(len(backward.ids), -1, dtype=np.int64)
            best[back.targets] = back.sources
            found = ahead.where(best[ahead.targets] == ahead.sources)
        case "max":
            found = _united(ahead, back)
    return one_to_one(found)


def _means(own: Neighbours) -> Floats:
    """The mean cosine of each sentence's neighbours; an approximate search may have found fewer than it was to."""
    there = own.ids >= 0
    means: Floats = np.where(there, own.scores, 0).sum(axis=1) / np.maximum(there.sum(axis=1), 1).astype(np.float32)
    return means


def _candidates(own: Neighbours, means: tuple[Floats, Floats], scoring: Scoring) -> Pairs:
    """Each sentence that has a neighbour with the one it scores highest with, in the order of the sentences."""
    if not own.ids.size:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    scores = np.where(own.ids < 0, -np.inf, scoring(own.scores, means[0][:, None], means[1][own.ids]))
    numbers = np.arange(len(own.ids), dtype=np.int64)
    best = scores.argmax(axis=1)
    pairs = Pairs(numbers, own.ids[numbers, best], scores[numbers, best].astype(np.float32))
    return pairs.where(pairs.targets >= 0)


def _united(ahead: Pairs, back: Pairs) -> Pairs:
    """The pairs of both, each once (with the score that it has in `ahead`: they differ by rounding alone)."""
    sources = np.concatenate([ahead.sources, back.sources])
    targets = np.concatenate([ahead.targets, back.targets])
    scores = np.concatenate([ahead.scores, back.scores])
    width = targets.max(initial=0) + 1
    first = np.unique(sources * width + targets, return_index=True)[1]
    return Pairs(sources[first], targets[first], scores[first])


def one_to_one(pairs: Pairs) -> Pairs:
    """The pairs that remain when the best is taken, all others with its sentences are dropped, and so on.

    Whole rounds at a time: a pair that is the best of both its sentences is taken whatever happens to the others.
    """
    left = _sorted(pairs.sources, pairs.targets, pairs.scores)
    taken: list[Pairs] = []
    while len(left):
        best = _first(left.sources) & _first(left.targets)
        chosen = left.where(best)
        taken.append(chosen)
        left = left.where(~np.isin(left.sources, chosen.sources) & ~np.isin(left.targets, chosen.targets))
    if not taken:
        return left
    return _sorted(*(np.concatenate([getattr(part, name) for part in taken]) for name in _FIELDS))


def _sorted(sources: NDArray[np.int64], targets: NDArray[np.int64], scores: Floats) -> Pairs:
    """The pairs, best first, equal scores by their numbers."""
    order = np.lexsort((targets, sources, -scores))
    return Pairs(sources[order], targets[order], scores[order])


def _first(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each number stands at its first place."""
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first
