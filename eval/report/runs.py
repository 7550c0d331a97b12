"""The finished runs of a folder, as a report reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from eval.data.suites import FOLDERS, SAMPLE
from eval.metrics.formulas import Rows
from eval.metrics.ngrams import open_chrf
from eval.significance import LEVEL, Comparison, compare, holm
from eval.translation.records import Record, read_records
from eval.translation.runs import COMMANDS, RECORDS, finished_runs, read_facts
from eval.translation.scores import SCORES, Scored, read_scores, scored
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.languages import WMT16, direction_group

BASELINE = "plain"
MAIN_METRICS = ("chrF++", "chrF")
BY_DIRECTION = ("index", "encoder", "adapter", "plain_adapter", "along")
"""Settings of a system that may name the direction."""
OF_MACHINES = ("device", "batch_size")
PRIMARY = "chrF"
Comparing = tuple[str, tuple[str, ...], str]
"""System, directions and metric of a comparison with the baseline."""
GROUPS = {"to_en": "X -> English", "from_en": "English -> X", "other": "other directions"}


@dataclass(frozen=True)
class ReportRun:
    """A finished run: its facts, its records and its scores by metric. These may be of a part of the `translated`
    sentences."""

    system: str
    source: str
    target: str
    facts: Mapping[str, Any]
    records: tuple[Record, ...]
    scores: Mapping[str, Scored]
    translated: int

    @property
    def direction(self) -> str:
        return f"{self.source}-{self.target}"

    @property
    def generated(self) -> int:
        """The sentences translated, without those whose output another system of the folder had made already."""
        return self.translated - int(self.facts.get("taken_over", 0))

    @cached_property
    def sentence_chrf(self) -> Rows:
        """chrF of each sentence."""
        return self.scores["chrF"].sentences if "chrF" in self.scores else scored(open_chrf(), self.records).sentences


@dataclass(frozen=True)
class Runs:
    """The runs of a report by system and direction; the first of `systems` is the baseline."""

    systems: tuple[str, ...]
    directions: tuple[tuple[str, str], ...]
    metrics: tuple[str, ...]
    by_place: Mapping[tuple[str, str], ReportRun]
    commands: tuple[Mapping[str, Any], ...]

    @property
    def baseline(self) -> str:
        return self.systems[0]

    @property
    def all(self) -> list[ReportRun]:
        return list(self.by_place.values())

    @property
    def suite(self) -> str:
        return str(self.all[0].facts["suite"])

    @property
    def suite_name(self) -> str:
        """The suite for readers: the name of a user's file is theirs."""
        return self.suite if self.suite in (SAMPLE, *FOLDERS) else "a user's file"

    @property
    def label(self) -> str:
        return str(self.all[0].facts["label"])

    @property
    def main_metric(self) -> str:
        """The metric of the plots."""
        return next((name for name in MAIN_METRICS if name in self.metrics), self.metrics[0])

    @property
    def groups(self) -> dict[str, list[str]]:
        """The directions of each group that has any."""
        made: dict[str, list[str]] = {}
        for source, target in self.directions:
            made.setdefault(direction_group(source, target), []).append(f"{source}-{target}")
        return {group: made[group] for group in GROUPS if group in made}

    def of(self, system: str, directions: Sequence[str] | None = None) -> list[ReportRun]:
        """The runs of a system on those directions, or on all."""
        names = [f"{a}-{b}" for a, b in self.directions] if directions is None else directions
        return [self.by_place[system, name] for name in names if (system, name) in self.by_place]

    def score(self, system: str, direction: str, metric: str) -> float | None:
        """A run's score, None if there is none."""
        run = self.by_place.get((system, direction))
        return None if run is None or metric not in run.scores else run.scores[metric].corpus

    def comparison(self, system: str, directions: Sequence[str], metric: str) -> Comparison | None:
        """The system against the baseline over the directions that both have, None if there are none."""
        key = (system, tuple(directions), metric)
        if key not in self._compared:
            both = [
                (self.by_place[system, name].scores[metric], self.by_place[self.baseline, name].scores[metric])
                for name in directions
                if None not in (self.score(system, name, metric), self.score(self.baseline, name, metric))
            ]
            made = None
            if both and system != self.baseline:
                ours, theirs = ([scores.statistics for scores in side] for side in zip(*both, strict=True))
                made = compare(ours, theirs, both[0][0].formula)
            self._compared[key] = made
        return self._compared[key]

    @property
    def averaged(self) -> dict[str, list[str]]:
        """What scores are averaged over, by title: the groups of directions, and all if there are several groups."""
        made = {GROUPS[group]: names for group, names in self.groups.items()}
        if len(made) > 1:
            made["all directions"] = [name for names in made.values() for name in names]
        return made

    @property
    def primary(self) -> str:
        """The metric of the one question that is asked first."""
        return PRIMARY if PRIMARY in self.metrics else self.metrics[0]

    @cached_property
    def corrected(self) -> Mapping[Comparing, float]:
        """p by Holm of every comparison with the baseline. There are two families: the primary metric over all
        directions, a comparison for each system; and all others of the report together."""
        whole = list(self.averaged.values())[-1]
        sets = {tuple(names) for names in self.averaged.values()} | {(name,) for name in whole}
        first: dict[Comparing, float] = {}
        others: dict[Comparing, float] = {}
        for system in self.systems[1:]:
            for metric in self.metrics:
                for names in sorted(sets):
                    if found := self.comparison(system, names, metric):
                        family = first if (metric, list(names)) == (self.primary, whole) else others
                        family[system, names, metric] = found.p
        return holm(first) | holm(others)

    def significant(self, system: str, directions: Sequence[str], metric: str) -> bool:
        """Whether the system differs from the baseline, by Holm over its family."""
        return self.corrected.get((system, tuple(directions), metric), 1.0) < LEVEL

    @cached_property
    def _compared(self) -> dict[Comparing, Comparison | None]:
        return {}


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
    names = [first, *(name for name in names if name != first)]
    kept = [_read(path) for path in paths if path.parent.name in names]
    _check(folder, kept)
    kept = _in_common(folder, kept)
    directions = sorted({(r.source, r.target) for r in kept}, key=lambda d: (d[1] != "en", _place(d)))
    metrics = [m for m in dict.fromkeys(m for r in kept for m in r.scores) if all(m in r.scores for r in kept)]
    if not metrics:
        raise UserError(f"the runs in {folder} have no metric in common: score all with `--score-only`")
    path = folder / COMMANDS
    commands = read_json(path) if path.is_file() else []
    by_place = {(run.system, run.direction): run for run in kept}
    return Runs(tuple(names), tuple(directions), tuple(metrics), by_place, tuple(commands))


