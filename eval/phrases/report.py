"""The table of phrase retrieval: rows with scores, differences and signatures, as text, Markdown and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.data.phrase_sets import PhraseSet
from eval.phrases.candidates import Distractors, SetResult
from eval.phrases.models import Row
from eval.phrases.scores import Scores, average, difference, scores
from eval.report.blocks import markdown_table
from eval.significance import LEVEL, Comparison, holm
from rag_mt import __version__
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.paths import whole_file

PAPER = (
    ("XLM-R", 1.5, 0.0, 4.0, 1.8),
    ("mBERT", 8.0, 3.0, 7.5, 6.1),
    ("mUSE", 34.5, 30.0, 45.5, 36.6),
    ("LaBSE", 52.0, 33.5, 61.0, 48.8),
    ("CPR-XLMR", 54.0, 63.0, 73.0, 63.3),
    ("CPR-LaBSE", 57.0, 60.0, 78.5, 65.1),
    ("CCPR-XLMR", 74.5, 73.5, 82.5, 76.8),
    ("CCPR-LaBSE", 75.0, 72.5, 88.0, 78.5),
)
"""Accuracy@1 of De-En, Ro-En, Cs-En and their average (CCPR, table 1)."""

ENDINGS = (".json", ".md")


@dataclass(frozen=True)
class Line:
    """A row of the table: results per set, and the difference to the baseline (None for the baseline itself).

    `chosen` marks the layer that stands for an untrained encoder.
    """

    model: str
    row: Row
    results: tuple[SetResult, ...]
    chosen: bool
    difference: Comparison | None

    @property
    def scores(self) -> list[Scores]:
        return [scores(result.outcomes) for result in self.results]


@dataclass(frozen=True)
class Report:
    """All that a run found. `notes` say what a reader must know to judge it."""

    suite: str
    sets: tuple[PhraseSet, ...]
    index: Mapping[str, Any]
    lines: tuple[Line, ...]
    notes: tuple[str, ...] = ()

    @property
    def sets_hash(self) -> str:
        return settings_hash([own.sha256 for own in self.sets])

    def signature(self, line: Line) -> str:
        """All that could change the row's numbers."""
        parts = {
            "suite": self.suite,
            "sets": self.sets_hash,
            "queries": sum(len(own.queries) for own in self.sets),
            "candidates": "+".join(str(result.candidates) for result in line.results),
            "index": self.index.get("fingerprint", "none"),
            "model": line.row.fingerprint,
            "version": __version__,
        }
        return "|".join(f"{name}:{value}" for name, value in parts.items())


def index_facts(distractors: Distractors | None, folder: str | None) -> dict[str, Any]:
    """What the report says about the distractors."""
    if distractors is None:
        return {}
    return {
        "folder": Path(folder or "").name,
        "fingerprint": distractors.fingerprint,
        "phrases": distractors.phrases,
        "sentences": distractors.sentences,
        "sentences left out": distractors.dropped,
    }


def chosen_row(rows: Sequence[Row], results: Sequence[Sequence[SetResult]]) -> int:
    """The row of the best average accuracy."""
    means = [average([scores(result.outcomes) for result in own]).accuracy for own in results]
    return max(range(len(rows)), key=lambda n: means[n])


def lines_of(
    model: str,
    rows: Sequence[Row],
    results: Sequence[Sequence[SetResult]],
    chosen: int,
    baseline: Sequence[SetResult] | None,
) -> list[Line]:
    """The lines of a model; without a `baseline` its chosen row is one for the others."""
    against = results[chosen] if baseline is None else baseline
    made = []
    for number, (row, own) in enumerate(zip(rows, results, strict=True)):
        is_baseline = baseline is None and number == chosen
        gain = None if is_baseline else difference([r.outcomes for r in own], [r.outcomes for r in against])
        made.append(Line(model, row, tuple(own), number == chosen, gain))
    return made


