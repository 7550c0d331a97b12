"""What a report on the suites of domains says besides: the primary test, and the gain by what the index has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import stdev

import numpy as np
from numpy.typing import NDArray

from eval.metrics.formulas import Rows, mean_rows
from eval.report.blocks import Block, Heading, Table, Text
from eval.report.nearest import Place
from eval.report.runs import ReportRun, Runs
from eval.report.tables import NONE, share
from eval.significance import LEVEL, RESAMPLES, difference

EDGES = (0.3, 0.5, 0.7, 0.9)
BINS = ("none", "below 0.3", "0.3 to 0.5", "0.5 to 0.7", "0.7 to 0.9", "0.9 and more")
"""Of sentences by the highest score of their hits: no hit, and from each of the edges on the next one."""


def primary_table(runs: Runs) -> Iterator[Block]:
    """The test that was declared before all others, and in how many cells each system is better and worse."""
    cells, baseline = len(runs.whole), runs.baseline
    yield Heading("Primary test")
    yield Text(
        f"{runs.primary} over all {cells} cells (a domain and a direction, each counted alike) against {baseline}. "
        f"Interval: bootstrap over blocks of consecutive sentences, {RESAMPLES} samples; p: randomization test that "
        f"exchanges the outputs for whole blocks, two-sided, {runs.trials} trials; a block is one in all cells where "
        "sentences of it stand. Where a system was trained several times, its trainings are averaged, both draw "
        f"trainings too, and trainings of {baseline} with the same seed are paired; p of these trainings is about "
        "other blocks alone. Single cells belong to the second family of tests (see Scores); the last column has those "
        f"that are worse at p < {LEVEL} without correction."
    )
    head = ("system", "cells", "gain", "95 % interval", "p", "p by Holm", "p, these trainings")
    counts = ("better in", "significantly better", "significantly worse", "worse, uncorrected")
    yield Table((*head, "gain by seed", *counts), [_primary_row(runs, system) for system in runs.systems[1:]])


def _primary_row(runs: Runs, system: str) -> list[str]:
    test = (system, tuple(runs.whole), runs.primary)
    whole = runs.comparisons.get(test)
    if not whole:
        return [system, "0", *[NONE] * 10]
    gains = runs.single_gains(*test)
    better, worse = runs.single_significant(*test)
    single = (runs.comparison(system, [name], runs.primary) for name in runs.whole)
    uncorrected = sum(own.p < LEVEL and own.value < 0 for own in single if own)
    return [
        system,
        str(len(gains)),
        f"{whole.value:+.2f}",
        f"{whole.low:+.2f} to {whole.high:+.2f}",
        f"{whole.p:.4f}",
        f"{runs.corrected[test]:.4f}",
        f"{runs.compared(test, runs.common(*test[:2]), other_trainings=False).p:.4f}",
        _by_seed(runs, system),
        f"{sum(value > 0 for value in gains)} of {len(gains)}",
        str(better),
        str(worse),
        str(uncorrected),
    ]


def _by_seed(runs: Runs, system: str) -> str:
    """The gain of each training of a system, and their standard deviation."""
    names = runs.trained[system]
    if len(names) == 1:
        return NONE
    places, gains = set(runs.common(system, runs.whole)), []
    for name in names:
        pairs = [(run, base) for run in runs.of(name) if run.direction in places and (base := runs.baseline_of(run))]
        scores = [[own.scores[runs.primary].corpus for own in pair] for pair in pairs]
        gains.append(float(np.mean([ours - theirs for ours, theirs in scores])))
    return f"{', '.join(f'{gain:+.2f}' for gain in gains)} (s.d. {stdev(gains):.2f})"


def similarity_tables(runs: Runs, nearest: Mapping[Place, float] | None) -> Iterator[Block]:
    """The gain by the best hit's score and, where the index text is known, by its nearest sentence."""
    yield Heading("Gain by similarity")
    yield Text(
        f"Sentence chrF, averaged over the sentences of all cells (and trainings) in a bin, less that of "
        f"{runs.baseline}; intervals by bootstrap over blocks, not corrected for their number. The bins go by the "
        "highest score of the hits that a sentence was shown as hints, whatever that retriever calls a score; none: no "
        "hint was shown, or a memory's draft was chosen all the same."
    )
    for system in runs.systems[1:]:
        if any(record.translation.hints for run in runs.of(system) for record in run.records):
            yield Heading(f"{system}, by the score of the best hit", 3)
            yield _gain_table(runs, system, _best_scores)
    if nearest:
        yield Text(
            "The same, with bins that depend on no retriever: the chrF (of 1) that the nearest sentence of the index "
            "text, taken as the translation, has by the reference."
        )
        for system in runs.systems[1:]:
            yield Heading(f"{system}, by chrF of the nearest index sentence", 3)
            yield _gain_table(
                runs, system, lambda run: [nearest[run.domain, run.target, r.reference] for r in run.records]
            )


def _best_scores(run: ReportRun) -> Sequence[float]:
    """The highest score of the hits of each sentence, NaN where it has none."""
    return [max((hint.hit.score for hint in r.translation.hints), default=np.nan) for r in run.records]


def _gain_table(runs: Runs, system: str, similarities: Callable[[ReportRun], Sequence[float]]) -> Table:
    pairs = [(run, base) for run in runs.of(system) if (base := runs.baseline_of(run))]
    values = np.concatenate([similarities(run) for run, _ in pairs])
    bins = np.where(np.isnan(values), 0, 1 + np.digitize(values, EDGES))
    blocks = np.concatenate([run.blocks for run, _ in pairs])
    ours, theirs = (np.concatenate([pair[side].sentence_chrf for pair in pairs]) for side in (0, 1))
    head = ("similarity", "sentences", "of all", runs.baseline, system, "gain", "95 % interval", "better", "worse")
    rows = [
        _gain_cells(title, ours[own], theirs[own], blocks[own], len(bins))
        for title, own in (*((title, bins == n) for n, title in enumerate(BINS)), ("all", bins >= 0))
        if own.any()
    ]
    return Table(head, rows)


def _gain_cells(title: str, ours: Rows, theirs: Rows, blocks: NDArray[np.str_], total: int) -> list[str]:
    gain = difference([mean_rows(ours)], [mean_rows(theirs)], "mean", [blocks])
    return [
        title,
        str(len(ours)),
        share(len(ours) / total),
        f"{theirs.mean():.2f}",
        f"{ours.mean():.2f}",
        f"{gain.value:+.2f}",
        f"{gain.low:+.2f} to {gain.high:+.2f}",
        share(float((ours > theirs).mean())),
        share(float((ours < theirs).mean())),
    ]
