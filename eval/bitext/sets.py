"""Sets for bitext mining as in BUCC (Zweigenbaum et al. 2018): two monolingual sides that hide a few sentence pairs.

On disk a set is what BUCC publishes: `XX-en.PART.XX` and `XX-en.PART.en` with lines `id<TAB>text`, and
`XX-en.PART.gold` with lines `XX-id<TAB>en-id`; PART is `training` or `test`.

Of a parallel corpus the sides are made like this. Pairs of user interfaces, manuals, dictionaries and the like, and
pairs with a side of very few words, are left out; the others are taken in an order by hash. The first ones are hidden,
2.5 % of a side, none nearly the same as another: nearly the same are texts that are equal or one word apart, case,
punctuation and the digits of numbers left aside. The other-language side is filled up with the other sentences of
further pairs that are near to no hidden pair on either side; the English side with sentences of all language pairs'
files. No translation of a sentence that these files know (`eval.bitext.known`), nor what is near to one, is on the
English side, save for the hidden one: what is parallel is marked, as far as words and files tell. A smaller set
of the same seed is a part of a larger one, save for what the larger one's further sentences exclude.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.bitext.known import KnownEnglish, ParallelText
from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import Corpus, letters_and_digits
from retrievers.calibration import SAMPLE_CORPUS

Pair = tuple[str, str]

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


@dataclass(frozen=True)
class BitextSet:
    """Two sides with ids and texts, and the true pairs, int64 (pairs, 2): numbers of source and target."""

    language: str
    part: str
    source_ids: tuple[str, ...]
    sources: tuple[str, ...]
    target_ids: tuple[str, ...]
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


@dataclass(frozen=True)
class Sizes:
    """Sentences of a side of the training part and of the test part."""

    training: int
    test: int

    @property
    def total(self) -> int:
        return self.training + self.test


class Near:
    """The sentences seen so far, to know nearly equal ones by: those that a word put in, left out or exchanged makes
    equal."""

    def __init__(self) -> None:
        self._keys: set[int] = set()

    def __contains__(self, text: str) -> bool:
        return not self._keys.isdisjoint(near_keys(text))

    def add(self, *texts: str) -> None:
        """Count the texts as seen."""
        for text in texts:
            self._keys |= near_keys(text)


def near_keys(text: str) -> set[int]:
    """Hashes (of this process) of the words, and of the words without each one: two texts share one if they are nearly
    the same."""
    words = words_of(text)
    return {hash(words), *(hash(words[:n] + words[n + 1 :]) for n in range(len(words)))}


def words_of(text: str) -> tuple[str, ...]:
    """The words, casefolded, every digit a 0."""
    return tuple(_WORD.findall(_DIGIT.sub("0", text.casefold())))


def build_sets(parallel: ParallelText, language: str, sizes: Sizes, seed: int) -> list[BitextSet]:
    """The training and the test part for a language; raises UserError if there is too little text.

    English sentences beside the pairs come from the files of all languages that are there.
    """
    counts = [max(1, round(SHARE * size)) for size in (sizes.training, sizes.test)]
    pairs = sorted(_pairs(parallel.of(language)), key=lambda pair: _luck(pair[0], seed))
    near, known = (Near(), Near()), KnownEnglish(parallel, language)
    hidden, rest = _hidden(pairs, sum(counts), near, known)
    alone = _alone(rest, sizes.total - sum(counts), near, known)
    if len(hidden) + len(alone) < sizes.total:
        raise UserError(
            f"{parallel.data} has {len(hidden) + len(alone)} different {language}-en pairs for {sizes.total} sentences "
            f"({sizes.training} for training, {sizes.test} for the test): give smaller sizes"
        )
    wanted = sizes.total - sum(counts)
    for other, _ in alone:
        near[1].add(*known.of(other))
    english = _english(parallel, near[1], wanted, seed)
    if len(english) < wanted:
        raise UserError(
            f"{parallel.data} has {len(english)} English sentences beside the {language}-en pairs and {wanted} are "
            "needed: give smaller sizes"
        )
    first, split = counts[0], sizes.training - counts[0]
    others = [text for text, _ in alone]
    return [
        _shuffled(language, "training", hidden[:first], others[:split], english[:split], seed),
        _shuffled(language, "test", hidden[first:], others[split:], english[split:], seed),
    ]


def _hidden(
    pairs: Sequence[Pair], wanted: int, near: tuple[Near, Near], known: KnownEnglish
) -> tuple[list[Pair], list[Pair]]:
    """The first pairs of which neither side, nor another translation, is near to those of one before, and those behind
    them."""
    found: list[Pair] = []
    for at, (other, english) in enumerate(pairs):
        if len(found) == wanted:
            return found, list(pairs[at:])
        translations = known.of(other)
        if other not in near[0] and not any(text in near[1] for text in translations):
            found.append((other, english))
            near[0].add(other)
            near[1].add(*translations)
    return found, []


def _alone(pairs: Sequence[Pair], wanted: int, near: tuple[Near, Near], known: KnownEnglish) -> list[Pair]:
    """The first different pairs of which neither side, nor another translation, is near to a hidden one."""
    found: list[Pair] = []
    seen: set[str] = set()
    for other, english in pairs:
        if len(found) == wanted:
            break
        if (
            letters_and_digits(other) not in seen
            and other not in near[0]
            and not any(text in near[1] for text in known.of(other))
        ):
            seen.add(letters_and_digits(other))
            found.append((other, english))
    return found


def _pairs(corpus: Corpus) -> Iterator[tuple[str, str]]:
    """The usable pairs (other language, English) of a file, each once."""
    for domain, *pair in zip(corpus.domains, corpus.sources, corpus.targets, strict=True):
        other, english = (" ".join(text.split()) for text in pair)
        if (
            domain not in LEFT_OUT
            and _usable(other)
            and _usable(english)
            and letters_and_digits(other) != letters_and_digits(english)
        ):
            yield other, english


def _usable(text: str) -> bool:
    return len(text) <= MOST_CHARS and len(_WORD.findall(text)) >= FEWEST_WORDS


def _english(parallel: ParallelText, near: Near, wanted: int, seed: int) -> list[str]:
    """The first different English sentences of all files that are near to none seen before."""
    texts = {english for corpus in parallel.corpora.values() for _, english in _pairs(corpus)}
    found: dict[str, str] = {}
    for text in sorted(texts, key=lambda text: _luck(text, seed)):
        if len(found) == wanted:
            break
        if text not in near:
            found.setdefault(letters_and_digits(text), text)
    return list(found.values())


def _luck(text: str, seed: int) -> bytes:
    """Equal texts of all languages' sets have equal luck, so that sets share English sentences."""
    return hashlib.blake2b(f"{seed} {text}".encode(), digest_size=16).digest()


