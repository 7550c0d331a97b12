"""The wording: template files with `{slot}`s, read once and filled in a single pass."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from rag_mt.base.fingerprints import settings_hash

FOLDER = Path(__file__).parent / "templates"
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
