"""Similar sentences elsewhere in a text, as hints for training, found without a look at the translation to be learnt.

Of the pairs of the same text that are not too near, those are taken whose source sides are most like the source: BM25
proposes some, the share of characters in common order ranks them. Their target sides are the hints,
as good as the text allows; what has the very target of the pair is left out. The similarity that a hint shows is the
chrF that hints with such a source side have on average against the reference, the scale of `retrievers.memory`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from retrievers.bm25 import Bm25
from retrievers.memory.features import similar
from retrievers.memory.overlap import overlaps

CANDIDATES = 12
"""Pairs that BM25 proposes for each pair."""
BINS = 12
"""Of hits by their likeness, for the scale."""
SURE = 0.9
"""The least similarity of an equal source side."""


class Similar(NamedTuple):
    """A pair of the same text: its row in the corpus, and how much its source side is like the source (0 to 1)."""

    row: int
    likeness: float


def similar_rows(
    queries: Sequence[int], rows: Sequence[int], sources: Sequence[str], targets: Sequence[str], code: str, apart: int
) -> list[list[Similar]]:
    """For each row of `queries` those of `rows`, at least `apart` rows away, with the most similar sources (in the
    language `code`), the most similar first."""
    if not rows:
        return [[] for _ in queries]
    places: NDArray[np.int64] = np.asarray(rows)
    index = Bm25.build((sources[row] for row in rows), code)
    near = [np.flatnonzero(np.abs(places - row) < max(apart, 1)).tolist() for row in queries]
    _, best = index.top(index.queries([sources[row] for row in queries], code), CANDIDATES, near)
    found = []
    for row, candidates in zip(queries, best, strict=True):
        others = [other for other in places[candidates[candidates >= 0]].tolist() if targets[other] != targets[row]]
        likeness = similar([sources[row]] * len(others), [sources[other] for other in others]).tolist()
        found.append(sorted(map(Similar, others, likeness), key=lambda hit: (-hit.likeness, hit.row)))
    return found


@dataclass(frozen=True)
class Scale:
    """The similarity of hits by the likeness of their source sides, linear between these points."""

    likeness: Floats
    similarity: Floats

    def of(self, likeness: float) -> float:
        return float(np.interp(likeness, self.likeness, self.similarity))


def scale_of(likeness: Sequence[float], hits: Sequence[str], references: Sequence[str]) -> Scale:
    """The mean chrF (0 to 1) of so many hits against their references, in bins of equal size by likeness; it never
    falls. Without hits the similarity is the likeness."""
    values, scores = np.asarray(likeness), overlaps(hits, references).chrf()
    bins = [part for part in np.array_split(np.argsort(values, kind="stable"), BINS) if len(part)]
    points = [(0.0, 0.0)] if not bins else [(values[part].mean(), scores[part].mean()) for part in bins]
    x, y = np.array([*points, (1.0, max(points[-1][1], SURE))], np.float32).T
    return Scale(x, np.maximum.accumulate(y))
