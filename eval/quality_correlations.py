"""How well a metric's sentence scores agree with human ones: Pearson's r, Spearman's rho, Kendall's tau-b.

All functions take float64 (sentences,) and return a number from -1 to 1; 0 where one side is constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

RESAMPLES, SEED = 1000, 12345


def pearson(metric: Scores, human: Scores) -> float:
    """The linear correlation."""
    a, b = metric - metric.mean(), human - human.mean()
    scale = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / scale if scale > 0 else 0.0


def spearman(metric: Scores, human: Scores) -> float:
    """The linear correlation of the ranks; equal scores share the mean of their ranks."""
    return pearson(ranks(metric), ranks(human))


def ranks(scores: Scores) -> Scores:
    """The rank of each score from 0, the mean of their ranks for equal ones."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    means: Scores = np.cumsum(counts) - (counts + 1) / 2
    return means[place]


def kendall(metric: Scores, human: Scores) -> float:
    """Pairs of sentences in the same order less those in the other, by tau-b's count of pairs (Kendall 1945)."""
    agreed, ordered_by_metric, ordered_by_human = 0, 0, 0
    for n in range(len(metric) - 1):
        a, b = np.sign(metric[n + 1 :] - metric[n]), np.sign(human[n + 1 :] - human[n])
        agreed += int((a * b).sum())
        ordered_by_metric += int(np.count_nonzero(a))
        ordered_by_human += int(np.count_nonzero(b))
    scale = float(np.sqrt(float(ordered_by_metric) * ordered_by_human))
    return agreed / scale if scale > 0 else 0.0


CORRELATIONS: Mapping[str, Callable[[Scores, Scores], float]] = {
    "Pearson": pearson,
    "Spearman": spearman,
    "Kendall": kendall,
}


def within_sources(metric: Scores, human: Scores, sources: Sequence[str]) -> float:
    """The mean of Kendall's tau over the translations of one source, for sources whose human scores differ."""
    found = []
    for rows in _groups(sources):
        if len(set(human[rows].tolist())) > 1:
            found.append(kendall(metric[rows], human[rows]))
    return float(np.mean(found)) if found else 0.0


def difference(
    metric: Scores, baseline: Scores, human: Scores, sources: Sequence[str], how: Callable[[Scores, Scores], float]
) -> tuple[float, float, float]:
    """A metric's correlation less the baseline's, with its 95 % interval over resamples of the sources."""
    groups, rng = _groups(sources), np.random.default_rng(SEED)
    made = []
    for _ in range(RESAMPLES):
        rows = np.concatenate([groups[n] for n in rng.integers(len(groups), size=len(groups))])
        made.append(how(metric[rows], human[rows]) - how(baseline[rows], human[rows]))
    low, high = np.quantile(made, [0.025, 0.975])
    return how(metric, human) - how(baseline, human), float(low), float(high)


def _groups(sources: Sequence[str]) -> list[NDArray[np.int64]]:
    """The rows of each different source."""
    found: dict[str, list[int]] = {}
    for row, source in enumerate(sources):
        found.setdefault(source, []).append(row)
    return [np.array(rows, np.int64) for rows in found.values()]
