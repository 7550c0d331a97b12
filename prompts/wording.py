"""The wording of prompts: template files with `{slot}`s, filled in a single pass, and files of worked examples."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code, language

FOLDER = Path(__file__).parent / "templates"
WITH_INSTRUCTION = ("alpaca", "chat")
"""The wrappers whose prompts are an instruction; those of the others are examples, or the bare sentence."""
_SLOT = re.compile(r"\{(\w+)\}")


@cache
def template(name: str) -> str:
    """The text of `templates/NAME.txt` without the newline that ends the file."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8").removesuffix("\n")


def filled(name: str, values: Mapping[str, str]) -> str:
    """The template with its slots replaced; what a value brings along is never read as a slot."""
    return _SLOT.sub(lambda slot: values[slot[1]], template(name))


@cache
def templates_hash() -> str:
    """A short hash of all template files and shots: it changes whenever the wording does."""
    files = sorted(p for p in FOLDER.iterdir() if p.suffix in (".txt", ".jsonl"))
    return settings_hash([[p.name, p.read_text(encoding="utf-8")] for p in files])


@cache
def shots(name: str = "shots") -> tuple[dict[str, dict[str, str]], ...]:
    """The examples of `templates/NAME.jsonl`, each a mapping from language code to texts by name: for translation the
    `text` of a sentence, a noun `phrase` that stands in it, and the `context` of that phrase in another sentence."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(json.loads(line) for line in lines)


def formality_sentence(target: str, formality: str) -> str:
    """The sentence that asks for a form of address in a target language; `formality` is `more` or `less`."""
    sentences = {code: texts[formality] for row in shots("formality") for code, texts in row.items()}
    sentence = sentences.get(base_code(target), sentences[""])
    return _SLOT.sub(lambda slot: language(target).name, sentence)


def shot_languages() -> tuple[str, ...]:
    """The language codes that every shot has."""
    return tuple(sorted(set.intersection(*map(set, shots()))))


def has_shots(source: str, target: str) -> bool:
    """Whether there are shots for this pair of language codes; those of German serve Austrian German too."""
    pair = {base_code(source), base_code(target)}
    return len(pair) == 2 and pair <= set(shot_languages())
