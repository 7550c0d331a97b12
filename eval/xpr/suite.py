"""What the suite `xpr` asks of which systems, and the rows that come of it.

A row is a system in a part of the report with its answers for each set. What a run did not get to (a model that is not
there, a part that was not asked for, the time that was given) is missing from the row. Results are kept on disk, one
small JSON file for each system and task, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eval.data.phrase_pairs import concept
from eval.data.phrase_sets import sample_phrases
from eval.metrics.formulas import mean_rows
from eval.significance import SEED, Comparison, Interval, compare, interval
from eval.xpr.mapping import unit
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, settings_hash, write_json
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Floats
from rag_mt.text.words import word_spans
from retrievers.xpr.examples import MANIFEST, ExampleSet, Rows, Split, open_examples

log = logging.getLogger("rag_mt")

RULES = 1
"""Raised whenever a task asks for something else, or counts other answers as right."""
SETTINGS = ("unsupervised", "supervised", "zero-shot", "multilingual")
"""The parts of the report that are asked on test pairs among all candidates; other parts are asked among the phrases of
the pairs alone."""
ON_DEV = ("layers", "layers, trained", "examples")
"""The parts that are asked on development pairs."""
PARTS = ("layers", "baselines", "untrained", "models", "examples")
"""What may be computed; results of other parts that an earlier run computed are read all the same."""
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
    about, in all sets alike (`concept`); `several` (n,) says which pairs have a phrase of several words.
    """

    name: str
    pairs: Rows
    candidates: list[NDArray[np.int64]]
    asked: list[int]
    answers: list[list[frozenset[int]]]
    concepts: NDArray[np.str_]
    several: Bits


def task(examples: ExampleSet, split: Split, others: int, most: int | None = None) -> Task:
    """The task of a split, with the first `others` phrases of no pair as further candidates on each side. With `most`
    it asks about so many pairs only, those of English phrases drawn by a fixed seed."""
    pairs = examples.pairs(split)
    chosen = np.arange(len(pairs))
    if most is not None and len(pairs) > most:
        phrases, phrase_of = np.unique(pairs[:, 1], return_inverse=True)
        rank = np.random.default_rng(SEED).permutation(len(phrases))[phrase_of]
        chosen = np.sort(np.argsort(rank, kind="stable")[:most])
    pairs = pairs[chosen]
    asked = [np.array(list(dict.fromkeys(pairs[:, side].tolist())), np.int64) for side in (0, 1)]
    candidates = [np.concatenate([own, examples.unpaired(side)[:others]]) for side, own in enumerate(asked)]
    answers = [[side[n] for n in chosen] for side in (examples.answers(split, 0), examples.answers(split, 1))]
    texts = [[side.phrases[phrase] for phrase in pairs[:, n]] for n, side in enumerate(examples.sides)]
    words = np.array([[len(word_spans(text)) for text in own] for own in texts])
    concepts = np.array([concept(text) for text in texts[1]], dtype=np.str_)
    return Task(examples.name, pairs, candidates, list(map(len, asked)), answers, concepts, words.max(0, initial=0) > 1)


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


@dataclass
class Cells:
    """The results in `folder`. Nothing is computed after `deadline` (of `time.monotonic`)."""

    folder: Path
    deadline: float = float("inf")
    computed: int = field(default=0, init=False)

    def kept(
        self, name: str, key: Mapping[str, Any], task: Task, others: int, compute: Callable[[], Result] | None
    ) -> Asked | None:
        """The result of a system on a task with `others` further candidates a side, found on disk or else computed;
        None where it is not there and there is no `compute` or no time. `name` is for people.

        `key` says all that changes the result but `others`: what was computed with any number of them holds the result
        without.
        """
        stem, folder = settings_hash(key), self.folder / "cells"
        path = folder / (f"{stem}-{others}.json" if others else f"{stem}.json")
        if stored := sorted(folder.glob(path.name if others else f"{stem}*.json")):
            rows = read_json(stored[0])["among_all" if others else "among_own"]
            right = np.array([[bit == "1" for bit in row] for row in rows], dtype=bool)
            return Asked(right, task.concepts, task.several)
        if compute is None or time.monotonic() > self.deadline:
            return None
        begin = time.monotonic()
        answers = compute()
        contents = {
            "name": name,
            "set": task.name,
            "key": dict(key),
            "others": others,
            "candidates": [len(side) for side in task.candidates],
            "among_all": _text(answers.among_all),
            "among_own": _text(answers.among_own),
            "seconds": round(time.monotonic() - begin, 1),
        }
        write_json(path, contents)
        self.computed += 1
        log.info("%s, %s: %.1f %%", name, task.name, 100 * answers.among_all.mean())
        return Asked(answers.among_all, task.concepts, task.several)


