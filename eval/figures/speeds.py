"""New tokens per second by engine and batch size, as `python -m eval.speed.llm --output FILE` measured them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eval.figures.drawing import COLOURS, INK, new_figure, svg_of

TITLE = "New tokens per second by engine and batch size."


def draw(numbers: Mapping[str, Any]) -> str:
    """The figure as SVG: a bar for each engine and batch size, with its rate and its ratio to the first one."""
    results = numbers["results"]
    figure, (axes,) = new_figure(7.5, 1.2 + 0.5 * len(results))
    rates = [row["tokens_per_second"] for row in results]
    engines = list(dict.fromkeys(row["engine"] for row in results))
    colours = [COLOURS[engines.index(row["engine"]) % len(COLOURS)] for row in results]
    axes.barh([f"{row['engine']}, batch {row['batch']}" for row in results], rates, color=colours)
    for n, rate in enumerate(rates):
        axes.text(rate + max(rates) * 0.01, n, f"{rate:.0f}  ({rate / rates[0]:.1f} x)", va="center", color=INK, size=9)
    axes.set_xlim(0, max(rates) * 1.2)
    axes.invert_yaxis()
    axes.set_xlabel("new tokens per second")
    what = f"{numbers['llm']}, {numbers['dtype']}, {numbers['device']} with {numbers['threads']} threads"
    axes.set_title(what, size=9, color=INK)
    return svg_of(figure, "speed-by-engine", f"{TITLE} {what}.")
