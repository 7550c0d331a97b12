"""Limits, keys, and the pace of requests."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from ui.server import limits as limits_module
from ui.server.limits import ANONYMOUS, AccessError, BusyError, Keys, LimitError, Limits, Pace, limits_of, read_keys
from ui.server.serve import allowed_hosts, listening


def test_limits_are_changed_by_name() -> None:
    assert limits_of(["text_chars=20", "queue=3"]) == Limits(text_chars=20, queue=3)
    for wrong in ("queues=3", "queue", "queue=-1", "queue=x"):
        with pytest.raises(UserError, match="expected NAME=NUMBER with one of text_chars"):
            limits_of([wrong])
    with pytest.raises(UserError, match="limit queue is 0"):
        limits_of(["queue=0"])


def test_texts_and_files_beyond_the_limits() -> None:
    limits = Limits(texts=2, text_chars=5, file_bytes=10)
    limits.check_texts(["abc", "de"])
    with pytest.raises(LimitError, match="3 texts and at most 2"):
        limits.check_texts([""] * 3)
    with pytest.raises(LimitError, match="6 characters and at most 5"):
        limits.check_texts(["abc", "def"])
    limits.check_file(10)
    with pytest.raises(LimitError, match="11 bytes and at most 10"):
        limits.check_file(11)


def test_keys(tmp_path: Path) -> None:
    assert Keys().owner("whatever") == ANONYMOUS
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst  # Ann\n\nsecond\n")
    keys = Keys(read_keys(file))
    assert keys.owner("first") != keys.owner("second")
    assert "first" not in keys.owner("first")
    for key, status in (("", 401), ("third", 403), ("# ours", 403), ("\ud800", 403)):
        with pytest.raises(AccessError) as refused:
            keys.owner(key)
        assert refused.value.status == status
    file.write_text("# none\n")
    with pytest.raises(UserError, match="holds no key"):
        read_keys(file)
    with pytest.raises(UserError, match="cannot be read"):
        read_keys(tmp_path / "missing")


def test_the_pace_of_each_client(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(limits_module.time, "monotonic", lambda: now)
    pace = Pace(60)
    for _ in range(60):
        pace.ask("ann")
    with pytest.raises(BusyError) as refused:
        pace.ask("ann")
    assert refused.value.retry_after == 1
    pace.ask("bob")
    now = 2.0
    pace.ask("ann")
    pace.ask("ann")
    with pytest.raises(BusyError):
        pace.ask("ann")


@pytest.mark.parametrize(
    ("host", "open_to_all"),
    [("127.0.0.1", False), ("localhost", False), ("::1", False), ("0.0.0.0", True), ("a.b", True)],
)
def test_names_that_a_server_answers_to(host: str, open_to_all: bool) -> None:
    assert ("*" in allowed_hosts(host, [])) is open_to_all
    assert open_to_all or "my.name" in allowed_hosts(host, ["my.name"])


def test_a_place_that_is_taken() -> None:
    with (
        listening("127.0.0.1", 0) as taken,
        pytest.raises(UserError, match=r"cannot listen at 127\S+ port \d+ \("),
    ):
        listening("127.0.0.1", taken.getsockname()[1])
    with pytest.raises(UserError, match="cannot listen at no"):
        listening("no.such.host.invalid", 0)
