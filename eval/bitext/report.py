"""What mining scored, as JSON and Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eval.bitext.runs import COSINE, NEIGHBOURS, LengthRow, ModelRun, Result, Way
from eval.bitext.sets import BitextSet
from eval.report.blocks import Block, Bullets, Code, Heading, Table, Text, as_markdown
from eval.significance import LEVEL, RESAMPLES, TRIALS, Interval, holm
from rag_mt import __version__
from rag_mt.base.paths import whole_file

ENDINGS = (".json", ".md")


@dataclass(frozen=True)
class Timing:
    """Mining two sides of so many sentences each, without encoding them."""

    sentences: int
    dimension: int
    neighbours: int
    seconds: float
    processor_seconds: float
    threads: int

    def __str__(self) -> str:
        return (
            f"{self.sentences} x {self.sentences} vectors of {self.dimension} dimensions, {self.neighbours} neighbours "
            f"both ways, {self.threads} threads: {self.seconds:.0f} s ({self.processor_seconds:.0f} s of processor "
            "time)"
        )


@dataclass(frozen=True)
class Report:
    """All that a run found."""

    sets: Sequence[BitextSet]
    runs: Sequence[ModelRun]
    timing: Timing | None
    source: str
    command: str


def report_blocks(report: Report) -> list[Block]:
    """The report from its title on."""
    return [
        Heading("Bitext mining", 1),
        Text(
            "Sentence pairs hidden in two monolingual sides are to be found, as in the BUCC task. The threshold and "
            "the number of neighbours are those of the best F1 on the training part; scores are of the test part."
        ),
        Code(report.command),
        Bullets(tuple(_set_lines(report))),
        *(block for run in report.runs for block in _run_blocks(run)),
        *((Heading("Speed"), Text(f"{report.timing}.")) if report.timing else ()),
    ]


def _set_lines(report: Report) -> Iterator[str]:
    yield f"sets: {report.source}"
    for own in report.sets:
        yield (
            f"{own.name}: {len(own.sources)} and {len(own.targets)} sentences, {len(own.gold)} true pairs, "
            f"sha256 {own.sha256[:16]}"
        )
    yield f"intervals: 95 %, {RESAMPLES} bootstrap samples of source sentences; rag_mt {__version__}"
    yield (
        f"p: two-sided, {TRIALS} random exchanges of source sentences, by Holm over the differences of a model's "
        f"table; below {LEVEL} is significant"
    )


def _run_blocks(run: ModelRun) -> Iterator[Block]:
    yield Heading(f"{run.model}, encoded as {run.kind}")
    scores = ("P", "R", "F1", "interval", "F1 less cosine's", "p")
    head = ("test part", "threshold", *scores, "best threshold's F1", "nearest")
    compared = [n for n, result in enumerate(run.results) if result.way != COSINE]
    corrected = holm({n: run.results[n].gain.p for n in compared})
    yield Table(head, tuple(_result_row(result, corrected.get(n)) for n, result in enumerate(run.results)))
    yield Text(
        "best threshold's F1: if the threshold had been chosen on the test part. nearest: true pairs whose translation "
        "is the nearest sentence of all."
    )
    yield Text("By words of the source sentence, with the chosen neighbours and threshold:")
    titles = ("test part", "words", "sentences", "true pairs", "P", "R", "F1")
    yield Table(titles, tuple(_length_row(code, row) for code, own in run.lengths.items() for row in own))
    languages = list(dict.fromkeys(trial.language for trial in run.trials))
    found = {(t.language, t.way): t for t in run.trials}
    ways = [COSINE, *(Way("margin", k, s) for s in ("max", "intersection") for k in NEIGHBOURS)]
    rows = tuple(
        (way.name, *(f"{100 * found[c, way].f1:.2f} ({found[c, way].threshold:.4f})" for c in languages))
        for way in ways
    )
    yield Text(f"Training part, F1 at the best threshold (which follows); chosen: {run.neighbours} neighbours.")
    yield Table(("", *languages), rows)


def _result_row(result: Result, p: float | None) -> tuple[str, ...]:
    own = result.scores
    return (
        f"{result.language}: {result.way.name}",
        f"{result.threshold:.4f}",
        f"{100 * own.precision:.2f}",
        f"{100 * own.recall:.2f}",
        f"{100 * own.f1.value:.2f}",
        _interval(own.f1),
        "" if p is None else f"{100 * result.gain.value:+.2f} {_interval(result.gain)}",
        "" if p is None else f"{p:.4f}",
        f"{100 * result.best:.2f}",
        f"{100 * result.nearest:.2f}",
    )


def _length_row(code: str, row: LengthRow) -> tuple[str, ...]:
    return (
        code,
        f"{row.least} to {row.most}",
        str(row.sentences),
        str(row.true),
        f"{100 * row.right / max(1, row.found):.2f}",
        f"{100 * row.right / max(1, row.true):.2f}",
        f"{100 * row.f1:.2f}",
    )


def _interval(own: Interval) -> str:
    return f"[{100 * own.low:.2f}, {100 * own.high:.2f}]"


def as_json(report: Report) -> Mapping[str, Any]:
    """The report without texts of the sets, JSON-able."""
    return {
        "command": report.command,
        "version": __version__,
        "source": report.source,
        "sets": [
            {
                "name": own.name,
                "sources": len(own.sources),
                "targets": len(own.targets),
                "pairs": len(own.gold),
                "sha256": own.sha256,
            }
            for own in report.sets
        ],
        "runs": [{key: value for key, value in asdict(run).items() if key != "examples"} for run in report.runs],
        "timing": asdict(report.timing) if report.timing else None,
    }


def write_report(report: Report, path: Path) -> None:
    """Write JSON or Markdown, as the name says."""
    if path.suffix == ".json":
        text = json.dumps(as_json(report), ensure_ascii=False, indent=2) + "\n"
    else:
        text = as_markdown(report_blocks(report))
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
