"""What hints are worth by the score of the best one: the gain over translation without hints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eval.figures.drawing import COLOURS, INK, new_figure, svg_of
from eval.metrics.formulas import Rows
from eval.report.runs import ReportRun, Runs
from rag_mt.base.errors import UserError

MOST_BINS, LEAST_IN_A_BIN = 5, 10
RESAMPLES, SEED = 2000, 12345
TITLE = "Gain in chrF over translation without hints, by the score of the best hint of a sentence."


def gains_of(runs: Runs) -> dict[str, Any]:
    """The numbers of the figure from some runs, JSON-able: for each system with hints the gain in sentence
    chrF over the baseline, in bins of equal size by the score of the best hint, with its 95 % interval over resamples
    of the sentences. Raises UserError where no system has enough sentences with hints."""
    systems = {system: bins for system in runs.systems[1:] if (bins := _bins(runs, system))}
    if not systems:
        raise UserError(
            f"the runs have no {LEAST_IN_A_BIN} sentences with hints of another system than {runs.baseline}: make more "
            "with `python -m eval.translation --systems plain,ccpr --output RUNS`"
        )
    first = runs.facts
    return {
        "figure": "gain-by-similarity",
        "suite": runs.suite_name,
        "label": first["label"],
        "directions": runs.directions,
        "sentences": sum(len(run.records) for run in runs.of(runs.trained[runs.baseline][0])),
        "baseline": runs.baseline,
        "metric": "sentence chrF",
        "llm": first["settings"]["llm"],
        "commands": [command["command"] for command in runs.commands],
        "systems": systems,
    }


def _bins(runs: Runs, system: str) -> dict[str, Any] | None:
    """The scores' kind and the bins of a system; None where too few sentences have hints."""
    scores, gains, kind = _scores_and_gains(runs, system)
    number = min(MOST_BINS, len(scores) // LEAST_IN_A_BIN)
    if not number:
        return None
    generator, bins = np.random.default_rng(SEED), []
    for rows in np.array_split(np.argsort(scores, kind="stable"), number):
        means = gains[rows][generator.integers(0, len(rows), (RESAMPLES, len(rows)))].mean(axis=1)
        low, high = np.quantile(means, [0.025, 0.975])
        values = {"score": scores[rows].mean(), "from": scores[rows].min(), "to": scores[rows].max()}
        values |= {"gain": gains[rows].mean(), "low": low, "high": high}
        bins.append({"sentences": len(rows), **{name: round(float(value), 4) for name, value in values.items()}})
    return {"scores": kind, "bins": bins}


def _scores_and_gains(runs: Runs, system: str) -> tuple[Rows, Rows, str]:
    """For each sentence with hints its best score and its gain, (sentences,) each, and what the scores are."""
    scores: list[float] = []
    gains: list[float] = []
    kind = "score"
    for run in runs.of(system):
        base = runs.baseline_of(run)
        if base is None:
            continue
        kind = _kind(run)
        for record, gain in zip(run.records, run.sentence_chrf - base.sentence_chrf, strict=True):
            if record.translation.hints:
                scores.append(max(hint.hit.score for hint in record.translation.hints))
                gains.append(float(gain))
    return np.array(scores), np.array(gains), kind


def _kind(run: ReportRun) -> str:
    retriever = run.facts["settings"]["retriever"]
    return {"ccpr": "confidence", "bm25": "BM25 score", "hybrid": "hybrid score"}.get(retriever, "cosine")


def draw(numbers: Mapping[str, Any]) -> str:
    """The figure as SVG: a panel for each system."""
    systems = numbers["systems"]
    figure, panels = new_figure(1.2 + 3.6 * len(systems), 3.6, len(systems))
    lowest = min(own["low"] for system in systems.values() for own in system["bins"])
    highest = max(own["high"] for system in systems.values() for own in system["bins"])
    room = max(highest - lowest, 1.0) * 0.15
    for n, (axes, (name, system)) in enumerate(zip(panels, systems.items(), strict=True)):
        bins, colour = system["bins"], COLOURS[n % len(COLOURS)]
        spread = [[own["gain"] - own["low"] for own in bins], [own["high"] - own["gain"] for own in bins]]
        axes.axhline(0, color=INK, lw=0.8)
        axes.errorbar(
            [own["score"] for own in bins], [own["gain"] for own in bins], spread, color=colour, marker="o", capsize=3
        )
        for own in bins:
            place = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center", "size": 8, "color": INK}
            axes.annotate(f"n={own['sentences']}", (own["score"], own["high"]), **place)
        axes.set_ylim(min(lowest, 0) - room, max(highest, 0) + room)
        axes.margins(x=0.12)
        axes.set_xlabel(f"{system['scores']} of the best hint")
        axes.set_title(name, color=INK)
    panels[0].set_ylabel(f"gain in {numbers['metric']} over {numbers['baseline']}")
    what = f"{numbers['suite']}, {numbers['sentences']} sentences, {numbers['llm'].removeprefix('embedded:')}"
    if numbers["label"]:
        what += f" ({numbers['label']})"
    figure.suptitle(f"{what}; bars: 95 % intervals", size=9, color=INK)
    return svg_of(figure, "gain-by-similarity", f"{TITLE} {what}.")
