"""Worked examples for base models: four sentences in seven languages, for any of their 42 directions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from prompts.templates import FOLDER
from rag_mt.base.languages import base_code


@dataclass(frozen=True, slots=True)
class Shot:
    """A sentence in one language, a noun phrase that stands in it, and another sentence with the same phrase."""

    text: str
    phrase: str
    context: str


@cache
def shots() -> tuple[dict[str, Shot], ...]:
    """The examples of `templates/shots.jsonl`, each a mapping from language code to `Shot`."""
    lines = (FOLDER / "shots.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple({code: Shot(**fields) for code, fields in json.loads(line).items()} for line in lines)


def shot_languages() -> tuple[str, ...]:
    """The language codes that every shot has."""
    return tuple(sorted(set.intersection(*(set(shot) for shot in shots()))))


def has_shots(source: str, target: str) -> bool:
    """Whether there are shots for this pair of language codes; those of German serve Austrian German too."""
    pair = {base_code(source), base_code(target)}
    return len(pair) == 2 and pair <= set(shot_languages())
