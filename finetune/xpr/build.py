"""From a bilingual lexicon and monolingual text to phrase pairs with example sentences (XPR, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from eval.data.phrase_pairs import base_form, concept
from finetune.xpr.lexicon import Entry
from finetune.xpr.others import other_phrases
from finetune.xpr.sentences import Place, SentenceIndex, apart
from rag_mt.base.types import Skips
from rag_mt.text.words import word_spans
from retrievers.xpr.examples import SPLITS, Rows, Side, Split, sentence_table

SHARES: dict[Split, int] = {"train": 3, "dev": 1, "test": 1}
"""Fifths of the concepts (XPR, section 4.3)."""
SEVERAL_WORDS = 0.6
"""The share of a split that is kept for phrases of several words, as far as there are any."""
TEST_PAIRS = 2000
"""So many pairs a test split has, if there are as many, even where most of them are of one word."""
BUILDER = 3
"""Raised whenever equal settings may choose other pairs or examples."""


@dataclass(frozen=True)
class Limits:
    """At most `pairs` phrase pairs with `least` to `most` example sentences on each side, those with `enough` of them
    first, and `others` further candidates per side."""

    pairs: int = 12_000
    least: int = 1
    enough: int = 4
    most: int = 32
    others: int = 20_000

    def settings(self) -> dict[str, int]:
        """All that decides what is chosen from given files."""
        return {"builder": BUILDER, **asdict(self)}


@dataclass(frozen=True)
class Found:
    """A chosen pair with the places of both phrases."""

    entry: Entry
    split: Split
    places: tuple[list[Place], list[Place]]


def split_of(english: str) -> Split:
    """The split of an English phrase, by its concept alone: the same in all language pairs and all runs."""
    fifths = [split for split, share in SHARES.items() for _ in range(share)]
    number = int.from_bytes(blake2b(concept(english).encode(), digest_size=8).digest(), "big")
    return fifths[number % len(fifths)]


def choose(
    entries: Sequence[Entry],
    sources: SentenceIndex,
    targets: SentenceIndex,
    linked: dict[int, frozenset[int]],
    limits: Limits,
    advance: Callable[[int], object],
    skips: Skips,
) -> list[Found]:
    """The pairs of all splits, test first; a phrase stands in one pair only. Entries that the sentences have not are
    counted in `skips`.

    Pairs with few other translations come first, since one of many mostly stands for a rare sense that the example
    sentences have not (the paper's pairs are titles of Wikipedia, of which each has one). More than half of a split
    are phrases of several words where there are as many. Where there are not, dev has no more
    of one word than of several, test so many that it has `TEST_PAIRS`, and train all.

    No translation of a dev or test phrase is trained on: all English translations that the lexicon has of its source
    phrase are of concepts of dev and test, in all language pairs alike (what is not so is counted in `skips`), and no
    source phrase that translates it, in any form, is in a training pair.
    """
    usable = [e for e in entries if e.asked]
    asked = len(usable)
    usable = [e for e in usable if min(targets.ceiling(e.target), sources.ceiling(e.source)) >= limits.least]
    skips.counts[f"in fewer than {limits.least} sentences of either side"] += asked - len(usable)
    to_source, to_target, base = dict[str, set[str]](), dict[str, set[str]](), dict[str, str]()
    for entry in entries:
        source, target = entry.key
        base.setdefault(source, base_form(entry.source, sources.language))
        to_target.setdefault(source, set()).add(target)
        to_source.setdefault(target, set()).add(source)

    def ways(entry: Entry) -> int:
        source, target = entry.key
        return len(to_target[source]) * len(to_source[target])

    usable.sort(key=lambda entry: (ways(entry), _drawn(entry)))
    taken: tuple[set[str], set[str]] = (set(), set())
    chosen: list[Found] = []
    for split in ("test", "dev", "train"):
        quota = limits.pairs * SHARES[split] // sum(SHARES.values())
        own = [e for e in usable if split_of(e.target) == split]
        if split == "train":
            held = {base[source] for found in chosen for source in to_source[found.entry.key[1]]}
            clean = [e for e in own if base[e.key[0]] not in held]
            skips.counts["for training, a form of a translation of a held-out phrase"] += len(own) - len(clean)
        else:
            clean = [e for e in own if all(split_of(english) != "train" for english in to_target[e.key[0]])]
            skips.counts["to be held out, with a translation that may be trained on"] += len(own) - len(clean)
        own = clean
        several = [e for e in own if e.words > 1]
        single = [e for e in own if e.words == 1]
        picker = _Picker(sources, targets, linked, limits, taken, advance)
        made = picker.pick(several, split, round(SEVERAL_WORDS * quota))
        most = {"train": quota, "dev": 2 * len(made), "test": max(2 * len(made), TEST_PAIRS)}[split]
        made += picker.pick(single, split, min(quota, most) - len(made))
        made += picker.pick(several, split, quota - len(made))  # where there are too few of one word
        chosen += sorted(made, key=lambda found: _drawn(found.entry))  # the first ones are a sample of their split
    return chosen


def _drawn(entry: Entry) -> bytes:
    """The place of an entry in an order that is as good as random, and always the same."""
    return blake2b("\t".join(entry.key).encode(), digest_size=8).digest()


class _Picker:
    """Looks up pairs one by one and keeps those with enough example sentences."""

    def __init__(
        self,
        sources: SentenceIndex,
        targets: SentenceIndex,
        linked: dict[int, frozenset[int]],
        limits: Limits,
        taken: tuple[set[str], set[str]],
        advance: Callable[[int], object],
    ) -> None:
        self.sources, self.targets, self.linked = sources, targets, linked
        self.limits, self.taken, self.advance = limits, taken, advance
        self._known: dict[tuple[str, str], tuple[list[Place], list[Place]]] = {}

    def pick(self, entries: Sequence[Entry], split: Split, quota: int) -> list[Found]:
        """Up to `quota` pairs whose phrases are not taken yet; they are from then on."""
        made: list[Found] = []
        for least in dict.fromkeys((max(self.limits.enough, self.limits.least), self.limits.least)):
            for entry in entries:
                if len(made) >= quota:
                    return made
                source, target = entry.key
                if source in self.taken[0] or target in self.taken[1]:
                    continue
                if min(self.sources.ceiling(entry.source), self.targets.ceiling(entry.target)) < least:
                    continue
                places = self._places(entry)
                if min(map(len, places)) >= least:
                    made.append(Found(entry, split, places))
                    self.taken[0].add(source)
                    self.taken[1].add(target)
                    self.advance(1)
        return made

    def _places(self, entry: Entry) -> tuple[list[Place], list[Place]]:
        """Places of both phrases, looked up once."""
        if (known := self._known.get(entry.key)) is not None:
            return known
        most, least = self.limits.most, self.limits.least
        made: tuple[list[Place], list[Place]] = ([], [])
        ours = self.sources.places(entry.source, 2 * most)
        theirs = self.targets.places(entry.target, 2 * most) if len(ours) >= least else []
        if theirs:
            ours, theirs = apart(ours, theirs, self.linked)
            made = (ours[:most], theirs[:most])
        self._known[entry.key] = made
        return made


def assemble(
    entries: Sequence[Entry], chosen: Sequence[Found], indexes: tuple[SentenceIndex, SentenceIndex], limits: Limits
) -> tuple[tuple[Side, Side], Rows]:
    """Both sides, with further candidates, and the pairs as an `ExampleSet` has them."""
    sides, numbers = [], []
    for number, index in enumerate(indexes):
        own = [found.entry.key[number] for found in chosen]
        texts = [(found.entry.source, found.entry.target)[number] for found in chosen]
        places = [found.places[number] for found in chosen]
        # Candidates share the sentences of the phrases that are asked for, so that those are encoded once for both.
        rows = dict.fromkeys(p[0] for f in chosen if f.split == "test" for p in f.places[number])
        listed = {entry.key[number] for entry in entries}
        # A candidate that says the very same as a query of the other language would be a wrong answer, or not: unknown.
        foreign = {f.entry.key[1 - number] for f in chosen if f.split == "test"}
        others = other_phrases(index.sentences, rows, listed, set(own), limits.others, limits.most, foreign)
        own += others
        texts += [index.sentences[p[0][0]].text[p[0][1] : p[0][2]] for p in others.values()]
        places += others.values()
        sides.append(_side(index, texts, places))
        numbers.append({said: row for row, said in enumerate(own)})
    asked = {found.entry.key for found in chosen}
    pairs = [(n, n, SPLITS.index(found.split)) for n, found in enumerate(chosen)]
    for source, target in dict.fromkeys(entry.key for entry in entries):
        if (source, target) not in asked and source in numbers[0] and target in numbers[1]:
            pairs.append((numbers[0][source], numbers[1][target], SPLITS.index("known")))
    return (sides[0], sides[1]), np.array(pairs, dtype=np.int32).reshape(-1, 3)


def _side(index: SentenceIndex, phrases: Sequence[str], places: Sequence[Sequence[Place]]) -> Side:
    numbers: dict[int, int] = {}
    examples = [
        (phrase, numbers.setdefault(row, len(numbers)), start, end)
        for phrase, own in enumerate(places)
        for row, start, end in own
    ]
    kept = [index.sentences[row] for row in numbers]
    table = sentence_table([s.text for s in kept], [s.source.file for s in kept], [s.source.line for s in kept])
    return Side(index.language, tuple(phrases), table, np.array(examples, dtype=np.int32).reshape(-1, 4))


def statistics(sides: tuple[Side, Side], rows: Rows) -> dict[str, Any]:
    """What the paper's table 6 tells, per split: pairs, pairs of which a side has several words, words (characters
    where words are not set apart) per phrase and per example sentence, and examples per phrase, source and target."""
    made: dict[str, Any] = {}
    for number, split in enumerate(SPLITS[:3]):
        own = rows[rows[:, 2] == number]
        lengths = [[len(word_spans(side.phrases[p])) for p in own[:, n]] for n, side in enumerate(sides)]
        examples = [side.examples_of(own[:, n], most=1 << 30) for n, side in enumerate(sides)]
        made[split] = {
            "pairs": len(own),
            "of several words": int((np.maximum(*map(np.array, lengths)) > 1).sum()) if len(own) else 0,
            "words per phrase": [_mean(own) for own in lengths],
            "words per sentence": [
                _mean([len(word_spans(t)) for t in side.texts(np.unique(e[:, 1]))])
                for side, e in zip(sides, examples, strict=True)
            ],
            "examples per phrase": [round(len(e) / max(1, len(own)), 1) for e in examples],
        }
    paired = [len(np.unique(rows[rows[:, 2] < 3, n])) for n in (0, 1)]
    made["other candidates"] = [len(side.phrases) - n for side, n in zip(sides, paired, strict=True)]
    made["sentences"] = [len(side.sentences) for side in sides]
    made["examples"] = [len(side.examples) for side in sides]
    return made


def _mean(numbers: Sequence[int]) -> float:
    return round(float(np.mean(numbers)), 2) if numbers else 0.0
