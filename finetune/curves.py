"""The course of a training run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NO_SCORE = ("step", "pairs", "seconds", "contrastive", "segmentation", "sentences")


def plot_curve(curve: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Dev scores and loss against sentence pairs seen, as SVG; nothing if there is no point yet."""
    if not curve:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, sharex=True, figsize=(7, 7), layout="constrained")
    seen = [point["pairs"] for point in curve]
    for name in [k for k in curve[-1] if k not in NO_SCORE]:
        style = {"linewidth": 3, "color": "black"} if name == "average" else {}
        above.plot(seen, [point[name] for point in curve], label=name, **style)
    above.set_ylabel("dev accuracy@1, strict, %")
    above.legend(ncols=2)
    below.plot(seen, [point["contrastive"] for point in curve], label="contrastive loss")
    below.set_xlabel("sentence pairs seen")
    below.set_ylabel("contrastive loss")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
