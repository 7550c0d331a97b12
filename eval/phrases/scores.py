"""How good retrieved phrases are: accuracy, reciprocal rank, overlap, and whether two systems differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.metrics.formulas import mean_rows
from eval.significance import Comparison, compare


@dataclass(frozen=True)
class Outcomes:
    """What happened to each query of a set, parallel arrays of its length.

    `ranks` is the rank of the true surface among the retrieved distinct surfaces, from 1, 0 where it is not among them;
    `instances` whether the first hit is the true span of the true sentence; `overlaps` whether the first hit lies in
    the true sentence and shares a word with the true span; `sentences` the sentence of the query.
    """

    ranks: NDArray[np.int64]
    instances: NDArray[np.bool_]
    overlaps: NDArray[np.bool_]
    sentences: NDArray[np.int64]

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the first hit has the true surface."""
        right: NDArray[np.bool_] = self.ranks == 1
        return right


def outcomes(
    found_surfaces: NDArray[np.int64],
    first_spans: NDArray[np.int64],
    true_surfaces: NDArray[np.int64],
    true_spans: NDArray[np.int64],
    sentences: NDArray[np.int64],
) -> Outcomes:
    """The outcomes of retrieved surfaces (queries, k), best first and distinct.

    `first_spans` and `true_spans` (queries, 3) are the sentence, start and end of the first hit and of the truth; the
    sentence of a hit that is not in the set is negative.
    """
    equal = found_surfaces == true_surfaces[:, None]
    ranks = np.where(equal.any(axis=1), equal.argmax(axis=1) + 1, 0)
    same = (first_spans[:, 0] == true_spans[:, 0]) & (first_spans[:, 0] >= 0)
    overlaps = same & (first_spans[:, 1] < true_spans[:, 2]) & (true_spans[:, 1] < first_spans[:, 2])
    instances = same & (first_spans[:, 1:] == true_spans[:, 1:]).all(axis=1)
    return Outcomes(ranks, instances, overlaps, sentences)


@dataclass(frozen=True)
class Scores:
    """Shares of 1: accuracy@1 by surface and by instance, mean reciprocal rank by surface, overlap."""

    accuracy: float
    instance: float
    mrr: float
    overlap: float


def scores(found: Outcomes) -> Scores:
    """The scores of a set; all 0 if it has no query."""
    if not len(found.ranks):
        return Scores(0.0, 0.0, 0.0, 0.0)
    reciprocal = np.where(found.ranks > 0, 1 / np.maximum(found.ranks, 1), 0)
    values = (found.right.mean(), found.instances.mean(), reciprocal.mean(), found.overlaps.mean())
    return Scores(*map(float, values))


def average(parts: Sequence[Scores]) -> Scores:
    """The mean over sets, each counting the same."""
    rows = [(s.accuracy, s.instance, s.mrr, s.overlap) for s in parts]
    return Scores(*np.mean(rows, axis=0).tolist())


def difference(system: Sequence[Outcomes], baseline: Sequence[Outcomes]) -> Comparison:
    """The difference in strict accuracy@1, averaged over sets; sentences are the clusters, since the queries of a
    sentence overlap.

    `system[i]` and `baseline[i]` are outcomes of the same queries; raises ValueError for others.
    """
    clusters = []
    for number, (ours, theirs) in enumerate(zip(system, baseline, strict=True)):
        if not np.array_equal(ours.sentences, theirs.sentences):
            raise ValueError("the outcomes to compare are not those of the same queries")
        clusters.append(np.array([f"{number} {sentence}" for sentence in ours.sentences.tolist()], dtype=np.str_))
    sides = [[mean_rows(own.right) for own in side] for side in (system, baseline)]
    return compare(sides[0], sides[1], "mean", clusters)
