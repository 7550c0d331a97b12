"""Parts of German and Finnish compounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from rag_mt.glossary.forms import Forms

LEAST_PART = 5
"""Letters of a part that can be a term."""

_LINKS = {"de": ("s", "n", "en", "es"), "fi": ("s", "n", "en", "es")}
_LEAST_REST = 3
"""Letters of the rest: the shortest known words (`ei`, `es`) are mostly endings."""
_ENDINGS = {"de": frozenset({"innen", "schaft", "schaften"}), "fi": frozenset[str]()}
"""Known words that make no compound at the end of another one."""


@dataclass(frozen=True, slots=True)
class Part:
    """Characters `start` to `end` of a word whose rest is a known word; `head` is the last part, which has the word's
    ending."""

    start: int
    end: int
    head: bool

    def of(self, word: str) -> str:
        """The characters of the part; the head of a word with a capital gets one too, as a noun of its own has."""
        text = word[self.start : self.end]
        return text[0].upper() + text[1:] if self.head and word[0].isupper() else text


_REMEMBERED, _LONGEST = 1 << 15, 40
"""Words whose parts are remembered, and their letters: longer ones are not divided."""


@lru_cache(_REMEMBERED)
def _remembered_parts(word: str, forms: Forms) -> tuple[Part, ...]:
    return tuple(_parts(word, forms))


def compound_parts(word: str, forms: Forms) -> tuple[Part, ...]:
    """The first parts and heads of at least five letters that a word may have; none in other languages."""
    if forms.code not in _LINKS or not LEAST_PART + _LEAST_REST <= len(word) <= _LONGEST:
        return ()
    if word.isupper() and len(word.capitalize()) == len(word):
        word = word.capitalize()
    return _remembered_parts(word, forms)


def _parts(word: str, forms: Forms) -> Iterator[Part]:
    links = _LINKS[forms.code]
    for cut in range(_LEAST_REST, len(word) - _LEAST_REST + 1):
        before, after = word[:cut], word[cut:]
        ends = [cut, *(cut - len(link) for link in links if before.endswith(link))]
        if len(after) >= LEAST_PART and any(end >= _LEAST_REST and forms.known(word[:end]) for end in ends):
            yield Part(cut, len(word), True)
        if forms.known(after) and after.casefold() not in _ENDINGS[forms.code]:
            yield from (Part(0, end, False) for end in ends if end >= LEAST_PART)
