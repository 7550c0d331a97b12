"""The course of a training run, and of those that it goes on from, as a picture."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rag_mt.base.paths import whole_file
from rag_mt.models.adapters import seen_before

log = logging.getLogger("rag_mt")

Point = Mapping[str, Any]
NO_SCORE = ("step", "pairs", "seconds")
STYLES: Mapping[str, Mapping[str, Any]] = {
    "loss": {"color": "grey", "linestyle": "--"},
    "dev": {"color": "black", "linewidth": 3},
    "average": {"color": "black", "linewidth": 3},
}


def continued(before: Mapping[str, Any] | None, curve: Sequence[Point]) -> list[Point]:
    """The points of a run and of those it started from, one from the other, with the sentence pairs of all counted.
    `before` is the `training.json` of the run that this one goes on from, if there is one."""
    if before is None:
        return list(curve)
    seen, _ = seen_before(before)
    earlier = continued(before.get("started_from"), before.get("curve", []))
    return [*earlier, *({**point, "pairs": point["pairs"] + seen} for point in curve)]


def plot_curve(curve: Sequence[Point], path: Path, losses: Sequence[str], scores: str, unit: str) -> None:
    """Draw the losses of those names (all values, if there are none) and, above, the other values, which are `scores`,
    against what was seen, counted in `unit`, as SVG; nothing if there is no point yet or no matplotlib."""
    if not curve:
        return
    if find_spec("matplotlib") is None:
        log.info("%s is not drawn: it needs `pip install matplotlib`", path)
        return
    from matplotlib.figure import Figure

    names = [name for name in curve[-1] if name not in NO_SCORE]
    panes = {"loss": losses or names}
    if losses:
        panes = {f"development, {scores}": [name for name in names if name not in losses], **panes}
    figure = Figure(figsize=(7, 7 if losses else 5), layout="constrained")
    rows = figure.subplots(len(panes), sharex=True, squeeze=False)
    for (axes,), (label, pane) in zip(rows, panes.items(), strict=True):
        for name in pane:
            if points := [(point["pairs"], point[name]) for point in curve if name in point]:
                axes.plot(*zip(*points, strict=True), label=name, marker=".", **STYLES.get(name, {}))
        if axes.lines:
            axes.legend(ncols=2)
        axes.set_ylabel(label)
    axes.set_xlabel(f"{unit} seen")
    with whole_file(path) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})
