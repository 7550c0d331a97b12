"""The pieces that a report is made of, and how they read in Markdown and in HTML."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple


class Heading(NamedTuple):
    """A heading of level 1 (the title) to 3."""

    text: str
    level: int = 2


class Text(NamedTuple):
    """A paragraph."""

    text: str


class Bullets(NamedTuple):
    """A list of lines."""

    items: Sequence[str]


class Code(NamedTuple):
    """Text as it is typed."""

    text: str


class Table(NamedTuple):
    """A table; the first column is text, the others are numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Figure(NamedTuple):
    """A picture as an SVG element, which only HTML shows, with what it shows in words."""

    caption: str
    svg: str


Block = Heading | Text | Bullets | Code | Table | Figure

_SPECIAL = re.compile(r"([\\`*_\[\]<>|])")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; display: block; overflow-x: auto; }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid #d0d7de; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { background: #f3f5f7; }
pre { background: #f3f5f7; padding: 0.8rem; overflow-x: auto; font-size: 0.85rem; white-space: pre-wrap; }
figure { margin: 1.5rem 0; } figcaption { font-size: 0.9rem; color: #57606a; } svg { max-width: 100%; height: auto; }
"""


def as_markdown(blocks: Sequence[Block]) -> str:
    """The blocks in Markdown; figures are left out."""
    return "\n\n".join(_markdown(block) for block in blocks if not isinstance(block, Figure)) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_plain(text)}"
        case Text(text):
            return _plain(text)
        case Bullets(items):
            return "\n".join(f"- {_plain(item)}" for item in items)
        case Code(text):
            fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
            return f"{fence}\n{text}\n{fence}"
        case Table(head, rows):
            return markdown_table([*map(_plain, head)], [[*map(_plain, row)] for row in rows])
        case Figure():
            return ""


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose cells are Markdown already: the first column is text, the others are numbers. Ends without a line
    break; raises ValueError for a row that is not as long as the head."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    if ragged := next((row for row in rows if len(row) != len(head)), None):
        raise ValueError(f"a row has {len(ragged)} cells and the head {len(head)}: {ragged}")
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """The text on one line with nothing in it that Markdown reads as a mark."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def as_html(blocks: Sequence[Block], title: str) -> str:
    """The blocks as one page that needs no other file."""
    body = "\n".join(map(_html, blocks))
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text, level):
            return _element(f"h{level}", text)
        case Text(text):
            return _element("p", text)
        case Bullets(items):
            return f"<ul>{''.join(_element('li', item) for item in items)}</ul>"
        case Code(text):
            return _element("pre", text)
        case Table(head, rows):
            cells = [[_element("th", cell) for cell in head], *([_element("td", cell) for cell in row] for row in rows)]
            return "<table>\n" + "\n".join(f"<tr>{''.join(line)}</tr>" for line in cells) + "\n</table>"
        case Figure(caption, svg):
            return f"<figure>\n{svg}\n{_element('figcaption', caption)}\n</figure>"


def _element(tag: str, text: str) -> str:
    return f"<{tag}>{html.escape(text)}</{tag}>"
