"""What every file format offers: its segments in one language, and the same file with translations filled in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from rag_mt.base.types import Origin, Skips, TranslatedText


@dataclass(frozen=True, slots=True)
class Side:
    """The text of a file to read: its language and, for tables and records, a column (number from 1, or name). `target`
    is the language to translate into: with it, segments that need no translation are left out. `target_column` is where
    translations are that are there already."""

    language: str
    column: str = ""
    target: str = ""
    target_column: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """One unit of a file: a line, a table cell, a translation unit; never blank. `original` is the text in another
    language that it translates, where the file has both."""

    text: str
    origin: Origin
    original: str = ""


class Format(Protocol):
    """One file format; `suffixes` are lower case without compression (`.tmx`)."""

    name: str
    suffixes: tuple[str, ...]

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The segments in file order, streaming; what cannot be read goes to `skips` with its line. Raises UserError
        before the first segment if the file is not for the side's languages."""
        ...

    def translations(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The translations into the side's target that the file has already, finished or not, each with its original in
        the side's language; an empty one of a table or record counts as one. Raises UserError as `segments` does."""
        ...

    def fill(self, file: Path, side: Side, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """Write the file again with one item of `translations` for each segment of that side, in order, each taken only
        when its place is reached; all other bytes stay as they are where the format allows."""
        ...


def usable(translated: TranslatedText) -> bool:
    """Whether every sentence of a segment was translated; if not, formats that mark open segments leave it open."""
    return all(t.ok for t in translated.sentences)
