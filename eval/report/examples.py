"""Sentences where hints helped and where they hurt."""

from __future__ import annotations

from collections.abc import Iterator

from eval.report.blocks import Block, Bullets, Heading, Text
from eval.report.runs import ReportRun, Runs
from eval.translation.records import Record


def examples(runs: Runs, count: int) -> Iterator[Block]:
    """For each system with hints the sentences with hints whose chrF rose and fell most against the baseline, `count`
    of each."""
    yield Heading("Examples")
    for system in runs.systems[1:]:
        rows = sorted(_differences(runs, system), key=lambda row: row[0])
        helped = [row for row in reversed(rows) if row[0] > 0][:count]
        hurt = [row for row in rows if row[0] < 0][:count]
        for title, chosen in (("helped", helped), ("hurt", hurt)):
            if chosen:
                yield Heading(f"{system}: where hints {title}", 3)
            for gain, run, row, base in chosen:
                yield Text(f"{run.direction}, sentence chrF {gain:+.1f}")
                yield Bullets(_lines(row, base, runs.baseline, system))


def _differences(runs: Runs, system: str) -> Iterator[tuple[float, ReportRun, Record, Record]]:
    """The difference of sentence chrF, the run and both systems' records for each sentence with hints."""
    for run in runs.of(system):
        base = runs.by_place.get((runs.baseline, run.direction))
        if base is not None:
            gains = (run.sentence_chrf - base.sentence_chrf).tolist()
            for gain, ours, theirs in zip(gains, run.records, base.records, strict=True):
                if ours.translation.hints:
                    yield gain, run, ours, theirs


def _lines(ours: Record, theirs: Record, baseline: str, system: str) -> tuple[str, ...]:
    hints = [
        f"{hint.source_span.of(ours.source)} → {hint.phrase} ({hint.hit.score:.2f}{', taken up' if used else ''})"
        for hint, used in zip(ours.translation.hints, ours.translation.used, strict=True)
    ]
    return (
        f"source: {ours.source}",
        f"reference: {ours.reference}",
        f"hints: {'; '.join(hints)}",
        f"{baseline}: {theirs.text}",
        f"{system}: {ours.text}",
    )
