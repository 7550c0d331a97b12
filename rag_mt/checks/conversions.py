"""Units of measure that a translator converts: feet and metres, miles and kilometres, pounds and kilograms."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor
from pathlib import Path

from rag_mt.base.files import read_toml
from rag_mt.checks.number_sides import Number, Side

FILE = Path(__file__).with_name("conversions.toml")
ROUNDED = 1.09
"""How many times as large one of two amounts may be that are the same, rounded."""
REACH, WORDS = 40, 4
"""Characters and words behind a number in which its unit stands."""
MOST_IN_WORDS = 12
"""Whole numbers that are looked for in words."""
WHOLE_WORD = 3
"""Letters up to which the name of a unit is a whole word."""

_TOKEN = re.compile(r"[^\W\d_]+|[\"'′″]")
_SQUARED = re.compile(r"m[2²](?!\w)")


@dataclass(frozen=True)
class _Unit:
    """A unit of a kind, of `size` in metres, square metres, kilograms or litres."""

    kind: str
    metric: bool
    size: float
    words: tuple[str, ...]

    def is_named(self, word: str) -> bool:
        """Whether a casefolded word is its name."""
        return any(word == name if len(name) <= WHOLE_WORD else word.startswith(name) for name in self.words)

    def squared(self) -> _Unit:
        """The unit of area of a unit of length, other units as they are."""
        return _Unit("area", self.metric, self.size**2, self.words) if self.kind == "length" else self


@lru_cache(1)
def _table() -> tuple[tuple[_Unit, ...], tuple[str, ...]]:
    table = read_toml(FILE, "table of units", FILE.name)
    return tuple(_Unit(**{**unit, "words": tuple(unit["words"])}) for unit in table["units"]), tuple(table["squares"])


def is_converted(number: Number, own: Side, other: Side) -> bool:
    """Whether the other side has what a number measures in another system, in digits or in words: `500 feet` and `150
    Meter`, `five miles` and `8 km`."""
    unit = _unit_of(number, own)
    if unit is None:
        return False
    sizes = [value * unit.size for value in own.worth(number) if value]
    for n in other.amounts:
        same = _unit_of(n, other)
        if same and same.kind == unit.kind and same.metric != unit.metric:
            others = [value * same.size for value in other.worth(n) if value]
            if any(1 / ROUNDED <= one / two <= ROUNDED for one in sizes for two in others):
                return True
    return any(_in_words(size, foreign, other) for foreign in _foreign(unit, other) for size in sizes)


def _unit_of(number: Number, side: Side) -> _Unit | None:
    """The unit that stands behind a number, before the next one."""
    behind = re.split(r"\d", side.text[number.end : number.end + REACH].casefold(), maxsplit=1)[0]
    is_square = _SQUARED.search(side.text[number.end : number.end + REACH]) is not None
    return _named(_TOKEN.findall(behind)[:WORDS], is_square)


def _named(tokens: Sequence[str], is_square: bool) -> _Unit | None:
    """The first unit that some words name."""
    units, squares = _table()
    for token in tokens:
        if found := next((square for square in squares if token.startswith(square)), ""):
            is_square, token = True, token[len(found) :] or token
        elif any(square in token for square in squares if len(square) > WHOLE_WORD):
            is_square = True
        for unit in units:
            if unit.is_named(token):
                return unit.squared() if is_square else unit
    return None


def _foreign(unit: _Unit, other: Side) -> list[_Unit]:
    """The units of the same kind and the other system that a text names."""
    tokens = _TOKEN.findall(other.folded)
    found = {_named(tokens[n : n + 2], is_square=False) for n in range(len(tokens))}
    return [same for same in found if same and same.kind == unit.kind and same.metric != unit.metric]


def _in_words(size: float, unit: _Unit, other: Side) -> bool:
    """Whether the other side has about that many of a unit in words."""
    count = size / unit.size
    whole = range(ceil(count / ROUNDED), floor(count * ROUNDED) + 1)
    return len(whole) <= MOST_IN_WORDS and any(n > 0 and other.says(str(n)) for n in whole)
