"""The finished runs of a folder, as a report reads and compares them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eval.data.suites import NAMED
from eval.metrics.formulas import Rows, open_chrf
from eval.significance import LEVEL, TRIALS, Comparison, compare, holm
from eval.translation.records import Record, Scored, scored
from rag_mt.base.languages import direction_group

MAIN_METRICS = ("chrF++", "chrF")
PRIMARY = "chrF"
SEED_MARK = "@"
"""What follows it in the name of a system tells apart its trainings: `memory@1` and `memory@2` are `memory`."""
TESTS_PER_TRIALS = 200
"""So many tests of one family need `TRIALS` trials: with fewer no p of theirs could be small enough for Holm."""
GROUPS = {"to_en": "X -> English", "from_en": "English -> X", "other": "other directions"}
Compared = tuple[str, tuple[str, ...], str]
"""System, directions and metric of a comparison with the baseline."""


@dataclass(frozen=True)
class ReportRun:
    """A finished run: its facts, its records and its scores by metric. These may be of a part of the `translated`
    sentences; `generated` are those of them whose output no other system of the folder had made already. `direction`
    is the name of its cell. `blocks` are those of the records, where they are known."""

    system: str
    direction: str
    target: str
    facts: Mapping[str, Any]
    records: tuple[Record, ...]
    scores: Mapping[str, Scored]
    translated: int
    generated: int
    domain: str = ""
    blocks: tuple[str, ...] = ()

    @cached_property
    def sentence_chrf(self) -> Rows:
        """chrF of each sentence."""
        return self.scores["chrF"].sentences if "chrF" in self.scores else scored(open_chrf(), self.records).sentences


@dataclass(frozen=True)
class Runs:
    """The runs of a report by system and direction; the first of `systems` is the baseline. `groups` has the directions
    of each of `GROUPS` that has any, in the suites of domains the cells of each domain.

    Runs of a system that was trained several times are in `by_place` by the names of its trainings."""

    systems: tuple[str, ...]
    groups: Mapping[str, list[str]]
    metrics: tuple[str, ...]
    by_place: Mapping[tuple[str, str], ReportRun]
    commands: Sequence[Mapping[str, Any]]

    @property
    def baseline(self) -> str:
        return self.systems[0]

    @property
    def directions(self) -> list[str]:
        return [name for names in self.groups.values() for name in names]

    @property
    def facts(self) -> Mapping[str, Any]:
        """Those of the first run, for what is the same for all."""
        return next(iter(self.by_place.values())).facts

    @property
    def suite_name(self) -> str:
        """The suite for readers: the name of a user's file is theirs."""
        suite = str(self.facts["suite"])
        return suite if suite in NAMED else "a user's file"

    @cached_property
    def of_domains(self) -> bool:
        """Whether the suite is one of domains, whose sentences stand in blocks."""
        return all(run.blocks for run in self.by_place.values())

    @property
    def places(self) -> str:
        """What a reader calls several directions."""
        return "cells" if self.of_domains else "directions"

    @property
    def main_metric(self) -> str:
        """The metric of the plots."""
        first = () if self.of_domains else MAIN_METRICS
        return next((name for name in first if name in self.metrics), self.primary)

    @property
    def primary(self) -> str:
        """The metric of the one question that is asked first."""
        return PRIMARY if PRIMARY in self.metrics else self.metrics[0]

    @cached_property
    def averaged(self) -> dict[str, list[str]]:
        """What scores are averaged over, by title: the groups of directions, and all if there are several groups; in
        the suites of domains each domain, the groups of directions, and all."""
        sets = {GROUPS.get(group, group): names for group, names in self.groups.items()}
        if self.of_domains:
            halves = {title: names for group, title in GROUPS.items() if (names := self._of_group(group))}
            sets = (sets if len(sets) > 1 else {}) | (halves if len(halves) > 1 or len(sets) == 1 else {})
        return sets | ({f"all {self.places}": self.directions} if len(sets) > 1 else {})

    def _of_group(self, group: str) -> list[str]:
        ends = {run.direction: run.facts["direction"] for run in self.by_place.values()}
        return [name for name in self.directions if direction_group(*ends[name]) == group]

    @cached_property
    def trained(self) -> dict[str, tuple[str, ...]]:
        """The trainings of each system, one of its own name if no seeds tell them apart."""
        names = dict.fromkeys(name for name, _ in self.by_place)
        return {row: tuple(name for name in names if row in (name, without_seed(name))) for row in self.systems}

    @property
    def trainings(self) -> list[str]:
        """Those of all systems."""
        return [name for names in self.trained.values() for name in names]

    def of(self, system: str) -> list[ReportRun]:
        """The runs of a system or of one of its trainings."""
        names = self.trained.get(system, (system,))
        return [self.by_place[name, d] for name in names for d in self.directions if (name, d) in self.by_place]

    def baseline_of(self, run: ReportRun) -> ReportRun | None:
        """The baseline's run on the direction of another one, of the training with the same seed or else the first;
        None if there is none."""
        names = self.trained[self.baseline]
        if run.system in names:
            return None
        twin = self.baseline + run.system[len(without_seed(run.system)) :]
        return self.by_place.get((twin if twin in names else names[0], run.direction))

    def common(self, system: str, directions: Sequence[str]) -> list[str]:
        """Those of the directions that all trainings of the system and of the baseline have."""
        names = (*self.trained[system], *self.trained[self.baseline])
        return [direction for direction in directions if all((name, direction) in self.by_place for name in names)]

    @cached_property
    def _tests(self) -> list[Compared]:
        """All comparisons with the baseline: by each metric on what scores are averaged over and on each direction, in
        the suites of domains on a single cell by the primary metric only."""
        sets = {tuple(names) for names in self.averaged.values()}
        single = {(name,) for name in self.directions}
        return [
            (system, names, metric)
            for system in self.systems[1:]
            for metric in self.metrics
            for names in sorted(sets if self.of_domains and metric != self.primary else sets | single)
        ]

    @property
    def trials(self) -> int:
        """Of each randomization test."""
        return TRIALS * (1 + len(self._tests) // TESTS_PER_TRIALS) if self.of_domains else TRIALS

    @cached_property
    def comparisons(self) -> dict[Compared, Comparison]:
        """Each system against the baseline by each metric, on each direction and on what scores are averaged over, of
        which those directions count that both have."""
        return {test: self.compared(test, names) for test in self._tests if (names := self.common(*test[:2]))}

    def compared(self, test: Compared, places: Sequence[str], other_trainings: bool = True) -> Comparison:
        """A test on those of its directions that both systems have; see `eval.significance` for `other_trainings`."""
        system, _, metric = test
        ours, theirs = (
            [np.stack([self.by_place[name, place].scores[metric].statistics for name in names]) for place in places]
            for names in (self.trained[system], self.trained[self.baseline])
        )
        first = self.by_place[self.trained[system][0], places[0]]
        blocks = [np.array(self.by_place[first.system, place].blocks) for place in places] if self.of_domains else None
        formula = first.scores[metric].formula
        return compare(ours, theirs, formula, blocks, trials=self.trials, other_trainings=other_trainings)

    def comparison(self, system: str, directions: Sequence[str], metric: str) -> Comparison | None:
        """The system against the baseline, None if they have no direction in common."""
        return self.comparisons.get((system, tuple(directions), metric))

    @cached_property
    def corrected(self) -> dict[Compared, float]:
        """p by Holm of every comparison. There are two families: the primary metric over all directions, a comparison
        for each system; and all others of the report together."""
        p = {key: comparison.p for key, comparison in self.comparisons.items()}
        first = {key: value for key, value in p.items() if key[1:] == (tuple(self.whole), self.primary)}
        return holm(first) | holm({key: value for key, value in p.items() if key not in first})

    def single_gains(self, system: str, directions: Sequence[str], metric: str) -> list[float]:
        """The gains on single directions that were tested."""
        return [own.value for name in directions if (own := self.comparison(system, [name], metric))]

    def single_significant(self, system: str, directions: Sequence[str], metric: str) -> tuple[int, int]:
        """On how many of them the system is significantly better, and on how many worse."""
        tested = [name for name in directions if self.significant(system, [name], metric)]
        gains = self.single_gains(system, tested, metric)
        return sum(value > 0 for value in gains), sum(value < 0 for value in gains)

    @property
    def whole(self) -> list[str]:
        """The directions of the primary test."""
        return list(self.averaged.values())[-1]

    def significant(self, system: str, directions: Sequence[str], metric: str) -> bool:
        """Whether the system differs from the baseline, by Holm over its family."""
        return self.corrected.get((system, tuple(directions), metric), 1.0) < LEVEL


def without_seed(system: str) -> str:
    """The name of a system without that of its training."""
    return system.partition(SEED_MARK)[0]
