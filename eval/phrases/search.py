"""Exact search while the candidates stream by: the best of distinct surfaces for each query, in bounded memory.

Blocks of candidates are screened by a bfloat16 product, and what may be among a query's best is scored again in
float32. The screen drops nothing that the float32 scores would keep, so that the results are those of a float32 search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.types import Floats

QUERIES_AT_ONCE = 4096
CANDIDATES_AT_ONCE = 8192
FIRST_CANDIDATES = 64
"""The first parts are small and double: what passes before the bar is high stays little."""
GROUP = 32
"""Scores that are compared with the bar by their maximum first."""
PAIRS_AT_ONCE = 1 << 16

# Two factors, each rounded to 8 bits, are off by 2 * 2^-8 of the product at most; by Cauchy-Schwarz the sum is too. The
# rest is for float32 sums and for the bar, which is rounded as well.
SCREEN_ERROR = 2**-7 * 1.05


@dataclass(frozen=True)
class Found:
    """Per query its best candidates of distinct surface, best first, all arrays (queries, k).

    `surfaces` and `numbers` are those given with the candidates; `numbers` is -1 where there are fewer than k.
    """

    scores: Floats
    surfaces: NDArray[np.int64]
    numbers: NDArray[np.int64]


class TopSurfaces:
    """The `k` candidates of greatest inner product and distinct surface for each of `queries` (n, dimension).

    Of the candidates of one surface the best one counts, of equal scores that with the lowest number.
    """

    def __init__(self, queries: Floats, k: int = 10, device: str | torch.device = "cpu") -> None:
        self.k = k
        self.seen = 0
        self._queries = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32)).to(device)
        self._norms = self._queries.norm(dim=1)
        self._bars = torch.full((len(queries),), -torch.inf, device=self._queries.device)
        # With the candidates' mean taken off them, the error of the screen shrinks with what is left of their length.
        self._centre = torch.zeros(self._queries.shape[1], device=self._queries.device)
        self._screen = self._queries.bfloat16()
        self._best = _Pairs.none()
        self._waiting: list[_Pairs] = []

    def add(self, vectors: Floats, surfaces: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """See candidates: vectors (n, dimension), a number for each surface, and a number for each candidate."""
        begin = 0
        while begin < len(vectors):
            size = min(CANDIDATES_AT_ONCE, max(FIRST_CANDIDATES, self.seen))
            part = slice(begin, begin + size)
            candidates = torch.from_numpy(vectors[part]).to(self._queries.device)
            if not self.seen:
                self._centre = candidates.mean(dim=0)
            self._see(candidates, surfaces[part], numbers[part])
            self.seen += len(candidates)
            begin += size

    def found(self) -> Found:
        """The best of all candidates seen so far."""
        self._merge()
        best, shape = self._best, (len(self._queries), self.k)
        scores = np.full(shape, -np.inf, dtype=np.float32)
        surfaces, numbers = np.full(shape, -1, dtype=np.int64), np.full(shape, -1, dtype=np.int64)
        at = best.queries, _ranks(best.queries)
        scores[at], surfaces[at], numbers[at] = best.scores, best.surfaces, best.numbers
        return Found(scores, surfaces, numbers)

    def _see(self, candidates: torch.Tensor, surfaces: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        rest = candidates - self._centre
        length = rest.norm(dim=1).max()
        padded = torch.zeros(
            (-(-len(rest) // GROUP) * GROUP, rest.shape[1] + 2), dtype=torch.bfloat16, device=rest.device
        )
        padded[: len(rest), :-2] = rest
        padded[: len(rest), -2:] = 1
        slack = SCREEN_ERROR * self._norms * length
        bars = torch.maximum(self._bars - self._queries @ self._centre, -1.01 * self._norms * length) - slack
        bars = bars - SCREEN_ERROR * 2**-7 * bars.abs() - 1e-6
        for begin in range(0, len(self._queries), QUERIES_AT_ONCE):
            rows = slice(begin, begin + QUERIES_AT_ONCE)
            high = bars[rows].bfloat16()
            low = (bars[rows] - high.float()).bfloat16()
            above = torch.cat([self._screen[rows], -high[:, None], -low[:, None]], dim=1) @ padded.T
            groups = (above.view(len(above), -1, GROUP).amax(dim=2) > 0).nonzero()
            inside = above.view(len(above), -1, GROUP)[groups[:, 0], groups[:, 1]] > 0
            pair, offset = inside.nonzero(as_tuple=True)
            self._score(groups[pair, 0] + begin, groups[pair, 1] * GROUP + offset, candidates, surfaces, numbers)
        if sum(len(p.scores) for p in self._waiting) > max(len(self._best.scores) // 2, len(self._queries)):
            self._merge()

    def _score(
        self,
        queries: torch.Tensor,
        rows: torch.Tensor,
        candidates: torch.Tensor,
        surfaces: NDArray[np.int64],
        numbers: NDArray[np.int64],
    ) -> None:
        """Score pairs of a query and a candidate in float32 and keep those that reach the query's bar."""
        for begin in range(0, len(queries), PAIRS_AT_ONCE):
            q, c = queries[begin : begin + PAIRS_AT_ONCE], rows[begin : begin + PAIRS_AT_ONCE]
            scores = torch.linalg.vecdot(self._queries[q], candidates[c])
            kept = scores >= self._bars[q]
            at = c[kept].cpu().numpy()
            pairs = _Pairs(q[kept].cpu().numpy(), scores[kept].cpu().numpy(), surfaces[at], numbers[at])
            self._waiting.append(pairs)

    def _merge(self) -> None:
        self._best = _best_surfaces(_Pairs.joined([self._best, *self._waiting]), self.k)
        self._waiting = []
        full = _ranks(self._best.queries) == self.k - 1
        bars = torch.from_numpy(self._best.scores[full]).to(self._bars.device)
        self._bars[torch.from_numpy(self._best.queries[full]).to(self._bars.device)] = bars


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a query and a candidate, as parallel arrays."""

    queries: NDArray[np.int64]
    scores: Floats
    surfaces: NDArray[np.int64]
    numbers: NDArray[np.int64]

    @staticmethod
    def none() -> _Pairs:
        empty = np.zeros(0, dtype=np.int64)
        return _Pairs(empty, np.zeros(0, dtype=np.float32), empty, empty)

    @staticmethod
    def joined(parts: list[_Pairs]) -> _Pairs:
        return _Pairs(
            np.concatenate([p.queries for p in parts]),
            np.concatenate([p.scores for p in parts]),
            np.concatenate([p.surfaces for p in parts]),
            np.concatenate([p.numbers for p in parts]),
        )

    def rows(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> _Pairs:
        return _Pairs(self.queries[rows], self.scores[rows], self.surfaces[rows], self.numbers[rows])


def _best_surfaces(pairs: _Pairs, k: int) -> _Pairs:
    """The `k` best pairs of distinct surface of each query, by query and then best first."""
    pairs = pairs.rows(np.lexsort((pairs.numbers, -pairs.scores, pairs.surfaces, pairs.queries)))
    new = np.ones(len(pairs.queries), dtype=bool)
    new[1:] = (np.diff(pairs.queries) != 0) | (np.diff(pairs.surfaces) != 0)
    pairs = pairs.rows(new)
    pairs = pairs.rows(np.lexsort((pairs.numbers, -pairs.scores, pairs.queries)))
    return pairs.rows(_ranks(pairs.queries) < k)


def _ranks(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each element in its run of equal values, counted from 0; `groups` is sorted."""
    at = np.arange(len(groups))
    starts = np.ones(len(groups), dtype=bool)
    starts[1:] = np.diff(groups) != 0
    return at - np.maximum.accumulate(np.where(starts, at, 0))
