"""The tables of passage retrieval in the papers' layout, as Markdown and JSON."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from eval.metrics.formulas import mean_rows
from eval.passages.runs import ANY, Record
from eval.passages.trec import MEASURES
from eval.report.blocks import markdown_table
from eval.significance import LEVEL, TRIALS, Comparison, compare, holm
from rag_mt import __version__
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.paths import whole_file

PAPERS = Path(__file__).parents[1] / "papers.toml"
SAME, CROSS, ALONE, ALL = "same language", "cross-language", "one other language alone", "all languages"
KINDS = (SAME, CROSS, ALONE)
PAIRS = tuple((kind, measure) for kind in KINDS for measure in ("MRR@100", "Recall@100"))
POOLED = tuple(MEASURES)


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
    query by cell (without it each query counts as one of its own)."""

    collection: Mapping[str, Any]
    codes: Sequence[str]
    without: Sequence[str]
    systems: Sequence[System]
    notes: Sequence[str]
    command: str
    articles: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def signature(self) -> str:
        """All that could change the numbers."""
        made = settings_hash([(system.name, system.key) for system in self.systems])
        parts = {**{key: self.collection[key] for key in ("name", "fingerprint")}, "systems": made}
        parts["version"] = __version__
        return "|".join(f"{name}:{value}" for name, value in parts.items())


def cell_names(code: str, kind: str, record: Record) -> list[str]:
    """The cells that make up a number of a table for queries in a language."""
    if kind == ALL:
        return [f"{code}-{ANY}"]
    if kind == ALONE:
        return [name for name in record.values if name.startswith(f"{code}>")]
    names = [name for name in record.values if name.startswith(f"{code}-") and not name.endswith(f"-{ANY}")]
    return [name for name in names if (name == f"{code}-{code}") == (kind == SAME)]


def score(report: Report, record: Record, code: str, kind: str, measure: str) -> float:
    """The mean over the cells of a language; NaN where it has none."""
    found = [record.mean(name, measure) for name in cell_names(code, kind, record)]
    return float(np.mean(found)) if found else float("nan")


def columns(report: Report) -> list[tuple[str, tuple[str, ...]]]:
    """The columns of a table and the languages that each averages."""
    with_data = tuple(code for code in report.codes if code not in report.without)
    made: list[tuple[str, tuple[str, ...]]] = [(code, (code,)) for code in with_data]
    if report.without:
        lacking = tuple(code for code in report.codes if code in report.without)
        made += [("Avg parallel", with_data), *((code, (code,)) for code in lacking), ("Avg no parallel", lacking)]
    return [*made, ("Avg", tuple(report.codes))]


