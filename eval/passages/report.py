"""The tables of passage retrieval in the papers' layout, as Markdown and JSON."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from eval.metrics.formulas import mean_rows
from eval.passages.runs import ANY, MEASURES, Record
from eval.report.blocks import markdown_table
from eval.report.tables import PAPERS
from eval.significance import LEVEL, TRIALS, Comparison, compare, holm, over_seeds
from rag_mt import __version__
from rag_mt.base.files import settings_hash

SAME, CROSS, ALONE, ALL = "same language", "cross-language", "one other language alone", "all languages"
KINDS = (SAME, CROSS, ALONE)
SEEDS = (
    " Where a model was trained with several seeds the test is about other trainings too; two models with equally many "
    "are paired seed by seed, in the order of their folders."
)
BIAS = ("first 20", "own first")


@dataclass(frozen=True)
class System:
    """A row of the tables: the records of its seeds, one for what has no seed, whom it is compared with, and a hash of
    its weights and settings."""

    name: str
    records: Sequence[Record]
    baselines: Sequence[str] = ()
    key: str = ""


@dataclass(frozen=True)
class Report:
    """All that a run found; `without` are the languages that have no parallel data, `articles` the article of each
    query by cell (without it each query counts as one of its own), `primary` the system and the baseline whose
    comparison the report is for."""

    collection: Mapping[str, Any]
    codes: Sequence[str]
    without: Sequence[str]
    systems: Sequence[System]
    notes: Sequence[str]
    command: str
    articles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    primary: tuple[str, str] | None = None

    @property
    def signature(self) -> str:
        """All that could change the numbers."""
        systems = settings_hash([(system.name, system.key) for system in self.systems])
        name, fingerprint = self.collection["name"], self.collection["fingerprint"]
        return f"name:{name}|fingerprint:{fingerprint}|systems:{systems}|version:{__version__}"

    @property
    def kinds(self) -> list[str]:
        """Those of KINDS that there is a cell of."""
        first = self.systems[0].records[0]
        return [kind for kind in KINDS if any(cell_names(code, kind, first) for code in self.codes)]

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The titles of the columns of a table, and the languages that each averages."""
        with_data = tuple(code for code in self.codes if code not in self.without)
        columns: dict[str, tuple[str, ...]] = {code: (code,) for code in with_data}
        if self.without:
            lacking = tuple(code for code in self.codes if code in self.without)
            columns |= {"Avg parallel": with_data, **{code: (code,) for code in lacking}, "Avg no parallel": lacking}
        return {**columns, "Avg": tuple(self.codes)}

    @cached_property
    def gains(self) -> dict[tuple[str, str, str], dict[str, Comparison]]:
        """The differences in MRR@100 by kind, system and baseline: for each column that has a cell, the paired
        comparison over its queries, with articles as clusters and the seeds as trainings."""
        by_name = {system.name: system for system in self.systems}
        return {
            (kind, system.name, baseline): {
                title: gain
                for title, codes in self.columns.items()
                if (gain := self._gain(kind, system, by_name[baseline], codes)) is not None
            }
            for system in self.systems
            for baseline in system.baselines
            for kind in self.kinds
        }

    @cached_property
    def primary_test(self) -> tuple[str, str, str, str] | None:
        """The kind, the systems and the column of the primary comparison: of questions in languages without parallel
        data if there are some, across languages if such a passage is relevant."""
        if self.primary is None:
            return None
        title = "Avg no parallel" if self.without else "Avg"
        kind = next(kind for kind in (CROSS, SAME) if title in self.gains.get((kind, *self.primary), {}))
        return kind, *self.primary, title

    def _gain(self, kind: str, system: System, baseline: System, codes: Sequence[str]) -> Comparison | None:
        names = [name for code in codes for name in cell_names(code, kind, system.records[0])]
        if not names:
            return None
        ours, theirs = (
            [mean_rows(np.array([record.values[name]["MRR@100"] for record in side.records])) for name in names]
            for side in (system, baseline)
        )
        articles = [np.array(self.articles[name], np.str_) for name in names] if self.articles else None
        return compare(ours, theirs, "mean", articles, other_trainings=True)


def cell_names(code: str, kind: str, record: Record) -> list[str]:
    """The cells that make up a number of a table for queries in a language."""
    if kind == ALL:
        return [f"{code}-{ANY}"]
    if kind == ALONE:
        return [name for name in record.values if name.startswith(f"{code}>")]
    names = [name for name in record.values if name.startswith(f"{code}-") and not name.endswith(f"-{ANY}")]
    return [name for name in names if (name == f"{code}-{code}") == (kind == SAME)]


