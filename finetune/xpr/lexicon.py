"""Phrase pairs from bilingual lexicons, less those that say nothing of translation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rag_mt.base.errors import UserError
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
    def words(self) -> int:
        """Words of the longer side."""
        return max(len(word_spans(self.source)), len(word_spans(self.target)))

    @property
    def key(self) -> tuple[str, str]:
        """Both phrases as they are compared."""
        return surface(self.source), surface(self.target)


def lexicon_files(data: Path, pair: str) -> list[Path]:
    """The lexicons `DIR/lexicon/NAME.xx-en.tsv[.xz]` of a language pair; raises UserError if there are none."""
    found = sorted(p for p in (data / "lexicon").glob(f"*.{pair}.tsv*") if p.is_file())
    if not found:
        raise UserError(
            f"there is no lexicon/NAME.{pair}.tsv in {data}: give the folder that holds it, or your own "
            "files by --lexicon and --text instead of --data"
        )
    return found


def read_lexicon(paths: Iterable[Path], skips: Skips) -> list[Entry]:
    """The entries of files with an English phrase in the first column and its translation in the second, each once, in
    the order of the files. What makes no phrase pair is counted in `skips`; it is among the entries, not `asked`, where
    it is a translation all the same (`hotel`, `Hotel`)."""
    found: dict[tuple[str, str], Entry] = {}
    for path in paths:
        for line in read_lines(path, skips):
            if line.text is None:
                continue
            english, other, *_ = [*line.text.split("\t"), "", ""]
            entry = Entry(cleaned(other), cleaned(english, verb_mark="to "))
            if reason := unfit(entry):
                skips.add(Origin(str(path), line.number), reason)
            if reason not in (NO_PHRASE, ODD):
                found.setdefault(entry.key, replace(entry, asked=not reason))
    return list(found.values())


def cleaned(phrase: str, verb_mark: str = "") -> str:
    """The phrase with single blanks, without the mark of an infinitive that dictionaries set before verbs."""
    plain = " ".join(phrase.split())
    return plain.removeprefix(verb_mark) if len(plain) > len(verb_mark) + 1 else plain


def unfit(entry: Entry) -> str:
    """Why an entry makes no phrase pair, such as `with a time expression`; empty if it does."""
    for phrase in (entry.source, entry.target):
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
    if any(map(str.isdigit, phrase)) or _MONTH_OR_DAY.search(phrase):
        return True
    words = phrase.casefold().split()
    return any(w in _TIME for w in words) and all(w in _TIME or w in _AROUND_TIME for w in words)


def too_alike(one: str, other: str) -> bool:
    """Whether ROUGE-L, the words of their longest common subsequence over the words of either phrase, is above
    `ROUGE_MOST` for both (Lin, 2004)."""
    a, b = ([text.casefold()[s:e] for s, e in word_spans(text.casefold()).tolist()] for text in (one, other))
    return common_subsequence(a, b) > ROUGE_MOST * max(len(a), len(b))


def common_subsequence(a: list[str], b: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before = row
        row = [0]
        for j, other in enumerate(b, 1):
            row.append(before[j - 1] + 1 if word == other else max(before[j], row[-1]))
    return row[-1]
