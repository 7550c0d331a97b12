"""Numbers: those of the source stand in the translation, and no others.

Digits are compared without their separators, so that `1,234.5`, `1.234,5` and `1 234,5` are one number, and how often a
number occurs does not matter. What is on one side only is no finding where the other side says it in another way: as
a word (`3`, `drei`), by a scale (`36,000`, `36 tisíc`), on a 12-hour clock (`7.30 pm`, `19:30`), as a decade or a
short year (`1980s`, `80er`), in Roman digits, or as parts of a date (`August 31`, `31.8.`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code
from rag_mt.checks.calendar_names import month_stems
from rag_mt.checks.stems import has_word

FILE = Path(__file__).with_name("number_words.toml")
MOST_LOOKED_FOR = 100
"""Numbers of a text up to which those that are not there in digits are looked for in other ways."""
MOST_GROUPS = 5
"""Groups of digits of a number with blanks between them."""

_NUMBER = re.compile(r"\d+(?:[.,'’:/\u00a0\u202f\u2009]\d+)*")
_BEHIND = re.compile(r"[\W_]{0,2}([^\W\d_]+)")
_BLANK = re.compile(r"[^\S\r\n]")
_ROMAN = ((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
_MOST_ROMAN = 39
_HOURS = 12
_MOST_DIGITS = 9
_TEENS = 20


@dataclass(frozen=True, slots=True)
class Number:
    """A number as it stands in a text, from `start` to `end`, and its `digits` without separators and leading zeros."""

    text: str
    start: int
    end: int

    @property
    def digits(self) -> str:
        return "".join(c for c in self.text if c.isdecimal()).lstrip("0") or "0"

    @property
    def parts(self) -> list[str]:
        """The numbers between the separators."""
        return [part.lstrip("0") or "0" for part in re.findall(r"\d+", self.text)]


def numbers(text: str) -> list[Number]:
    """The numbers of a text, from left to right; decimal digits of all scripts count as ASCII's."""
    plain = "".join(str(int(c)) if c.isdecimal() else c for c in text)
    return [Number(match[0], *match.span()) for match in _NUMBER.finditer(plain)]


@dataclass(frozen=True)
class _Words:
    """What a language's words for numbers begin with, by value; its scales; its months, by number."""

    values: dict[str, tuple[str, ...]]
    scales: tuple[str, ...]
    months: Mapping[str, tuple[str, ...]]


@lru_cache(64)
def _words_of(language: str) -> _Words:
    known = read_toml(FILE, "table of number words", FILE.name).get(base_code(language), {})
    values = {key: tuple(words) for key, words in known.items() if key.isdecimal()}
    return _Words(values, tuple(known.get("scales", ())), month_stems(language))


@dataclass(frozen=True)
class _Side:
    """A text, as it is and casefolded, with its numbers and the words of its language."""

    text: str
    folded: str
    numbers: Sequence[Number]
    words: _Words

    @classmethod
    def of(cls, text: str, language: str) -> _Side:
        return cls(text, text.casefold(), numbers(text), _words_of(language))

    def has_word(self, stems: Sequence[str]) -> bool:
        """Whether a word of one of the stems is there."""
        return has_word(self.folded, stems)

    def following(self, number: Number) -> str:
        """The word after a number, casefolded; empty if there is none right behind it."""
        word = _BEHIND.match(self.text, number.end)
        return word[1].casefold() if word else ""


def differing_numbers(
    source: str, target: str, source_language: str, target_language: str
) -> tuple[list[Number], list[Number]]:
    """The numbers of the source that the translation does not have, and those that only it has."""
    sides = _Side.of(source, source_language), _Side.of(target, target_language)
    lost = _unexplained(*sides)
    added = _unexplained(*reversed(sides))
    return lost, added


def _unexplained(own: _Side, other: _Side) -> list[Number]:
    """The numbers of a side that the other one says in no way."""
    there = {number.digits for number in other.numbers} | set(_joined(other))
    parts = {part for number in other.numbers for part in number.parts}
    left, few = [], len(own.numbers) <= MOST_LOOKED_FOR
    in_run = {id(number) for run in _runs(own) if _digits(run) in there for number in run}
    for number in own.numbers:
        if number.digits in there or id(number) in in_run or (few and _is_said(number, own, other)):
            continue
        pieces = number.parts
        known = (piece in parts or piece in there or (few and _in_words(piece, other)) for piece in pieces)
        if len(pieces) > 1 and all(known):
            continue
        if len(pieces) == 1 and number.digits in parts:
            continue
        left.append(number)
    return left


def _is_said(number: Number, own: _Side, other: _Side) -> bool:
    """Whether the other side says a number in another way than by its digits."""
    digits = number.digits
    return (
        _in_words(digits, other)
        or _by_scale(number, own, other)
        or _by_clock(number, own, other)
        or _as_full_hour(number, other)
        or (number.text.isdecimal() and _as_short_year(digits, other))
        or _in_roman(digits, other)
    )


