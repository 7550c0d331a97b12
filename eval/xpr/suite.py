"""What the suite `xpr` asks of which systems, and the rows that come of it.

A row is a system in a part of the report with its answers for each set. What a run did not get to (a model that is not
there, a part that was not asked for, the time that was given) is missing from the row. Results are kept on disk, one
small JSON file for each system and task, so that a stopped run goes on.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eval.data.sample_phrases import sample_phrases
from eval.significance import Interval
from eval.xpr.scores import Asked, Bits, Result, Task, Vectors, result, score, task
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.base.paths import whole_file
from retrievers.xpr.examples import MANIFEST, Split, open_examples

log = logging.getLogger("rag_mt")

RULES = 1
"""Raised whenever a task asks for something else, or counts other answers as right."""
PARTS = ("layers", "baselines", "untrained", "models", "examples")
"""What may be computed; results of other parts that an earlier run computed are read all the same."""


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
        with whole_file(path) as part:
            part.write_text(json.dumps(contents, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
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
    split: Split = "test"
    with_others: bool = True


class Sets:
    """The phrase sets of `--phrases`, or else of the sample corpus, their tasks, and the results that are there.

    `names` are the sets that are asked, `source` the one that zero-shot transfer comes from, `sweep` that of seeds and
    numbers of examples. Raises UserError for options that cannot be.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.parts = options.parts.split(",") if options.parts != "none" else []
        if unknown := set(self.parts).difference(PARTS):
            raise UserError(f"there is no part {', '.join(sorted(unknown))}: choose among {', '.join(PARTS)}, or none")
        if options.others < 0:
            raise UserError(f"--others {options.others} is below 0: give how many further candidates to search")
        folder = Path(options.phrases) if options.phrases else sample_phrases(options.device, options.dtype)
        found = {path.parent.name for path in folder.glob(f"*/{MANIFEST}")}
        if not found:
            raise UserError(f"there are no phrase sets in {folder}: make them with `python -m finetune.xpr.data`")
        usual = [name for code in WMT16 if (name := f"{code}-en") in found]
        self.every = {name: open_examples(folder / name) for name in (*usual, *sorted(found.difference(usual)))}
        languages = options.languages.split(",") if options.languages else ()
        self.names = tuple(f"{code}-en" for code in languages) or tuple(self.every)
        self.source, self.sweep = options.source or self.names[0], options.sweep or self.names[0]
        for name in (*self.names, self.source, self.sweep):
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
        others = self.options.others if plan.with_others and plan.split == "test" else 0
        system, own = plan.system(name), self.task(name, plan.split, others)
        if system is None or not len(own.pairs):
            return None
        files = self.every[name].manifest["files"]
        key = {"rules": RULES, "files": files, "split": plan.split, "pairs": len(own.pairs), **system.key}
        compute = partial(result, own, system.vectors) if plan.needs in self.parts else None
        return self.cells.kept(f"{plan.part}: {plan.name}", key, own, others, compute)
