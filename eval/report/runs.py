"""The finished runs of a folder, as a report reads and compares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from eval.data.suites import FOLDERS, SAMPLE
from eval.metrics.formulas import Rows, open_chrf
from eval.significance import LEVEL, Comparison, compare, holm
from eval.translation.records import (
    COMMANDS,
    RECORDS,
    SCORES,
    Record,
    Scored,
    finished_runs,
    read_facts,
    read_records,
    read_scores,
    scored,
)
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.base.languages import WMT16, direction_group

BASELINE = "plain"
MAIN_METRICS = ("chrF++", "chrF")
BY_DIRECTION = ("index", "encoder", "adapter", "plain_adapter")
"""Settings of a system that may name the direction."""
NOT_COMPARED = ("device", "batch_size", "aligner", "along")
"""Settings of machines, and those that only the facts of older runs have."""
PRIMARY = "chrF"
GROUPS = {"to_en": "X -> English", "from_en": "English -> X", "other": "other directions"}
Compared = tuple[str, tuple[str, ...], str]
"""System, directions and metric of a comparison with the baseline."""


@dataclass(frozen=True)
class ReportRun:
    """A finished run: its facts, its records and its scores by metric. These may be of a part of the `translated`
    sentences; `generated` are those of them whose output no other system of the folder had made already."""

    system: str
    direction: str
    target: str
    facts: Mapping[str, Any]
    records: tuple[Record, ...]
    scores: Mapping[str, Scored]
    translated: int
    generated: int

    @cached_property
    def sentence_chrf(self) -> Rows:
        """chrF of each sentence."""
        return self.scores["chrF"].sentences if "chrF" in self.scores else scored(open_chrf(), self.records).sentences


@dataclass(frozen=True)
class Runs:
    """The runs of a report by system and direction; the first of `systems` is the baseline. `groups` has the directions
    of each of `GROUPS` that has any."""

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
        return suite if suite in (SAMPLE, *FOLDERS) else "a user's file"

    @property
    def main_metric(self) -> str:
        """The metric of the plots."""
        return next((name for name in MAIN_METRICS if name in self.metrics), self.metrics[0])

    @property
    def primary(self) -> str:
        """The metric of the one question that is asked first."""
        return PRIMARY if PRIMARY in self.metrics else self.metrics[0]

    @property
    def averaged(self) -> dict[str, list[str]]:
        """What scores are averaged over, by title: the groups of directions, and all if there are several groups."""
        sets = {GROUPS[group]: names for group, names in self.groups.items()}
        return sets | ({"all directions": self.directions} if len(sets) > 1 else {})

    def of(self, system: str) -> list[ReportRun]:
        """The runs of a system."""
        return [self.by_place[system, name] for name in self.directions if (system, name) in self.by_place]

    def baseline_of(self, run: ReportRun) -> ReportRun | None:
        """The baseline's run on the direction of another one, None if there is none."""
        return self.by_place.get((self.baseline, run.direction)) if run.system != self.baseline else None

    @cached_property
    def comparisons(self) -> dict[Compared, Comparison]:
        """Each system against the baseline by each metric, on each direction and on what scores are averaged over, of
        which those directions count that both have."""
        sets = sorted({tuple(names) for names in self.averaged.values()} | {(name,) for name in self.directions})
        comparisons: dict[Compared, Comparison] = {}
        for system in self.systems[1:]:
            for metric in self.metrics:
                for names in sets:
                    ours = [run for run in self.of(system) if run.direction in names and self.baseline_of(run)]
                    theirs = [self.by_place[self.baseline, run.direction] for run in ours]
                    if ours:
                        rows, other = ([run.scores[metric].statistics for run in side] for side in (ours, theirs))
                        comparisons[system, names, metric] = compare(rows, other, ours[0].scores[metric].formula)
        return comparisons

    def comparison(self, system: str, directions: Sequence[str], metric: str) -> Comparison | None:
        """The system against the baseline, None if they have no direction in common."""
        return self.comparisons.get((system, tuple(directions), metric))

    @cached_property
    def corrected(self) -> dict[Compared, float]:
        """p by Holm of every comparison. There are two families: the primary metric over all directions, a comparison
        for each system; and all others of the report together."""
        whole = tuple(list(self.averaged.values())[-1])
        p = {key: comparison.p for key, comparison in self.comparisons.items()}
        first = {key: value for key, value in p.items() if key[1:] == (whole, self.primary)}
        return holm(first) | holm({key: value for key, value in p.items() if key not in first})

    def significant(self, system: str, directions: Sequence[str], metric: str) -> bool:
        """Whether the system differs from the baseline, by Holm over its family."""
        return self.corrected.get((system, tuple(directions), metric), 1.0) < LEVEL


