"""HTML from texts of users, files and indexes: the one place where such text becomes part of the page."""

from __future__ import annotations

import html
import unicodedata

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