def markdown(report: Report) -> str:
    """The whole report."""
    notes = [*report.notes, f"signature `{report.signature}`"]
    head = ["# Passage retrieval", f"`{report.command}`", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join([*head, *_tables(report)]) + "\n"


def _tables(report: Report) -> Iterator[str]:
    titles, seeds = list(report.columns), any(len(system.records) > 1 for system in report.systems)
    if report.primary_test is not None:
        kind, name, baseline, title = report.primary_test
        gain = report.gains[kind, name, baseline][title]
        yield "## Primary test"
        yield (
            f"MRR@100, {kind}, {title}: {name} less {baseline} is {gain.value:+.3f}, 95 % interval "
            f"[{gain.low:+.3f}, {gain.high:+.3f}], p {gain.p:.4f}, a test of its own: the tables of differences below "
            "leave it out where they correct for their number."
        )
    for kind in report.kinds:
        for measure in ("MRR@100", "Recall@100"):
            rows = [
                [system.name, *(_score(system, codes, kind, measure) for codes in report.columns.values())]
                for system in report.systems
            ]
            yield from _section(f"{measure}, {kind}", ["system", *titles], rows)
    rows = [[s.name, *(_score(s, report.codes, ALL, measure) for measure in MEASURES)] for s in report.systems]
    title = "The passages of all languages are relevant (mean over query languages)"
    yield from _section(title, ["system", *MEASURES], rows)
    if CROSS in report.kinds:
        title = "Language bias (0: none; mean over query languages)"
        rows = [_bias_row(system, report.codes) for system in report.systems]
        yield from _section(title, ["system", *BIAS, "MRR@100 same less cross"], rows)
    for kind in report.kinds:
        compared = {names[1:]: by_title for names, by_title in report.gains.items() if names[0] == kind}
        p = {(*names, title): gain.p for names, own in compared.items() for title, gain in own.items()}
        p |= holm({names: value for names, value in p.items() if (kind, *names) != report.primary_test})
        rows = [
            [*names, *(_gain(own[title], p[*names, title]) if title in own else "" for title in titles)]
            for names, own in compared.items()
        ]
        heading = f"Differences in MRR@100, {kind}, with p of a two-sided paired randomization test"
        yield from _section(heading, ["system", "less", *titles], rows)
        yield (
            f"p is by Holm over this table; bold: below {LEVEL}. {TRIALS} random exchanges, of all queries on an "
            "article together; a query's value is its mean over seeds." + (SEEDS if seeds else "")
        )
    for table in tomllib.loads(PAPERS.read_text(encoding="utf-8"))["passages"]:
        rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in table["rows"].items()]
        yield from _section(f"{table['paper']}: {table['title']}", ["system", *table["columns"]], rows)


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str, str]:
    return f"## {title}", markdown_table(head, rows)


def _bias_row(system: System, codes: Sequence[str]) -> list[str]:
    by_seed: list[list[float]] = []
    for record in system.records:
        same, cross = (_by_code(record, codes, kind, "MRR@100") for kind in (SAME, CROSS))
        means = [float(np.mean([record.bias[code][key] for code in codes])) for key in BIAS]
        by_seed.append([*means, float(np.nanmean(np.subtract(same, cross)))])
    return [system.name, *(_number(column) for column in zip(*by_seed, strict=True))]


def _score(system: System, codes: Sequence[str], kind: str, measure: str) -> str:
    return _number([float(np.mean(_by_code(record, codes, kind, measure))) for record in system.records])


def _by_code(record: Record, codes: Sequence[str], kind: str, measure: str) -> list[float]:
    """The mean of a measure over the cells of each language; NaN where there is none."""
    cells = [[record.mean(name, measure) for name in cell_names(code, kind, record)] for code in codes]
    return [float(np.mean(means)) if means else float("nan") for means in cells]


def _number(by_seed: Sequence[float]) -> str:
    mean, width = over_seeds(by_seed)
    if np.isnan(mean):
        return ""
    return f"{mean:.3f}" if width is None else f"{mean:.3f} ± {width:.3f}"


def _gain(gain: Comparison, p: float) -> str:
    text = f"{gain.value:+.3f} ({p:.4f})"
    return f"**{text}**" if p < LEVEL else text


def as_dict(report: Report) -> dict[str, Any]:
    """JSON-able contents: means of every cell, of every seed; no text and no single query."""
    systems = [
        {
            "name": system.name,
            "seeds": [
                {
                    "cells": {name: {m: round(record.mean(name, m), 4) for m in MEASURES} for name in record.values},
                    "bias": record.bias,
                    "alphas": record.alphas,
                }
                for record in system.records
            ],
            "differences": {
                f"{kind}, less {baseline}": {title: asdict(gain) for title, gain in by_title.items()}
                for (kind, name, baseline), by_title in report.gains.items()
                if name == system.name
            },
        }
        for system in report.systems
    ]
    return {
        "version": __version__,
        "signature": report.signature,
        "command": report.command,
        "collection": dict(report.collection),
        "without": list(report.without),
        "primary": report.primary_test,
        "notes": list(report.notes),
        "systems": systems,
    }
