"""Phrase pairs from bilingual lexicons, less those that say nothing of translation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import read_lines
from rag_mt.text.words import surface, word_spans

MAX_WORDS = 6
ROUGE_MOST = 0.5
"""Pairs that are more alike than this in both directions are left out (XPR, section 4.1)."""

NO_PHRASE = "without a phrase on each side"
ODD = "with brackets, alternatives or sentence marks"

_ODD = re.compile(r"""[()\[\]{}/\\;:|<>~*=+…"„“”«»!?]|\.\.|, """)
_MONTH_OR_DAY = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)days?)\b"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TIME = _words(
    "second seconds minute minutes hour hours day days week weeks weekend month months year years decade decades "
    "century centuries millennium o'clock a.m p.m am pm morning mornings noon afternoon afternoons evening evenings "
    "night nights midnight today tonight tomorrow yesterday fortnight daily weekly monthly yearly annually hourly"
)
_AROUND_TIME = _words(
    "a an the of in on at to by for from since until till before after past half last next this that these those every "
    "each all ago later early late first third fourth fifth sixth seventh eighth ninth tenth one two three four five "
    "six seven eight nine ten eleven twelve twenty thirty fifty hundred few several many some other long old new per "
    "once twice and then"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A phrase with a translation: `source` in the other language, `target` in English. One that is not `asked` makes
    no phrase pair and is only known to be right."""

    source: str
    target: str
    asked: bool = True

    @property
    def phrases(self) -> tuple[str, str]:
        """Both phrases as they are written."""
        return self.source, self.target

    @property
    def key(self) -> tuple[str, str]:
        """Both phrases as they are compared."""
        return surface(self.source), surface(self.target)

    @property
    def words(self) -> int:
        """Words of the longer side."""
        return max(len(word_spans(phrase)) for phrase in self.phrases)


def read_lexicon(paths: Iterable[Path], skips: Skips) -> list[Entry]:
    """The entries of files with an English phrase in the first column and its translation in the second, each once, in
    the order of the files. What makes no phrase pair is counted in `skips`; it is among the entries, not `asked`, where
    it is a translation all the same (`hotel`, `Hotel`)."""
    entries: dict[tuple[str, str], Entry] = {}
    for path in paths:
        for line in read_lines(path, skips):
            if line.text is None:
                continue
            english, other, *_ = [*line.text.split("\t"), "", ""]
            english, other = (" ".join(phrase.split()) for phrase in (english, other))
            if len(english) > 4:  # longer than `to` and a letter: dictionaries mark verbs so
                english = english.removeprefix("to ")
            entry = Entry(other, english)
            if reason := unfit(entry):
                skips.add(Origin(str(path), line.number), reason)
            if reason not in (NO_PHRASE, ODD):
                entries.setdefault(entry.key, replace(entry, asked=not reason))
    return list(entries.values())


def unfit(entry: Entry) -> str:
    """Why an entry makes no phrase pair, such as `with a time expression`; empty if it does."""
    for phrase in entry.phrases:
        if not any(map(str.isalpha, phrase)) or len(phrase) < 2:
            return NO_PHRASE
        if _ODD.search(phrase):
            return ODD
    if entry.words > MAX_WORDS:
        return f"with more than {MAX_WORDS} words"
    if is_time(entry.target) or any(map(str.isdigit, entry.source)):
        return "with a time expression or number"
    if too_alike(entry.source, entry.target):
        return f"with ROUGE-L above {ROUGE_MOST} both ways"
    return ""


def is_time(phrase: str) -> bool:
    """Whether an English phrase is a time expression: it has a digit or a month or day of the week, or consists of
    words of time and what stands around them (`every other week`)."""
    words = set(phrase.casefold().split())
    if any(map(str.isdigit, phrase)) or _MONTH_OR_DAY.search(phrase):
        return True
    return not words.isdisjoint(_TIME) and words <= _TIME | _AROUND_TIME


def too_alike(one: str, other: str) -> bool:
    """Whether ROUGE-L, the words of their longest common subsequence over the words of either phrase, is above
    `ROUGE_MOST` for both (Lin, 2004)."""
    a, b = ([text[s:e] for s, e in word_spans(text).tolist()] for text in (one.casefold(), other.casefold()))
    return common_subsequence(a, b) > ROUGE_MOST * max(len(a), len(b))


def common_subsequence(a: list[str], b: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before, row = row, [0]
        for j, other in enumerate(b):
            row.append(before[j] + 1 if word == other else max(before[j + 1], row[-1]))
    return row[-1]
