"""Inline codes of TMX and XLIFF segments: taken out to get plain text, put back into its translation."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from lxml import etree

from rag_mt.corpora.xml import local_name

WITH_TEXT = frozenset({"g", "mrk", "pc", "hi", "sub"})
"""Codes around translatable text; all others stand for native code, and their content is no text."""


@dataclass(frozen=True)
class Code:
    """An inline code at a character position of the plain text, in document order."""

    position: int
    kind: Literal["open", "close", "empty"]
    element: Any = None


def flatten(element: Any) -> tuple[str, list[Code]]:
    """The plain text of a `seg`, `source` or `target` and its inline codes."""
    codes: list[Code] = []
    return _flatten(element, "", codes), codes


def _flatten(element: Any, text: str, codes: list[Code]) -> str:
    text += element.text or ""
    for child in element:
        if local_name(child) in WITH_TEXT:
            codes.append(Code(len(text), "open", child))
            text = _flatten(child, text, codes)
            codes.append(Code(len(text), "close"))
        else:
            codes.append(Code(len(text), "empty", child))
        text += child.tail or ""
    return text


def has_inner(text: str, codes: list[Code]) -> bool:
    """Whether a code stands between words, where its place in a translation can only be guessed."""
    return any(text[: c.position].strip() and text[c.position :].strip() for c in codes)


def rebuild(element: Any, text: str, source: str, codes: list[Code]) -> None:
    """Make `text` with the codes of `source` the content of `element`.

    Codes at the edges stay there, inner ones go to the word boundary nearest to their share of the text; their order,
    nesting and number stay the same. With `text` equal to `source` everything is as it was.
    """
    for child in list(element):
        element.remove(child)
    element.text = None
    places = [c.position for c in codes] if text == source else _places(text, source, codes)
    parents, at = [element], 0
    for code, place in zip(codes, places, strict=True):
        _append(parents[-1], text[at:place])
        at = place
        if code.kind == "close":
            parents.pop()
            continue
        child = deepcopy(code.element) if code.kind == "empty" else _shell(code.element)
        child.tail = None
        parents[-1].append(child)
        if code.kind == "open":
            parents.append(child)
    _append(element, text[at:])


def _places(text: str, source: str, codes: list[Code]) -> list[int]:
    """Ascending positions in `text` for the codes of `source`."""
    boundaries = [m.start() for m in re.finditer(r"(?<=\s)(?=\S)|(?<=\S)(?=\s)", text)] or [len(text)]
    places: list[int] = []
    for code in codes:
        if not source[: code.position].strip():
            place = 0
        elif not source[code.position :].strip():
            place = len(text)
        else:
            wanted = code.position / len(source) * len(text)
            place = min(boundaries, key=lambda b: (abs(b - wanted), b))
        places.append(max(place, places[-1] if places else 0))
    return places


def _shell(element: Any) -> Any:
    """The element with its attributes and without content."""
    return etree.Element(element.tag, element.attrib, nsmap=element.nsmap)


def _append(parent: Any, text: str) -> None:
    """Add text at the end of a parent's content."""
    if not text:
        return
    if len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    else:
        parent.text = (parent.text or "") + text
