"""Where a text says a phrase word for word: the one meaning of a hint that a translation has taken up."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from rag_mt.base.types import Hint, Span


def phrase_places(phrase: str, text: str) -> Iterator[Span]:
    """The places of a phrase in a text from left to right, without overlaps: letter case aside (`STRASSE` is
    `Straße`), and as whole words where words have spaces between them."""
    folded, starts = "", []
    for number, character in enumerate(text):
        letters = character.casefold()  # one character may become several: where each of them comes from
        folded += letters
        starts += [number] * len(letters)
    starts.append(len(text))
    wanted = re.escape(phrase.casefold())
    if not any(unicodedata.east_asian_width(c) in "WF" for c in phrase):
        wanted = rf"(?<!\w){wanted}(?!\w)"
    for match in re.finditer(wanted, folded) if phrase else ():
        start, end = match.span()
        halves = start and starts[start] == starts[start - 1], starts[end] == starts[end - 1]
        if not any(halves):  # else it begins or ends within a character
            yield Span(starts[start], starts[end])


def takes_up(text: str, hint: Hint) -> bool:
    """Whether the hint's phrase stands in `text`."""
    return any(True for _ in phrase_places(hint.phrase, text))
