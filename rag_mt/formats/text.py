"""Plain text: every line that is not blank is a segment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Format, Segment, Side
from rag_mt.formats.opening import Line, read_lines


class _Text:
    name = "text"
    suffixes: tuple[str, ...] = (".txt", ".text")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """One segment per line, with the white space around it; UserError if a column is asked for."""
        if side.column:
            raise UserError(
                f"{file} is read as plain text, which has no column {side.column!r}: add --format tsv or --format jsonl"
            )
        for line in read_lines(file, skips):
            if line.text and not line.text.isspace():
                yield Segment(line.text, Origin(str(file), line.number))

    def check(self, file: Path, side: Side, target: str) -> None:
        """Nothing: such a file takes a translation into any language."""

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The same lines with their translations; blank and unreadable lines as they are."""
        for line in read_lines(file, Skips(shown=0)):
            out.write(_filled(line, translations))


def _filled(line: Line, translations: Iterator[TranslatedText]) -> bytes:
    if line.text and not line.text.isspace():
        return line.with_text(next(translations).text)
    return line.raw


FORMAT: Format = _Text()
