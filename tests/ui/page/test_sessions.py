"""Open pages, their owners, their history with its exports, and what happens when they go."""

from __future__ import annotations

import csv
import io
import json
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rag_mt.base.types import Hint, Hit, Origin, Sentence, Skips, Span, TranslatedText, Translation
from rag_mt.formats.registry import format_named
from tests.waiting import until
from ui.page.sessions import EXPORTS, Entry, Sessions, export, history_table, new_token


def test_a_page_keeps_its_session_and_no_other_page_has_it() -> None:
    sessions = Sessions()
    first, second = sessions.of("a"), sessions.of("b")
    assert sessions.of("a") is first
    assert first.owner != second.owner


def test_the_same_browser_is_the_same_owner_but_not_the_same_session() -> None:
    sessions, token = Sessions(), new_token()
    first, again = sessions.claim("a", token), sessions.claim("b", token)
    assert first is not again and first.owner == again.owner
    assert token not in first.owner
    assert sessions.claim("c", new_token()).owner != first.owner
    assert sessions.claim("d", token, user="anna").owner != sessions.claim("e", token, user="otto").owner


def test_an_owner_is_forgotten_after_the_last_page() -> None:
    gone: list[str] = []
    sessions, token = Sessions(gone.append, grace=0), new_token()
    owner = sessions.claim("a", token).owner
    sessions.claim("b", token)
    sessions.close("a")
    assert gone == []
    sessions.close("b")
    assert gone == [owner]


def test_an_owner_who_comes_back_in_time_keeps_everything() -> None:
    gone: list[str] = []
    sessions, token = Sessions(gone.append, grace=1000), new_token()
    sessions.claim("a", token)
    sessions.close("a")
    sessions.claim("b", token)
    sessions.sweep()
    assert gone == []


def test_a_page_that_was_only_asleep_keeps_its_owner() -> None:
    gone: list[str] = []
    sessions = Sessions(gone.append, grace=0.05)
    session = sessions.claim("a", new_token())
    sessions.close("a")
    again = sessions.of("a")  # it was not loaded anew, so it does not tell its token
    assert again is not session and again.owner == session.owner
    time.sleep(0.1)
    sessions.sweep()
    assert gone == []
    sessions.close("a")
    time.sleep(0.1)
    sessions.sweep()
    assert gone == [session.owner] != [sessions.of("a").owner]


def test_owners_are_forgotten_though_nobody_comes_any_more() -> None:
    gone: list[str] = []

    def forget(owner: str) -> None:
        gone.append(owner)
        raise OSError("the disk is full")

    sessions = Sessions(forget, grace=0.05)
    sessions.keep_sweeping(every=0.01)
    owners = [sessions.claim(page, new_token()).owner for page in "ab"]
    for page in "ab":
        sessions.close(page)
    until(lambda: len(gone) >= 2)
    assert sorted(gone) == sorted(owners)


def test_the_number_of_pages_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.page.sessions.MOST", 2)
    sessions = Sessions()
    first, second = sessions.of("a"), sessions.of("b")
    sessions.of("c")
    assert sessions.of("b") is second and len(sessions.all()) == 2
    assert sessions.of("a") is not first


def test_an_owner_whose_page_was_one_too_many_is_forgotten_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.page.sessions.MOST", 2)
    gone: list[str] = []
    sessions = Sessions(gone.append, grace=0)
    owners = [sessions.claim(page, new_token()).owner for page in "abc"]
    assert gone == owners[:1]


def test_closing_an_unknown_page_does_nothing() -> None:
    Sessions().close("nobody")


def entry(text: str, translation: str, source: str = "de", target: str = "en") -> Entry:
    hit = Hit(Sentence("the council", target, Origin("a.txt", 3)), Span(4, 11), 0.9)
    hints = (Hint(Span(0, min(3, len(text))), hit),)
    sentence = Translation(Sentence(text, source), translation, hints, "prompt", (True,))
    when = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
    return Entry(when, source, target, text, TranslatedText(translation, (sentence,)), "ccpr")


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
    text = export(ENTRIES, "csv")
    assert text.startswith("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text[1:], newline="")))
    assert [row["source"] for row in rows] == ["Rat & <b>", "'=1+1\x0b\nzwei"]
    assert rows[0]["used"] == "1"
