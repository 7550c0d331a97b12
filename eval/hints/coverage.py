"""Precision of hints against what they cover: which hints would be shown, and how many of them are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from eval.hints.verdicts import PARTLY, RIGHT, STRICT, WRONG
from rag_mt.base.types import Floats
from retrievers.dense import MAX_HINTS
from retrievers.overlap import best_apart

LEVELS = tuple(n / 10 for n in range(1, 10))
COVERAGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)

Line = dict[str, float | None]
"""Hints that are shown: `hints` per sentence, the shares of `sentences` that have any and of `content` words that lie
in the phrases they are for; and the shares of hints by verdict: `strict`, `right` (strict ones included), `partly` and
`wrong`, None where no hint is shown."""


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


def joined(parts: Sequence[Judged]) -> Judged:
    """Several sets of sentences as one."""
    firsts = np.cumsum([0, *(part.sentences for part in parts)]).tolist()
    shifts = [np.array([first, 0, 0], np.int32) for first in firsts[:-1]]
    return Judged(
        np.concatenate([part.spans + shift for part, shift in zip(parts, shifts, strict=True)]),
        np.concatenate([part.verdicts for part in parts]),
        np.concatenate([part.covered for part in parts]),
        firsts[-1],
        sum(part.content for part in parts),
    )


def shown(judged: Judged, trust: Floats) -> NDArray[np.int64]:
    """The rows of the hints that are left when of overlapping ones the most trusted is taken, most trusted first.

    What a cut-off leaves of them is what would be shown with it, as a hint only gives way to more trusted ones. Hints
    with a trust of 0 are never shown.
    """
    bounds = np.searchsorted(judged.spans[:, 0], np.arange(judged.sentences + 1)).tolist()
    apart = [np.zeros(0, np.int64)]
    for low, high in pairwise(bounds):
        own = low + np.flatnonzero(trust[low:high] != 0)
        apart.append(own[best_apart(judged.spans[own, 1], judged.spans[own, 2], trust[own], MAX_HINTS)])
    rows = np.concatenate(apart)
    return rows[np.argsort(-trust[rows], kind="stable")]


def line(judged: Judged, rows: NDArray[np.int64]) -> Line:
    """What those hints come to."""
    verdicts = judged.verdicts[rows]
    kinds = {"strict": verdicts == STRICT, "right": verdicts >= RIGHT, "partly": verdicts == PARTLY}
    kinds["wrong"] = verdicts == WRONG
    return {
        "hints": len(rows) / max(judged.sentences, 1),
        "sentences": len(np.unique(judged.spans[rows, 0])) / max(judged.sentences, 1),
        "content": float(judged.covered[rows].sum()) / max(judged.content, 1),
        **{name: float(np.mean(which)) if len(rows) else None for name, which in kinds.items()},
    }


def by_level(judged: Judged, trust: Floats, levels: Sequence[float]) -> list[Line | None]:
    """What hints of at least each level of trust come to."""
    rows = shown(judged, trust)
    ends = np.searchsorted(-trust[rows], [-level for level in levels], side="right").tolist()
    return [line(judged, rows[:end]) for end in ends]


def by_coverage(judged: Judged, trust: Floats, coverages: Sequence[float]) -> list[Line | None]:
    """What the most trusted hints come to that cover these shares of the content words; None where all cover less."""
    rows = shown(judged, trust)
    reached = np.cumsum(judged.covered[rows]) / max(judged.content, 1)
    ends = (np.searchsorted(reached, coverages) + 1).tolist()
    return [line(judged, rows[:end]) if end <= len(rows) else None for end in ends]
