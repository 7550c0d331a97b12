"""HTML from texts of users, files and indexes: the one place where such text becomes part of the page."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence

from rag_mt.text.differences import differences
from ui.server.tasks import State, Task

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


def isolated(text: str) -> str:
    """`text` in an element whose own letters choose the writing direction."""
    return f'<div dir="auto">{escaped(text)}</div>'


def message(text: str, wrong: bool = False) -> str:
    """A line about what is going on; what went wrong is said to be so."""
    if not wrong:
        return f'<p class="mt-message" role="status">{escaped(text)}</p>'
    return f'<p class="mt-message mt-wrong" role="alert"><strong>Not done:</strong> {escaped(sentence_case(text))}</p>'


def sentence_case(text: str) -> str:
    """An error of the program as a sentence on the page."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


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


def progress_line(task: Task, state: State, label: str, state_name: str) -> str:
    """Name, state, notes and a progress bar of a task; only the error of one that failed."""
    done, total = task.progress
    name = f'<strong dir="auto">{escaped(task.name)}</strong>'
    if state == "failed":
        return f'<p class="mt-message mt-wrong" role="alert">{name}: {escaped(task.error)}</p>'
    notes = "".join(f"<li>{escaped(note)}</li>" for note in task.notes)
    percent = 100 * done // total if total else 0
    return (
        f'<p class="mt-message" role="status">{name}: {escaped(state_name)} {done} of {total} sentences.</p>'
        f'<div class="mt-bar" role="progressbar" aria-label="{label}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent}"><div style="width: {percent}%"></div></div>{f"<ul>{notes}</ul>" if notes else ""}'
    )


def comparison(left: str, right: str, titles: tuple[str, str], code: str, busy: bool = False) -> str:
    """Two translations as two columns. A difference is underlined and said to screen readers, not only coloured; while
    the left text still grows (`busy`) nothing is marked."""
    runs = [] if busy else differences(left, right)
    sides = [
        ("left", left, [(run.before, run.differs) for run in runs]),
        ("right", right, [(run.after, run.differs) for run in runs]),
    ]
    return '<div class="mt-sides">{}</div>'.format(
        "".join(
            f'<section class="mt-side"><h3>{escaped(title)}</h3>'
            f'<p lang="{escaped(code)}" dir="auto" class="mt-text">{_marked(pieces, side) or escaped(text)}</p>'
            f'<p class="mt-count">{"" if busy else _count(pieces)}</p></section>'
            for title, (side, text, pieces) in zip(titles, sides, strict=True)
        )
    )


def _marked(pieces: Sequence[tuple[str, bool]], side: str) -> str:
    """The pieces of a text, those that differ marked."""
    return "".join(
        f'<mark class="mt-diff mt-diff-{side}"><span class="mt-sr">[differs: </span>{escaped(text)}'
        '<span class="mt-sr">]</span></mark>'
        if differs and text.strip()
        else escaped(text)
        for text, differs in pieces
    )


def _count(pieces: Sequence[tuple[str, bool]]) -> str:
    """How many pieces of a text differ."""
    if not any(text for text, _ in pieces):
        return "No translation yet."
    number = sum(differs and bool(text.strip()) for text, differs in pieces)
    return "No difference." if not number else f"{number} place{'s' * (number > 1)} differ{'s' * (number == 1)}."