def _in_words(digits: str, other: _Side) -> bool:
    """Whether a number of up to nine digits, or a month of that number, is there in words: each of its parts, wherever
    it stands (`fünfundzwanzig`, `tři sta tisíc`)."""
    if other.has_word(other.words.months.get(digits, ())):
        return True
    if len(digits) > _MOST_DIGITS:
        return False
    spoken = _spoken(int(digits))
    stems = [other.words.values.get(str(part), ()) for part in spoken]
    if len(digits) == 4 and digits.endswith("0") and other.has_word(other.words.values.get(digits[2:], ())):
        return True  # 1930s: in the thirties
    if len(spoken) == 1:
        return other.has_word(stems[0])
    return all(any(stem.rstrip("-") in other.folded for stem in of_part) for of_part in stems)


def _spoken(value: int) -> list[int]:
    """The values of the words that a number is spoken in: 25 is 20 and 5, 300,000 is 3, 100 and 1000."""
    if value <= _TEENS or value in (100, 1000, 1_000_000):
        return [value]
    for unit in (1_000_000, 1000, 100, 10):
        if value >= unit:
            count, rest = divmod(value, unit)
            break
    head = [count * 10] if unit == 10 else [*(_spoken(count) if count > 1 else []), unit]
    return [*head, *(_spoken(rest) if rest else [])]


def _by_scale(number: Number, own: _Side, other: _Side) -> bool:
    """`36,000` and `36 tisíc`, `1 million` and `a million`: equal but for zeros at the end, and a scale behind one."""
    core = number.digits.rstrip("0")
    if number.digits == "1" and _scaled(number, own) and other.has_word(other.words.scales):
        return True
    same = [n for n in other.numbers if n.digits.rstrip("0") == core]
    return any(_scaled(number, own) != _scaled(n, other) for n in same)


def _scaled(number: Number, side: _Side) -> bool:
    """Whether a scale stands behind the number."""
    behind = side.following(number)
    return bool(behind) and behind.startswith(side.words.scales)


def _by_clock(number: Number, own: _Side, other: _Side) -> bool:
    """An hour after noon of a 12-hour clock, and the same one of a 24-hour clock."""
    hour, *minutes = number.parts
    return any(_twelve_later(hour, minutes, n) for n in other.numbers) or any(
        _twelve_later(n.parts[0], n.parts[1:], number) for n in other.numbers
    )


def _twelve_later(hour: str, minutes: list[str], late: Number) -> bool:
    """Whether `late` is that time of the afternoon on a 24-hour clock; full hours may have no minutes."""
    parts = late.parts
    if len(hour) > 2 or int(hour) >= _HOURS or len(minutes) > 1 or len(parts) > 2:
        return False
    return parts[0] == str(int(hour) + _HOURS) and (minutes or ["0"]) == (parts[1:] or ["0"])


def _as_full_hour(number: Number, other: _Side) -> bool:
    """`18:00` and `18`, both ways."""
    hour, *minutes = number.parts
    if minutes == ["0"]:
        return any(n.parts == [hour] for n in other.numbers)
    return not minutes and any(n.parts == [hour, "0"] for n in other.numbers)


def _as_short_year(digits: str, other: _Side) -> bool:
    """`1980` and `80`, `1800s` and `19th century`, both ways."""
    years = [part for n in other.numbers for part in n.parts]
    if len(digits) == 4 and digits.endswith("00") and str(int(digits[:2]) + 1) in years:
        return True
    if len(digits) == 2 and f"{int(digits) - 1}00" in years:
        return True
    if len(digits) == 4:
        return any(part == (digits[2:].lstrip("0") or "0") for n in other.numbers for part in n.parts)
    return len(digits) == 2 and any(len(part) == 4 and part[2:] == digits for n in other.numbers for part in n.parts)


def _in_roman(digits: str, other: _Side) -> bool:
    value = int(digits) if len(digits) <= 2 else 0
    if not 0 < value <= _MOST_ROMAN:
        return False
    roman = ""
    for worth, letters in _ROMAN:
        roman, value = roman + letters * (value // worth), value % worth
    return re.search(rf"(?<!\w){roman.lower()}(?:th|st|nd|rd)?(?!\w)", other.folded) is not None


def _runs(side: _Side) -> Iterator[Sequence[Number]]:
    """Numbers with a blank between them that may be groups of three digits: `1 234 567`."""
    for begin, first in enumerate(side.numbers):
        last = first
        for end, number in enumerate(side.numbers[begin + 1 : begin + MOST_GROUPS], begin + 2):
            gap = side.text[last.end : number.start]
            if len(gap) != 1 or not _BLANK.match(gap) or not re.match(r"\d{3}(?!\d)", number.text):
                break
            yield side.numbers[begin:end]
            last = number


def _digits(run: Sequence[Number]) -> str:
    return replace(run[0], text="".join(number.text for number in run)).digits


def _joined(side: _Side) -> Iterator[str]:
    return map(_digits, _runs(side))
