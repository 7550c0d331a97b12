"""Amounts: nothing of the text is lost, nothing is added; told by its length and its number of sentences."""

from __future__ import annotations

import re
from functools import lru_cache
from math import log, sqrt
from pathlib import Path

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code
from rag_mt.text.splitting import split

FILE = Path(__file__).with_name("amounts.toml")
SMOOTHING = 10
"""Characters that are added to both sides, so that short texts may differ more."""
UNKNOWN_ALLOWED = 0.3
"""How much more the length may be off where it is not known how long translations into a language are."""
SENTENCES_APART, PER_SENTENCE, PER_MARK = 0.17, 0.1, 0.2
"""How far the length must be off, in the same direction, for a sentence more or less to count: more where a sentence is
a larger part of the text, less where question marks or exclamation marks are lost or added too (two at most)."""
_MARKS = re.compile(r"[?!？！؟]+")


def length_off(source: str, target: str, source_language: str, target_language: str) -> float:
    """ln of how many times as long as expected the translation is; 0 for a pair of languages that is not known."""
    known = _per_english()
    codes = base_code(source_language), base_code(target_language)
    expected = known.get(codes[1], 0.0) - known.get(codes[0], 0.0)
    return log((len(target.strip()) + SMOOTHING) / (len(source.strip()) + SMOOTHING)) - expected


def is_long_or_short(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether the translation is much longer or shorter than such a text is expected to be."""
    codes = {base_code(source_language), base_code(target_language)}
    allowed = 0.48 + 1 / sqrt(len(source.strip()) + SMOOTHING)
    if not codes <= _per_english().keys():
        allowed += UNKNOWN_ALLOWED
    return abs(length_off(source, target, source_language, target_language)) > allowed


def sentences_off(source: str, target: str, source_language: str, target_language: str) -> int:
    """How many sentences more (less: below 0) than the source the translation has, where its length says so too."""
    own, other = len(split(source, source_language)), len(split(target, target_language))
    if own == other:
        return 0
    sign = 1 if other > own else -1
    marks = len(_MARKS.findall(target)) - len(_MARKS.findall(source))
    off = length_off(source, target, source_language, target_language)
    needed = SENTENCES_APART + PER_SENTENCE / max(1, min(own, other)) - PER_MARK * max(-2, min(2, sign * marks))
    return other - own if sign * off > max(0.0, needed) else 0


@lru_cache(1)
def _per_english() -> dict[str, float]:
    known: dict[str, float] = read_toml(FILE, "table of lengths", FILE.name)["per_english"]
    return known
