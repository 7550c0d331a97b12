"""Two rankings of the same texts become one: the weighted sum of their scores, or reciprocal rank fusion.

    S(d) = alpha * S_BM25(d) + (1 - alpha) * S_dense(d)

BM25 scores and cosines have different scales, on which the paper is silent. Here each query's scores are put between
0 (the last text of its ranking) and 1 (the first), and a text that is missing in one ranking counts 0 there: it is
known to be no better than the last one.

Sources: Shi et al. (2021), Cross-Lingual Training of Dense Retrievers for Document Retrieval, for the sum; Cormack et
al. (2009) for reciprocal rank fusion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.bm25 import Bm25Settings

RRF_CONSTANT = 60
CANDIDATES = 200
"""Texts of each ranking that a hybrid combines, in translation as in its evaluation."""
ALPHA = 0.2
"""The weight of BM25 where none is given: about what cross-validation on XQuAD's development questions chooses where
the passages of one other language are searched (0.16; within a language 0.46): reports/passages-dev.md."""


@dataclass(frozen=True, slots=True)
class HybridSettings(Bm25Settings):
    """BM25 with its weight `alpha` in a hybrid: 0 is the dense ranking alone, 1 that of BM25."""

    alpha: float = ALPHA

    def __post_init__(self) -> None:
        Bm25Settings.__post_init__(self)
        checked_alpha(self.alpha)


def checked_alpha(alpha: float) -> float:
    """The weight itself; raises UserError if it is no share."""
    if not 0 <= alpha <= 1:
        raise UserError(f"alpha of the hybrid is {alpha:g}: expected a number from 0 (dense only) to 1 (BM25 only)")
    return alpha


@dataclass(frozen=True)
class Rankings:
    """For each query the texts found, best first: `scores` and `ids`, both (queries, depth); a number of -1 says that
    there are no more."""

    scores: Floats
    ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.scores.shape != self.ids.shape:
            raise ValueError(f"scores of shape {self.scores.shape} do not fit ids of shape {self.ids.shape}")

    def __len__(self) -> int:
        return len(self.ids)


def min_max(rankings: Rankings) -> Floats:
    """Each query's scores between 0 for its last text and 1 for its first; 1 where all are equal, 0 where there is no
    text; (queries, depth)."""
    there = rankings.ids >= 0
    low = np.where(there, rankings.scores, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    high = np.where(there, rankings.scores, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    wide = high > low
    above = np.where(there & wide, rankings.scores, 0) - np.where(wide, low, 0)
    scaled = np.where(wide, above / np.where(wide, high - low, 1), 1.0)
    made: Floats = np.where(there, scaled, 0.0).astype(np.float32)
    return made


def weighted(terms: Rankings, dense: Rankings, alpha: float, k: int) -> Rankings:
    """The `k` best texts of either ranking by alpha * (BM25 score) + (1 - alpha) * (dense score), as scaled by
    `min_max`; equal sums by lowest number.

    Raises UserError for an alpha that is no share.
    """
    checked_alpha(alpha)
    values = np.concatenate([alpha * min_max(terms), (1 - alpha) * min_max(dense)], axis=1)
    return _summed(values, np.concatenate([terms.ids, dense.ids], axis=1), k)


def reciprocal_rank_fusion(rankings: Sequence[Rankings], k: int, constant: int = RRF_CONSTANT) -> Rankings:
    """The `k` best texts by the sum over rankings of 1 / (constant + rank), rank from 1; a text that is missing in a
    ranking gets nothing there; equal sums by lowest number."""
    values = [np.broadcast_to(1 / (constant + np.arange(1, r.ids.shape[1] + 1)), r.ids.shape) for r in rankings]
    return _summed(np.concatenate(values, axis=1), np.concatenate([r.ids for r in rankings], axis=1), k)


def _summed(values: NDArray[np.float64] | Floats, ids: NDArray[np.int64], k: int) -> Rankings:
    """The `k` texts of the greatest sums of their values in each row."""
    order = np.argsort(ids, axis=1, kind="stable")
    numbers, parts = np.take_along_axis(ids, order, axis=1), np.take_along_axis(values, order, axis=1)
    first = np.ones(numbers.shape, dtype=bool)  # of the run of a text's values
    first[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    run = np.cumsum(first, axis=1) - 1
    sums = np.zeros(numbers.shape, dtype=np.float64)
    np.add.at(sums, (np.arange(len(ids))[:, None], run), parts)
    total = np.where(first & (numbers >= 0), np.take_along_axis(sums, run, axis=1), -np.inf)
    best = np.lexsort((numbers, -total), axis=-1)[:, :k]
    scores = np.take_along_axis(total, best, axis=1)
    found = np.where(np.isfinite(scores), np.take_along_axis(numbers, best, axis=1), -1)
    return Rankings(np.where(found >= 0, scores, 0).astype(np.float32), found)
