"""Months of dates: those that the source names beside a number, the translation names too, and it names no others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import normalize

from babel import Locale

from rag_mt.base.languages import base_code
from rag_mt.checks.calendar_names import LONG, month_names

MONTHS = 12
"""Of languages of which fewer names are known nothing is said: others have no letters enough (`五月`)."""
NUMBERED = {"ja", "ko", "yue", "zh"}
"""Languages that number their months (`5月`): nothing is said of them either."""
UNCHANGED = {"en", "ro"}
"""Languages in which names of months have no endings."""
LETTERS_LOST = {"de": 0, "fi": 0, "tr": 1}
"""How many letters at the end of a name of more than LONG letters may be others; elsewhere OTHER_LETTERS."""
OTHER_LETTERS = 2
ENDING, SHORT_ENDING = r"[^\W\d_]{0,3}", {"de": "s?"}
"""What may follow a name of up to LONG letters."""
PREFIX = {"he": "[בהוכלמש]{0,2}"}
"""What may be written together with the name behind it."""
INFLECTED = {
    "cs": "led(?:en|n_) úno(?:r|r_) břez(?:en|n_) dub(?:en|n_) květ(?:en|n_) červ(?:en|n_) červen(?:ec|c_) "
    "srp(?:en|n_) září(?:_|) říj(?:en|n_) listopad(?:_|) prosin(?:ec|c_)",
    "ru": "январ_ феврал_ март(?:_|) апрел_ ма(?:й|[яею]|ем) июн_ июл_ август(?:_|) сентябр_ октябр_ ноябр_ декабр_",
}
"""The twelve months where some differ by their endings alone (`června`, `července`); `_` is any ending."""
OTHER_WORDS = {"cs", "fi", "tr"}
"""Languages in which abbreviations of months are words (`pro`, `kesä`): they are not looked for beside numbers."""
ADVERB = {"ro": "mai"}
"""A month's name that is another word (`5 mai mari`) where a word follows."""

_LETTERS = r"[^\W\d_]+"
_BEFORE = re.compile(r"(?<!\w)\d{1,4}(?:[.,ºª]|-?[^\W\d_]{1,2})?\s*(?:(?<=\s)(?:of|de)\s+)?$")
_BEFORE_AT_MOST = len("2000-th of ") + 1
_AFTER = re.compile(r"\.?,?\s+\d")
_WORD_FOLLOWS = re.compile(r"\s+[^\W\d_]")
_DIGIT = re.compile(r"\d")
_DIRECTION = dict.fromkeys((0x200E, 0x200F))


@dataclass(frozen=True, slots=True)
class _Names:
    """`any` finds all names of months, in groups `m1` to `m12`; `is_capital` says whether they begin with a capital.
    `short` ones and an `adverb` before a word count for nothing beside a number."""

    any: re.Pattern[str]
    is_capital: bool
    short: frozenset[str]
    adverb: str | None


def differing_months(
    source: str, target: str, source_language: str, target_language: str
) -> tuple[list[str], list[str]]:
    """The months beside a number that only the source has, and those that only the translation has; the other side has
    none if it says it neither by a name nor by a number. Nothing where the names are not known (see `_names`)."""
    names = _names(base_code(source_language)), _names(base_code(target_language))
    if not names[0] or not names[1]:
        return [], []
    return _missing(source, target, names[0], names[1]), _missing(target, source, names[1], names[0])


def _missing(text: str, other: str, names: _Names, other_names: _Names) -> list[str]:
    """The months beside a number of a text, as it writes them, that the other text does not have."""
    found = _beside_numbers(text, names)
    if not found:
        return []
    there = {match.lastgroup for match in other_names.any.finditer(other)}
    return [name for group, name in found.items() if group not in there and not _has_number(other, int(group[1:]))]


def _beside_numbers(text: str, names: _Names) -> dict[str, str]:
    """The months after a day or before a day or year, each by its group."""
    found: dict[str, str] = {}
    if not _DIGIT.search(text):
        return found
    for match in names.any.finditer(text):
        name, start, end = match[0], match.start(), match.end()
        if (names.is_capital and not name[0].isupper()) or name.casefold() in names.short:
            continue
        if name.casefold() == names.adverb and _WORD_FOLLOWS.match(text, end):
            continue
        if _AFTER.match(text, end) or _BEFORE.search(text[max(0, start - _BEFORE_AT_MOST) : start]):
            found.setdefault(match.lastgroup or "", name)
    return found


def _has_number(text: str, number: int) -> bool:
    """Whether a text may have a month in digits; marks of the direction of writing may stand among them."""
    text = text.translate(_DIRECTION)
    return bool(re.search(rf"\d[./-]\s?0?{number}(?!\d)|(?<!\d)0?{number}[./-]\s?\d", text))


@lru_cache(64)
def _names(code: str) -> _Names | None:
    """The months of a language, None for one that numbers them or of which CLDR does not have twelve names of three
    letters and more."""
    known = {number: [normalize("NFC", name) for name in forms] for number, forms in month_names(code).items()}
    if len(known) < MONTHS or code in NUMBERED:
        return None
    names = "|".join(f"(?P<m{number}>{'|'.join(_forms(code, number, known))})" for number in known)
    names = f"{PREFIX.get(code, '')}(?:{names})"
    short = {form for forms in known.values() for form in forms if len(form) < LONG or _is_short(form, forms)}
    first = next(iter(Locale.parse(code).months["format"]["wide"].values()))
    return _Names(
        re.compile(rf"(?<![^\W\d_])(?:{names})(?![^\W\d_])", re.IGNORECASE),
        first[:1].isupper(),
        frozenset(short) if code in OTHER_WORDS else frozenset(),
        ADVERB.get(code),
    )


def _forms(code: str, number: str, known: Mapping[str, Sequence[str]]) -> list[str]:
    """Expressions for what a month of those that are known is called, inflected forms too."""
    names, others = known[number], [name for other, names in known.items() if other != number for name in names]
    if code in INFLECTED:
        inflected = INFLECTED[code].split()[int(number) - 1].replace("_", _LETTERS)
        return [inflected, *map(re.escape, names)]
    forms = []
    for name in names:
        if code in UNCHANGED or _is_short(name, names):
            forms.append(re.escape(name))
        elif name[-1].isdigit():  # `tháng 1`, which is not `tháng 12`
            forms.append(rf"{re.escape(name)}(?!\d)")
        elif len(name) > LONG:
            kept = len(name) - LETTERS_LOST.get(code, OTHER_LETTERS)
            while kept < len(name) and any(other.startswith(name[:kept]) for other in others):  # `juuli`, `juuni`
                kept += 1
            forms.append(f"{re.escape(name[:kept])}(?:{_LETTERS})?")
        else:
            forms.append(rf"{re.escape(name)}{SHORT_ENDING.get(code, ENDING)}")
    return forms


def _is_short(name: str, names: Sequence[str]) -> bool:
    """Whether a name is an abbreviation of another one of the same month, and no form of it."""
    least = 2 if len(name) < LONG else 3
    return any(len(other) - len(name) >= least and other.startswith(name) for other in names)
