"""Amounts: nothing of the text is lost, nothing is added; told by its length."""

from __future__ import annotations

from functools import lru_cache
from math import log, sqrt
from pathlib import Path

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code

FILE = Path(__file__).with_name("amounts.toml")
SMOOTHING = 10
"""Characters that are added to both sides, so that short texts may differ more."""
UNKNOWN_ALLOWED = 0.3
"""How much more the length may be off where it is not known how long translations into a language are."""


def expected_length(source_language: str, target_language: str) -> float:
    """ln of how many times as long as its source a translation is expected to be; 0 for unknown languages."""
    known = _per_english()
    return known.get(base_code(target_language), 0.0) - known.get(base_code(source_language), 0.0)


def length_off(source: str, target: str, source_language: str, target_language: str) -> float:
    """ln of how many times as long as expected the translation is; 0 for a pair of languages that is not known."""
    ratio = (len(target.strip()) + SMOOTHING) / (len(source.strip()) + SMOOTHING)
    return log(ratio) - expected_length(source_language, target_language)


def is_long_or_short(source: str, target: str, source_language: str, target_language: str) -> bool:
    """Whether the translation is much longer or shorter than such a text is expected to be."""
    codes = {base_code(source_language), base_code(target_language)}
    allowed = 0.48 + 1 / sqrt(len(source.strip()) + SMOOTHING)
    if not codes <= _per_english().keys():
        allowed += UNKNOWN_ALLOWED
    return abs(length_off(source, target, source_language, target_language)) > allowed


@lru_cache(1)
def _per_english() -> dict[str, float]:
    known: dict[str, float] = read_toml(FILE, "table of lengths", FILE.name)["per_english"]
    return known
