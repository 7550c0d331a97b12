"""The pictures of a report, as SVG elements to be set into a page."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np

from eval.report.blocks import Figure
from eval.report.runs import Runs
from eval.report.statistics import hint_statistics
from rag_mt.base.errors import UserError

LENGTHS = 4
"""Groups of sentences by length, of equal size."""


def figures(runs: Runs) -> list[Figure]:
    """All pictures that the runs have enough for."""
    plots: list[Figure | None] = [speed(runs), length(runs)]
    if len(runs.systems) > 1:
        plots = [gains(runs), precision(runs), *plots]
    return [figure for figure in plots if figure is not None]


def gains(runs: Runs) -> Figure:
    """The gain of each system per direction, in the suites of domains on average, with its 95 % interval."""
    places = runs.averaged if runs.of_domains else {name: [name] for name in runs.directions}
    figure, axes = _figure(0.8 * len(places) + 3)
    systems = runs.systems[1:]
    width = 0.8 / len(systems)
    for n, system in enumerate(systems):
        compared = [
            (position, comparison)
            for position, names in enumerate(places.values())
            if (comparison := runs.comparison(system, names, runs.main_metric))
        ]
        values = np.array([own.value for _, own in compared])
        spread = np.array([[own.value - own.low, own.high - own.value] for _, own in compared]).T
        positions = np.array([position for position, _ in compared]) + (n - (len(systems) - 1) / 2) * width
        axes.bar(positions, values, width, yerr=np.maximum(spread, 0), capsize=2, label=system)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xticks(range(len(places)), list(places))
    axes.set_ylabel(f"{runs.main_metric} over {runs.baseline}")
    caption = f"Gain over {runs.baseline} in {runs.main_metric}, with 95 % intervals."
    return _drawn(figure, axes, "gains", caption)


def precision(runs: Runs) -> Figure | None:
    """Precision of the hints against the gain where hints were shown, a point per system and direction."""
    points: dict[str, list[tuple[str, float, float]]] = {}
    for system in runs.systems[1:]:
        for run in runs.of(system):
            if base := runs.baseline_of(run):
                own = hint_statistics(run.records, run.target, run.sentence_chrf - base.sentence_chrf)
                if own.literal is not None and own.gain is not None:
                    points.setdefault(system, []).append((run.direction, 100 * (own.by_lemma or own.literal), own.gain))
    if not points:
        return None
    figure, axes = _figure(8)
    for system, rows in points.items():
        axes.scatter([x for _, x, _ in rows], [y for _, _, y in rows], label=system)
        for direction, x, y in rows:
            axes.annotate(direction, (x, y), fontsize=7, xytext=(3, 3), textcoords="offset points")
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("hints that stand in the reference by lemma, %")
    axes.set_ylabel("sentence chrF where hints were shown")
    caption = f"Precision of hints against the gain over {runs.baseline} on sentences that were shown hints."
    return _drawn(figure, axes, "precision", caption)


def length(runs: Runs) -> Figure:
    """Sentence chrF by the length of the source."""
    figure, axes = _figure(8)
    for system in runs.systems:
        own = runs.of(system)
        lengths = np.array([len(r.source.split()) for run in own for r in run.records])
        scores = np.concatenate([run.sentence_chrf for run in own])
        groups = np.array_split(np.argsort(lengths, kind="stable"), min(LENGTHS, len(lengths)))
        axes.plot([lengths[g].mean() for g in groups], [scores[g].mean() for g in groups], marker="o", label=system)
    axes.set_xlabel("words of the source")
    axes.set_ylabel("mean sentence chrF")
    return _drawn(figure, axes, "length", "Sentence chrF by the length of the source, in groups of equal size.")


def speed(runs: Runs) -> Figure:
    """Seconds per sentence of each system, by what they went into."""
    figure, axes = _figure(8)
    left = np.zeros(len(runs.systems))
    for part in ("retrieval", "generation"):
        values = []
        for own in map(runs.of, runs.systems):
            sentences = sum(run.translated if part == "retrieval" else run.generated for run in own)
            values.append(sum(run.facts["seconds"][part] for run in own) / max(sentences, 1))
        axes.barh(list(runs.systems), values, left=left, label=part)
        left += np.array(values)
    axes.set_xlabel("seconds per sentence")
    axes.invert_yaxis()
    return _drawn(figure, axes, "speed", "Time per sentence, loading of models left out.")


def _figure(width: float) -> tuple[Any, Any]:
    try:
        import matplotlib
    except ImportError:
        raise UserError("the plots of --html need matplotlib: `pip install matplotlib`, or leave --html out") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(min(width, 14), 4.5), layout="constrained")


def _drawn(figure: Any, axes: Any, name: str, caption: str) -> Figure:
    """The plot with a legend, its ids under its name, so that no other of the page has them; equal plots give equal
    text."""
    import matplotlib
    from matplotlib import pyplot

    axes.legend()
    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return Figure(caption, own_ids(file.getvalue()[file.getvalue().index("<svg") :].strip(), name))


def own_ids(svg: str, prefix: str) -> str:
    """The SVG with all its ids, and what refers to them, under a prefix."""
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
