"""Whether a metric prefers the lesser damage, for languages that no human scores exist for.

Each translation is a reference from which words were dropped; it is compared with worse ones of the same sentence. A
metric that fails here is no good for the language; one that passes may still disagree with people.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eval.metrics.comet import Triple
from eval.quality_correlations import Scores
from eval.quality_damage import thinned
from eval.suites import Part

KEPT, FEW = 0.8, 0.4
"""The shares of words that the better translation and a worse one keep."""
WORSE = ("more words dropped", "source copied", "another sentence")
SEED = 1


@dataclass(frozen=True)
class Contrast:
    """A direction's triples: for each sentence the better translation, then one for each of `WORSE`."""

    direction: str
    target: str
    triples: tuple[Triple, ...]


def contrast(part: Part) -> Contrast:
    """The triples of some sentence pairs."""
    rng = random.Random(SEED)
    made: list[Triple] = []
    for n, (source, reference) in enumerate(zip(part.sources, part.references, strict=True)):
        other = part.references[(n + 1) % len(part.references)]
        translations = (thinned(reference, KEPT, rng), thinned(reference, FEW, rng), source, other)
        made += [(source, translation, reference) for translation in translations]
    return Contrast(part.name, part.target, tuple(made))


def preferred(scores: Scores) -> tuple[float, ...]:
    """In what percentage of sentences the better translation scored above the worse one, for each of `WORSE`.

    `scores` are those of `contrast(...).triples`. Equal scores count half.
    """
    rows = scores.reshape(-1, 1 + len(WORSE))
    wins = np.sign(rows[:, :1] - rows[:, 1:]) / 2 + 0.5
    return tuple((100 * wins.mean(axis=0)).tolist())


def mean_of(found: Sequence[tuple[float, ...]]) -> tuple[float, ...]:
    """The means over directions."""
    return tuple(np.array(found).mean(axis=0).tolist())
