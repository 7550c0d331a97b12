"""XQuAD as relevance data: a question's passage is its relevant one, in every language that both exist in.

The 240 passages are those of 48 articles, five in a row, the same in every language. Articles are split once into
training, development and test ones, so that no passage of a test article is seen in training in any language.

Source: Artetxe et al. (2020), On the Cross-lingual Transferability of Monolingual Representations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json

Part = Literal["train", "dev", "test"]
LANGUAGES = ("en", "de", "ru", "ro", "tr")
ARTICLES, PER_ARTICLE = 48, 5
SHARES: Mapping[Part, int] = {"train": 20, "dev": 8, "test": 20}
"""Articles of each part: 100, 40 and 100 passages."""
SPLIT_SEED = 7


@dataclass(frozen=True, slots=True)
class Question:
    """A question about the passage with that id."""

    id: str
    passage: str
    text: str


@dataclass(frozen=True)
class Xquad:
    """Passages (id -> text) and questions of each language."""

    passages: Mapping[str, Mapping[str, str]]
    questions: Mapping[str, Sequence[Question]]

    def part(self, *parts: Part) -> Xquad:
        """The passages and questions of some parts only."""
        return Xquad(
            {code: {p: text for p, text in own.items() if part_of(p) in parts} for code, own in self.passages.items()},
            {code: [q for q in own if part_of(q.passage) in parts] for code, own in self.questions.items()},
        )


@cache
def _parts() -> dict[int, Part]:
    """The part of each article."""
    order = np.random.default_rng(SPLIT_SEED).permutation(ARTICLES).tolist()
    parts: list[Part] = [part for part, share in SHARES.items() for _ in range(share)]
    return dict(zip(order, parts, strict=True))


def part_of(passage: str) -> Part:
    """The part that the passage with that id (`0` to `239`) belongs to, in every language."""
    return _parts()[int(passage) // PER_ARTICLE]


def read_xquad(data: Path, languages: Sequence[str] = LANGUAGES) -> Xquad:
    """The passages and questions in `DATA/retrieval`: `xquad.L.json` as its authors publish it, or
    `xquad.passages.L.tsv` (id, text) and `xquad.questions.L.tsv` (id, passage id, question, answer).

    Raises UserError for a file that is missing or of another form.
    """
    passages: dict[str, dict[str, str]] = {}
    questions: dict[str, list[Question]] = {}
    for code in languages:
        if (published := data / "retrieval" / f"xquad.{code}.json").is_file():
            passages[code], questions[code] = _published(published)
        else:
            passages[code] = {key: text for key, text, *_ in _rows(data, "passages", code, 2)}
            questions[code] = [Question(*row[:3]) for row in _rows(data, "questions", code, 3)]
    return Xquad(passages, questions)


def has_xquad(data: Path, language: str) -> bool:
    """Whether `read_xquad` finds passages of a language."""
    names = (f"xquad.{language}.json", f"xquad.passages.{language}.tsv")
    return any((data / "retrieval" / name).is_file() for name in names)


def _published(path: Path) -> tuple[dict[str, str], list[Question]]:
    """The passages and questions of a file in SQuAD's format; passages are numbered in its order."""
    passages: dict[str, str] = {}
    questions = []
    try:
        paragraphs = [paragraph for article in read_json(path)["data"] for paragraph in article["paragraphs"]]
        for number, paragraph in enumerate(paragraphs):
            passages[str(number)] = " ".join(paragraph["context"].split())
            for asked in paragraph["qas"]:
                questions.append(Question(asked["id"], str(number), " ".join(asked["question"].split())))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is no file of XQuAD ({error!r}): expected SQuAD's JSON") from None
    if len(passages) != ARTICLES * PER_ARTICLE:
        raise UserError(f"{path} has {len(passages)} passages: expected the {ARTICLES * PER_ARTICLE} of XQuAD")
    return passages, questions


def _rows(data: Path, kind: str, code: str, columns: int) -> list[list[str]]:
    """The rows of a table with so many columns, of which the last but one has the id of a passage."""
    path = data / "retrieval" / f"xquad.{kind}.{code}.tsv"
    if not path.is_file():
        raise UserError(
            f"there is no {path}, nor xquad.{code}.json: give the folder that holds retrieval/ (--data DIR)"
        )
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]
    for number, row in enumerate(rows, 1):
        passage = row[columns - 2] if len(row) >= columns else ""
        if not passage.isdecimal() or int(passage) >= ARTICLES * PER_ARTICLE:
            raise UserError(
                f"{path}:{number} is no row of XQuAD: expected {columns} columns and passage ids below "
                f"{ARTICLES * PER_ARTICLE}"
            )
    return rows
