"""Other ways to write a sentence that leave its words as they are."""

from __future__ import annotations

import re
from collections.abc import Callable

BEFORE_MARK = re.compile(r"(?<=\w)(?=[.,;:!?…]+(?:\s|$))")


def _small(text: str) -> str:
    return text.lower() if len(text.lower()) == len(text) else text


def _capital(text: str) -> str:
    return text.upper() if len(text.upper()) == len(text) else text


def _unmarked(text: str) -> str:
    return text.rstrip(".!?…:;, ") or text


def _tokenised(text: str) -> str:
    return BEFORE_MARK.sub(" ", text)


WAYS: dict[str, Callable[[str], str]] = {
    "small": _small,
    "capital": _capital,
    "unmarked": _unmarked,
    "tokenised": _tokenised,
}
"""In lower and in upper case as Python makes them (where that keeps the length: `ß` does not, and Turkish `i` becomes
`I`), without the marks at its end, and with a blank before each mark, which moves the words behind it."""
