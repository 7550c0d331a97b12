"""Short texts to try each source language with, from the folder `examples`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from rag_mt.text.splitting import split

FOLDER = Path(__file__).parents[2] / "examples"
SENTENCES = 2
"""How much of a text is offered: a few seconds of work for a small machine."""

SUBJECTS = {
    "news": "News",
    "travel": "Travel",
    "health": "Health",
    "economy": "Economy",
    "culture": "Culture",
    "help": "Product help",
}


@cache
def example(subject: str, code: str) -> str:
    """The first sentences of the subject's text in a language, or an empty text where there is none."""
    path = FOLDER / f"{subject}.{code}.txt"
    if not path.is_file():
        return ""
    text = path.read_text(encoding="utf-8")
    spans = split(text, code)[:SENTENCES]
    return text[spans[0].start : spans[-1].end]


def example_languages() -> tuple[str, ...]:
    """The codes of the languages that every subject has a text in."""
    codes = [{path.name.split(".")[1] for path in FOLDER.glob(f"{subject}.*.txt")} for subject in SUBJECTS]
    return tuple(sorted(set.intersection(*codes)))
