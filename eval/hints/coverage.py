"""Precision of hints against what they cover: which hints would be shown, and how many of them are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.hints.verdicts import PARTLY, RIGHT, STRICT, WRONG
from rag_mt.base.types import Floats
from retrievers.dense import MAX_HINTS, best_apart

LEVELS = tuple(n / 10 for n in range(1, 10))
COVERAGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class Judged:
    """Possible hints (n,) of some sentences: `spans` int32 (n, 3) sentence number, start, end, ordered by sentence;
    their `verdicts`; the number of content words that each covers, `covered`; and how many `sentences` and how many
    content words, `content`, there are."""

    spans: NDArray[np.int32]
    verdicts: NDArray[np.int8]
    covered: NDArray[np.int64]
    sentences: int
    content: int

    def take(self, rows: NDArray[np.int64]) -> Judged:
        """Those of the hints, for the same sentences."""
        return Judged(self.spans[rows], self.verdicts[rows], self.covered[rows], self.sentences, self.content)


@dataclass(frozen=True)
class Line:
    """Hints that are shown: their number per sentence, the shares of sentences that have any and of content words that
    lie in the phrases they are for; and the shares of hints by verdict: `strict`, `right` (strict ones included),
    `partly` and `wrong`, None where no hint is shown."""

    hints: float
    sentences: float
    content: float
    strict: float | None
    right: float | None
    partly: float | None
    wrong: float | None


def joined(parts: Sequence[Judged]) -> Judged:
    """Several sets of sentences as one."""
    before = np.cumsum([0, *(own.sentences for own in parts)]).tolist()
    return Judged(
        np.concatenate(
            [own.spans + np.array([n, 0, 0], np.int32) for own, n in zip(parts, before[:-1], strict=True)]
        ).astype(np.int32),
        np.concatenate([own.verdicts for own in parts]),
        np.concatenate([own.covered for own in parts]),
        before[-1],
        sum(own.content for own in parts),
    )


def shown(judged: Judged, trust: Floats) -> NDArray[np.int64]:
    """The rows of the hints that are left when of overlapping ones the most trusted is taken, most trusted first.

    What a cut-off leaves of them is what would be shown with it, as a hint only gives way to more trusted ones. Hints
    with a trust of 0 are never shown.
    """
    bounds = np.searchsorted(judged.spans[:, 0], np.arange(judged.sentences + 1))
    kept = [np.zeros(0, np.int64)]
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        own = low + np.flatnonzero(trust[low:high] != 0)
        kept.append(own[best_apart(judged.spans[own, 1], judged.spans[own, 2], trust[own], MAX_HINTS)])
    rows = np.concatenate(kept)
    return rows[np.argsort(-trust[rows], kind="stable")]


def line(judged: Judged, rows: NDArray[np.int64]) -> Line:
    """What those hints come to."""
    verdicts = judged.verdicts[rows]
    shares = [
        float(np.mean(found)) if len(rows) else None
        for found in (verdicts == STRICT, verdicts >= RIGHT, verdicts == PARTLY, verdicts == WRONG)
    ]
    return Line(
        len(rows) / max(judged.sentences, 1),
        len(np.unique(judged.spans[rows, 0])) / max(judged.sentences, 1),
        float(judged.covered[rows].sum()) / max(judged.content, 1),
        *shares,
    )


def by_level(judged: Judged, trust: Floats, levels: Sequence[float] = LEVELS) -> list[Line]:
    """What hints of at least each level of trust come to."""
    rows = shown(judged, trust)
    return [line(judged, rows[: _at_least(trust[rows], level)]) for level in levels]


def by_coverage(judged: Judged, trust: Floats, coverages: Sequence[float] = COVERAGES) -> list[Line | None]:
    """What the most trusted hints come to that cover these shares of the content words; None where all cover less."""
    rows = shown(judged, trust)
    reached = np.cumsum(judged.covered[rows]) / max(judged.content, 1)
    ends = np.searchsorted(reached, coverages) + 1
    return [line(judged, rows[:end]) if end <= len(rows) else None for end in ends.tolist()]


def _at_least(descending: Floats, level: float) -> int:
    return int(np.searchsorted(-descending, -level, side="right"))
