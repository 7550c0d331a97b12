"""The numbers of a text, and what the words of its language say of numbers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from rag_mt.base.files import read_toml
from rag_mt.base.languages import base_code
from rag_mt.checks.calendar_names import month_stems
from rag_mt.checks.stems import has_word
from rag_mt.text.answers import placeholders

FILE = Path(__file__).with_name("number_words.toml")
MOST_GROUPS = 5
"""Groups of digits of a number with blanks between them."""
SHORT_SCALE = 3
"""Letters up to which a word for a scale is a whole word: `m`, but not the beginning of `members`."""
REACH = 20
"""Characters before a number in which the word beside it stands."""
MONTH_ENDING = 4
"""Letters by which the name of a month may be longer than its stem."""
DOTLESS = {"tr", "az"}
"""Languages whose capital letter of `ı` is `I`."""

_NUMBER = re.compile(r"\d+(?:[.,'’:/\u00a0\u202f\u2009]\d+)*")
_BEHIND = re.compile(r"[\W_]{0,2}([^\W\d_]+)")
_SCALED = re.compile(r"(?:\s?[–-]\s?\d[\d.,]*)?[\W_]{0,2}(?:de\s)?([^\W\d_]+)")
"""The word that may be a scale, also of both ends of a range (`600–700 тысяч`) and behind a particle (`70 de mii`)."""
_BEFORE = re.compile(r"([^\W\d_]+)[.,]?\s$")
_DECADE = re.compile(r"(?:['’.-]\s?|)[^\W\d_]")
_SHORTENED = re.compile(r"(?:['’/–-]|\bFY\s?|\byear )$")
_BLANK = re.compile(r"[^\S\r\n]")
_GROUP = re.compile(r"\d{3}(?!\d)")
_GROUPED = re.compile(r"\d{1,3}(?:\D\d{3})+")
_DECIMAL = re.compile(r"(\d+(?:\D\d{3})*)[.,](\d+)")
_MAY_HAVE_PLACEHOLDERS = re.compile(r"[%{<&]")
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

    @property
    def values(self) -> list[float]:
        """What it may be worth, where the language of a sign is not known: `2,400` is 2400 or 2.4."""
        if len(self.text) > 2 * _MOST_DIGITS:
            return []
        values = [float(self.digits)] if self.text.isdecimal() or _GROUPED.fullmatch(self.text) else []
        if decimal := _DECIMAL.fullmatch(self.text):
            values.append(float(f"{re.sub(r'[^0-9]', '', decimal[1])}.{decimal[2]}"))
        return values


def numbers(text: str) -> list[Number]:
    """The numbers of a text, from left to right, without those of placeholders (`%1$s`, `&#160;`); decimal digits of
    all scripts count as ASCII's."""
    plain = "".join(str(int(c)) if c.isdecimal() else c for c in text)
    spans = placeholders(plain) if _MAY_HAVE_PLACEHOLDERS.search(plain) else []
    found = (Number(match[0], *match.span()) for match in _NUMBER.finditer(plain))
    return [n for n in found if not any(span.start <= n.start < span.end for span in spans)]


@dataclass(frozen=True)
class Words:
    """What a language's words for numbers begin with, by value; its scales by what they stand for; its words for half,
    quarter, century, first and the decimal sign; its months, by number."""

    values: dict[str, tuple[str, ...]]
    scales: dict[int, tuple[str, ...]]
    half: tuple[str, ...]
    quarter: tuple[str, ...]
    century: tuple[str, ...]
    first: tuple[str, ...]
    point: tuple[str, ...]
    months: Mapping[str, tuple[str, ...]]


@lru_cache(64)
def _words_of(language: str) -> Words:
    known = read_toml(FILE, "table of number words", FILE.name).get(base_code(language), {})
    values = {key: tuple(words) for key, words in known.items() if key.isdecimal()}
    scales = {int(factor): tuple(words) for factor, words in known.get("scales", {}).items()}
    half, quarter, century, first, point = (
        tuple(known.get(key, ())) for key in ("half", "quarter", "century", "first", "point")
    )
    return Words(values, scales, half, quarter, century, first, point, month_stems(language))


