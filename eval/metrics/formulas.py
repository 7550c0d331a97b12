"""From sums of statistics to scores, for many sums at once: what significance tests compute thousands of times.

All functions take float64 (rows, statistics) and return float64 (rows,), from 0 to 100 for what sacreBLEU defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float64]

ORDERS = 4
"""BLEU's n-grams: of 1 to 4 words."""
BETA = 2
"""chrF's weight of recall against precision."""


@dataclass(frozen=True)
class Formula:
    """`corpus` scores sums over sentences, `sentences` the statistics of single ones."""

    corpus: Callable[[Rows], Rows]
    sentences: Callable[[Rows], Rows]


def bleu(sums: Rows, effective_order: bool = False) -> Rows:
    """BLEU with exponential smoothing, as sacreBLEU computes it (Post 2018); with `effective_order`, for single
    sentences, only over the orders of n-grams that the output is long enough for.

    Columns: length of the output and of the reference in words, n-grams of 1 to 4 words that match, n-grams there are.
    """
    output, reference = sums[:, 0], sums[:, 1]
    correct, total = sums[:, 2 : 2 + ORDERS], sums[:, 2 + ORDERS :]
    orders = np.maximum((total > 0).sum(axis=1), 1) if effective_order else np.full(len(sums), ORDERS)
    missed = (correct == 0) & (total > 0)
    smoothed = 1 / (2.0 ** np.cumsum(missed, axis=1))  # halved again at each order without a match
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(total > 0, np.where(missed, smoothed, correct) / total, 0)
        logs = np.where(np.arange(ORDERS) < orders[:, None], np.log(precisions), 0)
        brevity = np.where(output < reference, np.exp(1 - reference / output), 1)
    scores = 100 * brevity * np.exp(logs.sum(axis=1) / orders)
    return np.where((correct.sum(axis=1) > 0) & (output > 0), scores, 0.0)


def chrf(sums: Rows) -> Rows:
    """chrF or chrF++, as sacreBLEU computes it (Popović 2015, 2017).

    Columns: for each order of n-grams those of the output, those of the reference, and those that match.
    """
    output, reference, match = (sums[:, n::3] for n in range(3))
    there = (output > 0) & (reference > 0)
    orders = np.maximum(there.sum(axis=1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(there, match / output, 0).sum(axis=1) / orders
        recall = np.where(there, match / reference, 0).sum(axis=1) / orders
        scores = 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
    return np.where(precision + recall > 0, scores, 0.0)


def mean(sums: Rows) -> Rows:
    """The mean of sentence scores. Columns: the score, and 1."""
    means: Rows = sums[:, 0] / np.maximum(sums[:, 1], 1)
    return means


def mean_rows(scores: NDArray[Any]) -> Rows:
    """The statistics (..., units, 2) of `mean` for the scores of units (..., units)."""
    return np.stack([scores, np.ones_like(scores, dtype=np.float64)], axis=-1, dtype=np.float64)


FORMULAS: Mapping[str, Formula] = {
    "bleu": Formula(bleu, partial(bleu, effective_order=True)),
    "chrf": Formula(chrf, chrf),
    "mean": Formula(mean, mean),
}