def as_dict(report: Report) -> dict[str, Any]:
    """JSON-able contents."""
    return {
        "version": __version__,
        "suite": report.suite,
        "notes": list(report.notes),
        "sets_hash": report.sets_hash,
        "sets": [
            {
                "name": own.name,
                "language": own.language,
                "alignment": own.alignment,
                "sentences": len(own.sources),
                "available": own.available,
                "queries": len(own.queries),
                "sha256": own.sha256,
                "ids": own.ids,
            }
            for own in report.sets
        ],
        "index": dict(report.index),
        "rows": [
            {
                "name": line.row.name,
                "model": line.model,
                "layer": line.row.layer,
                "fingerprint": line.row.fingerprint,
                "chosen": line.chosen,
                "sets": {
                    own.name: asdict(s) | {"candidates": r.candidates}
                    for own, s, r in zip(report.sets, line.scores, line.results, strict=True)
                },
                "average": asdict(average(line.scores)),
                "difference": line.difference and asdict(line.difference),
                "signature": report.signature(line),
            }
            for line in report.lines
        ],
        "paper": {name: dict(zip(("de-en", "ro-en", "cs-en", "average"), own, strict=True)) for name, *own in PAPER},
    }


def table(report: Report) -> str:
    """The Markdown table, readable as plain text too."""
    short = [own.name.split(" ", 1)[1] for own in report.sets]
    head = ["accuracy@1, %", *short, "avg", "instance", "MRR", "overlap", "- baseline [95 %] p"]
    gains = {n: line.difference for n, line in enumerate(report.lines) if line.difference is not None}
    corrected = holm({n: gain.p for n, gain in gains.items()})
    rows = [
        [line.row.name + (" *" if line.chosen else ""), *_numbers(line, corrected.get(n))]
        for n, line in enumerate(report.lines)
    ]
    sets = [
        f"{own.name}: {len(own.queries)} of {own.available} queries in {len(own.sources)} sentences, alignment: "
        f"{own.alignment}, sha256 {own.sha256[:16]}"
        for own in report.sets
    ]
    paper = [[name, *(f"{value:.1f}" for value in own)] for name, *own in PAPER]
    parts = [
        f"# Phrase retrieval, suite {report.suite}",
        "\n".join(f"- {line}" for line in (*sets, *report.notes)),
        markdown_table(head, rows),
        "The chosen row of each model is marked *; the baseline is that of the first model. Averages count sets alike. "
        "p is that of a two-sided randomization test that exchanges sentences, by Holm over the rows of this table: "
        f"below {LEVEL} is significant.",
        "The paper's accuracy@1 (other queries, index of 9.6 M phrases):",
        markdown_table(["model", "De-En", "Ro-En", "Cs-En", "avg"], paper),
        "Signatures:",
        "\n".join(f"- {line.row.name}: `{report.signature(line)}`" for line in report.lines),
    ]
    return "\n\n".join(parts) + "\n"


def _numbers(line: Line, p: float | None) -> list[str]:
    mean = average(line.scores)
    values = [*(s.accuracy for s in line.scores), mean.accuracy, mean.instance, mean.mrr, mean.overlap]
    gain = line.difference
    last = "baseline"
    if gain is not None and p is not None:
        last = f"{100 * gain.value:+.1f} [{100 * gain.low:+.1f}, {100 * gain.high:+.1f}] {p:.4f}"
    return [*(f"{100 * value:.1f}" for value in values), last]


def write_report(report: Report, path: Path) -> None:
    """Write the report as `.json` or `.md`."""
    text = table(report)
    if path.suffix == ".json":
        text = json.dumps(as_dict(report), ensure_ascii=False, indent=1) + "\n"
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def chosen_on_dev(path: Path) -> frozenset[str]:
    """The names of the rows that a report of the suite `dev` marks as chosen."""
    try:
        found = read_json(path)
        if found["suite"] != "dev":
            raise UserError(f"{path} is a report of suite {found['suite']}: give one of `--suite dev`")
        return frozenset(row["name"] for row in found["rows"] if row["chosen"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no report of this command ({error}): give one of `--suite dev`") from None
