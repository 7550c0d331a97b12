"""The files that the report of an evaluation is written to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import write_json, write_whole


def check_outputs(names: Iterable[str]) -> None:
    """Raises UserError for a name of which the ending is not known, before hours are spent."""
    for name in names:
        if Path(name).suffix not in (".json", ".md"):
            raise UserError(f"report {name!r} ends neither in .json nor in .md: give one of them")


def write_outputs(names: Iterable[str], markdown: str, facts: Mapping[str, Any]) -> None:
    """Write the Markdown, or the facts as JSON, by the ending of each name."""
    for name in names:
        if Path(name).suffix == ".json":
            write_json(Path(name), facts)
        else:
            write_whole(Path(name), markdown)
