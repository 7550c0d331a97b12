"""JSON Lines: one field of every record is read, and translations become new fields at the record's end.

A record is never written anew: the new fields are set before its last brace, so that numbers, escapes, repeated keys
and spacing stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rag_mt.base.languages import base_code
from rag_mt.base.types import Origin, Skips, TranslatedText
from rag_mt.formats.format import Format, Segment, Side
from rag_mt.formats.opening import Line, fault, read_lines

MAX_CHARS = 1_000_000
"""The longest record: it may hold a whole document and more."""

FIELDS = ("text", "source", "src", "sentence")
"""Where a record without a field for the language keeps its text."""

_LINE_ENDS = {ord("\n"): " ", ord("\r"): " "}  # harmless within a record's text


@dataclass(frozen=True, slots=True)
class _Record:
    """A line with its parsed record and the text that is asked for; both None where there is none."""

    line: Line
    values: dict[str, Any] | None = None
    text: str | None = None


class _Jsonl:
    name = "jsonl"
    suffixes: tuple[str, ...] = (".jsonl", ".ndjson")

    def segments(self, file: Path, side: Side, skips: Skips) -> Iterator[Segment]:
        """The side's text of every record; lines that are no JSON object or have no such text are skips."""
        for record in _records(file, side, skips):
            if record.text:
                yield Segment(record.text, Origin(str(file), record.line.number))

    def check(self, file: Path, side: Side, target: str) -> None:
        """Nothing: such a file takes a translation into any language."""

    def fill(self, file: Path, side: Side, target: str, translations: Iterator[TranslatedText], out: BinaryIO) -> None:
        """The same records with `translation`, `hints` and `notes`; to a name that is taken the target is added."""
        for record in _records(file, side, Skips(shown=0)):
            if record.text and record.values is not None:
                added = added_fields(record.text, next(translations))
                named = {free_name(name, target, record.values): value for name, value in added.items()}
                out.write(record.line.with_text(_extended(record.line.text or "", named)))
            else:
                out.write(record.line.raw)


def text_of(values: Mapping[str, Any], side: Side) -> tuple[str | None, str]:
    """The side's text of a record, or None, and if it has none that can be read the reason why.

    The text is field `side.column`, or the first string of: the language's code, its entry in `translation`, FIELDS.
    A blank text is None without a reason.
    """
    nested = values.get("translation")
    translations = nested if isinstance(nested, Mapping) else {}
    codes = (side.language, base_code(side.language))
    if side.column:
        value = values.get(side.column)
        found = [value.get(code) for code in codes] if isinstance(value, Mapping) else [value]
        found.append(translations.get(side.column))
    else:
        found = [m.get(code) for m in (values, translations) for code in codes] + [values.get(name) for name in FIELDS]
    text = next((text for text in found if isinstance(text, str)), None)
    if text is None:
        return None, f"no text in field {side.column!r}" if side.column else f"no field {side.language!r} or 'text'"
    if reason := fault(text.translate(_LINE_ENDS)):
        return None, reason
    return (None if not text or text.isspace() else text), ""


def _records(file: Path, side: Side, skips: Skips) -> Iterator[_Record]:
    for line in read_lines(file, skips, MAX_CHARS):
        if line.text is None or not line.text.strip():
            yield _Record(line)
            continue
        values = _parsed(line.text)
        text, reason = (None, "not a JSON object") if values is None else text_of(values, side)
        if reason:
            skips.add(Origin(str(file), line.number), reason)
        yield _Record(line, values, text)


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def added_fields(text: str, translated: TranslatedText) -> dict[str, Any]:
    """The fields that a translation adds; spans are offsets into the field's whole text."""
    hints: list[dict[str, Any]] = []
    notes: list[str] = []
    at = 0
    for sentence in translated.sentences:
        start = max(text.find(sentence.source.text, at), 0)
        at = start + len(sentence.source.text)
        for hint, used in zip(sentence.hints, sentence.used, strict=True):
            span, origin = hint.source_span, hint.hit.sentence.source
            hints.append(
                {
                    "source": span.of(sentence.source.text),
                    "source_span": [start + span.start, start + span.end],
                    "phrase": hint.phrase,
                    "context": hint.context().marked("[[", "]]"),
                    "score": round(float(hint.hit.score), 6),
                    "file": origin.file,
                    "line": origin.line,
                    "used": used,
                }
            )
        notes.extend(sentence.notes)
    return {"translation": translated.text, "hints": hints, "notes": notes}


def free_name(name: str, target: str, taken: Container[str]) -> str:
    """`name`, or where it is taken already `name_TARGET`, `name_TARGET_2` and so on."""
    free, number = name, 1
    while free in taken:
        free = f"{name}_{target}" if number == 1 else f"{name}_{target}_{number}"
        number += 1
    return free


def _extended(record: str, added: Mapping[str, Any]) -> str:
    """The JSON object `record`, which is not empty, with more members before its closing brace."""
    end = record.rindex("}")
    members = json.dumps(added, ensure_ascii=False)[1:-1]
    return f"{record[:end]}, {members}{record[end:]}"


FORMAT: Format = _Jsonl()
