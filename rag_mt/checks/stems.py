"""Words looked for by what they begin with, so that their endings do not matter."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

SHORT, LONG = 2, 4
"""Letters of stems up to which they are whole words, and from which on they may stand within one: compounds."""


def has_word(text: str, stems: Iterable[str]) -> bool:
    """Whether a casefolded text has a word of one of the stems."""
    return any(_pattern(stem).search(text) for stem in stems)


@lru_cache(4096)
def _pattern(stem: str) -> re.Pattern[str]:
    """Finds a stem: at the beginning of a word, from LONG letters on also within one; one of up to SHORT letters, or
    with a `.` at its end, is a whole word, unless a `-` at its end says that it goes on."""
    letters = re.escape(stem.rstrip("-."))
    if stem.endswith("."):
        return re.compile(rf"(?<!\w){letters}(?!\w)")
    if stem.endswith("-") or SHORT < len(stem) < LONG:
        return re.compile(rf"(?<![^\W\d_]){letters}")
    return re.compile(letters if len(stem) >= LONG else rf"(?<!\w){letters}(?!\w)")
