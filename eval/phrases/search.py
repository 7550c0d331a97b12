"""Exact search while the candidates stream by: the best of distinct surfaces for each query, in bounded memory."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.types import Floats

QUERIES_AT_ONCE = 1024
CANDIDATES_AT_ONCE = 8192
FIRST_CANDIDATES = 64
"""The first parts are small and double: what passes before the bar is high stays little."""
PAIRS_AT_ONCE = 1 << 16
ROUNDING = 1e-4
"""More than products of two matrices in float32 are off by, as a share of the lengths of both vectors."""

_PAIR = np.dtype([("query", np.int64), ("score", np.float32), ("surface", np.int64), ("number", np.int64)])
"""A query and a candidate."""


class TopSurfaces:
    """The `k` candidates of greatest inner product and distinct surface for each of `queries` (n, dimension).

    Of the candidates of one surface the best one counts, of equal scores that with the lowest number. A product of
    matrices finds what may be among a query's best; such pairs are scored again one by one, so that a score does not
    depend on what is compared along with it.
    """

    def __init__(self, queries: Floats, k: int = 10, device: str | torch.device = "cpu") -> None:
        self.k = k
        self.seen = 0
        self._queries = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32)).to(device)
        self._norms = self._queries.norm(dim=1)
        self._bars = torch.full_like(self._norms, -torch.inf)  # the score of each query's k-th best surface
        self._best = np.empty(0, dtype=_PAIR)
        self._waiting: list[NDArray[np.void]] = []

    def add(self, vectors: Floats, surfaces: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        """See candidates: vectors (n, dimension), a number for each surface, and a number for each candidate."""
        begin = 0
        while begin < len(vectors):
            size = min(CANDIDATES_AT_ONCE, max(FIRST_CANDIDATES, self.seen))
            part = slice(begin, begin + size)
            candidates = torch.from_numpy(vectors[part]).to(self._queries.device)
            self._see(candidates, surfaces[part], numbers[part])
            self.seen += len(candidates)
            begin += size

    def best(self) -> NDArray[np.void]:
        """The best of all candidates seen so far, (queries, k), best first: `score`, and `surface` and `number` as they
        were given with the candidate; `number` is -1 where there are fewer than k surfaces."""
        self._merge()
        best = np.full((len(self._queries), self.k), np.array((-1, -np.inf, -1, -1), dtype=_PAIR))
        best[self._best["query"], _ranks(self._best["query"])] = self._best
        return best

    def _see(self, candidates: torch.Tensor, surfaces: NDArray[np.int64], numbers: NDArray[np.int64]) -> None:
        low = self._bars - ROUNDING * self._norms * candidates.norm(dim=1).max()
        for begin in range(0, len(self._queries), QUERIES_AT_ONCE):
            rows = slice(begin, begin + QUERIES_AT_ONCE)
            close = self._queries[rows] @ candidates.T >= low[rows, None]
            for pairs in close.nonzero().split(PAIRS_AT_ONCE):
                query, row = pairs[:, 0] + begin, pairs[:, 1]
                scores = torch.linalg.vecdot(self._queries[query], candidates[row])
                high = scores >= self._bars[query]
                place = row[high].cpu().numpy()
                scored = np.empty(len(place), dtype=_PAIR)
                scored["query"], scored["score"] = query[high].cpu().numpy(), scores[high].cpu().numpy()
                scored["surface"], scored["number"] = surfaces[place], numbers[place]
                self._waiting.append(scored)
        if sum(map(len, self._waiting)) > max(len(self._best) // 2, len(self._queries)):
            self._merge()

    def _merge(self) -> None:
        self._best = _best_surfaces(np.concatenate([self._best, *self._waiting]), self.k)
        self._waiting = []
        last = self._best[_ranks(self._best["query"]) == self.k - 1]
        self._bars[last["query"].tolist()] = torch.tensor(last["score"].tolist(), device=self._bars.device)


def _best_surfaces(pairs: NDArray[np.void], k: int) -> NDArray[np.void]:
    """The `k` best pairs of distinct surface of each query, by query and then best first."""
    pairs = pairs[np.lexsort((pairs["number"], -pairs["score"], pairs["surface"], pairs["query"]))]
    new = np.ones(len(pairs), dtype=bool)
    new[1:] = (np.diff(pairs["query"]) != 0) | (np.diff(pairs["surface"]) != 0)
    pairs = pairs[new]
    pairs = pairs[np.lexsort((pairs["number"], -pairs["score"], pairs["query"]))]
    return pairs[_ranks(pairs["query"]) < k]


def _ranks(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """The place of each element in its run of equal values, counted from 0; `groups` is sorted."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)