def _place(direction: tuple[str, str]) -> tuple[int, str]:
    other = direction[0] if direction[1] == "en" else direction[1]
    return (WMT16.index(other) if other in WMT16 else len(WMT16), other)


def _read(path: Path) -> ReportRun:
    facts = read_facts(path)
    source, target = facts["direction"]
    scores = read_scores(path.with_suffix(SCORES), facts["outputs"])
    if not scores:
        raise UserError(f"{path.with_suffix(SCORES)} has no scores of this run: make them with `--score-only`")
    records = tuple(read_records(path.with_suffix(RECORDS)))
    return ReportRun(facts["system"], source, target, facts, records, {own.name: own for own in scores}, len(records))


def _check(folder: Path, runs: Sequence[ReportRun]) -> None:
    """Raise UserError if two systems have other suites, other versions of prompts or decoding, or other signatures of a
    metric for a direction, or a system other settings for two directions."""
    others: dict[str, ReportRun] = {}
    systems: dict[str, ReportRun] = {}
    for run in runs:
        if changed := _changed(run, first := systems.setdefault(run.system, run)):
            raise UserError(
                f"{folder}: {run.system} on {first.direction} and {run.direction} differ in {', '.join(changed)}: "
                "translate one of them again with --restart"
            )
        other = others.setdefault(run.direction, run)
        if run.facts["suite"] != other.facts["suite"]:
            _refuse(folder, run, other)
        if run.facts.get("decoding") != other.facts.get("decoding"):
            raise UserError(
                f"{folder}: {run.system} and {other.system} on {run.direction} were translated by different versions "
                "of prompts or decoding: translate one again with --restart, or name other --systems"
            )
        for name in run.scores.keys() & other.scores.keys():
            if run.scores[name].signature != other.scores[name].signature:
                raise UserError(
                    f"{folder}: the {name} of {run.system} and {other.system} on {run.direction} differ in settings: "
                    "score both with the same command and --score-only"
                )


def _changed(run: ReportRun, other: ReportRun) -> list[str]:
    """The settings in which two runs of a system differ though they are on different directions."""
    one, two = (
        {name: "" if name in BY_DIRECTION else value for name, value in r.facts["settings"].items()}
        for r in (run, other)
    )
    names = sorted((one.keys() | two.keys()) - {*OF_MACHINES})
    return [name for name in names if one.get(name) != two.get(name)]


def _refuse(folder: Path, run: ReportRun, other: ReportRun) -> NoReturn:
    raise UserError(
        f"{folder}: {run.system} and {other.system} were run on other {run.direction} sentences: "
        "run them with the same --suite and --seed, or name other --systems"
    )


def _in_common(folder: Path, runs: Sequence[ReportRun]) -> list[ReportRun]:
    """The runs on the sentences that all systems of a direction have: a run of more is cut to those of the smallest.

    Raises UserError if the sentences of the smallest are no part of another's.
    """
    smallest: dict[str, ReportRun] = {}
    for run in runs:
        if len(run.records) < len(smallest.setdefault(run.direction, run).records):
            smallest[run.direction] = run
    return [_cut(folder, run, smallest[run.direction]) for run in runs]


def _cut(folder: Path, run: ReportRun, least: ReportRun) -> ReportRun:
    if run.facts["sample"]["sha256"] == least.facts["sample"]["sha256"]:
        return run
    wanted = Counter((r.line, r.source, r.reference) for r in least.records)  # several units may stand on one line
    rows = []
    for n, r in enumerate(run.records):
        if wanted[pair := (r.line, r.source, r.reference)]:
            wanted[pair] -= 1
            rows.append(n)
    if wanted.total() or len(run.records) == len(least.records):
        _refuse(folder, run, least)
    scores = {name: replace(own, statistics=own.statistics[rows]) for name, own in run.scores.items()}
    facts = {**run.facts, "sample": least.facts["sample"]}
    return replace(run, facts=facts, records=tuple(run.records[n] for n in rows), scores=scores)
