"""Open pages, their owners, and what happens when they go."""

from __future__ import annotations

import pytest

from ui.sessions import Sessions, new_token


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


def test_the_number_of_pages_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ui.sessions.MOST", 2)
    sessions = Sessions()
    first, second = sessions.of("a"), sessions.of("b")
    sessions.of("c")
    assert sessions.of("b") is second and len(sessions.all()) == 2
    assert sessions.of("a") is not first


def test_closing_an_unknown_page_does_nothing() -> None:
    Sessions().close("nobody")
