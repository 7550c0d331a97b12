"""Glossaries in tables: CSV with commas, semicolons or tabs, and TSV."""

from __future__ import annotations

import csv
import io
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.terms import Term
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import MAX_CHARS, Line, read_lines
from rag_mt.glossary.entries import Entry, clean, wrong_with
from rag_mt.glossary.heads import Columns, columns_of

_YES, _NO = frozenset({"yes", "y", "true", "1", "x"}), frozenset({"", "no", "n", "false", "0"})
_DELIMITERS = ",;\t"
_SAMPLE = 20
"""Lines that a delimiter is guessed from."""
_MOST_LINES = 50
"""Lines that a quoted cell may have."""


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of a row and the number of its first line."""

    number: int
    cells: list[str]


def table_entries(path: Path, source: str, target: str, skips: Skips, delimiter: str = "") -> Iterator[Entry]:
    """The entries of a table; without a delimiter the likeliest one is taken. Rows that cannot be read or used go to
    `skips`. Raises UserError for a file that is no text, whose first line cannot be read, or whose header has not both
    languages."""
    lines = read_lines(path, skips)
    start = list(islice(lines, _SAMPLE))
    if start and start[0].text is None:
        raise UserError(
            f"the first line of {path} cannot be read: expected a header or a term in UTF-8, save it as UTF-8 text"
        )
    if not delimiter:
        delimiter, start = _delimiter([line for line in start if line.text])
    columns = None
    for row in _rows(chain(start, lines), delimiter, path, skips):
        if columns is None:
            columns, header = columns_of(path, row.cells, source, target, skips)
            if header:
                continue
        entry = _entry(row.cells, columns, delimiter, Origin(str(path), row.number))
        reason = entry if isinstance(entry, str) else wrong_with(entry)
        if isinstance(entry, str) or reason:
            skips.add(Origin(str(path), row.number), reason)
        else:
            yield entry


def table_of(terms: Iterable[Term], source: str, target: str) -> str:
    """Terms as the CSV that `table_entries` reads, a row for each."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow([source, target, "forbidden", "note", "case"])
    for term in terms:
        translations = [" | ".join(texts) for texts in (term.allowed, term.forbidden)]
        writer.writerow([term.source, *translations, term.note, "yes" if term.case_sensitive else ""])
    return table.getvalue()


def _entry(cells: Sequence[str], columns: Columns, delimiter: str, origin: Origin) -> Entry | str:
    """What a row says, or why it says nothing."""
    if len(cells) <= columns.source:
        return "too few cells"

    def cell(number: int | None) -> str:
        return cells[number] if number is not None and number < len(cells) else ""

    separators = "|" if delimiter == ";" else "|;"
    case = clean(cell(columns.case)).casefold()
    if case not in _YES | _NO:
        return "neither yes nor no in the column for letter case"
    sources, allowed, forbidden = (
        _alternatives(cell(number), separators) for number in (columns.source, columns.target, columns.forbidden)
    )
    note = "; ".join(filter(None, (clean(cell(number)) for number in columns.notes)))
    return Entry(sources, allowed, forbidden, origin, note, case in _YES)


def _alternatives(cell: str, separators: str) -> list[str]:
    """The different texts in a cell."""
    for separator in separators[1:]:
        cell = cell.replace(separator, separators[0])
    return list(dict.fromkeys(filter(None, map(clean, cell.split(separators[0])))))


def _rows(lines: Iterator[Line], delimiter: str, path: Path, skips: Skips) -> Iterator[Row]:
    """The rows that are not blank. A cell in quotes may go on in the next lines; where its quote is not closed, only
    its first line is lost."""
    waiting: deque[Line] = deque()
    while line := waiting.popleft() if waiting else next(lines, None):
        if not line.text or line.text.isspace():
            continue
        text, further = line.text, list[Line]()
        cells, reason = _cells(text, delimiter)
        while reason == _UNCLOSED and len(further) < _MOST_LINES and len(text) < MAX_CHARS:
            more = waiting.popleft() if waiting else next(lines, None)
            if more is None:
                break
            further.append(more)
            text = f"{text}\n{more.text or ''}"
            cells, reason = _cells(text, delimiter)
        if reason:
            skips.add(Origin(str(path), line.number), reason)
            waiting.extendleft(reversed(further))
        elif any(cell.strip() for cell in cells):
            yield Row(line.number, cells)


_UNCLOSED = "quote that is not closed"


def _cells(text: str, delimiter: str) -> tuple[list[str], str]:
    """The cells of a row, and what is wrong with it."""
    try:
        return next(csv.reader([text], delimiter=delimiter, strict=True), []), ""
    except csv.Error as error:
        return [], _UNCLOSED if "unexpected end" in str(error) else "quotes that do not enclose a cell"


def _delimiter(lines: list[Line]) -> tuple[str, list[Line]]:
    """The delimiter of a table that begins with these lines, and those that are rows: Excel's `sep=;` is none. It
    stands in every line, and as often in one as in the other; a comma if that tells nothing."""
    first = (lines[0].text or "").casefold() if lines else ""
    if first.startswith("sep=") and first[4:] in (",", ";", "\t"):
        return first[4:], lines[1:]
    counts = [[_outside_quotes(line.text or "").count(d) for line in lines] for d in _DELIMITERS]
    possible = [(d, n) for d, n in zip(_DELIMITERS, counts, strict=True) if n and all(n)]
    if not possible:
        possible = [(d, n) for d, n in zip(_DELIMITERS, counts, strict=True) if n and n[0]]
    best = min(possible, key=lambda each: len(set(each[1])), default=(",", []))
    return best[0], lines


def _outside_quotes(line: str) -> str:
    return "".join(line.split('"')[::2])
