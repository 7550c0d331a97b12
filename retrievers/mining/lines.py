"""Which lines of two texts are worth comparing: each text once, none that stands on both sides, maybe none in the other
language.

The lines are read twice: first to hash them (eight bytes a line), then to keep those that were chosen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from simplemma import LanguageDetector
from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Sentence
from rag_mt.formats.parallel import letters_and_digits

CHUNK = 8192


@dataclass(frozen=True, eq=False)
class Lines:
    """What is known of the lines of a side: hashes of their letters and digits, uint64 (lines,), and which of them are
    rather in the other language, bool (lines,)."""

    hashes: NDArray[np.uint64]
    foreign: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Choice:
    """Which lines of a side are kept, bool (lines,), and how many were dropped for which reason."""

    kept: NDArray[np.bool_]
    dropped: Mapping[str, int]

    @property
    def count(self) -> int:
        """The number of lines that are kept."""
        return int(self.kept.sum())

    def of(self, sentences: Iterable[Sentence]) -> Iterator[Sentence]:
        """The kept ones of the sentences, which are read once more; raises UserError if they have become fewer."""
        stream = iter(sentences)
        for keep in self.kept.tolist():
            sentence = next(stream, None)
            if sentence is None:
                raise UserError("the text has become shorter while it was read: run the same command again")
            if keep:
                yield sentence

    def describe(self) -> str:
        """Such as `97 of 100 lines (1 on both sides, 2 near-duplicates of others)`."""
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items() if count)
        return f"{self.count} of {len(self.kept)} lines{f' ({reasons})' if reasons else ''}"


def survey(sentences: Iterable[Sentence], own: str, other: str = "") -> Lines:
    """The hashes of a side's lines; with the language `other`, whether more of their words are known in that one than
    in their `own`."""
    hashes: list[NDArray[np.uint64]] = []
    foreign: list[NDArray[np.bool_]] = []
    foreign_text = _foreign(own, other) if other else lambda text: False
    stream = iter(sentences)
    while chunk := list(islice(stream, CHUNK)):
        hashes.append(np.array([_hash(s.text) for s in chunk], dtype=np.uint64))
        foreign.append(np.array([foreign_text(s.text) for s in chunk], dtype=bool))
    return Lines(np.concatenate([np.zeros(0, np.uint64), *hashes]), np.concatenate([np.zeros(0, dtype=bool), *foreign]))


def check_word_lists(codes: Iterable[str]) -> None:
    """Raise UserError for a language whose lines cannot be told from others'."""
    for code in codes:
        if base_code(code) not in SUPPORTED_LANGUAGES:
            known = ", ".join(sorted(SUPPORTED_LANGUAGES))
            raise UserError(
                f"there is no word list of {language(code).name} to check lines by: leave --check-language out "
                f"(known: {known})"
            )


def choose(source: Lines, target: Lines) -> tuple[Choice, Choice]:
    """The lines of both sides to compare.

    Dropped are those in the other language, those that stand on both sides (untranslated ones: which side they belong
    to is not known), and of near-duplicates all but the first.
    """
    both = np.intersect1d(source.hashes[~source.foreign], target.hashes[~target.foreign])
    return _chosen(source, both), _chosen(target, both)


def _chosen(lines: Lines, both: NDArray[np.uint64]) -> Choice:
    shared = ~lines.foreign & np.isin(lines.hashes, both)
    rest = np.flatnonzero(~lines.foreign & ~shared)
    kept = np.zeros(len(lines.hashes), dtype=bool)
    kept[rest[np.unique(lines.hashes[rest], return_index=True)[1]]] = True
    dropped = {
        "in the other language": int(lines.foreign.sum()),
        "on both sides": int(shared.sum()),
        "near-duplicates of others": len(rest) - int(kept.sum()),
    }
    return Choice(kept, dropped)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(letters_and_digits(text).encode(), digest_size=8).digest(), "little")


def _foreign(own: str, other: str) -> Callable[[str], bool]:
    """Whether more of a text's words are known in the other language than in its own."""
    detectors = [LanguageDetector(base_code(code)) for code in (own, other)]

    def foreign(text: str) -> bool:
        at_home, abroad = (detector.proportion_in_target_languages(text) for detector in detectors)
        return bool(abroad > at_home)

    return foreign
