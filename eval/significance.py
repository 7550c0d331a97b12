"""Whether one system is better than another: paired bootstrap resampling and approximate randomization.

Both draw from the statistics of sentences, whose sums make a score (`eval.metrics.formulas`), so that no text is scored
again. Several directions are compared by the mean of their differences, all with the same draws: both directions of a
language pair have the same sentences, which are drawn together. (English sentences that language pairs share are not.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics.formulas import FORMULAS, Formula, Rows

RESAMPLES, TRIALS = 1000, 10_000
SEED = 12345
AT_ONCE = 500
"""Trials that are computed together: bounds the memory."""
LEVEL = 0.05
TINY = 1e-9
"""Differences below this are rounding."""


@dataclass(frozen=True)
class Comparison:
    """A system's score less the baseline's, the 95 % interval of the difference over resamples, and the p-values of no
    difference."""

    value: float
    low: float
    high: float
    bootstrap: float
    randomization: float

    @property
    def significant(self) -> bool:
        """Whether both tests say so."""
        return max(self.bootstrap, self.randomization) < LEVEL


def compare(
    system: Sequence[Rows],
    baseline: Sequence[Rows],
    formula: str,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    seed: int = SEED,
) -> Comparison:
    """The comparison of two systems on one or several directions.

    `system[i]` and `baseline[i]` (sentences, statistics) are of the same sentences in the same order. Equal seeds draw
    equal samples. For one direction the p-values are sacreBLEU's, save that equal systems get 1.
    """
    for ours, theirs in zip(system, baseline, strict=True):
        if ours.shape != theirs.shape:
            raise ValueError(f"statistics of shapes {ours.shape} and {theirs.shape} are not of the same sentences")
    how = FORMULAS[formula]
    pairs = list(zip(system, baseline, strict=True))
    value = float(np.mean([_difference(how, a.sum(0)[None], b.sum(0)[None])[0] for a, b in pairs]))
    drawn = np.mean([bootstrap(a, b, how, resamples, seed) for a, b in pairs], axis=0)
    by_chance = np.mean([randomized(a, b, how, trials, seed) for a, b in pairs], axis=0)
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    size = np.abs(drawn)
    return Comparison(value, low, high, _share(size - size.mean(), abs(value)), _share(np.abs(by_chance), abs(value)))


def bootstrap(system: Rows, baseline: Rows, formula: Formula, resamples: int, seed: int) -> Rows:
    """The differences (resamples,) on samples of sentences drawn with replacement (Koehn 2004)."""
    count = len(system)
    drawn = np.random.default_rng(seed).choice(count, size=(resamples, count), replace=True)
    weights = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
    return _difference(formula, weights @ system, weights @ baseline)


def randomized(system: Rows, baseline: Rows, formula: Formula, trials: int, seed: int) -> Rows:
    """The differences (trials,) when the two outputs for a sentence are swapped by chance (Noreen 1989; Riezler and
    Maxwell 2005)."""
    swapped = np.random.default_rng(seed).integers(2, size=(trials, len(system)), dtype=bool)
    gap = baseline - system
    made = []
    for begin in range(0, trials, AT_ONCE):
        moved = swapped[begin : begin + AT_ONCE].astype(np.float64) @ gap
        made.append(_difference(formula, system.sum(0) + moved, baseline.sum(0) - moved))
    return np.concatenate(made)


def _difference(formula: Formula, ours: Rows, theirs: Rows) -> NDArray[np.float64]:
    return formula.corpus(ours) - formula.corpus(theirs)


def _share(values: Rows, value: float) -> float:
    """The share of values that are not below another one, itself counted among them, so that it is never 0."""
    return float((np.sum(values >= value - TINY) + 1) / (len(values) + 1))
