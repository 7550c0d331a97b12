"""Precision, recall and F1 of mined pairs, as BUCC counts them: a pair is right if it is one of the true ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.bitext.sets import BitextSet
from eval.metrics.formulas import Formula, Rows
from eval.significance import Comparison, Interval, compare, interval
from retrievers.mining.margin import Pairs


@dataclass(frozen=True)
class Scores:
    """Pairs that were found, that are true, and that are both; F1 with its interval. Scores are of 1."""

    found: int
    true: int
    right: int
    precision: float
    recall: float
    f1: Interval


def marked(pairs: Pairs, gold: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each pair is one of the true ones, (true pairs, 2)."""
    width = max(int(gold[:, 1].max(initial=0)), int(pairs.targets.max(initial=0))) + 1
    found: NDArray[np.bool_] = np.isin(pairs.sources * width + pairs.targets, gold[:, 0] * width + gold[:, 1])
    return found


def best_threshold(pairs: Pairs, gold: NDArray[np.int64]) -> tuple[float, float]:
    """The threshold with the highest F1 on these pairs, which are sorted, and that F1.

    It lies half-way between the last score that is taken and the next one.
    """
    right = np.cumsum(marked(pairs, gold))
    f1 = 2 * right / (np.arange(1, len(pairs) + 1) + len(gold))
    ends = np.append(pairs.scores[:-1] > pairs.scores[1:], True)  # equal scores are taken together
    best = int(np.where(ends, f1, -1).argmax())
    following = pairs.scores[min(best + 1, len(pairs) - 1)]
    return float((pairs.scores[best] + following) / 2), float(f1[best])


def statistics(pairs: Pairs, own: BitextSet) -> Rows:
    """For each source sentence whether a pair of it was found, is true, and how many of both, (sentences, 3)."""
    rows = np.zeros((len(own.sources), 3))
    np.add.at(rows[:, 0], pairs.sources, 1)
    np.add.at(rows[:, 1], own.gold[:, 0], 1)
    np.add.at(rows[:, 2], pairs.sources[marked(pairs, own.gold)], 1)
    return rows


def f1_of(sums: Rows) -> Rows:
    """F1 of sums of statistics (rows, 3); 0 where nothing is found nor true."""
    made: Rows = 2 * sums[:, 2] / np.maximum(sums[:, 0] + sums[:, 1], 1)
    return made


F1 = Formula(f1_of, f1_of)


def scored(rows: Rows) -> Scores:
    """The scores of the statistics of all source sentences; F1's interval is over these."""
    found, true, right = rows.sum(axis=0).astype(int).tolist()
    return Scores(found, true, right, right / max(found, 1), right / max(true, 1), interval([rows], F1))


def difference(rows: Rows, baseline: Rows) -> Comparison:
    """The F1 less that of a baseline on the same source sentences."""
    return compare([rows], [baseline], F1)
