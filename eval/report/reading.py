"""Reading the finished runs of a folder for a report, which must be of the same sentences and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.data.domains import DOMAINS
from eval.data.suites import Cell
from eval.report.runs import GROUPS, ReportRun, Runs, without_seed
from eval.translation.records import (
    COMMANDS,
    RECORDS,
    SCORES,
    finished_runs,
    read_facts,
    read_records,
    read_scores,
)
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.base.languages import WMT16, direction_group

BASELINE = "plain"
BY_DIRECTION = ("index", "encoder", "adapter")
"""Settings of a system that may name the direction."""
NOT_COMPARED = ("device", "batch_size", "aligner", "along", "plain_adapter")
"""Settings of machines, and those that only the facts of older runs have."""


def read_runs(folder: Path, systems: Sequence[str] | None = None, baseline: str | None = None) -> Runs:
    """The finished and scored runs of a folder, of all systems or of some.

    Several trainings of a system (`memory@1`, `memory@2`) become one system, `memory`, which is what `systems` and
    `baseline` may name too. The baseline is the system of that name, or `plain`, or the first one. Raises UserError
    where there is no such run and where systems were run on other sentences. Of runs on samples of different sizes
    (`--limit`) only the sentences that all have count.
    """
    paths = finished_runs(folder) if folder.is_dir() else []
    names = list(dict.fromkeys(path.parent.name for path in paths))
    for name in (*(systems or ()), *([baseline] if baseline else [])):
        if name not in (*names, *map(without_seed, names)):
            raise UserError(f"{folder} has no finished run of {name!r}: it has {', '.join(names) or 'none at all'}")
    if not paths:
        raise UserError(f"{folder} has no finished run: make some with `python -m eval.translation --output {folder}`")
    asked = list(systems or names)
    first = baseline or (BASELINE if BASELINE in map(without_seed, asked) else asked[0])
    rows = _rows(names, [first, *asked])
    runs = [_read(path) for path in paths if path.parent.name in rows]
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
    return Runs(tuple(dict.fromkeys(rows.values())), _groups(runs), tuple(metrics), by_place, commands)


def _rows(names: Sequence[str], asked: Sequence[str]) -> dict[str, str]:
    """The row of each of the names that is asked for, itself or by its system: of several trainings their system."""
    chosen = list(dict.fromkeys(name for row in asked for name in names if row in (name, without_seed(name))))
    times = Counter(map(without_seed, chosen))
    return {name: without_seed(name) if times[without_seed(name)] > 1 else name for name in chosen}


def _groups(runs: Sequence[ReportRun]) -> dict[str, list[str]]:
    """The directions of each group, the cells of each domain: the languages of WMT16 in its order, then the others."""

    def order(run: ReportRun) -> tuple[int, int, str, str, str]:
        source, target = run.facts["direction"]
        other = source if target == "en" else target
        place = WMT16.index(other) if other in WMT16 else len(WMT16)
        kind = [*GROUPS].index(direction_group(source, target))
        return ([*DOMAINS].index(run.domain) if run.domain else 0, kind, f"{place} {other}", source, target)

    groups: dict[str, dict[str, None]] = {}
    for run in sorted(runs, key=order):
        groups.setdefault(run.domain or direction_group(*run.facts["direction"]), {})[run.direction] = None
    return {group: list(names) for group, names in groups.items()}


def _read(path: Path) -> ReportRun:
    facts = read_facts(path)
    scores = read_scores(path.with_suffix(SCORES), facts["outputs"])
    if not scores:
        raise UserError(f"{path.with_suffix(SCORES)} has no scores of this run: make them with `--score-only`")
    records = tuple(read_records(path.with_suffix(RECORDS)))
    generated = len(records) - facts.get("taken_over", 0)
    by_metric = {own.name: own for own in scores}
    source, target = facts["direction"]
    cell = Cell(source, target, facts.get("domain", ""))
    counts, blocks = (len(records), generated), tuple(facts.get("blocks", ()))
    return ReportRun(path.parent.name, cell.name, cell.target, facts, records, by_metric, *counts, cell.domain, blocks)


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
        if bool(run.blocks) != bool(runs[0].blocks):
            raise UserError(
                f"{folder} has runs of the suites {run.facts['suite']} and {runs[0].facts['suite']}, which are tested "
                "differently: give each a folder of its own"
            )
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
    blocks = tuple(run.blocks[n] for n in rows) if run.blocks else ()
    return replace(run, facts=facts, records=tuple(run.records[n] for n in rows), scores=scores, blocks=blocks)
