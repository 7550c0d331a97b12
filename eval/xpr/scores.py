"""Accuracy@1 of phrase retrieval in both directions, with intervals over concepts (suite `xpr`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eval.data.phrase_pairs import concept
from eval.metrics.formulas import mean_rows
from eval.significance import SEED, Comparison, Interval, compare, interval
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
    `candidates[s]`, of which the first `own[s]` are the phrases of the pairs themselves and the others are not.

    `concepts` (n,) are what the English phrases are about, in all sets alike (`finetune.xpr.build.concept`); `several`
    (n,) says which pairs have a phrase of several words.
    """

    name: str
    pairs: Rows
    candidates: tuple[NDArray[np.int64], NDArray[np.int64]]
    own: tuple[int, int]
    answers: tuple[list[frozenset[int]], list[frozenset[int]]]
    concepts: NDArray[np.str_]
    several: Bits


def task(own: ExampleSet, split: Split, others: int, most: int | None = None) -> Task:
    """The task of a split with at most `others` further candidates on each side, the first ones of the set.

    With `most` it asks about so many pairs only (those of concepts drawn by a fixed seed), and searches among
    their phrases and the others.
    """
    pairs = own.pairs(split)
    answers = own.answers(split, 0), own.answers(split, 1)
    if most is not None and len(pairs) > most:
        concepts, own_concept = np.unique(pairs[:, 1], return_inverse=True)
        rank = np.random.default_rng(SEED).permutation(len(concepts))[own_concept]
        chosen = np.sort(np.argsort(rank, kind="stable")[:most])
        pairs = pairs[chosen]
        answers = [answers[0][n] for n in chosen], [answers[1][n] for n in chosen]
    candidates, counts = [], []
    for side in (0, 1):
        _, first = np.unique(pairs[:, side], return_index=True)
        asked = pairs[np.sort(first), side].astype(np.int64)
        paired = len(np.unique(own.pairs(split)[:, side]))
        candidates.append(np.concatenate([asked, own.candidates(split, side)[paired:][:others]]))
        counts.append(len(asked))
    texts = [[side.phrases[row] for row in pairs[:, n]] for n, side in enumerate(own.sides)]
    several = np.array(
        [any(len(word_spans(text)) > 1 for text in both) for both in zip(*texts, strict=True)], dtype=bool
    )
    about = np.array([concept(text) for text in texts[1]], dtype=np.str_)
    return Task(own.name, pairs, (candidates[0], candidates[1]), (counts[0], counts[1]), answers, about, several)


@dataclass(frozen=True)
class Result:
    """Which pairs were answered rightly, (2, pairs): asked in the first language and answered in English, and the
    other way round. `among_own` is the same when only the phrases of the pairs are searched."""

    among_all: Bits
    among_own: Bits


def result(own: Task, vectors: Vectors) -> Result:
    """What a system finds. Of equally near candidates the first one counts; a phrase whose vector is zero finds
    nothing."""
    sides = [vectors(side, own.candidates[side]) for side in (0, 1)]
    sides = [side / np.maximum(np.linalg.norm(side, axis=1, keepdims=True), 1e-12) for side in sides]
    found = np.zeros((2, 2, len(own.pairs)), bool)
    for asked in (0, 1):
        order = np.argsort(own.candidates[asked][: own.own[asked]])
        places = order[np.searchsorted(own.candidates[asked][: own.own[asked]], own.pairs[:, asked], sorter=order)]
        queries = sides[asked][places]
        for kind, count in enumerate((len(sides[1 - asked]), own.own[1 - asked])):
            rows = own.candidates[1 - asked][nearest(queries, sides[1 - asked][:count])]
            right = [row in own.answers[1 - asked][n] for n, row in enumerate(rows.tolist())]
            found[kind, asked] = np.array(right, dtype=bool) & queries.any(axis=1)
    return Result(found[0], found[1])


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


def score(asked: Sequence[Asked]) -> Interval:
    """Accuracy averaged over sets, with its 95 % interval over concepts."""
    return interval([mean_rows(own.right.mean(0)) for own in asked], "mean", [own.concepts for own in asked])


def compared(ours: Sequence[Asked], theirs: Sequence[Asked]) -> Comparison:
    """The difference in accuracy, averaged over sets. Concepts are the clusters, each with all its pairs of all sets
    and both directions, because what is hard in one language is in others too. Raises ValueError for other pairs."""
    for one, other in zip(ours, theirs, strict=True):
        if not np.array_equal(one.concepts, other.concepts):
            raise ValueError("the results to compare are not those of the same pairs")
    sides = [[mean_rows(own.right.mean(0)) for own in side] for side in (ours, theirs)]
    return compare(sides[0], sides[1], "mean", [own.concepts for own in ours])
