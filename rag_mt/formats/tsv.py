"""Tab-separated tables: one column is read, and translations become a new last column.

Tabs separate and line ends end, nothing else: quotes are characters like any other.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Format, Segment, Side
from rag_mt.formats.jsonl import free_name
from rag_mt.formats.opening import Line, read_lines

log = logging.getLogger("rag_mt")

_HEADS = "id key text source target src tgt sentence translation context comment note notes domain"
HEADS = frozenset(_HEADS.split())
"""Cells of which one makes the first line a header, besides the name of the language."""

TOO_FEW = "too few cells"

_SEPARATORS = re.compile(r"[\t\r\n]+")


@dataclass(frozen=True, slots=True)
class _Row:
    """A line with the cell that is asked for; `cell` is None where there is none, as in the header."""

    line: Line
    cell: str | None
    header: bool = False


class _Tsv:
    name = "tsv"
    suffixes: tuple[str, ...] = (".tsv", ".tab")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The cells of the side's column that are not blank; rows without that column are skips.

        Without `side.column` it is the column whose header is the language's code or English name, else the first,
        which the log notes if there are more.
        Raises UserError if a named column is not in the first line.
        """
        for row in _rows(file, side, skips):
            if row.cell and not row.cell.isspace():
                yield Segment(row.cell, Origin(str(file), row.line.number))

    def check(self, file: Path, side: Side, target: str) -> None:
        """Nothing: such a file takes a translation into any language."""

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The same rows with the translation as a new last cell; its header is the target's code, or `translation`
        where a column has that already.

        A row whose cell is blank gets an empty one. A row with fewer cells than the first one gets those too, and in
        one with more of them the others come after it, so that translations share a column. Rows that are skips stay
        as they are. Tabs in translations become spaces.
        """
        width = 0  # cells of the first row
        for row in _rows(file, side, Skips(shown=0)):
            new, text = None, row.line.text or ""
            if text:
                width = width or text.count("\t") + 1
            if row.header:
                new = _head(target, text)
            elif row.cell and not row.cell.isspace():
                new = one_cell(next(translations).text)
            elif row.cell is not None and text:
                new = ""
            out.write(row.line.raw if new is None else row.line.with_text(_extended(text, width, new)))


def one_cell(text: str) -> str:
    """The text as a cell: tabs and line ends become spaces."""
    return _SEPARATORS.sub(" ", text)


def _rows(file: Path, side: Side, skips: Skips) -> Iterator[_Row]:
    column = 0
    for line in read_lines(file, skips):
        cells = None if line.text is None else line.text.split("\t")
        if line.number == 1:
            column, header = _column(file, side, cells or [], bool(skips.shown))
            if header:
                yield _Row(line, None, True)
                continue
        if not cells or cells == [""]:
            yield _Row(line, None)
        elif column < len(cells):
            yield _Row(line, cells[column])
        else:
            skips.add(Origin(str(file), line.number), TOO_FEW)
            yield _Row(line, None)


def _extended(row: str, width: int, new: str) -> str:
    """The row with a new cell after `width` others, of which those that are missing are empty."""
    cells = row.split("\t")
    cells += [""] * (width - len(cells))
    return "\t".join([*cells[:width], new, *cells[width:]])


def _head(target: str, header: str) -> str:
    """The new column's name: the target's code unless it is taken."""
    taken = {cell.strip().casefold() for cell in header.split("\t")}
    return target if target.casefold() not in taken else free_name("translation", target.casefold(), taken)


def _column(file: Path, side: Side, first: list[str], warn: bool) -> tuple[int, bool]:
    """The side's column, counted from 0, and whether the first line is a header; says which one was guessed, if it is
    to `warn`."""
    heads = [cell.strip().casefold() for cell in first]
    names = {side.language.casefold(), base_code(side.language), language(side.language).name.casefold()}
    heading = all(" " not in head for head in heads)  # `source` beside a text of several words is a word to translate
    header = heading and any(head in names | HEADS for head in heads)
    if side.column.isdecimal():
        column = int(side.column) - 1
        if column < 0:
            raise UserError(f"column 0 of {file} does not exist: columns are counted from 1")
        return column, header
    if side.column:
        wanted = side.column.strip().casefold()
        if wanted not in heads:
            found = ", ".join(cell.strip()[:40] for cell in first[:20])
            raise UserError(
                f"{file} has no column {side.column!r}: expected a number from 1, or a cell of its first line ({found})"
            )
        return heads.index(wanted), True
    found_at = [i for i, head in enumerate(heads) if head in names]
    if found_at:
        return found_at[0], True
    if warn and len(heads) > 1:
        log.warning(
            "%s: none of its %d columns is named %s, so the first one is read: give another with --column",
            file,
            len(heads),
            side.language,
        )
    return 0, header


FORMAT: Format = _Tsv()