def _text(bits: Bits) -> list[str]:
    return ["".join("01"[int(bit)] for bit in row) for row in bits]


@dataclass(frozen=True)
class Row:
    """A system in a part of the report: its answers by set, of the sets that were `planned`."""

    part: str
    name: str
    planned: tuple[str, ...]
    answers: Mapping[str, Asked]

    @property
    def missing(self) -> tuple[str, ...]:
        """The sets that were not asked."""
        return tuple(name for name in self.planned if name not in self.answers)

    @property
    def average(self) -> float:
        """The mean accuracy over sets."""
        return float(np.mean([asked.accuracy for asked in self.answers.values()]))

    @cached_property
    def score(self) -> Interval:
        """The same with its interval."""
        return score(list(self.answers.values()))


class System(NamedTuple):
    """What answers the phrases of a set: all that changes its vectors, and how they are made."""

    key: dict[str, Any]
    vectors: Vectors


@dataclass(frozen=True)
class Plan:
    """A row to be filled for the sets `pairs`: `needs` is the part of `PARTS` that it belongs to. `system` is what
    answers a set, None where it is not there."""

    part: str
    name: str
    needs: str
    pairs: tuple[str, ...]
    system: Callable[[str], System | None]


class Sets:
    """The phrase sets of `--phrases`, or else of the sample corpus, the `names` of those to ask, their tasks, and the
    results that are there. Raises UserError for options that name what is not there."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.parts = options.parts.split(",") if options.parts != "none" else []
        if unknown := set(self.parts).difference(PARTS):
            raise UserError(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(PARTS)}, or none")
        if options.others < 0:
            raise UserError(f"--others {options.others} is below 0: give how many further candidates to search")
        folder = Path(options.phrases) if options.phrases else sample_phrases(options.device, options.dtype)
        present = {path.parent.name for path in folder.glob(f"*/{MANIFEST}")}
        if not present:
            raise UserError(f"there are no phrase sets in {folder}: make them with `python -m finetune.xpr.data`")
        usual = [name for code in WMT16 if (name := f"{code}-en") in present]
        self.every = {name: open_examples(folder / name) for name in (*usual, *sorted(present.difference(usual)))}
        languages = options.languages.split(",") if options.languages else ()
        self.names = tuple(f"{code}-en" for code in languages) or tuple(self.every)
        for name in self.names:
            if name not in self.every:
                raise UserError(f"there is no set {name} in {folder}: choose among {', '.join(self.every)}")
        self.with_dev = tuple(name for name in self.names if len(self.every[name].pairs("dev")))
        self.cells = Cells(Path(options.runs), time.monotonic() + 60 * (options.minutes or math.inf))
        self.task = cache(self._task)

    def _task(self, name: str, split: Split, others: int = 0) -> Task:
        """The task of a set: all of its test pairs, or `--dev-pairs` of its development pairs."""
        return task(self.every[name], split, others, None if split == "test" else self.options.dev_pairs)

    def rows(self, plans: Sequence[Plan]) -> list[Row]:
        """The plans, filled set by set with what is there and what can be computed."""
        answers: list[dict[str, Asked]] = [{} for _ in plans]
        for name in self.names:
            for plan, answers_by_set in zip(plans, answers, strict=True):
                if name in plan.pairs and (asked := self._answer(plan, name)):
                    answers_by_set[name] = asked
        return [Row(p.part, p.name, p.pairs, by_set) for p, by_set in zip(plans, answers, strict=True)]

    def _answer(self, plan: Plan, name: str) -> Asked | None:
        others = self.options.others if plan.part in SETTINGS else 0
        split: Split = "dev" if plan.part in ON_DEV else "test"
        system, own = plan.system(name), self.task(name, split, others)
        if system is None or not len(own.pairs):
            return None
        files = self.every[name].manifest["files"]
        key = {"rules": RULES, "files": files, "split": split, "pairs": len(own.pairs), **system.key}
        compute = partial(result, own, system.vectors) if plan.needs in self.parts else None
        return self.cells.kept(f"{plan.part}: {plan.name}", key, own, others, compute)
