"""Whether one system is better than another: the interval, the p-value and the correction that all reports use.

Scores are made from sums of statistics over units (`eval.metrics.formulas`), so that no text is scored again. Units
that belong together (the questions on an article, the pairs of a concept) form a cluster and are drawn or exchanged
together: a document says less than as many sentences of different documents would.

- Interval: clusters are drawn with replacement (Koehn 2004, "Statistical significance tests for machine translation
  evaluation"). A system that was trained several times counts by its mean over the trainings, which are drawn with
  replacement too.
- p-value: the two systems' outputs for a cluster are exchanged by chance (Noreen 1989; Riezler and Maxwell 2005),
  two-sided. It is about these trained models on other clusters; with `other_trainings` also about other trainings: to
  each exchange comes what the mean over so few trainings may be off by, drawn from Student's t. Two systems that were
  trained equally often are then paired, the n-th training of one with the n-th of the other.
- Family: of several p-values that are judged together, Holm's (1979) are below 0.05 with a chance of at most 5 % where
  nothing differs.

Several sets (directions, languages) are compared by the mean of their differences; clusters of the same name in several
sets are drawn and exchanged together in all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from eval.metrics.formulas import FORMULAS, Formula, Rows

RESAMPLES, TRIALS = 1000, 10_000
SEED = 12345
LEVEL = 0.05
CELLS = 2_000_000
"""Numbers that are drawn and computed together: bounds the memory."""
TINY = 1e-9
"""Differences below this are rounding."""

Clusters = NDArray[Any]
"""The name (a number or a string) of the cluster of each unit, (units,)."""
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class Interval:
    """A score or a difference, and the middle 95 % of it over resamples."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison(Interval):
    """A system's score less the baseline's, with its interval and the two-sided p-value of no difference."""

    p: float


def compare(
    system: Sequence[Rows],
    baseline: Sequence[Rows],
    formula: str | Formula,
    clusters: Sequence[Clusters] | None = None,
    resamples: int = RESAMPLES,
    trials: int = TRIALS,
    seed: int = SEED,
    other_trainings: bool = False,
) -> Comparison:
    """The comparison of two systems on one or several sets.

    `system[i]` and `baseline[i]` are statistics of the same units in the same order, (units, statistics), or of several
    trainings (trainings, units, statistics). `clusters[i]` names the cluster of each unit; without it the n-th unit of
    every set is cluster n. Equal seeds draw equal samples. For one set the p-value is that of sacreBLEU's
    randomization test. Raises ValueError for statistics of other units.
    """
    for ours, theirs in zip(system, baseline, strict=True):
        if ours.shape[-2:] != theirs.shape[-2:]:
            raise ValueError(f"statistics of shapes {ours.shape} and {theirs.shape} are not of the same units")
    formula = FORMULAS[formula] if isinstance(formula, str) else formula
    sums, others = _summed(system, clusters), _summed(baseline, clusters)
    paired = other_trainings and len(sums[0]) == len(others[0])
    ends = _between(sums, others, formula, resamples, seed, paired)
    means, other_means = ([own.mean(axis=0, keepdims=True) for own in side] for side in (sums, others))
    gap = abs(_score(means, formula) - _score(other_means, formula))
    gaps = exchanged(means, other_means, formula, trials, seed)
    if other_trainings:
        ours, theirs = _by_training(sums, formula), _by_training(others, formula)
        for side, scores in enumerate([ours - theirs] if paired else [ours, theirs]):
            gaps += _errors(scores, trials, [seed, side])
    p = float((np.sum(np.abs(gaps) >= gap - TINY) + 1) / (len(gaps) + 1))  # the gap itself counts too: p is never 0
    return Comparison(ends.value, ends.low, ends.high, p)


