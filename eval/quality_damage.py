"""Damaged translations: what people rate is seldom grossly wrong, so that a metric learns nothing of it from them.

Without such rows a small COMET model takes a copied source, or the translation of another sentence, for a good
translation (`reports/metrics.md`).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from eval.quality_data import WORST, Rated

KEPT = {0.8: 0.3, 0.4: 0.7}
"""The share of words that a translation keeps, and what that costs in shares of the scale."""
SCALE = 2.5
"""The scale of z-scores: how far below the mean the worst translation is rated."""


def damaged(rows: Sequence[Rated], count: int, seed: int) -> list[Rated]:
    """Of `count` of the rows each four damaged ones: words dropped (twice), the source copied, another translation.

    Their scores are set by hand, in the scale of the rows, which must have more than one source.
    """
    rng = random.Random(seed)
    made = []
    for row in rng.sample(list(rows), min(count, len(rows))):
        scale = WORST if row.reference else SCALE
        for share, cost in KEPT.items():
            human = max(row.human - cost * scale, -scale)
            made.append(replace(row, translation=thinned(row.translation, share, rng), human=human))
        other = rng.choice([own for own in rows if own.source != row.source])
        for translation in (row.source, other.translation):
            made.append(replace(row, translation=translation, human=-scale))
    return made


def thinned(text: str, share: float, rng: random.Random) -> str:
    """The text with a share of its words, in order; one at least."""
    words = text.split()
    rows = sorted(rng.sample(range(len(words)), min(len(words), max(1, round(share * len(words))))))
    return " ".join(words[n] for n in rows)
