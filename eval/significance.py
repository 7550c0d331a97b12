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
AT_ONCE = 512
"""Samples that are drawn and computed together: bounds the memory. A multiple of 32, the bits that a generator gives at
once: what is drawn is then the same as if all were drawn together."""
LEVEL = 0.05
TINY = 1e-9
"""Differences below this are rounding."""


@dataclass(frozen=True)
class Comparison:
    """A system's score less the baseline's, the 95 % interval of the difference over resamples, and the p-values of no
    difference. That of randomization is two-sided; that of the bootstrap is sacreBLEU's, which is nearly one-sided and
    below 0.05 in some 10 % of the cases where nothing differs. Only both together make a difference significant."""

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
    count, rng = len(system), np.random.default_rng(seed)
    made = []
    for size in _blocks(resamples):
        drawn = rng.choice(count, size=(size, count), replace=True)
        weights = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
        made.append(_difference(formula, weights @ system, weights @ baseline))
    return np.concatenate(made)


def randomized(system: Rows, baseline: Rows, formula: Formula, trials: int, seed: int) -> Rows:
    """The differences (trials,) when the two outputs for a sentence are swapped by chance (Noreen 1989; Riezler and
    Maxwell 2005)."""
    rng, gap = np.random.default_rng(seed), baseline - system
    made = []
    for size in _blocks(trials):
        moved = rng.integers(2, size=(size, len(system)), dtype=bool).astype(np.float64) @ gap
        made.append(_difference(formula, system.sum(0) + moved, baseline.sum(0) - moved))
    return np.concatenate(made)


def _blocks(count: int) -> list[int]:
    """The sizes of the blocks in which so many samples are drawn."""
    return [min(AT_ONCE, count - begin) for begin in range(0, count, AT_ONCE)]


def _difference(formula: Formula, ours: Rows, theirs: Rows) -> NDArray[np.float64]:
    return formula.corpus(ours) - formula.corpus(theirs)


def _share(values: Rows, value: float) -> float:
    """The share of values that are not below another one, itself counted among them, so that it is never 0."""
    return float((np.sum(values >= value - TINY) + 1) / (len(values) + 1))
