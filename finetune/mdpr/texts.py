"""Sentences for the contrastive losses: parallel pairs of two languages and sentences without a translation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from finetune.lora.config import NEWS_FIRST, DataConfig
from finetune.lora.examples import unusable
from finetune.training.sampling import weighted_order
from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.parallel import excluded_texts, letters_and_digits, read_corpus, training_file
from rag_mt.text.splitting import split

LIMITS = DataConfig(fewest_words=4, most_words=60, longest_ratio=2.5)
ENGLISH = "en"


@dataclass(frozen=True, slots=True)
class PairedSentence:
    """A sentence with its English translation."""

    english: str
    other: str


def split_pair(name: str) -> tuple[str, str]:
    """The two language codes of `de-en`; raises UserError for another form."""
    first, dash, second = name.partition("-")
    if not (first and dash and second) or first == second:
        raise UserError(f"{name!r} is no pair of languages: expected two codes, such as de-en or ru-tr")
    return first, second


def texts_of_test_sets(data: Path) -> set[str]:
    """The `letters_and_digits` of what no training text may hold: the sentences of `dev/`, `test/`, `align/` and
    `retrieval/`, those inside passages too."""
    files = [p for folder in ("dev", "test", "align", "retrieval") for p in sorted((data / folder).glob("*"))]
    passages = [p for p in files if ".passages." in p.name]
    found = excluded_texts(files, Skips(shown=0))
    for path in passages:
        language = path.name.split(".")[-2]
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.partition("\t")[2]
            found |= {letters_and_digits(span.of(text)) for span in split(text, language)}
    return found - {""}


def ordered_pairs(data: Path, language: str, excluded: set[str], seed: int, skips: Skips) -> list[PairedSentence]:
    """The usable pairs of `DATA/train/LANGUAGE-en.tsv` in the order in which they are drawn: random, news and the like
    early (the weights are those of the language model's tuning).

    A pair that is too short, too long, lopsided, no translation, excluded or seen before goes to `skips`. Raises
    UserError for a missing file and for one without usable pairs.
    """
    path = training_file(data, f"{language}-{ENGLISH}")
    corpus = read_corpus(path, skips)
    made, weights, seen = [], [], set[str]()
    columns = zip(corpus.lines, corpus.domains, corpus.sources, corpus.targets, strict=True)
    for line, domain, other, english in columns:
        weight = NEWS_FIRST.get(domain, 1.0)
        if not weight:
            continue
        keys = letters_and_digits(other), letters_and_digits(english)
        reason = unusable(other, english, keys, LIMITS)
        if not reason and not excluded.isdisjoint(keys):
            reason = "that test sets hold"
        if not reason and not seen.isdisjoint(keys):
            reason = "with a side that was seen before"
        if reason:
            skips.add(Origin(path.name, line), reason)
            continue
        seen.update(keys)
        made.append(PairedSentence(english, other))
        weights.append(weight)
    if not made:
        raise UserError(f"{path} has no usable pair ({skips.summary()}): give English, then the other language")
    return [made[n] for n in weighted_order(np.array(weights), [seed, *language.encode()])]


def joined_pairs(first: Iterable[PairedSentence], second: Iterable[PairedSentence]) -> list[tuple[str, str]]:
    """Sentences of two languages whose English translations are equal, in the order of the first."""
    others = {letters_and_digits(pair.english): pair.other for pair in second}
    return [(pair.other, others[key]) for pair in first if (key := letters_and_digits(pair.english)) in others]


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> None:
    """A line per pair with a tab between the two sides."""
    path.write_text("".join(f"{_line(a)}\t{_line(b)}\n" for a, b in pairs), encoding="utf-8")


def write_texts(path: Path, texts: Sequence[str]) -> None:
    """A line per text."""
    path.write_text("".join(f"{_line(text)}\n" for text in texts), encoding="utf-8")


def _line(text: str) -> str:
    return " ".join(text.split())
