"""Passages and questions whose answers stand in them, in several languages (XQuAD), and their one split for all.

A folder holds `xquad.passages.LANG.tsv` (number, text) and `xquad.questions.LANG.tsv` (id, number of the passage,
question, answer). The passages of all languages are parallel: number 7 says the same in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from rag_mt.errors import UserError

Part = Literal["train", "dev", "test"]

LANGUAGES = ("en", "de", "ro", "ru", "tr")
"""The languages of XQuAD that are also those of WMT16."""

PER_ARTICLE = 5
"""Paragraphs that XQuAD takes of an article; they stand in a row."""

SHARES: dict[Part, int] = {"train": 24, "dev": 8, "test": 16}
"""Articles of each part: half to train on, a sixth to choose by, a third to score."""

SEED = 2019


@dataclass(frozen=True, slots=True)
class Question:
    """A question in one language, the number of the passage that answers it, and the answer."""

    id: str
    passage: int
    text: str
    answer: str
    language: str


def part_of(passage: int) -> Part:
    """The part that a passage belongs to, the same in every language and for all of its article.

    Articles are dealt out by a fixed shuffle in rounds of 48 (the size of XQuAD), so that the paragraphs of an article
    are never divided between training and scoring.
    """
    article = passage // PER_ARTICLE
    size = sum(SHARES.values())
    place = int(np.random.default_rng(SEED).permutation(size)[article % size])
    for part, count in SHARES.items():
        if place < count:
            return part
        place -= count
    raise AssertionError("the shares add up to the size")


def passages_of(data: Path, language: str) -> dict[int, str]:
    """The passages of a language by number; raises UserError if their file is missing or no such file."""
    path = _file(data, "passages", language)
    return {_number(path, row[0]): row[1] for row in _rows(path, 2)}


def questions_of(data: Path, language: str, parts: Sequence[Part] = ("train", "dev", "test")) -> list[Question]:
    """The questions of a language on the passages of those parts, in the order of their file."""
    path = _file(data, "questions", language)
    made = (Question(row[0], _number(path, row[1]), row[2], row[3], language) for row in _rows(path, 4))
    return [question for question in made if part_of(question.passage) in parts]


def _file(data: Path, what: str, language: str) -> Path:
    """The file in the folder of the data or its `retrieval` folder."""
    name = f"xquad.{what}.{language}.tsv"
    for path in (data / name, data / "retrieval" / name):
        if path.is_file():
            return path
    raise UserError(f"there is no {name} in {data} or {data / 'retrieval'}: give the folder of XQuAD with --data")


def _rows(path: Path, columns: int) -> Iterator[list[str]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line:
            continue
        row = line.split("\t")
        if len(row) != columns:
            raise UserError(f"{path}:{number} has {len(row)} columns: expected {columns}, divided by tabs")
        yield row


def _number(path: Path, text: str) -> int:
    if not text.isdecimal():
        raise UserError(f"{path}: {text!r} is no number of a passage: expected the numbers of the file of passages")
    return int(text)