def difference(
    system: Sequence[Rows],
    baseline: Sequence[Rows],
    formula: str | Formula,
    clusters: Sequence[Clusters] | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """A system's score less the baseline's with its interval alone; arguments as those of `compare`."""
    formula = FORMULAS[formula] if isinstance(formula, str) else formula
    return _between(_summed(system, clusters), _summed(baseline, clusters), formula, resamples, seed)


def _between(
    sums: Sequence[Rows], others: Sequence[Rows], formula: Formula, resamples: int, seed: int, paired: bool = False
) -> Interval:
    """The difference between two systems with its interval; `paired`: their trainings are drawn together."""
    drawn = resampled(sums, formula, resamples, seed, 1)
    drawn -= resampled(others, formula, resamples, seed, 1 if paired else 2)
    return Interval(_score(sums, formula) - _score(others, formula), *_ends(drawn))


def interval(
    system: Sequence[Rows],
    formula: str | Formula,
    clusters: Sequence[Clusters] | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """The score of one system, averaged over sets, with its interval; arguments as those of `compare`."""
    formula = FORMULAS[formula] if isinstance(formula, str) else formula
    sums = _summed(system, clusters)
    return Interval(_score(sums, formula), *_ends(resampled(sums, formula, resamples, seed, 1)))


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and half the width of its 95 % interval (Student's t over seeds), None for one seed."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None
    width = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return mean, float(width)


def holm(family: Mapping[Key, float]) -> dict[Key, float]:
    """The p-values of a family of comparisons, corrected for their number: the smallest times the number of all, the
    next one times one less, and so on, at most 1 and never below a smaller one's."""
    ascending = sorted(family, key=lambda name: family[name])
    products = [min(1.0, family[name] * (len(family) - rank)) for rank, name in enumerate(ascending)]
    corrected = dict(zip(ascending, accumulate(products, max), strict=True))
    return {name: corrected[name] for name in family}


def resampled(sums: Sequence[Rows], formula: Formula, resamples: int, seed: int, side: int) -> Rows:
    """Scores (resamples,) of clusters drawn with replacement, and of trainings where there are several.

    `sums` are those of `_summed`. Equal seeds draw the same clusters; `side` tells apart the draws of trainings, which
    two systems do not share.
    """
    trainings, count = sums[0].shape[:2]
    picked = np.random.default_rng([seed, side]).multinomial(trainings, [1 / trainings] * trainings, resamples)
    rng, begin = np.random.default_rng(seed), 0
    scores = np.zeros(resamples)
    for size in _blocks(resamples, count):
        drawn = rng.choice(count, size=(size, count), replace=True)
        weights = np.stack([np.bincount(row, minlength=count) for row in drawn]).astype(np.float64)
        shares = picked[begin : begin + size] / trainings
        for own in sums:
            by_training = np.stack([formula.corpus(weights @ training) for training in own], axis=1)
            scores[begin : begin + size] += (by_training * shares).sum(axis=1) / len(sums)
        begin += size
    return scores


def exchanged(ours: Sequence[Rows], theirs: Sequence[Rows], formula: Formula, trials: int, seed: int) -> Rows:
    """Differences (trials,) when the two outputs for a cluster are exchanged by chance; of each set the sums of one
    training, (1, clusters, statistics)."""
    count, rng = ours[0].shape[1], np.random.default_rng(seed)
    differences = []
    for size in _blocks(trials, count):
        swapped = rng.integers(2, size=(size, count), dtype=bool).astype(np.float64)
        gaps = np.zeros(size)
        for (own,), (other,) in zip(ours, theirs, strict=True):
            moved = swapped @ (other - own)
            gaps += formula.corpus(own.sum(0) + moved) - formula.corpus(other.sum(0) - moved)
        differences.append(gaps / len(ours))
    return np.concatenate(differences)


def _summed(sets: Sequence[Rows], clusters: Sequence[Clusters] | None) -> list[Rows]:
    """The statistics of each set by cluster, (trainings, clusters of all sets, statistics)."""
    rows = [own if own.ndim == 3 else own[None] for own in sets]
    if len({own.shape[0] for own in rows}) != 1:
        raise ValueError("the sets are of different numbers of trainings")
    names = [np.arange(own.shape[1]) for own in rows] if clusters is None else list(clusters)
    if [len(own) for own in names] != [own.shape[1] for own in rows]:
        raise ValueError("the clusters are not those of the units")
    known, numbers = np.unique(np.concatenate(names), return_inverse=True)
    summed = []
    for own, columns in zip(rows, np.split(numbers, np.cumsum([len(own) for own in names])[:-1]), strict=True):
        sums = np.zeros((own.shape[0], len(known), own.shape[2]))
        for training, units in zip(sums, own, strict=True):
            np.add.at(training, columns, units)
        summed.append(sums)
    return summed


def _blocks(count: int, width: int) -> Iterator[int]:
    """The sizes of the blocks in which so many samples of that width are drawn. They are multiples of 32, the bits that
    a generator gives at once: what is drawn is the same as if all were drawn together."""
    most = max(32, CELLS // max(width, 1) // 32 * 32)
    return (min(most, count - begin) for begin in range(0, count, most))


def _score(sums: Sequence[Rows], formula: Formula) -> float:
    """The mean over sets of the mean score over trainings."""
    return float(_by_training(sums, formula).mean())


def _by_training(sums: Sequence[Rows], formula: Formula) -> Rows:
    """The score of each training, averaged over sets."""
    scores: Rows = np.mean([formula.corpus(own.sum(axis=1)) for own in sums], axis=0)
    return scores


def _errors(scores: Rows, trials: int, seed: Sequence[int]) -> Rows:
    """By how much (trials,) the mean of the trainings' scores may be off, nothing where there is one training."""
    if len(scores) == 1:
        return np.zeros(trials)
    error = scores.std(ddof=1) / np.sqrt(len(scores))
    drawn: Rows = np.random.default_rng(seed).standard_t(len(scores) - 1, trials) * error
    return drawn


def _ends(drawn: Rows) -> tuple[float, float]:
    low, high = np.quantile(drawn, [0.025, 0.975]).tolist()
    return low, high
