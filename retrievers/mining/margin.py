"""Which sentences of two sides are pairs: their nearest neighbours, how far a pair stands out among them, and the
score from which it is taken to be a translation.

The score is the ratio margin of Artetxe and Schwenk (2019), equation 5 of the mDPR paper: the cosine of two sentences
over the mean cosine of each one's `k` nearest sentences of the other side,

    score(x, y) = cos(x, y) / (sum over NN_k(x) of cos(x, z) / 2k + sum over NN_k(y) of cos(y, z) / 2k).

A cosine alone would favour sentences that are near to everything. No step loops over sentences in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import faiss
import numpy as np
from numpy.typing import NDArray

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code
from rag_mt.base.types import Floats
from retrievers.index.search import Index

Strategy = Literal["max", "intersection", "forward", "backward"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

QUERY_BLOCK = 1 << 14
BASE_BLOCK = 1 << 16
"""Vectors that are held at once: 100 MB of float32 at 384 dimensions."""
SMALLEST_MEAN = 1e-6
"""A mean cosine below this counts as this: vectors of two sides that point away from each other have no ratio."""
FILE = Path(__file__).with_name("thresholds.toml")

Side = NDArray[np.float16] | Floats | Index
"""The vectors of a side, of length 1: an array (sentences, dimension), maybe mapped from a file, or an index."""
Scoring = Callable[[Floats, Floats, Floats], Floats]
"""Cosines of pairs and, for both of their sentences, the mean cosine of the neighbours, to scores."""


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For every sentence of a side its nearest ones of the other side, best first: `scores` are cosines, `ids` numbers
    (-1 where an approximate search found fewer), both (sentences, k)."""

    scores: Floats
    ids: NDArray[np.int64]

    def first(self, k: int) -> Neighbours:
        """The `k` nearest alone."""
        return Neighbours(self.scores[:, :k], self.ids[:, :k])


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

    def where(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Pairs:
        """Some of the pairs, by a mask or by their numbers."""
        return Pairs(self.sources[rows], self.targets[rows], self.scores[rows])


@dataclass(frozen=True)
class Threshold:
    """A threshold of the ratio margin over `neighbours` neighbours; `origin` says in words what it was tuned on."""

    score: float
    neighbours: int
    origin: str


UNTUNED = Threshold(
    1.04, 4, "the value of WikiMatrix for LASER (Schwenk et al. 2021), not tuned for this encoder: look at the pairs"
)
"""Where nothing is known of an encoder. A threshold belongs to an encoder: this one is a place to begin at."""


def known_threshold(encoder: str, source: str, target: str, file: Path = FILE) -> Threshold:
    """The threshold for an encoder: that of the language that is paired with English, else its strictest one; UNTUNED
    for an encoder that has none."""
    known = read_toml(file, "table of thresholds", file.name).get(encoder)
    if known is None:
        return UNTUNED
    scores: dict[str, float] = known["scores"]
    codes = (base_code(source), base_code(target))
    tuned = [code for code in codes if code in scores and "en" in codes]
    code = tuned[0] if tuned else max(scores, key=lambda c: scores[c])
    return Threshold(scores[code], known["neighbours"], f"tuned on {code}-en: {known['origin']}")


def nearest(queries: Side, base: Side, k: int, advance: Callable[[int], object] = lambda n: None) -> Neighbours:
    """The `k` nearest sentences of `base` (all, if it has fewer) for every sentence of `queries`, in bounded memory.

    Sides are compared in full, block by block, as matrix products; an index of the IVF form is searched by its lists
    instead, which finds nearly all of what is there. `advance` is told of the sentences that are done; for a base of
    several blocks, of the share that is.
    """
    k = min(k, len(base))
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    ids = np.full((len(queries), k), -1, dtype=np.int64)
    if isinstance(base, Index) and base.manifest.ivf is not None:
        for rows in _blocks(len(queries), QUERY_BLOCK):
            scores[rows], ids[rows] = base.search(_vectors(queries, rows), k)
            advance(rows.stop - rows.start)
        return Neighbours(scores, ids)
    done = 0
    for part in _blocks(len(base), BASE_BLOCK):
        vectors = _vectors(base, part)
        for rows in _blocks(len(queries), QUERY_BLOCK):
            cosines, numbers = faiss.knn(
                _vectors(queries, rows), vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT
            )
            # The best of this block and of the earlier ones, equal scores by lowest number.
            cosines = np.concatenate([scores[rows], cosines], axis=1)
            numbers = np.concatenate([ids[rows], numbers + part.start], axis=1)
            order = np.lexsort((numbers, -cosines), axis=-1)[:, :k]
            scores[rows] = np.take_along_axis(cosines, order, axis=1)
            ids[rows] = np.take_along_axis(numbers, order, axis=1)
            compared = (part.start * len(queries) + len(vectors) * rows.stop) // len(base)
            advance(compared - done)
            done = compared
    return Neighbours(scores, ids)


def _blocks(length: int, size: int) -> Iterator[slice]:
    return (slice(begin, min(begin + size, length)) for begin in range(0, length, size))


def _vectors(side: Side, rows: slice) -> Floats:
    """Float32 (rows, dimension)."""
    if isinstance(side, Index):
        return side.reconstruct(np.arange(rows.start, rows.stop))
    return side[rows].astype(np.float32)


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
    source_means, target_means = mean_cosines(forward), mean_cosines(backward)
    ahead = _candidates(forward, source_means, target_means, scoring)
    back = _candidates(backward, target_means, source_means, scoring)
    back = Pairs(back.targets, back.sources, back.scores)
    if strategy == "forward":
        return one_to_one(ahead)
    if strategy == "backward":
        return one_to_one(back)
    codes, back_codes = (pairs.sources * len(backward.ids) + pairs.targets for pairs in (ahead, back))
    if strategy == "intersection":
        return one_to_one(ahead.where(np.isin(codes, back_codes)))
    new = back.where(~np.isin(back_codes, codes))  # the scores of a pair in both differ by rounding alone
    sources, targets = np.append(ahead.sources, new.sources), np.append(ahead.targets, new.targets)
    return one_to_one(Pairs(sources, targets, np.append(ahead.scores, new.scores)))


def mean_cosines(neighbours: Neighbours) -> Floats:
    """The mean cosine of each sentence's neighbours, of those that were found."""
    there = neighbours.ids >= 0
    counts = np.maximum(there.sum(axis=1), 1).astype(np.float32)
    means: Floats = np.where(there, neighbours.scores, 0).sum(axis=1) / counts
    return means


def _candidates(neighbours: Neighbours, own_means: Floats, other_means: Floats, scoring: Scoring) -> Pairs:
    """Each sentence that has a neighbour with the one it scores highest with, in the order of the sentences."""
    if not neighbours.ids.size:
        return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.float32))
    scores = scoring(neighbours.scores, own_means[:, None], other_means[neighbours.ids])
    scores = np.where(neighbours.ids < 0, -np.inf, scores)
    numbers = np.arange(len(scores), dtype=np.int64)
    best = scores.argmax(axis=1)
    pairs = Pairs(numbers, neighbours.ids[numbers, best], scores[numbers, best].astype(np.float32))
    return pairs.where(pairs.targets >= 0)


def one_to_one(pairs: Pairs) -> Pairs:
    """The pairs that remain when the best is taken, all others with its sentences are dropped, and so on.

    Whole rounds at a time: a pair that is the best of both its sentences is taken whatever happens to the others.
    """
    pairs = pairs.where(np.lexsort((pairs.targets, pairs.sources, -pairs.scores)))
    taken = np.zeros(len(pairs), dtype=bool)
    left = np.arange(len(pairs))
    while len(left):
        sources, targets = pairs.sources[left], pairs.targets[left]
        best = left[_first(sources) & _first(targets)]
        taken[best] = True
        left = left[~np.isin(sources, pairs.sources[best]) & ~np.isin(targets, pairs.targets[best])]
    return pairs.where(taken)


def _first(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each number stands at its first place."""
    first = np.zeros(len(numbers), dtype=bool)
    first[np.unique(numbers, return_index=True)[1]] = True
    return first
