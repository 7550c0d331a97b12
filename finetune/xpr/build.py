"""From a bilingual lexicon and monolingual text to phrase pairs with example sentences (XPR, section 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.phrase_pairs import base_form, concept
from finetune.xpr.sentences import Place, SentenceIndex, apart, other_phrases
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import read_lines
from rag_mt.text.words import surface, word_spans, word_texts
from retrievers.xpr.examples import SPLITS, Rows, Side, Split, side_of

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

FIFTHS: tuple[Split, ...] = ("train", "train", "train", "dev", "test")
"""The split of each fifth of the concepts (XPR, section 4.3)."""
SEVERAL_WORDS = 0.6
"""The share of a split that is kept for phrases of several words, as far as there are any."""
TEST_PAIRS = 2000
"""So many pairs a test split has, if there are as many, even where most of them are of one word."""

Indexes = tuple[SentenceIndex, SentenceIndex]
"""The sentences of the source language and the English ones."""


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
    a, b = (word_texts(text.casefold()) for text in (one, other))
    return common_subsequence(a, b) > ROUGE_MOST * max(len(a), len(b))


def common_subsequence(a: list[str], b: list[str]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(b) + 1)
    for word in a:
        before, row = row, [0]
        for j, other in enumerate(b):
            row.append(before[j] + 1 if word == other else max(before[j + 1], row[-1]))
    return row[-1]


@dataclass(frozen=True)
class Limits:
    """At most `pairs` phrase pairs with `least` to `most` example sentences on each side, those with `enough` of them
    first, and `others` further candidates per side. `builder` is raised whenever equal settings may choose others."""

    builder: int = 3
    pairs: int = 12_000
    least: int = 1
    enough: int = 4
    most: int = 32
    others: int = 20_000


@dataclass(frozen=True)
class Chosen:
    """A pair with the places of both phrases."""

    entry: Entry
    split: Split
    places: tuple[list[Place], list[Place]]


def split_of(english: str) -> Split:
    """The split of an English phrase, by its concept alone: the same in all language pairs and all runs."""
    number = int.from_bytes(blake2b(concept(english).encode(), digest_size=8).digest(), "big")
    return FIFTHS[number % len(FIFTHS)]


def choose(
    entries: Sequence[Entry],
    indexes: Indexes,
    linked: dict[int, frozenset[int]],
    limits: Limits,
    advance: Callable[[int], object],
    skips: Skips,
) -> list[Chosen]:
    """The pairs of all splits, test first; a phrase stands in one pair only. Entries that the sentences have not are
    counted in `skips`.

    Pairs with few other translations come first, since one of many mostly stands for a rare sense that the example
    sentences have not (the paper's pairs are titles of Wikipedia, of which each has one). More than half of a split
    are phrases of several words where there are as many. Where there are not, dev has no more of one word than of
    several, test so many that it has `TEST_PAIRS`, and train all.

    No translation of a held-out phrase is trained on, in any language pair: all translations of a held-out source
    phrase are of concepts of dev and test, in all language pairs alike (what is not so is counted in `skips`), and no
    source phrase that translates it, in any form, is in a training pair.
    """
    picker = _Picker(indexes, linked, limits, advance)
    asked = [entry for entry in entries if entry.asked]
    usable = [entry for entry in asked if picker.ceiling(entry) >= limits.least]
    skips.counts[f"in fewer than {limits.least} sentences of either side"] += len(asked) - len(usable)
    to_source, to_target, base = dict[str, set[str]](), dict[str, set[str]](), dict[str, str]()
    for entry in entries:
        source, target = entry.key
        base.setdefault(source, base_form(entry.source, indexes[0].language))
        to_target.setdefault(source, set()).add(target)
        to_source.setdefault(target, set()).add(source)

    def translations(entry: Entry) -> int:
        source, target = entry.key
        return len(to_target[source]) * len(to_source[target])

    usable.sort(key=lambda entry: (translations(entry), _drawn(entry)))
    chosen: list[Chosen] = []
    for split in ("test", "dev", "train"):
        quota = limits.pairs * FIFTHS.count(split) // len(FIFTHS)
        candidates = [entry for entry in usable if split_of(entry.target) == split]
        if split == "train":
            held = {base[source] for pair in chosen for source in to_source[pair.entry.key[1]]}
            clean = [entry for entry in candidates if base[entry.key[0]] not in held]
            reason = "for training, a form of a translation of a held-out phrase"
        else:
            clean = [e for e in candidates if all(split_of(english) != "train" for english in to_target[e.key[0]])]
            reason = "to be held out, with a translation that may be trained on"
        skips.counts[reason] += len(candidates) - len(clean)
        several = [entry for entry in clean if entry.words > 1]
        single = [entry for entry in clean if entry.words == 1]
        pairs = picker.pick(several, split, round(SEVERAL_WORDS * quota))
        most = {"train": quota, "dev": 2 * len(pairs), "test": max(2 * len(pairs), TEST_PAIRS)}[split]
        pairs += picker.pick(single, split, min(quota, most) - len(pairs))
        pairs += picker.pick(several, split, quota - len(pairs))  # where there are too few of one word
        chosen += sorted(pairs, key=lambda pair: _drawn(pair.entry))  # the first ones are a sample of their split
    return chosen


def _drawn(entry: Entry) -> bytes:
    """The place of an entry in an order that is as good as random, and always the same."""
    return blake2b("\t".join(entry.key).encode(), digest_size=8).digest()


class _Picker:
    """Looks up pairs one by one and takes those with enough example sentences."""

    def __init__(
        self, indexes: Indexes, linked: dict[int, frozenset[int]], limits: Limits, advance: Callable[[int], object]
    ) -> None:
        self.indexes, self.linked, self.limits, self.advance = indexes, linked, limits, advance
        self.taken: tuple[set[str], set[str]] = (set(), set())
        self.places = cache(self._places)

    def ceiling(self, entry: Entry) -> int:
        """A number of sentences that either phrase occurs in at most."""
        return min(index.ceiling(phrase) for phrase, index in zip(entry.phrases, self.indexes, strict=True))

    def pick(self, entries: Sequence[Entry], split: Split, quota: int) -> list[Chosen]:
        """Up to `quota` pairs whose phrases are not taken yet; they are from then on."""
        pairs: list[Chosen] = []
        for least in dict.fromkeys((max(self.limits.enough, self.limits.least), self.limits.least)):
            for entry in entries:
                if len(pairs) >= quota:
                    return pairs
                if entry.key[0] in self.taken[0] or entry.key[1] in self.taken[1] or self.ceiling(entry) < least:
                    continue
                places = self.places(entry)
                if min(map(len, places)) >= least:
                    pairs.append(Chosen(entry, split, places))
                    for said, taken in zip(entry.key, self.taken, strict=True):
                        taken.add(said)
                    self.advance(1)
        return pairs

    def _places(self, entry: Entry) -> tuple[list[Place], list[Place]]:
        """Places of both phrases."""
        most = self.limits.most
        ours, theirs = (i.places(phrase, 2 * most) for phrase, i in zip(entry.phrases, self.indexes, strict=True))
        ours, theirs = apart(ours, theirs, self.linked)
        return ours[:most], theirs[:most]


def assemble(
    entries: Sequence[Entry], chosen: Sequence[Chosen], indexes: Indexes, limits: Limits
) -> tuple[tuple[Side, Side], Rows]:
    """Both sides, with further candidates, and the pairs as an `ExampleSet` has them."""
    sides, numbers = [], []
    tested = [pair for pair in chosen if pair.split == "test"]
    for n, index in enumerate(indexes):
        phrases = [pair.entry.phrases[n] for pair in chosen]
        said = [pair.entry.key[n] for pair in chosen]
        # Candidates share the sentences of the phrases that are asked for, so that those are encoded once for both.
        rows = list(dict.fromkeys(row for pair in tested for row, _, _ in pair.places[n]))
        listed = {entry.key[n] for entry in entries}
        # A candidate that says the very same as a query of the other language would be a wrong answer, or not: unknown.
        foreign = {pair.entry.key[1 - n] for pair in tested}
        others = other_phrases(index.sentences, rows, listed, set(said), limits.others, limits.most, foreign)
        for (row, start, end), *_ in others.values():
            phrases.append(index.sentences[row].text[start:end])
        places = [*(pair.places[n] for pair in chosen), *others.values()]
        examples = ([(index.sentences[row], start, end) for row, start, end in own] for own in places)
        sides.append(side_of(index.language, phrases, examples))
        numbers.append({phrase: number for number, phrase in enumerate([*said, *others])})
    asked = {pair.entry.key for pair in chosen}
    pairs = [(n, n, SPLITS.index(pair.split)) for n, pair in enumerate(chosen)]
    for source, target in dict.fromkeys(entry.key for entry in entries):
        if (source, target) not in asked and source in numbers[0] and target in numbers[1]:
            pairs.append((numbers[0][source], numbers[1][target], SPLITS.index("known")))
    return (sides[0], sides[1]), np.array(pairs, dtype=np.int32).reshape(-1, 3)


def statistics(sides: tuple[Side, Side], rows: Rows) -> dict[str, Any]:
    """What the paper's table 6 tells, per split: pairs, pairs of which a side has several words, words (characters
    where words are not set apart) per phrase and per example sentence, and examples per phrase, source and target."""
    numbers: dict[str, Any] = {}
    for number, split in enumerate(SPLITS[:3]):
        pairs = rows[rows[:, 2] == number]
        words = [[len(word_spans(side.phrases[p])) for p in pairs[:, n]] for n, side in enumerate(sides)]
        examples = [side.examples_of(pairs[:, n], most=1 << 30) for n, side in enumerate(sides)]
        texts = [side.texts(np.unique(own[:, 1])) for side, own in zip(sides, examples, strict=True)]
        numbers[split] = {
            "pairs": len(pairs),
            "of several words": sum(max(both) > 1 for both in zip(*words, strict=True)),
            "words per phrase": [_mean(own) for own in words],
            "words per sentence": [_mean([len(word_spans(text)) for text in own]) for own in texts],
            "examples per phrase": [round(len(own) / max(1, len(pairs)), 1) for own in examples],
        }
    paired = [len(np.unique(rows[rows[:, 2] < 3, n])) for n in (0, 1)]
    numbers["other candidates"] = [len(side.phrases) - n for side, n in zip(sides, paired, strict=True)]
    numbers["sentences"] = [len(side.sentences) for side in sides]
    numbers["examples"] = [len(side.examples) for side in sides]
    return numbers


def _mean(numbers: Sequence[int]) -> float:
    return round(float(np.mean(numbers)), 2) if numbers else 0.0
