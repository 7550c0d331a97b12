"""What all figures share: a look that is read on light and on dark pages, and files that are the same for the same
numbers."""

from __future__ import annotations

import io
import re
from typing import Any

from rag_mt.base.errors import UserError

INK = "#24292f"
"""The colour of text and lines; in the file it is the page's own, light or dark."""
COLOURS = ("#2f81f7", "#e5793a", "#2da44e", "#a371f7")
PAGE = (
    f"<style>svg{{color:{INK};font-family:sans-serif}}"
    "@media (prefers-color-scheme:dark){svg{color:#e6edf3}}</style>"
)


def new_figure(width: float, height: float, panels: int = 1) -> tuple[Any, list[Any]]:
    """A figure of so many inches and its panels side by side; raises UserError where matplotlib is missing."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("figures are drawn with matplotlib, which is missing: `pip install 'rag-mt[eval]'`") from None
    look: Any = {f"axes.{name}": INK for name in ("edgecolor", "labelcolor", "titlecolor")}
    look |= {"text.color": INK, "xtick.color": INK, "ytick.color": INK, "font.size": "10"}
    with matplotlib.rc_context(look):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0].tolist()
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.patch.set_visible(False)
    figure.patch.set_visible(False)
    return figure, axes


def svg_of(figure: Any, name: str, title: str) -> str:
    """The figure as SVG: without a background, with the page's own colour of text, with a title for those who cannot
    see it, and without a date."""
    import matplotlib

    file = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue().replace(INK, "currentColor")
    text = re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    escaped = title.replace("&", "&amp;").replace("<", "&lt;")
    text = re.sub(r"(<svg [^>]*>)", rf"\1\n <title>{escaped}</title>\n {PAGE}", text, count=1, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
