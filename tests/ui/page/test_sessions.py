"""Open pages, their owners, and what happens when they go."""

from __future__ import annotations

import time

import pytest

from ui.page.sessions import Sessions, new_token


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
    end = time.monotonic() + 5
    while len(gone) < 2:
        assert time.monotonic() < end, "they were kept"
        time.sleep(0.01)
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
