"""Inline codes of TMX and XLIFF segments: taken out to get plain text, put back into its translation."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from rag_mt.formats.xml import legal, local_name, shell

WITH_TEXT = frozenset({"g", "mrk", "pc", "hi"})
"""Codes around translatable text; all others stand for native code, and their content is no text."""

_BEFORE_WORDS = frozenset({"open", "bpt", "bx", "sc"})
_AFTER_WORDS = frozenset({"close", "ept", "ex", "ec"})
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD_START = re.compile(rf"(?<=[\s{_CJK}])(?=\S)|(?<=\S)(?=[{_CJK}])")
_WORD_END = re.compile(rf"(?<=\S)(?=[\s{_CJK}])|(?<=[{_CJK}])(?=\S)")


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


def has_inner(text: str, codes: Sequence[Code]) -> bool:
    """Whether a code stands between words, where its place in a translation can only be guessed."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    return any(first < c.position < last for c in codes)


def rebuild(element: Any, text: str, source: str, codes: Sequence[Code]) -> None:
    """Make `text` with the codes of `source` the content of `element`.

    Codes at the edges stay there, inner ones go to the word boundary nearest to their share of the text; their order,
    nesting and number stay the same. With `text` equal to `source` everything is as it was.
    """
    del element[:]
    element.text, text = None, legal(text)
    places = [c.position for c in codes] if text == source else _places(text, source, codes)
    parents, at = [element], 0
    for code, place in zip(codes, places, strict=True):
        append_text(parents[-1], text[at:place])
        at = place
        if code.kind == "close":
            parents.pop()
            continue
        child = deepcopy(code.element) if code.kind == "empty" else shell(code.element)
        child.tail = None
        parents[-1].append(child)
        if code.kind == "open":
            parents.append(child)
    append_text(element, text[at:])


def _flatten(element: Any, text: str, codes: list[Code]) -> str:
    """`text` with the text of an element behind it, whose codes are added to `codes`."""
    text += element.text or ""
    for child in element:
        if _has_text(child):
            codes.append(Code(len(text), "open", child))
            text = _flatten(child, text, codes)
            codes.append(Code(len(text), "close"))
        else:
            codes.append(Code(len(text), "empty", child))
        text += child.tail or ""
    return text


def _has_text(code: Any) -> bool:
    """Whether the content of a code is to be translated; a marked term can be protected."""
    protected = code.get("translate") == "no" or code.get("mtype") == "protected"
    return local_name(code) in WITH_TEXT and not protected


def _places(text: str, source: str, codes: Sequence[Code]) -> list[int]:
    """Ascending positions in `text` for the codes of `source`: openings at word starts, closings at word ends."""
    if not codes:
        return []
    lead, trail = len(text) - len(text.lstrip()), len(text) - len(text.rstrip())
    first, last = len(source) - len(source.lstrip()), len(source.rstrip())
    starts = [lead] + [m.start() for m in _WORD_START.finditer(text)]
    ends = [m.start() for m in _WORD_END.finditer(text)] + [len(text) - trail]
    both = sorted({*starts, *ends})
    places: list[int] = []
    opened: list[tuple[int, int]] = []  # positions of the open codes in source and text
    for code in codes:
        least = places[-1] if places else 0
        if code.kind == "close":
            began, placed = opened.pop()
            least = max(least, placed + 1) if code.position > began else least  # keep a word inside the pair
        if code.position <= first:
            place = min(code.position, lead)
        elif code.position >= last:
            place = len(text) - min(len(source) - code.position, trail)
        else:
            wanted = code.position / len(source) * len(text)
            allowed = {"before": starts, "after": ends, "": both}[_side(code, source)]
            first_free, after = bisect_left(allowed, least), bisect_left(allowed, wanted)
            nearest = allowed[max(first_free, after - 1) : max(first_free, after) + 1]
            place = min(nearest, key=lambda p: (abs(p - wanted), p), default=len(text))
        places.append(max(place, places[-1] if places else 0))
        if code.kind == "open":
            opened.append((code.position, places[-1]))
    return places


def _side(code: Code, source: str) -> Literal["before", "after", ""]:
    """Whether an inner code stands before or after a word: by its name, else by the one blank beside it."""
    name = local_name(code.element) if code.kind == "empty" else code.kind
    if name in _BEFORE_WORDS:
        return "before"
    if name in _AFTER_WORDS:
        return "after"
    before, after = (source[at].isspace() for at in (code.position - 1, code.position))
    return "" if before == after else "before" if before else "after"


def append_text(parent: Any, text: str) -> None:
    """Add text at the end of a parent's content."""
    if text and len(parent):
        parent[-1].tail = (parent[-1].tail or "") + text
    elif text:
        parent.text = (parent.text or "") + text
