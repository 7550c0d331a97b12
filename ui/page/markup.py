"""HTML from texts of users, files and indexes: the one place where such text becomes part of the page."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence

HIDDEN_CONTROLS = {"Cc", "Cf", "Cs", "Co", "Cn"}
KEPT = "\n\t\u200c\u200d\u200e\u200f"
"""Line ends, tabs, the joiners that Persian and Indic scripts are written with, and plain direction marks."""


def escaped(text: str) -> str:
    """`text` as HTML that shows it and does nothing: no tag, no attribute end, no control or direction override.

    Characters that a page cannot show (controls, overrides such as U+202E, lone surrogates) become U+FFFD, so that a
    file name cannot pretend to be another one.
    """
    if not text.isprintable():
        text = "".join("\ufffd" if unicodedata.category(c) in HIDDEN_CONTROLS and c not in KEPT else c for c in text)
    return html.escape(text, quote=True)


def tagged(text: str, code: str) -> str:
    """`text` in an element that says its language and lets its own letters choose the writing direction."""
    return f'<span lang="{escaped(code)}" dir="auto">{escaped(text)}</span>'


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], attributes: Iterable[str] = ()) -> str:
    """A table of cells that are HTML already; the caption is for screen readers, `attributes` are those of the rows."""
    head = "".join(f'<th scope="col">{name}</th>' for name in columns)
    lines = [
        "".join(f'<td data-label="{name}">{cell}</td>' for name, cell in zip(columns, row, strict=True)) for row in rows
    ]
    starts = list(attributes) or [""] * len(lines)
    body = "".join(f"<tr{start}>{line}</tr>" for start, line in zip(starts, lines, strict=True))
    return (
        f'<table class="mt-table"><caption class="mt-sr">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def isolated(text: str) -> str:
    """`text` in an element whose own letters choose the writing direction."""
    return f'<div dir="auto">{escaped(text)}</div>'