def sample_sets(language: str) -> list[BitextSet]:
    """Both parts from the sample corpus, whose lines are parallel: a fifth of the pairs is hidden, the others give one
    of their sides each."""
    codes = (language, "en")
    texts = [(SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in codes]
    pairs = list(zip(*texts, strict=True))
    made = []
    for number, part in enumerate(PARTS):
        own = pairs[number :: len(PARTS)]
        hidden, others = own[::SAMPLE_HIDDEN], [pair for n, pair in enumerate(own) if n % SAMPLE_HIDDEN]
        sides = [a for a, _ in others[::2]], [b for _, b in others[1::2]]
        made.append(_shuffled(language, part, hidden, *sides, SAMPLE_SEED))
    return made


def _shuffled(
    language: str, part: str, hidden: Sequence[Pair], others: Sequence[str], english: Sequence[str], seed: int
) -> BitextSet:
    """A set of these pairs and sentences, each side in an order of its own."""
    sides = ([a for a, _ in hidden] + list(others), [b for _, b in hidden] + list(english))
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(side)) for side in sides]
    gold = np.stack([np.argsort(order)[: len(hidden)] for order in orders], axis=1).astype(np.int64)
    return BitextSet(
        language,
        part,
        tuple(f"{language}-{n:09d}" for n in range(1, len(sides[0]) + 1)),
        tuple(sides[0][n] for n in orders[0]),
        tuple(f"en-{n:09d}" for n in range(1, len(sides[1]) + 1)),
        tuple(sides[1][n] for n in orders[1]),
        gold[np.argsort(gold[:, 0])],
    )


def write_set(own: BitextSet, folder: Path) -> None:
    """Write the three files of a set."""
    sides = ((own.language, own.source_ids, own.sources), ("en", own.target_ids, own.targets))
    for code, ids, texts in sides:
        _write(folder / f"{own.name}.{code}", zip(ids, texts, strict=True))
    true = ((own.source_ids[a], own.target_ids[b]) for a, b in own.gold.tolist())
    _write(folder / f"{own.name}.gold", true)


def _write(path: Path, rows: Iterable[tuple[str, str]]) -> None:
    with whole_file(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{first}\t{second}\n" for first, second in rows)


def read_set(folder: Path, language: str, part: str) -> BitextSet:
    """The set of a folder (or of its `XX-en` folder, as BUCC packs them).

    Raises UserError for a file that is missing, is no such table or names an id that is not there.
    """
    name = f"{language}-en.{part}"
    folder = next((p for p in (folder, folder / f"{language}-en") if (p / f"{name}.gold").is_file()), folder)
    sides = [_read_side(folder / f"{name}.{code}") for code in (language, "en")]
    numbers = [{key: n for n, key in enumerate(ids)} for ids, _ in sides]
    gold = []
    for line, (first, second) in enumerate(read_pairs(folder / f"{name}.gold"), 1):
        if first not in numbers[0] or second not in numbers[1]:
            raise UserError(f"{folder / name}.gold:{line}: {first} {second} are not ids of both sides")
        gold.append((numbers[0][first], numbers[1][second]))
    if not gold:
        raise UserError(f"{folder / name}.gold holds no pair: give a set with true pairs")
    (source_ids, sources), (target_ids, targets) = sides
    rows = np.array(gold, dtype=np.int64)
    return BitextSet(language, part, source_ids, sources, target_ids, targets, rows)


def read_pairs(path: Path) -> list[tuple[str, str]]:
    """The two columns of a file; raises UserError with the line that has not two."""
    if not path.is_file():
        raise UserError(f"there is no {path}: expected a set in BUCC's format, XX-en.PART.XX, .en and .gold")
    rows = []
    for line in read_lines(path, Skips()):
        first, tab, second = (line.text or "").partition("\t")
        if not tab or not first or not second:
            raise UserError(f"{path}:{line.number}: expected two columns with a tab between them")
        rows.append((first, second))
    return rows


def _read_side(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows = read_pairs(path)
    if repeated := [key for key, times in Counter(key for key, _ in rows).items() if times > 1]:
        raise UserError(f"{path} has the id {repeated[0]} more than once: expected one line per sentence")
    return tuple(key for key, _ in rows), tuple(text for _, text in rows)
