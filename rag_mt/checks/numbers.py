"""Numbers: those of the source stand in the translation, and no others.

Digits are compared without their separators, so that `1,234.5`, `1.234,5` and `1 234,5` are one number, and how often a
number occurs does not matter. What is on one side only is no finding where the other side says it in another way: as
a word (`3`, `drei`), by a scale (`36,000`, `36 tisíc`), on a 12-hour clock (`7.30 pm`, `19:30`, `halb acht`), as a
decade, a century or a short year (`1980s`, `80er`), in Roman digits, as parts of a date (`August 31`, `31.8.`), or in
other units of measure (`500 feet`, `150 Meter`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from rag_mt.checks.clock import is_same_time
from rag_mt.checks.conversions import is_converted
from rag_mt.checks.number_sides import Number, Side, joined

MOST_LOOKED_FOR = 100
"""Numbers of a text up to which those that are not there in digits are looked for in other ways."""

_ROMAN = ((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I"))
_MOST_ROMAN = 39
REACH = 20
"""Characters before a number in which the name stands that it is part of."""
_GROUPED = re.compile(r"\d{1,3}(?:\D\d{3})+")
_DECIMAL = re.compile(r"\d+[.,]\d+")
_NAMED = re.compile(r"(?:[^\W\d_]|[A-Z]{2}-)$")
_INDEX_OF = re.compile(r"(?<![^\W\d_])(?:[kcdm]?m|co|h)$")
"""What a small number belongs to: `km2`, `CO2`."""
_INDEX = re.compile(r"[23](?!\w)")


def differing_numbers(
    source: str, target: str, source_language: str, target_language: str
) -> tuple[list[Number], list[Number]]:
    """The numbers of the source that the translation does not have, and those that only it has."""
    sides = Side.of(source, source_language), Side.of(target, target_language)
    lost = _unexplained(*sides)
    added = _unexplained(*reversed(sides))
    return lost, added


def _unexplained(own: Side, other: Side) -> list[Number]:
    """The numbers of a side that the other one says in no way."""
    there = {number.digits for number in other.amounts}
    parts = {part for number in other.numbers for part in number.parts}
    missing = [number for number in own.numbers if number.digits not in there]
    if not missing:
        return []
    if len(own.numbers) > MOST_LOOKED_FOR:
        return [n for n in missing if n.digits not in parts and not all(piece in parts for piece in n.parts)]
    wholes = ((run, joined(run)) for run in own.runs)
    said = [run for run, whole in wholes if whole.digits in there or _is_said(whole, own, other)]
    in_run = {id(number) for run in said for number in run}
    return [
        number
        for number in missing
        if id(number) not in in_run and not _is_said(number, own, other) and not _in_parts(number, own, other, there)
    ]


def _in_parts(number: Number, own: Side, other: Side, there: Set[str]) -> bool:
    """Whether the other side has the parts of a number, or it as a part of one: dates, ranges, results. The parts of a
    decimal number are none unless they may be a date."""
    pieces = number.parts
    if len(pieces) == 1:
        return any(number.digits in n.parts for n in other.numbers if not _GROUPED.fullmatch(n.text))
    if _DECIMAL.fullmatch(number.text):
        return all(piece in there or _is_month(piece, own, other) for piece in pieces)
    parts = {part for n in other.numbers for part in n.parts}
    return all(
        piece in parts
        or piece in there
        or other.says(piece)
        or _is_month(piece, own, other)
        or _as_short_year(piece, own, other)
        for piece in pieces
    )


def _is_month(digits: str, own: Side, other: Side) -> bool:
    """Whether the other side names the month of a number, and the side of the number does not."""
    return other.has_month(digits) and not own.has_month(digits)


def _is_said(number: Number, own: Side, other: Side) -> bool:
    """Whether the other side says a number in another way than by its digits."""
    digits = number.digits
    return (
        number.text == "00"
        or (number.text.isdecimal() and _is_month(digits, own, other))
        or _in_words(number, own, other)
        or _by_half(number, other)
        or _by_scale(number, own, other)
        or is_same_time(number, own, other)
        or (number.text.isdecimal() and (_as_short_year(number.text, own, other) or _as_century(number, own, other)))
        or _in_roman(digits, other)
        or _is_index(number, own)
        or is_converted(number, own, other)
    )


def _in_words(number: Number, own: Side, other: Side) -> bool:
    """Whether the other side says a number in words: none that is part of a name (`COM1`), a decimal number only with
    its sign, and the first day of a month by another word than an article."""
    if _NAMED.search(own.text, max(0, number.start - REACH), number.start):
        return False
    if number.digits == "1" and own.is_day(number):
        return other.has_word(other.words.first)
    if _is_decimal(number):
        return other.has_word(other.words.point) and all(other.says(piece) for piece in number.parts)
    return (number.text.isdecimal() or _GROUPED.fullmatch(number.text) is not None) and other.says(number.digits)


def _by_half(number: Number, other: Side) -> bool:
    """`2.5` and `two and a half`, `zweieinhalb`; `1.5` and `anderthalb`."""
    pieces = number.parts
    if len(pieces) != 2 or pieces[1] != "5" or not other.has_word(other.words.half):
        return False
    return pieces[0] in ("0", "1") or other.says(pieces[0]) or any(n.digits == pieces[0] for n in other.numbers)


def _by_scale(number: Number, own: Side, other: Side) -> bool:
    """`36,000` and `36 tisíc`, `5000 million` and `5 Milliarden`, `1 million` and `a million`, `500,000` and `half a
    million`."""
    scale, worth = own.scale(number), own.worth(number)
    for factor, stems in other.words.scales.items():
        if (factor in worth or (factor / 2 in worth and other.has_word(other.words.half))) and other.has_word(stems):
            return True
    if any(_share(worth, [total]) for _, total in other.sums()):
        return True
    if any(
        number in members and any(_share([total], other.worth(n)) for n in other.amounts)
        for members, total in own.sums()
    ):
        return True
    own_decimal = _is_decimal(number)
    same = (n for n in other.amounts if own_decimal or scale != other.scale(n) or _is_decimal(n))
    return any(_share(worth, other.worth(n)) for n in same)


def _is_decimal(number: Number) -> bool:
    """Whether a number has decimals, and may have noughts at its end: `5.50`."""
    return _DECIMAL.fullmatch(number.text) is not None and not _GROUPED.fullmatch(number.text)


def _share(one: Sequence[float], other: Sequence[float]) -> bool:
    return any(abs(a - b) <= 1e-9 * max(a, b) for a in one for b in other)


def _as_short_year(text: str, own: Side, other: Side) -> bool:
    """`1980` and `80s`, `1800s` and `19th century`, both ways."""
    years = [part for n in other.numbers for part in n.parts]
    if len(text) == 4:
        century = str(int(text[:2]) + 1) if text.endswith("00") else ""
        return century in years or text[2:] in other.short_years
    if len(text) != 2:
        return False
    if f"{int(text) - 1}00" in years:
        return True
    return text in own.short_years and any(len(part) == 4 and part[2:] == text for part in years)


def _as_century(number: Number, own: Side, other: Side) -> bool:
    """The `19` of `the 80s of the 19th century` where the other side has `1880s` or `80s`."""
    if not own.words.century or not own.following(number).startswith(own.words.century):
        return False
    if own.short_years & other.short_years:
        return True
    return any(len(part) == 4 and int(part[:2]) + 1 == int(number.digits) for n in other.numbers for part in n.parts)


def _in_roman(digits: str, other: Side) -> bool:
    value = int(digits) if len(digits) <= 2 else 0
    if not 0 < value <= _MOST_ROMAN:
        return False
    roman = ""
    for worth, letters in _ROMAN:
        roman, value = roman + letters * (value // worth), value % worth
    return re.search(rf"(?<!\w){roman.lower().replace('i', '[iı]')}(?:th|st|nd|rd)?(?!\w)", other.folded) is not None


def _is_index(number: Number, own: Side) -> bool:
    """Whether a number is part of a unit or a formula that the other side may write out: `km2`, `CO2`."""
    before = own.text[max(0, number.start - 3) : number.start].casefold()
    return _INDEX.match(own.text, number.start) is not None and _INDEX_OF.search(before) is not None
