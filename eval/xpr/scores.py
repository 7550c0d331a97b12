"""Accuracy@1 of phrase retrieval in both directions, with intervals over concepts (suite `xpr`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.data.concepts import concept
from eval.metrics.formulas import mean_rows
from eval.significance import SEED, Comparison, Interval, compare, interval
from eval.xpr.mapping import unit
from rag_mt.base.types import Floats
from rag_mt.text.words import word_spans
from retrievers.xpr.examples import ExampleSet, Rows, Split

BLOCK = 512
"""Queries that are compared with all candidates at once."""

Bits = NDArray[np.bool_]
Vectors = Callable[[int, NDArray[np.int64]], Floats]
"""Side (0 or 1) and phrases of it to vectors (phrases, dimension), those of both sides in one space."""


@dataclass(frozen=True)
class Task:
    """What is asked of a set: the phrases of `pairs` (n, 2), each in both directions. Side s is searched among
    `candidates[s]`, of which the first `asked[s]` are the phrases of the pairs themselves.

    `answers[s][n]` are the phrases of side s that translate pair n. `concepts` (n,) are what the English phrases are
    about, in all sets alike (`eval.data.concepts`); `several` (n,) says which pairs have a phrase of several words.
    """

    name: str
    pairs: Rows
    candidates: tuple[NDArray[np.int64], NDArray[np.int64]]
    asked: tuple[int, int]
    answers: tuple[list[frozenset[int]], list[frozenset[int]]]
    concepts: NDArray[np.str_]
    several: Bits


def task(examples: ExampleSet, split: Split, others: int, most: int | None = None) -> Task:
    """The task of a split, with the first `others` phrases of no pair as further candidates on each side. With `most`
    it asks about so many pairs only, those of concepts drawn by a fixed seed."""
    pairs = examples.pairs(split)
    chosen = np.arange(len(pairs))
    if most is not None and len(pairs) > most:
        concepts, concept_of = np.unique(pairs[:, 1], return_inverse=True)
        rank = np.random.default_rng(SEED).permutation(len(concepts))[concept_of]
        chosen = np.sort(np.argsort(rank, kind="stable")[:most])
    pairs = pairs[chosen]
    asked = [np.array(list(dict.fromkeys(pairs[:, side].tolist())), np.int64) for side in (0, 1)]
    candidates = [np.concatenate([own, examples.unpaired(side)[:others]]) for side, own in enumerate(asked)]
    answers = [[own[n] for n in chosen] for own in (examples.answers(split, 0), examples.answers(split, 1))]
    texts = [[side.phrases[phrase] for phrase in pairs[:, n]] for n, side in enumerate(examples.sides)]
    several = [max(len(word_spans(text)) for text in pair) > 1 for pair in zip(*texts, strict=True)]
    return Task(
        examples.name,
        pairs,
        (candidates[0], candidates[1]),
        (len(asked[0]), len(asked[1])),
        (answers[0], answers[1]),
        np.array([concept(text) for text in texts[1]], dtype=np.str_),
        np.array(several, dtype=bool),
    )


@dataclass(frozen=True)
class Result:
    """Which pairs were answered rightly, (2, pairs): asked in the first language and answered in English, and the
    other way round; among all candidates, and among the phrases of the pairs alone."""

    among_all: Bits
    among_own: Bits


def result(task: Task, vectors: Vectors) -> Result:
    """What a system answers. Of equally near candidates the first one counts; a phrase whose vector is zero finds
    nothing."""
    sides = [unit(vectors(side, task.candidates[side])) for side in (0, 1)]
    right = np.zeros((2, 2, len(task.pairs)), bool)
    for asked, searched in ((0, 1), (1, 0)):
        row_of = {phrase: row for row, phrase in enumerate(task.candidates[asked].tolist())}
        queries = sides[asked][[row_of[phrase] for phrase in task.pairs[:, asked].tolist()]]
        for kind, count in enumerate((len(sides[searched]), task.asked[searched])):
            best = task.candidates[searched][nearest(queries, sides[searched][:count])].tolist()
            right[kind, asked] = [phrase in own for phrase, own in zip(best, task.answers[searched], strict=True)]
        right[:, asked] &= queries.any(axis=1)
    return Result(right[0], right[1])


def nearest(queries: Floats, candidates: Floats) -> NDArray[np.int64]:
    """The row of the candidate with the greatest inner product, (queries,)."""
    blocks = [queries[n : n + BLOCK] @ candidates.T for n in range(0, len(queries), BLOCK)]
    return np.concatenate([np.zeros(0, np.int64), *(scores.argmax(1) for scores in blocks)])


@dataclass(frozen=True)
class Asked:
    """The answers to a task: `right` (2, pairs), and `concepts` and `several` (pairs,) as the task has them."""

    right: Bits
    concepts: NDArray[np.str_]
    several: Bits

    @property
    def accuracy(self) -> float:
        """The mean of both directions."""
        return float(self.right.mean())

    def of_several_words(self) -> Asked:
        """The pairs with a phrase of several words alone."""
        return Asked(self.right[:, self.several], self.concepts[self.several], self.several[self.several])


def score(sets: Sequence[Asked]) -> Interval:
    """Accuracy averaged over sets, with its 95 % interval over concepts."""
    return interval([mean_rows(own.right.mean(0)) for own in sets], "mean", [own.concepts for own in sets])


def compared(ours: Sequence[Asked], theirs: Sequence[Asked]) -> Comparison:
    """The difference in accuracy, averaged over sets. Concepts are the clusters, each with all its pairs of all sets
    and both directions, because what is hard in one language is in others too. Raises ValueError for other pairs."""
    for one, other in zip(ours, theirs, strict=True):
        if not np.array_equal(one.concepts, other.concepts):
            raise ValueError("the results to compare are not those of the same pairs")
    sides = [[mean_rows(own.right.mean(0)) for own in side] for side in (ours, theirs)]
    return compare(sides[0], sides[1], "mean", [own.concepts for own in ours])
