"""The nearest sentences of the other side, for all sentences of both sides, in bounded memory.

Small sides are compared in full, block by block, as matrix products. A side whose index has the IVF form is searched by
its lists instead (`retrievers.index.search`): what is found is then nearly all of what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Sentence
from retrievers.index.search import Index

QUERY_BLOCK = 1 << 14
BASE_BLOCK = 1 << 16
"""Vectors that are held at once: 100 MB of float32 at 384 dimensions."""

Search = Callable[[Floats, int], tuple[Floats, NDArray[np.int64]]]


class Side(Protocol):
    """The vectors of one side, of length 1."""

    @property
    def dimension(self) -> int:
        """The numbers of a vector."""
        ...

    def __len__(self) -> int: ...

    def rows(self, begin: int, end: int) -> Floats:
        """The vectors from `begin` to before `end`, float32 (end - begin, dimension)."""
        ...

    @property
    def search(self) -> Search | None:
        """What finds the nearest vectors of this side for some others; None: they are compared in full."""
        ...


@dataclass(frozen=True, eq=False)
class ArraySide:
    """A side as one array, float16 or float32 (sentences, dimension), which may be mapped from a file."""

    vectors: NDArray[np.float16] | Floats

    @property
    def dimension(self) -> int:
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return len(self.vectors)

    def rows(self, begin: int, end: int) -> Floats:
        """The vectors from `begin` to before `end`."""
        return self.vectors[begin:end].astype(np.float32)

    @property
    def search(self) -> Search | None:
        """None: an array is compared in full."""
        return None


@dataclass(frozen=True, eq=False)
class IndexSide:
    """A side as an index of sentences."""

    index: Index

    @property
    def dimension(self) -> int:
        return self.index.manifest.dimension

    def __len__(self) -> int:
        return len(self.index)

    def rows(self, begin: int, end: int) -> Floats:
        """The vectors from `begin` to before `end`."""
        return self.index.reconstruct(np.arange(begin, end))

    @property
    def search(self) -> Search | None:
        """The index's own search if it has lists."""
        return self.index.search if self.index.manifest.ivf is not None else None

    def sentence(self, number: int) -> Sentence:
        """The sentence with that number."""
        return self.index.sentence(number)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """For every sentence of a side its nearest ones of the other side, best first: `scores` are cosines, `ids` numbers,
    both (sentences, k)."""

    scores: Floats
    ids: NDArray[np.int64]

    def first(self, k: int) -> Neighbours:
        """The `k` nearest alone."""
        return Neighbours(self.scores[:, :k], self.ids[:, :k])


def nearest(queries: Side, base: Side, k: int, advance: Callable[[int], object] = lambda n: None) -> Neighbours:
    """The `k` nearest sentences of `base` (all, if it has fewer) for every sentence of `queries`.

    `advance` is told of the sentences that are done; for a base of several blocks, of the share that is.
    """
    k = min(k, len(base))
    scores = np.full((len(queries), k), -np.inf, dtype=np.float32)
    ids = np.full((len(queries), k), -1, dtype=np.int64)
    if base.search is not None:
        for begin in range(0, len(queries), QUERY_BLOCK):
            end = min(begin + QUERY_BLOCK, len(queries))
            scores[begin:end], ids[begin:end] = base.search(queries.rows(begin, end), k)
            advance(end - begin)
        return Neighbours(scores, ids)
    done = 0
    for first in range(0, len(base), BASE_BLOCK):
        vectors = base.rows(first, min(first + BASE_BLOCK, len(base)))
        for begin in range(0, len(queries), QUERY_BLOCK):
            end = min(begin + QUERY_BLOCK, len(queries))
            found, at = faiss.knn(
                queries.rows(begin, end), vectors, min(k, len(vectors)), metric=faiss.METRIC_INNER_PRODUCT
            )
            scores[begin:end], ids[begin:end] = _merged(scores[begin:end], ids[begin:end], found, at + first, k)
            total = (first * len(queries) + len(vectors) * end) // len(base)
            advance(total - done)
            done = total
    return Neighbours(scores, ids)


def _merged(
    scores: Floats, ids: NDArray[np.int64], more: Floats, more_ids: NDArray[np.int64], k: int
) -> tuple[Floats, NDArray[np.int64]]:
    """The `k` best of two lists per row, equal scores by lowest number."""
    joined, numbers = np.concatenate([scores, more], axis=1), np.concatenate([ids, more_ids], axis=1)
    order = np.lexsort((numbers, -joined), axis=-1)[:, :k]
    return np.take_along_axis(joined, order, axis=1), np.take_along_axis(numbers, order, axis=1)
