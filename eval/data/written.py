"""Other ways to write a sentence that leave its words as they are."""

from __future__ import annotations

import re
from collections.abc import Callable

BEFORE_MARK = re.compile(r"(?<=\w)(?=[.,;:!?…]+(?:\s|$))")


def _as_long(other: str, text: str) -> str:
    return other if len(other) == len(text) else text


WAYS: dict[str, Callable[[str], str]] = {
    "small": lambda text: _as_long(text.lower(), text),
    "capital": lambda text: _as_long(text.upper(), text),
    "unmarked": lambda text: text.rstrip(".!?…:;, ") or text,
    "tokenised": lambda text: BEFORE_MARK.sub(" ", text),
}
"""In lower and in upper case as Python makes them (where that keeps the length: `ß` does not, and Turkish `i` becomes
`I`), without the marks at its end, and with a blank before each mark, which moves the words behind it."""
