"""How a translation is made, as boxes and arrows."""

from __future__ import annotations

from typing import Any

from eval.figures.drawing import COLOURS, INK, new_figure, svg_of

STEPS = (
    ("source sentence", "in your language", "rag_mt/formats"),
    ("retriever", "finds what fits\nby its meaning", "retrievers"),
    ("prompt", "sentence and hints", "prompts"),
    ("language model", "small or large,\nlocal or a server", "rag_mt/llm"),
    ("translation", "with the origin\nof every hint", "rag_mt/translation"),
)
"""What a sentence goes through: title, what it is, and the folder that does it."""
INDEX = ("target text", "in one language: no\ntranslations needed"), ("index", "phrases, sentences\nor passages")
"""Where hints come from: what is indexed, and what the retriever searches."""
SEARCHES = 1
"""The step that searches the index."""
TITLE = (
    "How a translation is made: a retriever finds hints for the source sentence in an index of target-language text; "
    "prompt and language model turn both into a translation that names the origin of its hints."
)
WIDTH, HEIGHT, GAP = 1.62, 0.95, 0.38


def draw() -> str:
    """The figure as SVG."""
    figure, (axes,) = new_figure(len(STEPS) * (WIDTH + GAP), 2.9)
    axes.set_axis_off()
    step = WIDTH + GAP
    for n, (title, text, folder) in enumerate(STEPS):
        _box(axes, n * step, 0, title, text, COLOURS[0])
        axes.text(n * step + WIDTH / 2, -0.16, f"{folder}/", ha="center", va="top", size=8, color=INK)
        if n:
            _arrow(axes, (n * step - GAP, HEIGHT / 2), (n * step, HEIGHT / 2))
    high = HEIGHT + 0.55
    for n, (title, text) in enumerate(INDEX):
        _box(axes, n * step, high, title, text, COLOURS[1])
    _arrow(axes, (WIDTH, high + HEIGHT / 2), (step, high + HEIGHT / 2))
    _arrow(axes, (SEARCHES * step + WIDTH / 2, high), (SEARCHES * step + WIDTH / 2, HEIGHT))
    axes.text(SEARCHES * step + WIDTH / 2 + 0.1, HEIGHT + 0.27, "hits", va="center", size=9, style="italic", color=INK)
    axes.set_xlim(-0.05, len(STEPS) * step - GAP + 0.05)
    axes.set_ylim(-0.45, high + HEIGHT + 0.05)
    axes.set_aspect("equal")
    return svg_of(figure, "architecture", TITLE)


def _box(axes: Any, left: float, low: float, title: str, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(
        FancyBboxPatch((left, low), WIDTH, HEIGHT, boxstyle=style, facecolor=f"{colour}22", edgecolor=colour, lw=1.5)
    )
    axes.text(left + WIDTH / 2, low + HEIGHT * 0.74, title, ha="center", va="center", weight="bold", color=INK, size=9)
    axes.text(left + WIDTH / 2, low + HEIGHT * 0.34, text, ha="center", va="center", color=INK, size=8.5)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": INK, "shrinkA": 1, "shrinkB": 1, "lw": 1.3})
