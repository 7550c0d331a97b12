"""HTML from texts of users, files and indexes: the one place where such text becomes part of the page."""

from __future__ import annotations

import html
import unicodedata

from rag_mt.languages import language

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


def tagged(text: str, code: str, tag: str = "span", classes: str = "") -> str:
    """`text` in an element that says its language and lets its own letters choose the writing direction."""
    named = f' class="{classes}"' if classes else ""
    return f'<{tag}{named} lang="{escaped(code)}" dir="auto">{escaped(text)}</{tag}>'


def direction(code: str) -> str:
    """`rtl` or `ltr`."""
    return "rtl" if language(code).right_to_left else "ltr"
