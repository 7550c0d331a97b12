"""What every file format offers: its segments in one language, and the same file with translations filled in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from rag_mt.base.types import Origin, Skips, TranslatedText


@dataclass(frozen=True, slots=True)
class Side:
    """Which text of a file is meant: a language and, for tables and records, a column (number from 1, or name).

    With `target`, the language that it is to be translated into, only what `fill` translates into that is meant.
    """

    language: str
    column: str = ""
    target: str = ""


@dataclass(frozen=True, slots=True)
class Segment:
    """One unit of a file as it stands there: a line, a table cell, a translation unit; never blank."""

    text: str
    origin: Origin


class Format(Protocol):
    """One file format; `suffixes` are lower case without compression (`.tmx`)."""

    name: str
    suffixes: tuple[str, ...]

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The segments to read in file order, streaming; what cannot be read goes to `skips` with its line."""
        ...

    def check(self, file: Path, side: Side, target: str) -> None:
        """Raise the UserError that `fill` would raise for the languages that the file names; to be asked early."""
        ...

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """Write the file again with one item of `translations` per segment that `segments` yields for a side with this
        target, in the same order, each taken only when its place is reached; all other bytes stay as they are where the
        format allows."""
        ...


def usable(translated: TranslatedText) -> bool:
    """Whether every sentence of a segment was translated; if not, a format with a place for "not yet translated"
    leaves the segment there."""
    return all(t.ok for t in translated.sentences)
