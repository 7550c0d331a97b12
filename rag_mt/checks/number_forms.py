"""How languages write numbers: the decimal sign and the sign between groups of digits (CLDR)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from babel import Locale, UnknownLocaleError

from rag_mt.base.types import Span

LATIN = "latn"
"""CLDR's name of the digits from 0 to 9."""
BLANKS = " \u00a0\u202f\u2009"


@dataclass(frozen=True, slots=True)
class NumberForm:
    """The signs of a language's numbers, and whether their digits are those from 0 to 9."""

    decimal: str
    group: str
    latin: bool

    @property
    def has_blanks(self) -> bool:
        """Whether blanks stand between groups of digits."""
        return self.group in BLANKS


@lru_cache(64)
def form_of(language: str) -> NumberForm | None:
    """The form of a language; None for one that CLDR does not have."""
    try:
        locale = Locale.parse(language, sep="-")
    except (UnknownLocaleError, ValueError):
        return None
    system = locale.default_numbering_system
    symbols = locale.number_symbols.get(system) or locale.number_symbols[LATIN]
    return NumberForm(symbols["decimal"], symbols["group"], system == LATIN)


def written(span: Span, text: str, source: str, target: str) -> str:
    """The number at a span of a text in the language `source` as the language `target` writes it. Its signs change only
    where they divide groups of three digits or decimals: years, times, dates, versions and codes stay as they are."""
    number, own, other = span.of(text), form_of(source), form_of(target)
    if own is None or other is None:
        return number
    if other.latin:
        number = "".join(str(int(c)) if c.isdecimal() else c for c in number)
    groups, decimal = re.escape(BLANKS if own.has_blanks else own.group), re.escape(own.decimal)
    parts = re.fullmatch(rf"(\d{{1,3}}(?:[{groups}]\d{{3}})+|\d+)(?:{decimal}(\d+))?", number)
    if parts is None or _is_code(text[: span.start], own.decimal):
        return number
    whole = re.sub(r"\D", lambda sign: other.group, parts[1])
    return f"{whole}{other.decimal}{parts[2]}" if parts[2] else whole


def _is_code(before: str, decimal: str) -> bool:
    """Whether what stands before a number makes it part of a code (`v1.5`) or, with a full stop in it, the version of
    something with a name (`Python 3.11`)."""
    if before[-1:].isalnum() or (before[-1:] in "-_/." and before[-2:-1].isalnum()):
        return True
    name = before.split()[1:][-1:]  # what begins a sentence has a capital anyway
    return decimal == "." and bool(name) and name[0][:1].isupper()
