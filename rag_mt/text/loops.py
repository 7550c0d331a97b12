"""Finds text that repeats itself over and over, as small language models do when they lose the thread."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

_WORD = re.compile(r"\S+")
_LOOP_CHARACTERS = 40


def without_loop(text: str) -> str:
    """`text` up to the end of the first unit of a loop, with what follows the loop; the same text if there is none."""
    found = loop_in(text)
    return text[: found[0]] + found[1] if found else text


def loop_in(text: str) -> tuple[int, str] | None:
    """Where the first unit of a loop ends, and what follows the loop; None if there is none.

    A loop is a run of equal n-grams of words (4 of one or two words, 3 of up to five, 2 of more, case and
    punctuation aside) or a run of at least 40 characters that is a short string repeated six times or more.
    """
    words = list(_WORD.finditer(text))
    forms = [word[0].casefold() for word in words]
    if found := _loop([re.sub(r"\W", "", form) or form for form in forms], _enough_words):
        start, period, end = found
        rest = forms[end:]
        broken_off = rest == forms[start : start + period][: len(rest)]
        return words[start + period - 1].end(), "" if broken_off else text[words[end - 1].end() :]
    if found := _loop(text, _enough_characters):
        start, period, end = found
        tail = text[end:]
        return start + period, "" if text[start:].startswith(tail) and len(tail) < period else tail
    return None


def _enough_words(period: int) -> int:
    return 4 if period <= 2 else 3 if period <= 5 else 2


def _enough_characters(period: int) -> int:
    return max(6, -(-_LOOP_CHARACTERS // period))


def _loop(items: Sequence[str], enough: Callable[[int], int]) -> tuple[int, int, int] | None:
    """Start, period and end of the first loop of the shortest period, in whole periods; None if there is none."""
    codes = np.unique(np.array(list(items), dtype=np.str_), return_inverse=True)[1] if items else np.zeros(0, np.int64)
    for period in range(1, len(codes) // 2 + 1):
        if period * enough(period) > len(codes):
            continue
        equal = codes[period:] == codes[:-period]
        edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
        starts, lengths = edges[::2], edges[1::2] - edges[::2]
        long = np.flatnonzero(lengths >= period * (enough(period) - 1))
        if long.size:
            start = int(starts[long[0]])
            return start, period, start + (int(lengths[long[0]]) // period + 1) * period
    return None
