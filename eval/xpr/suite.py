"""The suite `xpr`: what is asked of which systems, and the rows that come of it.

A row is a system in a part of the report with its answers for each set. What a run did not get to (a model that is not
there, a part that was not asked for, the time that was given) is missing from the row.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eval.significance import Interval
from eval.xpr.cells import Cells
from eval.xpr.scores import Asked, Task, Vectors, result, score, task
from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from retrievers.xpr.examples import MANIFEST, ExampleSet, Split, open_examples

RULES = 1
"""Raised whenever a task asks for something else, or counts other answers as right."""
PARTS = ("layers", "baselines", "untrained", "models", "examples")
"""What may be computed; results of other parts that an earlier run computed are read all the same."""


@dataclass(frozen=True)
class SuiteSettings:
    """What to measure. `examples` sentences of a phrase are read at most, `others` further candidates searched on each
    side, `dev_pairs` development pairs asked in the sweeps; `source` is the set that zero-shot transfer comes from,
    `sweep` the one on which the number of examples is varied (both the first one by default); after `minutes` nothing
    is begun. `quick`: the sets are those of the sample corpus."""

    phrases: Path
    runs: Path
    models: Path | None = None
    data: Path | None = None
    languages: tuple[str, ...] = ()
    encoder: str = "embedded:e5-small"
    examples: int = 8
    others: int = 20_000
    dev_pairs: int = 500
    source: str = ""
    sweep: str = ""
    parts: tuple[str, ...] = PARTS
    minutes: float = math.inf
    device: str = "auto"
    dtype: str = "auto"
    quick: bool = False


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
        return tuple(pair for pair in self.planned if pair not in self.answers)

    @property
    def average(self) -> float:
        """The mean accuracy over sets."""
        return float(np.mean([own.accuracy for own in self.answers.values()]))

    @cached_property
    def score(self) -> Interval:
        """The same with its interval."""
        return score(list(self.answers.values()))


@dataclass(frozen=True)
class Plan:
    """A row to be filled. `key` says for a set all that changes the system's vectors, None where the system is not
    there; `vectors` makes them. `needs` is the part of `PARTS` that it belongs to."""

    part: str
    name: str
    needs: str
    pairs: tuple[str, ...]
    key: Callable[[str], Mapping[str, Any] | None]
    vectors: Callable[[str], Vectors]
    split: Split = "test"
    with_others: bool = True


class Sets:
    """The sets that are asked, their tasks, and the results that are there."""

    def __init__(self, settings: SuiteSettings) -> None:
        self.settings = settings
        self.every = opened_sets(settings.phrases)
        self.names = tuple(f"{code}-en" for code in settings.languages) or tuple(self.every)
        for name in (*self.names, settings.source, settings.sweep):
            if name and name not in self.every:
                raise UserError(f"there is no set {name} in {settings.phrases}: choose among {', '.join(self.every)}")
        self.source, self.sweep = settings.source or self.names[0], settings.sweep or self.names[0]
        deadline = time.monotonic() + 60 * settings.minutes
        self.cells = Cells(settings.runs, deadline)
        self._tasks: dict[tuple[str, Split, int], Task] = {}

    def task(self, name: str, split: Split, others: int = 0) -> Task:
        """The task of a set: all of its test pairs, or `dev_pairs` of its development pairs."""
        if (name, split, others) not in self._tasks:
            most = None if split == "test" else self.settings.dev_pairs
            self._tasks[name, split, others] = task(self.every[name], split, others, most)
        return self._tasks[name, split, others]

    @cached_property
    def with_dev(self) -> tuple[str, ...]:
        """The names of the sets that have development pairs."""
        return tuple(name for name in self.names if len(self.every[name].pairs("dev")))

    def rows(self, plans: Sequence[Plan]) -> list[Row]:
        """The plans, filled set by set with what is there and what can be computed."""
        answers: list[dict[str, Asked]] = [{} for _ in plans]
        for name in self.names:
            for found, plan in zip(answers, plans, strict=True):
                if name in plan.pairs and (asked := self._answer(plan, name)) is not None:
                    found[name] = asked
        return [Row(p.part, p.name, p.pairs, found) for p, found in zip(plans, answers, strict=True)]

    def _answer(self, plan: Plan, name: str) -> Asked | None:
        system = plan.key(name)
        if system is None:
            return None
        others = self.settings.others if plan.with_others and plan.split == "test" else 0
        own = self.task(name, plan.split, others)
        if not len(own.pairs):
            return None
        key = {
            "rules": RULES,
            "files": self.every[name].manifest["files"],
            "split": plan.split,
            "pairs": len(own.pairs),
            **system,
        }
        wanted = plan.needs in self.settings.parts
        compute = (lambda: result(own, plan.vectors(name))) if wanted else None
        before = self.cells.computed
        asked = self.cells.kept(f"{plan.part}: {plan.name}", key, own, others, compute)
        if self.cells.computed > before:
            self.cells.forget(vectors_key(self.every[name], system))
        return asked


def vectors_key(own: ExampleSet, system: Mapping[str, Any]) -> dict[str, Any]:
    """The key of the vectors of a system on a set."""
    return {"set": own.manifest["files"], **system}


def opened_sets(folder: Path) -> dict[str, ExampleSet]:
    """The phrase sets in a folder by name, in the usual order of languages; raises UserError if there is none."""
    names = [path.parent.name for path in folder.glob(f"*/{MANIFEST}")]
    if not names:
        raise UserError(f"there are no phrase sets in {folder}: make them with `python -m finetune.xpr.data`")
    usual = [f"{code}-en" for code in WMT16]
    names.sort(key=lambda name: (usual.index(name) if name in usual else len(usual), name))
    return {name: open_examples(folder / name) for name in names}
