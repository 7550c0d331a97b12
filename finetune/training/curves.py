"""The course of a training run as a picture."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag_mt.base.paths import whole_file

log = logging.getLogger("rag_mt")

NO_SCORE = ("step", "pairs", "seconds")
STYLES: Mapping[str, Mapping[str, Any]] = {
    "loss": {"color": "grey", "linestyle": "--"},
    "dev": {"color": "black", "linewidth": 3},
}


def plot_losses(curve: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Losses per token, of training (`loss`) and of development examples (`dev` and directions), against sentence
    pairs seen, as SVG; nothing if there is no point yet."""
    if not curve or (figure := _figure(path, (7, 5))) is None:
        return
    axes = figure.subplots()
    for name in [key for key in curve[-1] if key not in NO_SCORE]:
        points = [(point["pairs"], point[name]) for point in curve if name in point]
        label = {"loss": "training", "dev": "development"}.get(name, f"development {name}")
        axes.plot(*zip(*points, strict=True), label=label, marker=".", **STYLES.get(name, {}))
    axes.set_xlabel("sentence pairs seen")
    axes.set_ylabel("loss per response token, nats")
    axes.legend(ncols=2)
    _save(figure, path)


def plot_scores(
    curve: Sequence[Mapping[str, Any]], path: Path, losses: Sequence[str], unit: str, scores: str = "accuracy@1, strict"
) -> None:
    """Dev scores in percent and, below, the losses of those names against what was seen, counted in `unit`, as SVG;
    nothing if there is no point yet."""
    if not curve or (figure := _figure(path, (7, 7))) is None:
        return
    panes = figure.subplots(2, 1, sharex=True)
    scored = [name for name in curve[-1] if name not in (*NO_SCORE, *losses)]
    for axes, names in zip(panes, (scored, losses), strict=True):
        for name in names:
            points = [(point["pairs"], point[name]) for point in curve if name in point]
            if points:
                style = {"linewidth": 3, "color": "black"} if name == "average" else {}
                axes.plot(*zip(*points, strict=True), label=name, marker=".", **style)
        if axes.lines:
            axes.legend(ncols=2)
    panes[0].set_ylabel(f"development, {scores}, %")
    panes[1].set_ylabel("loss")
    panes[1].set_xlabel(f"{unit} seen")
    _save(figure, path)


def _figure(path: Path, size: tuple[float, float]) -> Any:
    """An empty figure of that size in inches, or None with a note where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        log.info("%s is not drawn: it needs `pip install matplotlib`", path)
        return None
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _save(figure: Any, path: Path) -> None:
    with whole_file(path) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})
