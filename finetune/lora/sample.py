"""Which sentence pairs a language model is tuned on: a seeded sample that depends on data, group and settings alone.

Every method (plain, sentence, phrase) is given the same pairs, so that their adapters differ in the hints only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from eval.data.phrase_sets import HALVES, development_half
from finetune.held_out import held_out
from finetune.lora.config import DataConfig
from finetune.training.sampling import weighted_order
from rag_mt.base.errors import UserError
from rag_mt.base.types import NOWHERE, Origin, Skips
from rag_mt.formats.parallel import letters_and_digits, read_corpus, training_file
from rag_mt.text.words import word_spans

Group = Literal["to-en", "from-en"]
GROUPS: tuple[Group, ...] = get_args(Group)

Part = Literal["train", "dev"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Pair:
    """A sentence in `source_language` and its translation, with the file and line that they come from."""

    source_language: str
    target_language: str
    source: str
    target: str
    domain: str = ""
    origin: Origin = NOWHERE

    @property
    def direction(self) -> str:
        """`de-en` for German to English."""
        return f"{self.source_language}-{self.target_language}"


def sampled_pairs(data: Path, part: Part, group: Group, settings: DataConfig, skips: Skips) -> list[Pair]:
    """The examples' pairs, language by language: `settings.pairs` of each, fewer where the data has fewer.

    Of the training data the pairs are taken that are held out from the phrase retrievers (`finetune.held_out`), or the
    others if the settings say so, of the development data those of half A. A pair that is too short, too long,
    lopsided, no translation or seen before goes to `skips`. More pairs of the same seed begin with the same ones.
    Raises UserError for missing files and for a language without any usable pair.
    """
    made = []
    for language in settings.languages:
        rows = list(_usable(_rows(data, part, language, settings.held_out, skips), settings, skips))
        weights = np.array([settings.domain_weights.get(domain, 1.0) for _, _, domain, _ in rows])
        for n in np.flatnonzero(weights == 0).tolist():
            skips.add(rows[n][3], f"of a domain without weight ({rows[n][2]})")
        if not weights.any():
            left = skips.summary()
            raise UserError(
                f"{data}/{part}/{language}-en.tsv has no usable pair{f' ({left})' if left else ''}: give more "
                "data, or other data.languages"
            )
        order = weighted_order(weights, [settings.seed, *f"{part} {language}".encode()])
        made += [_pair(language, group, *rows[n]) for n in order[: settings.pairs]]
    return made


def _pair(language: str, group: Group, other: str, english: str, domain: str, origin: Origin) -> Pair:
    if group == "to-en":
        return Pair(language, "en", other, english, domain, origin)
    return Pair("en", language, english, other, domain, origin)


Row = tuple[str, str, str, Origin]


def _rows(data: Path, part: Part, language: str, kept_out: bool, skips: Skips) -> Iterator[Row]:
    """The pairs of training data that are held out, or not, or those of development data: other language, English,
    domain, origin."""
    if part == "dev":
        _, rows = development_half(data, language, HALVES[0], skips)
        yield from ((other, english, "", Origin(f"dev/{language}-en.tsv", line)) for line, other, english in rows)
        return
    file = training_file(data, f"{language}-en")
    corpus = read_corpus(file, skips)
    columns = zip(corpus.lines, corpus.domains, corpus.sources, corpus.targets, strict=True)
    for line, domain, other, english in columns:
        if held_out(english) == kept_out:
            yield other, english, domain, Origin(f"train/{file.name}", line)


def _usable(rows: Iterator[Row], settings: DataConfig, skips: Skips) -> Iterator[Row]:
    seen: set[str] = set()
    for row in rows:
        other, english, _, origin = row
        keys = letters_and_digits(other), letters_and_digits(english)
        if reason := unusable(other, english, keys, settings):
            skips.add(origin, reason)
        elif seen & set(keys):
            skips.add(origin, "with a side that was seen before")
        else:
            seen.update(keys)
            yield row


def unusable(other: str, english: str, keys: Sequence[str], settings: DataConfig) -> str:
    """Why a pair with the `letters_and_digits` sides `keys` makes no example, or an empty string."""
    words = [len(word_spans(text)) for text in (other, english)]
    lengths = sorted(map(len, keys))
    if min(words) < settings.fewest_words:
        return f"with fewer than {settings.fewest_words} words"
    if max(words) > settings.most_words:
        return f"with more than {settings.most_words} words"
    if not lengths[0] or lengths[1] > settings.longest_ratio * lengths[0]:
        return f"with a side more than {settings.longest_ratio} times as long as the other"
    if keys[0] == keys[1]:
        return "with equal sides"
    return ""