@dataclass(frozen=True)
class Side:
    """A text, as it is and casefolded, with its numbers and the words of its language. `runs` are numbers with a blank
    between them that may be groups of three digits (`1 234 567`), `amounts` all numbers, and runs as one."""

    text: str
    folded: str
    numbers: Sequence[Number]
    words: Words
    runs: Sequence[Sequence[Number]] = field(default=())

    @classmethod
    def of(cls, text: str, language: str) -> Side:
        """The side of a text in a language."""
        own = numbers(text)
        return cls(text, _folded(text, language), own, _words_of(language), list(_runs(text, own)))

    @property
    def amounts(self) -> list[Number]:
        return [*self.numbers, *map(joined, self.runs)]

    def has_word(self, stems: Sequence[str]) -> bool:
        """Whether a word of one of the stems is there."""
        return has_word(self.folded, stems)

    def following(self, number: Number) -> str:
        """The word after a number, casefolded; empty if there is none right behind it."""
        return self._behind(number, _BEHIND)

    def scale(self, number: Number) -> int:
        """What the word behind a number multiplies it by, 1 for no such word."""
        return self._factor(self._behind(number, _SCALED))

    def _behind(self, number: Number, pattern: re.Pattern[str]) -> str:
        """The word that a pattern finds right behind a number, casefolded, or an empty text."""
        word = pattern.match(self.folded if len(self.folded) == len(self.text) else self.text, number.end)
        return word[1].casefold() if word else ""

    def _factor(self, word: str) -> int:
        named = [
            (len(stem), factor)
            for factor, stems in self.words.scales.items()
            for stem in stems
            if (word == stem if len(stem) <= SHORT_SCALE else word.startswith(stem))
        ]
        return max(named)[1] if named else 1

    def worth(self, number: Number) -> list[float]:
        """What a number may be worth together with the scale behind it; without it too where that is an abbreviation
        (`5 m`: million or metres)."""
        scales = {self.scale(number), 1 if len(self.following(number)) < SHORT_SCALE else self.scale(number)}
        return [value * scale for value in number.values for scale in scales]

    def sums(self) -> Iterator[tuple[Sequence[Number], float]]:
        """Numbers that are one together with the scales between them, and what they are worth: `2 bin 500`, `2 million
        750 thousand`; also `bin 500`."""
        for n, number in enumerate(self.numbers):
            before = self.numbers[n - 1] if n else None
            gap = self.folded[before.end if before else 0 : number.start].split()
            scale, own = self._factor(gap[-1]) if gap else 1, self.worth(number)
            if scale == 1 or not own or own[0] >= scale:
                continue
            if before and len(gap) == 1 and before.values:
                yield (before, number), before.values[-1] * scale + own[0]
            elif not before or len(gap) > 1:
                yield (number,), scale + own[0]

    def has_month(self, digits: str) -> bool:
        """Whether the month of a number is named."""
        return self.has_word(self.words.months.get(digits, ()))

    def is_day(self, number: Number) -> bool:
        """Whether the name of a month stands beside a number."""
        before = _BEFORE.search(self.text, max(0, number.start - REACH), number.start)
        beside = (self.following(number), before[1].casefold() if before else "")
        months = [stem for stems in self.words.months.values() for stem in stems]
        return any(_is_form(word, stem) for word in beside if word for stem in months)

    @property
    def short_years(self) -> set[str]:
        """Numbers of two digits that may be years: `80s`, `'80`, `2006–12`, the last part of `27.10.82`."""
        found = {part for n in self.numbers if len(n.parts) > 1 for part in re.findall(r"\d+", n.text)[1:]}
        for n in self.numbers:
            if len(n.text) == 2 and (
                _DECADE.match(self.text, n.end) or _SHORTENED.search(self.text, max(0, n.start - REACH), n.start)
            ):
                found.add(n.text)
        return {text for text in found if len(text) == 2}

    def says(self, digits: str) -> bool:
        """Whether a number of up to nine digits is there in words: each of its parts, wherever it stands
        (`fünfundzwanzig`, `tři sta tisíc`)."""
        if self.has_word(self.words.values.get(digits, ())):
            return True
        if len(digits) > _MOST_DIGITS:
            return False
        if len(digits) == 4 and digits.endswith("0") and self.has_word(self.words.values.get(digits[2:], ())):
            return True  # 1930s: in the thirties
        value = int(digits)
        if value % 100 == 0 and 1000 < value < 10_000 and self._has_parts([*_spoken(value // 100), 100]):
            return True  # 1,400: fourteen hundred
        return self._has_parts(_spoken(value))

    def _has_parts(self, spoken: Sequence[int]) -> bool:
        stems = [self.words.values.get(str(part), ()) for part in spoken]
        if len(spoken) == 1:
            return self.has_word(stems[0])
        return all(any(stem.rstrip("-") in self.folded for stem in of_part) for of_part in stems)


def _is_form(word: str, stem: str) -> bool:
    """Whether a word is the name of a month that begins with a stem; a stem with a full stop is a whole word."""
    if stem.endswith("."):
        return word == stem[:-1]
    return word.startswith(stem.rstrip("-")) and len(word) <= len(stem) + MONTH_ENDING


def _folded(text: str, language: str) -> str:
    """A text in lower case, as long as it was where that can be."""
    if base_code(language) in DOTLESS:
        text = text.replace("İ", "i").replace("I", "ı")
    return text.casefold()


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


def _runs(text: str, found: Sequence[Number]) -> Iterator[Sequence[Number]]:
    for begin, first in enumerate(found):
        last = first
        for end, number in enumerate(found[begin + 1 : begin + MOST_GROUPS], begin + 2):
            gap = text[last.end : number.start]
            if len(gap) != 1 or not _BLANK.match(gap) or not _GROUP.match(number.text):
                break
            yield found[begin:end]
            last = number


def joined(run: Sequence[Number]) -> Number:
    """A run of groups of digits as one number."""
    return Number("".join(number.text for number in run), run[0].start, run[-1].end)
