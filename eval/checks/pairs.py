"""Good translations that errors are put into: held-out pairs, and pairs of the training data where those are too few.

The training data is cut into two halves by a hash of the English side, one for each part, so that no sentence on which
the rules are improved stands in the final score, whatever its languages. Held-out blocks are left out of both.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from eval.data.domains import DOMAINS, cell_file, excluded, languages_of, normalised
from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Skips
from rag_mt.checks.rules import Pair
from rag_mt.formats.parallel import read_corpus, training_file

PARTS = ("dev", "test")
NEWS = "news"
NO_TEXT = ("wmt-tok", "dict-phrases")
"""Domains of the training data that are not text as people write it: tokenised text, and entries of a dictionary."""


class Group(NamedTuple):
    """Pairs of a kind of text in a direction."""

    kind: str
    pairs: list[Pair]


def groups_of(data: Path, part: str) -> list[Group]:
    """The held-out pairs of a part; raises UserError where the data is not there."""
    groups = []
    for code in WMT16:
        files = {NEWS: data / part / f"{code}-en.tsv"}
        files |= {d: cell_file(data, d, code, part) for d in DOMAINS if code in languages_of(data, d, part)}
        for kind, file in files.items():
            if not file.is_file():
                raise UserError(f"there is no {file}: give --data DIR with {part}/ and domains/")
            corpus = read_corpus(file, Skips(shown=0))
            groups.append(Group(kind, [Pair(one, other, code, "en") for one, other in corpus.pairs]))
            groups.append(Group(kind, [Pair(other, one, "en", code) for one, other in corpus.pairs]))
    return groups


class TrainingPairs:
    """The pairs of the training data that belong to a part."""

    def __init__(self, data: Path, part: str) -> None:
        """Raises UserError where the data is not there."""
        domains = [domain for domain in DOMAINS if any(languages_of(data, domain, any_part) for any_part in PARTS)]
        held_out = {text for domain in domains for text in excluded(data, domain)}
        self.pairs: dict[str, list[tuple[str, str]]] = {}
        """Pairs of the other language and English, by the other."""
        for code in WMT16:
            corpus = read_corpus(training_file(data, f"{code}-en"), Skips(shown=0))
            rows = zip(corpus.domains, corpus.pairs, strict=True)
            pairs = ((pair, normalised(pair[1])) for domain, pair in rows if domain not in NO_TEXT)
            self.pairs[code] = [pair for pair, key in pairs if part_of(key) == part and key not in held_out]

    def into(self, target: str, rng: random.Random) -> Iterator[Pair]:
        """All pairs with translations into a language, in random order."""
        order = [(code, n) for code in (WMT16 if target == "en" else [target]) for n in range(len(self.pairs[code]))]
        rng.shuffle(order)
        for code, n in order:
            other, english = self.pairs[code][n]
            yield Pair(other, english, code, "en") if target == "en" else Pair(english, other, "en", code)


def part_of(english: str) -> str:
    """The part to which the pairs of an English sentence (normalised) of the training data belong."""
    return PARTS[sha256(english.encode()).digest()[0] % len(PARTS)]
