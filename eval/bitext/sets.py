"""Sets for bitext mining as in BUCC (Zweigenbaum et al. 2018): two monolingual sides that hide a few sentence pairs.

On disk a set is what BUCC publishes: `XX-en.PART.XX` and `XX-en.PART.en` with lines `id<TAB>text`, and
`XX-en.PART.gold` with lines `XX-id<TAB>en-id`; PART is `training` or `test`.

Of a parallel corpus the sides are made like this. Pairs of user interfaces, manuals, dictionaries and the like, and
pairs with a side of very few words, are left out; the others are taken in an order by hash. The first ones are hidden,
2.5 % of a side, none nearly the same as another: nearly the same are texts that are equal or one word apart, case,
punctuation and the digits of numbers left aside. The other-language side is filled up with the other sentences of
further pairs that are near to no hidden pair on either side; the English side with sentences of all language pairs'
files. No translation of a sentence that these files know (`known_english`), nor what is near to one, is on the English
side, save for the hidden one: what is parallel is marked, as far as words and files tell. A smaller set of the same
seed is a part of a larger one, save for what the larger one's further sentences exclude.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.data.suites import sample_lines
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import Corpus, letters_and_digits, read_corpus, training_file

Pair = tuple[str, str]
Corpora = Mapping[str, Corpus]
"""Sentence pairs by the language that stands beside English."""

PARTS = ("training", "test")
LEFT_OUT = ("ui", "tech-docs", "dict-phrases", "wmt-tok")
"""Domains that are not running text, and one that is tokenised and holds other languages too."""
SHARE = 0.025
"""Sentences of a side that have their translation on the other one: BUCC has 2 to 3 %."""
FEWEST_WORDS = 3
MOST_CHARS = 1000
SAMPLE_HIDDEN, SAMPLE_SEED = 5, 1
"""In the sample corpus every fifth pair is hidden."""

VERSION = 2
"""Raised whenever equal data and sizes may give other sets."""
SETTINGS = (VERSION, LEFT_OUT, SHARE, FEWEST_WORDS, MOST_CHARS)

_WORD = re.compile(r"\w+")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True, eq=False)
class BitextSet:
    """The texts of two sides, and the true pairs, int64 (pairs, 2): numbers of source and target from 0."""

    language: str
    part: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    gold: NDArray[np.int64]

    @property
    def name(self) -> str:
        return f"{self.language}-en.{self.part}"

    @property
    def sha256(self) -> str:
        """A hash of both sides and the true pairs."""
        text = "\n".join([*self.sources, "", *self.targets, "", self.gold.astype("<i8").tobytes().hex()])
        return hashlib.sha256(text.encode()).hexdigest()


def read_corpora(data: Path, wanted: Sequence[str] = ()) -> Corpora:
    """The pairs of all files of `DATA/train`; raises UserError where there is none of a `wanted` language."""
    there = [code for code in WMT16 if code in wanted or any((data / "train").glob(f"{code}-en.tsv*"))]
    return {code: read_corpus(training_file(data, f"{code}-en"), Skips(shown=0)) for code in there}


def known_english(corpora: Corpora, language: str) -> Callable[[str], set[str]]:
    """A function that gives all English known to say what a sentence in `language` says, by pairs of all domains.

    English sentences with a common translation in any language say the same, too.
    """
    translations: Mapping[str, set[str]] = {}
    alike: defaultdict[str, set[str]] = defaultdict(set)
    for code, corpus in corpora.items():
        by_text: defaultdict[str, set[str]] = defaultdict(set)
        for other, english in zip(corpus.sources, corpus.targets, strict=True):
            by_text[letters_and_digits(other)].add(" ".join(english.split()))
        for group in by_text.values():
            for text in group if len(group) > 1 else ():
                alike[letters_and_digits(text)] |= group
        if code == language:
            translations = by_text

    def known(text: str) -> set[str]:
        direct = translations.get(letters_and_digits(text), set())
        return direct.union(*(alike.get(letters_and_digits(english), ()) for english in direct))

    return known


def near_keys(*texts: str) -> set[int]:
    """Hashes (of this process) of the words of each text, and of them without each one: two texts share one if they are
    equal or a word put in, left out or exchanged makes them equal."""
    keys = set()
    for text in texts:
        words = words_of(text)
        keys |= {hash(words), *(hash(words[:n] + words[n + 1 :]) for n in range(len(words)))}
    return keys


def words_of(text: str) -> tuple[str, ...]:
    """The words, casefolded, every digit a 0."""
    return tuple(_WORD.findall(_DIGIT.sub("0", text.casefold())))


def build_sets(corpora: Corpora, language: str, training: int, test: int, seed: int) -> list[BitextSet]:
    """The training and the test part for a language, with so many sentences on each side; raises UserError if there is
    too little text.

    English sentences beside the pairs come from the files of all languages that are there.
    """
    counts = [max(1, round(SHARE * size)) for size in (training, test)]
    fillers = training + test - sum(counts)
    known = known_english(corpora, language)
    near_others, near_english = set[int](), set[int]()
    hidden, others = list[Pair](), dict[str, str]()
    for other, english in sorted(_pairs(corpora[language]), key=lambda pair: _sort_key(pair[0], seed)):
        if len(hidden) == sum(counts) and len(others) == fillers:
            break
        keys, english_keys = near_keys(other), near_keys(*known(other))
        if keys & near_others or english_keys & near_english:
            continue
        if len(hidden) < sum(counts):
            hidden.append((other, english))
            near_others |= keys
            near_english |= english_keys
        else:
            others.setdefault(letters_and_digits(other), other)
    if (found := len(hidden) + len(others)) < training + test:
        raise UserError(
            f"the training text has {found} different {language}-en pairs for {training + test} sentences "
            f"({training} for training, {test} for the test): give smaller sizes"
        )
    near_english |= near_keys(*(text for other in others.values() for text in known(other)))
    beside: dict[str, str] = {}
    texts = {english for corpus in corpora.values() for _, english in _pairs(corpus)}
    for text in sorted(texts, key=lambda text: _sort_key(text, seed)):
        if len(beside) < fillers and near_english.isdisjoint(near_keys(text)):
            beside.setdefault(letters_and_digits(text), text)
    if len(beside) < fillers:
        raise UserError(
            f"the training text has {len(beside)} English sentences beside the {language}-en pairs and {fillers} are "
            "needed: give smaller sizes"
        )
    first, split = counts[0], training - counts[0]
    sides = [*others.values()], [*beside.values()]
    return [
        _shuffled(language, "training", hidden[:first], sides[0][:split], sides[1][:split], seed),
        _shuffled(language, "test", hidden[first:], sides[0][split:], sides[1][split:], seed),
    ]


def _pairs(corpus: Corpus) -> Iterator[Pair]:
    """The usable pairs (other language, English) of a file."""
    for domain, *pair in zip(corpus.domains, corpus.sources, corpus.targets, strict=True):
        other, english = (" ".join(text.split()) for text in pair)
        usable = all(len(text) <= MOST_CHARS and len(_WORD.findall(text)) >= FEWEST_WORDS for text in (other, english))
        if usable and domain not in LEFT_OUT and letters_and_digits(other) != letters_and_digits(english):
            yield other, english


def _sort_key(text: str, seed: int) -> bytes:
    """A hash to sort by: equal texts have equal keys in all languages, so that their sets share English sentences."""
    return hashlib.blake2b(f"{seed} {text}".encode(), digest_size=16).digest()


def sample_sets(language: str) -> list[BitextSet]:
    """Both parts from the sample corpus, whose lines are parallel: a fifth of the pairs is hidden, the others give one
    of their sides each."""
    pairs = list(zip(sample_lines(language), sample_lines("en"), strict=True))
    sets = []
    for number, part in enumerate(PARTS):
        inside = pairs[number :: len(PARTS)]
        hidden, others = inside[::SAMPLE_HIDDEN], [pair for n, pair in enumerate(inside) if n % SAMPLE_HIDDEN]
        sides = [a for a, _ in others[::2]], [b for _, b in others[1::2]]
        sets.append(_shuffled(language, part, hidden, *sides, SAMPLE_SEED))
    return sets


def _shuffled(
    language: str, part: str, hidden: Sequence[Pair], others: Sequence[str], english: Sequence[str], seed: int
) -> BitextSet:
    """A set of these pairs and sentences, each side in an order of its own."""
    sides = ([a for a, _ in hidden] + list(others), [b for _, b in hidden] + list(english))
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(side)) for side in sides]
    gold = np.stack([np.argsort(order)[: len(hidden)] for order in orders], axis=1).astype(np.int64)
    sources, targets = (tuple(side[n] for n in order) for side, order in zip(sides, orders, strict=True))
    return BitextSet(language, part, sources, targets, gold[np.argsort(gold[:, 0])])


def write_set(bitext: BitextSet, folder: Path) -> None:
    """Write the three files of a set; sentences are numbered in their order."""
    codes = (bitext.language, "en")
    files: dict[str, list[list[str]]] = {
        code: [[f"{code}-{n:09d}", text] for n, text in enumerate(texts, 1)]
        for code, texts in zip(codes, (bitext.sources, bitext.targets), strict=True)
    }
    pairs = (bitext.gold + 1).tolist()
    files["gold"] = [[f"{code}-{n:09d}" for code, n in zip(codes, pair, strict=True)] for pair in pairs]
    for ending, rows in files.items():
        with whole_file(folder / f"{bitext.name}.{ending}") as part:
            part.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8", newline="\n")


def read_set(folder: Path, language: str, part: str) -> BitextSet:
    """The set of a folder (or of its `XX-en` folder, as BUCC packs them).

    Raises UserError for a file that is missing, is no such table or names an id that is not there.
    """
    name = f"{language}-en.{part}"
    folder = next((p for p in (folder, folder / f"{language}-en") if (p / f"{name}.gold").is_file()), folder)
    numbers, sides = list[dict[str, int]](), list[tuple[str, ...]]()
    for code in (language, "en"):
        rows = _read(folder / f"{name}.{code}")
        numbers.append({key: n for n, (key, _) in enumerate(rows)})
        sides.append(tuple(text for _, text in rows))
        if repeated := [key for n, (key, _) in enumerate(rows) if numbers[-1][key] != n]:
            raise UserError(
                f"{folder / name}.{code} has the id {repeated[0]} more than once: expected one line per sentence"
            )
    gold = []
    for line, (first, second) in enumerate(_read(folder / f"{name}.gold"), 1):
        if first not in numbers[0] or second not in numbers[1]:
            raise UserError(f"{folder / name}.gold:{line}: {first} {second} are not ids of both sides")
        gold.append((numbers[0][first], numbers[1][second]))
    if not gold:
        raise UserError(f"{folder / name}.gold holds no pair: give a set with true pairs")
    return BitextSet(language, part, sides[0], sides[1], np.array(gold, dtype=np.int64))


def _read(path: Path) -> list[Pair]:
    """The two columns of a file; raises UserError with the line that has not two."""
    if not path.is_file():
        raise UserError(f"there is no {path}: expected a set in BUCC's format, XX-en.PART.XX, .en and .gold")
    rows = []
    for line in read_lines(path, Skips()):
        first, _, second = (line.text or "").partition("\t")
        if not first or not second:
            raise UserError(f"{path}:{line.number}: expected two columns with a tab between them")
        rows.append((first, second))
    return rows
