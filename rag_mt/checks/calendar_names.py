"""Names of the months (CLDR): as they are written, and what their inflected forms begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from babel import Locale, UnknownLocaleError

from rag_mt.base.languages import base_code

SHORTEST = 3
"""Letters of the shortest name that is looked for."""
MORE = {"ru": {"5": "мае"}, "en": {"9": "sept"}, "de": {"1": "jänner", "2": "feber"}}
"""Forms that CLDR does not have for the language alone, and that no stem covers."""
LONG = 4
"""Letters of names up to which none changes; of longer ones the last two may."""


@lru_cache(64)
def month_names(language: str) -> Mapping[str, tuple[str, ...]]:
    """The months' names and abbreviations by number, casefolded; none for a language that CLDR does not have."""
    try:
        locale = Locale.parse(base_code(language))
    except (UnknownLocaleError, ValueError):
        return {}
    names: dict[str, dict[str, None]] = {}
    for context in ("format", "stand-alone"):
        for width in ("wide", "abbreviated"):
            for number, name in locale.months[context][width].items():
                plain = name.casefold().rstrip(".")
                if len(plain) >= SHORTEST and not plain[0].isdigit():
                    names.setdefault(str(number), {})[plain] = None
    for number, name in MORE.get(locale.language, {}).items():
        names.setdefault(number, {})[name] = None
    return {number: tuple(of_month) for number, of_month in names.items()}


@lru_cache(64)
def month_stems(language: str) -> Mapping[str, tuple[str, ...]]:
    """What the months' names begin with where they are inflected (`syyskuu`, `syyskuussa`), by number, for
    `rag_mt.checks.stems`; none of those that end in their number (`tháng 1`)."""
    return {
        number: tuple(dict.fromkeys(_stem(name, names) for name in names if not name[-1].isdigit()))
        for number, names in month_names(language).items()
    }


def _stem(name: str, names: Sequence[str]) -> str:
    if len(name) > LONG:
        return name[:-2]
    is_short = any(len(other) > LONG and other.startswith(name) for other in names)
    return f"{name}." if is_short else f"{name}-"
