"""Words of two languages that may translate each other, known by the letters they begin with.

`meanings.tsv` has a row for each English beginning, with those of other languages in whose translations it is found;
`python -m eval.checks.words` learns it. Words of any two of the languages share a meaning if they share an English one.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from rag_mt.base.languages import base_code

FILE = Path(__file__).with_name("meanings.tsv")
LETTERS = 5
"""By how many letters words are known: the endings behind them do not matter."""
ENGLISH = "en"
Meanings = frozenset[str]
_WORD = re.compile(r"[^\W\d_]{2,}")


def beginnings(text: str) -> list[str]:
    """The first letters of the words of a text, casefolded, in order; of words of two letters and more."""
    return [word[:LETTERS] for word in _WORD.findall(text.casefold())]


def meanings(text: str, language: str) -> list[Meanings]:
    """What the words of a text may mean, those that are known, in order; none in a language that has no words."""
    known = _known().get(base_code(language), {})
    return [known[word] for word in beginnings(text) if word in known]


def has_meanings(language: str) -> bool:
    """Whether there are words of a language."""
    return base_code(language) in _known()


def count_shared(words: Iterable[Meanings], others: Iterable[Meanings]) -> int:
    """How many of the words share a meaning with one of the others."""
    there = frozenset[str]().union(*others)
    return sum(not there.isdisjoint(word) for word in words)


@lru_cache(1)
def _known() -> Mapping[str, Mapping[str, Meanings]]:
    """The meanings of each language's words."""
    head, *rows = (line.split("\t") for line in FILE.read_text(encoding="utf-8").splitlines())
    known: dict[str, dict[str, set[str]]] = {code: defaultdict(set) for code in head}
    for cells in rows:
        for code, cell in zip(head, cells, strict=True):
            for word in cell.split():
                known[code][word].add(cells[0])
    return {code: {word: frozenset(own) for word, own in words.items()} for code, words in known.items()}


def as_table(pairs: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """The file of the meanings of `pairs`: for each language English words and their translations."""
    rows = ["\t".join((ENGLISH, *pairs))]
    for english in sorted(set().union(*pairs.values())):
        rows.append("\t".join((english, *(" ".join(own.get(english, ())) for own in pairs.values()))))
    return "".join(f"{row}\n" for row in rows)
