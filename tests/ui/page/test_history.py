"""The session's translations and their export."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_mt.base.types import Hint, Hit, Origin, Sentence, Skips, Span, TranslatedText, Translation
from rag_mt.formats.registry import format_named
from ui.page.sessions import EXPORTS, Entry, export, history_table


def entry(text: str, translation: str, source: str = "de", target: str = "en") -> Entry:
    hit = Hit(Sentence("the council", target, Origin("a.txt", 3)), Span(4, 11), 0.9)
    hints = (Hint(Span(0, min(3, len(text))), hit),)
    made = Translation(Sentence(text, source), translation, hints, "prompt", (True,))
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    return Entry(when, source, target, text, TranslatedText(translation, (made,)), "ccpr")


ENTRIES = [entry("Rat & <b>", "council & <b>"), entry("=1+1\x0b\nzwei", "مرحبا", "en", "ar")]


def test_the_table_is_escaped_and_newest_first() -> None:
    page = history_table(ENTRIES)
    assert "<b>" not in page
    assert page.index("مرحبا") < page.index("council")
    assert "1 of 1" in page
    assert "Nothing has been translated" in history_table([])


@pytest.mark.parametrize("name", EXPORTS)
def test_an_empty_history_is_exported_too(name: str) -> None:
    assert "council" not in export([], name)
    assert "council" in export(ENTRIES, name)


def test_tmx_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(export(ENTRIES, "tmx"), encoding="utf-8")
    pairs = format_named("tmx").pairs(path, "de", "en", Skips(shown=0))  # type: ignore[attr-defined]
    assert [(a.text, b.text) for a, b in pairs] == [("Rat & <b>", "council & <b>")]
    pairs = format_named("tmx").pairs(path, "en", "ar", Skips(shown=0))  # type: ignore[attr-defined]
    assert [(a.text, b.text) for a, b in pairs] == [("=1+1\ufffd\nzwei", "مرحبا")]


def test_jsonl_has_the_hints_and_where_they_came_from() -> None:
    lines = export(ENTRIES, "jsonl").splitlines()
    first = json.loads(lines[0])
    assert (first["text"], first["translation"]) == ("Rat & <b>", "council & <b>")
    assert first["hints"][0] | {"context": ""} == {
        "source": "Rat",
        "source_span": [0, 3],
        "phrase": "council",
        "context": "",
        "score": 0.9,
        "file": "a.txt",
        "line": 3,
        "used": True,
    }
    assert len(lines) == len(ENTRIES)


def test_csv_opens_in_spreadsheets_without_computing_anything() -> None:
    made = export(ENTRIES, "csv")
    assert made.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(made[1:], newline="")))
    assert [row["source"] for row in rows] == ["Rat & <b>", "'=1+1\x0b\nzwei"]
    assert rows[0]["used"] == "1"