def read_runs(folder: Path, systems: Sequence[str] | None = None, baseline: str | None = None) -> Runs:
    """The finished and scored runs of a folder, of all systems or of some.

    The baseline is the system of that name, or `plain`, or the first one. Raises UserError where there is no such run
    and where systems were run on other sentences. Of runs on samples of different sizes (`--limit`) only the sentences
    that all have count.
    """
    paths = finished_runs(folder) if folder.is_dir() else []
    names = list(dict.fromkeys(path.parent.name for path in paths))
    for name in (*(systems or ()), *([baseline] if baseline else [])):
        if name not in names:
            raise UserError(f"{folder} has no finished run of {name!r}: it has {', '.join(names) or 'none at all'}")
    if not paths:
        raise UserError(f"{folder} has no finished run: make some with `python -m eval.translation --output {folder}`")
    names = list(systems or names)
    first = baseline or (BASELINE if BASELINE in names else names[0])
    names = list(dict.fromkeys([first, *names]))
    runs = [_read(path) for path in paths if path.parent.name in names]
    _check(folder, runs)
    smallest: dict[str, ReportRun] = {}
    for run in runs:
        if len(run.records) < len(smallest.setdefault(run.direction, run).records):
            smallest[run.direction] = run
    runs = [_cut(folder, run, smallest[run.direction]) for run in runs]
    metrics = [m for m in dict.fromkeys(m for r in runs for m in r.scores) if all(m in r.scores for r in runs)]
    if not metrics:
        raise UserError(f"the runs in {folder} have no metric in common: score all with `--score-only`")
    path = folder / COMMANDS
    commands = read_json(path) if path.is_file() else []
    by_place = {(run.system, run.direction): run for run in runs}
    return Runs(tuple(names), _groups(runs), tuple(metrics), by_place, commands)


def _groups(runs: Sequence[ReportRun]) -> dict[str, list[str]]:
    """The directions of each group: the languages of WMT16 in its order, then the others."""

    def order(direction: tuple[str, str]) -> tuple[int, str]:
        other = direction[0] if direction[1] == "en" else direction[1]
        return (WMT16.index(other) if other in WMT16 else len(WMT16), other)

    directions = sorted(sorted({(a, b) for a, b in (run.facts["direction"] for run in runs)}), key=order)
    groups = {group: [f"{a}-{b}" for a, b in directions if direction_group(a, b) == group] for group in GROUPS}
    return {group: names for group, names in groups.items() if names}


def _read(path: Path) -> ReportRun:
    facts = read_facts(path)
    scores = read_scores(path.with_suffix(SCORES), facts["outputs"])
    if not scores:
        raise UserError(f"{path.with_suffix(SCORES)} has no scores of this run: make them with `--score-only`")
    records = tuple(read_records(path.with_suffix(RECORDS)))
    direction, generated = "-".join(facts["direction"]), len(records) - facts.get("taken_over", 0)
    by_metric = {own.name: own for own in scores}
    target = facts["direction"][1]
    return ReportRun(facts["system"], direction, target, facts, records, by_metric, len(records), generated)


def _check(folder: Path, runs: Sequence[ReportRun]) -> None:
    """Raise UserError if two systems have other suites, other versions of prompts or decoding, or other signatures of a
    metric for a direction, or a system other settings for two directions."""
    first_on: dict[str, ReportRun] = {}
    first_of: dict[str, ReportRun] = {}
    for run in runs:
        first, other = first_of.setdefault(run.system, run), first_on.setdefault(run.direction, run)
        both = f"{folder}: {run.system} and {other.system} on {run.direction}"
        if changed := _changed(run.facts["settings"], first.facts["settings"]):
            raise UserError(
                f"{folder}: {run.system} on {first.direction} and {run.direction} differ in {', '.join(changed)}: "
                "translate one of them again with --restart"
            )
        if run.facts["suite"] != other.facts["suite"]:
            raise _other_sentences(folder, run, other)
        if run.facts.get("decoding") != other.facts.get("decoding"):
            raise UserError(
                f"{both} were translated by different versions of prompts or decoding: translate one again with "
                "--restart, or name other --systems"
            )
        for name in run.scores.keys() & other.scores.keys():
            if run.scores[name].signature != other.scores[name].signature:
                raise UserError(
                    f"{folder}: the {name} of {run.system} and {other.system} on {run.direction} differ in settings: "
                    "score both with the same command and --score-only"
                )


def _changed(settings: Mapping[str, Any], others: Mapping[str, Any]) -> list[str]:
    """The settings that differ though they depend on neither direction nor machine, or that only one has."""
    one, two = (
        {name: "" if name in BY_DIRECTION else value for name, value in values.items() if name not in NOT_COMPARED}
        for values in (settings, others)
    )
    return sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))


def _other_sentences(folder: Path, run: ReportRun, other: ReportRun) -> UserError:
    return UserError(
        f"{folder}: {run.system} and {other.system} were run on other {run.direction} sentences: "
        "run them with the same --suite and --seed, or name other --systems"
    )


def _cut(folder: Path, run: ReportRun, least: ReportRun) -> ReportRun:
    """The run on the sentences of the smallest one of its direction; raises UserError where they are no part of its."""
    if run.facts["sample"]["sha256"] == least.facts["sample"]["sha256"]:
        return run
    wanted = Counter((r.line, r.source, r.reference) for r in least.records)  # several units may stand on one line
    rows = []
    for n, r in enumerate(run.records):
        if wanted[pair := (r.line, r.source, r.reference)]:
            wanted[pair] -= 1
            rows.append(n)
    if wanted.total() or len(run.records) == len(least.records):
        raise _other_sentences(folder, run, least)
    scores = {name: replace(own, statistics=own.statistics[rows]) for name, own in run.scores.items()}
    facts = {**run.facts, "sample": least.facts["sample"]}
    return replace(run, facts=facts, records=tuple(run.records[n] for n in rows), scores=scores)