def over_seeds(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean and half the width of its 95 % interval (Student's t over seeds), None for one seed."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, None
    width = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return mean, float(width)


def numbers(report: Report, system: System, kind: str, measure: str) -> dict[str, tuple[float, float | None]]:
    """A row: mean and half interval for each column."""
    scores = [{code: score(report, r, code, kind, measure) for code in report.codes} for r in system.records]
    return {
        title: over_seeds([float(np.mean([own[code] for code in codes])) for own in scores])
        for title, codes in columns(report)
    }


def difference(
    report: Report, system: System, baseline: System, kind: str, measure: str, codes: Sequence[str]
) -> Comparison | None:
    """The paired comparison over the queries of the cells, with articles as clusters and the seeds as trainings; None
    where there is no cell, such as across languages where all passages are in one."""
    names = [name for code in codes for name in cell_names(code, kind, system.records[0])]
    if not names:
        return None
    ours, theirs = (
        [mean_rows(np.array([record.values[name][measure] for record in own.records])) for name in names]
        for own in (system, baseline)
    )
    articles = [np.array(report.articles[name], np.str_) for name in names] if report.articles else None
    return compare(ours, theirs, "mean", articles)


def markdown(report: Report) -> str:
    """The whole report."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield "# Passage retrieval"
    yield ""
    yield f"`{report.command}`"
    yield ""
    yield from (f"- {note}" for note in report.notes)
    yield f"- signature `{report.signature}`"
    for kind, measure in PAIRS:
        if kind in _kinds(report):
            yield from _table(report, kind, measure)
    yield from _pooled(report)
    if CROSS in _kinds(report):
        yield from _bias(report)
    yield from _differences(report)
    yield from _papers()


def _kinds(report: Report) -> list[str]:
    """Those of KINDS that there is a cell of."""
    first = report.systems[0].records[0]
    return [k for k in KINDS if any(cell_names(code, k, first) for code in report.codes)]


def _table(report: Report, kind: str, measure: str) -> Iterator[str]:
    titles = [title for title, _ in columns(report)]
    rows = [(system.name, numbers(report, system, kind, measure)) for system in report.systems]
    cells = [[name, *(_number(*row[title]) for title in titles)] for name, row in rows]
    yield from _section(f"{measure}, {kind}", ["system", *titles], cells)


def _pooled(report: Report) -> Iterator[str]:
    rows = [
        [system.name, *(_number(*numbers(report, system, ALL, measure)["Avg"]) for measure in POOLED)]
        for system in report.systems
    ]
    title = "The passages of all languages are relevant (mean over query languages)"
    yield from _section(title, ["system", *POOLED], rows)


def _bias(report: Report) -> Iterator[str]:
    what = ("first 20", "own first")
    rows = []
    for system in report.systems:
        cells = [
            _number(*over_seeds([float(np.mean([r.bias[code][key] for code in report.codes])) for r in system.records]))
            for key in what
        ]
        gaps = [
            float(
                np.nanmean(
                    [score(report, r, c, SAME, "MRR@100") - score(report, r, c, CROSS, "MRR@100") for c in report.codes]
                )
            )
            for r in system.records
        ]
        rows.append([system.name, *cells, _number(*over_seeds(gaps))])
    title = "Language bias (0: none; mean over query languages)"
    yield from _section(title, ["system", *what, "MRR@100 same less cross"], rows)


def _differences(report: Report) -> Iterator[str]:
    by_name = {system.name: system for system in report.systems}
    shown = columns(report)
    compared = [(system, by_name[name]) for system in report.systems for name in system.baselines]
    for kind in _kinds(report):
        gains = {
            (n, title): difference(report, system, baseline, kind, "MRR@100", codes)
            for n, (system, baseline) in enumerate(compared)
            for title, codes in shown
        }
        corrected = holm({key: gain.p for key, gain in gains.items() if gain is not None})
        rows = [
            [system.name, baseline.name, *(_gain(gains[n, title], corrected.get((n, title))) for title, _ in shown)]
            for n, (system, baseline) in enumerate(compared)
        ]
        heading = f"Differences in MRR@100, {kind}, with p of a two-sided paired randomization test"
        yield from _section(heading, ["system", "less", *(title for title, _ in shown)], rows)
        yield ""
        yield (
            f"p is by Holm over this table; bold: below {LEVEL}. {TRIALS} random exchanges, of all queries on an "
            "article together; a query's value is its mean over seeds."
        )


def _gain(found: Comparison | None, p: float | None) -> str:
    if found is None or p is None:
        return ""
    text = f"{found.value:+.3f} ({p:.4f})"
    return f"**{text}**" if p < LEVEL else text


def _papers() -> Iterator[str]:
    for table in tomllib.loads(PAPERS.read_text(encoding="utf-8"))["passages"]:
        rows = [[name, *(f"{value:.3f}" for value in values)] for name, values in table["rows"].items()]
        yield from _section(f"{table['paper']}: {table['title']}", ["system", *table["columns"]], rows)


def _section(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield from ("", f"## {title}", "", markdown_table(head, rows))


def _number(mean: float, width: float | None) -> str:
    if np.isnan(mean):
        return ""
    return f"{mean:.3f}" if width is None else f"{mean:.3f} ± {width:.3f}"


def as_dict(report: Report) -> dict[str, Any]:
    """JSON-able contents: means of every cell, of every seed; no text and no single query."""
    return {
        "version": __version__,
        "signature": report.signature,
        "command": report.command,
        "collection": dict(report.collection),
        "without": list(report.without),
        "notes": list(report.notes),
        "systems": [_as_dict(report, system) for system in report.systems],
    }


def _as_dict(report: Report, system: System) -> dict[str, Any]:
    by_name = {own.name: own for own in report.systems}
    seeds = [
        {
            "cells": {name: {m: round(record.mean(name, m), 4) for m in MEASURES} for name in record.values},
            "bias": record.bias,
            "alphas": record.alphas,
        }
        for record in system.records
    ]
    against = {
        f"{kind}, less {name}": {
            title: asdict(found)
            for title, codes in columns(report)
            if (found := difference(report, system, by_name[name], kind, "MRR@100", codes)) is not None
        }
        for name in system.baselines
        for kind in _kinds(report)
    }
    return {"name": system.name, "seeds": seeds, "differences": against}


def write_report(report: Report, path: Path) -> None:
    """Write Markdown or JSON, by the ending."""
    text = markdown(report) if path.suffix == ".md" else json.dumps(as_dict(report), ensure_ascii=False, indent=1)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
