"""The translations of one session, newest first, and their export."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from rag_mt.base.languages import language
from rag_mt.base.types import TranslatedText
from rag_mt.formats.lines import added_fields
from rag_mt.formats.tmx import Unit, Variant, write_memory
from ui.page.markup import escaped, table, tagged

LIMIT = 200
"""Entries that a session keeps."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets compute cells that begin so: in CSV an apostrophe is set before them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished translation: when (UTC), from and into which language, the text, what came of it, and by what."""

    time: datetime
    source: str
    target: str
    text: str
    translated: TranslatedText
    system: str

    @property
    def hints(self) -> int:
        return sum(len(t.hints) for t in self.translated.sentences)

    @property
    def used(self) -> int:
        return sum(sum(t.used) for t in self.translated.sentences)


def history_table(entries: Sequence[Entry]) -> str:
    """The entries as an escaped table, newest first."""
    if not entries:
        return '<p class="mt-empty">Nothing has been translated in this session yet.</p>'
    return table(
        "Translations of this session",
        ("Time", "Languages", "Source", "Translation", "Hints used"),
        map(_row, reversed(entries)),
    )


def _row(entry: Entry) -> tuple[str, ...]:
    languages = f"{language(entry.source).native} → {language(entry.target).native}"
    return (
        f"{entry.time.astimezone():%H:%M:%S}",
        f"{escaped(languages)}<br><small>{escaped(entry.system)}</small>",
        tagged(entry.text, entry.source),
        tagged(entry.translated.text, entry.target),
        f"{entry.used} of {entry.hints}",
    )


def export(entries: Sequence[Entry], name: str) -> str:
    """The entries, oldest first, as the text of a `tmx`, `csv` or `jsonl` file."""
    return _WRITERS[name](entries)


def _csv(entries: Sequence[Entry]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("time", "source_language", "target_language", "source", "translation", "hints", "used", "system"))
    for e in entries:
        cells = (e.source, e.target, e.text, e.translated.text, str(e.hints), str(e.used), e.system)
        writer.writerow((e.time.isoformat(timespec="seconds"), *map(_harmless, cells)))
    return f"\ufeff{out.getvalue()}"  # the mark tells spreadsheets that it is UTF-8


def _harmless(cell: str) -> str:
    return f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell


def _jsonl(entries: Sequence[Entry]) -> str:
    """The records that a JSONL job writes, with the hints and where they came from."""
    records = [
        {
            "time": e.time.isoformat(timespec="seconds"),
            "source_language": e.source,
            "target_language": e.target,
            "system": e.system,
            "text": e.text,
            **added_fields(e.text, e.translated),
        }
        for e in entries
    ]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _tmx(entries: Sequence[Entry]) -> str:
    """One memory: each entry is a unit with its own source and target language."""
    units = (
        Unit(
            (Variant(e.source, e.text), Variant(e.target, e.translated.text)),
            created=f"{e.time.astimezone(UTC):%Y%m%dT%H%M%SZ}",
        )
        for e in entries
    )
    out = io.BytesIO()
    write_memory(out, units, "*all*", "paragraph")
    return out.getvalue().decode("utf-8")


_WRITERS: dict[str, Callable[[Sequence[Entry]], str]] = {"tmx": _tmx, "csv": _csv, "jsonl": _jsonl}

EXPORTS = tuple(_WRITERS)
