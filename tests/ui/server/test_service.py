"""A service as a whole: what it finds when it is opened, and how it ends."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

from retrievers.registry import RETRIEVERS
from tests.ui.conftest import WordEncoder
from ui.page.menus import RETRIEVER_NAMES
from ui.server.translators import Choice
from ui.server.work import Order


def test_every_retriever_has_a_name_for_the_page() -> None:
    assert RETRIEVER_NAMES.keys() == RETRIEVERS.keys()
    assert all(title.endswith(f"({name})") for name, title in RETRIEVER_NAMES.items())


def test_uploads_that_a_killed_server_left_are_removed(make_service: Any, tmp_path: Path) -> None:
    left = [tmp_path / "kept/indexes/.uploads-x", tmp_path / "kept/documents/documents-x"]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "0.txt").write_text("secret")
    first = make_service(folder=tmp_path / "kept")
    assert not any(folder.exists() for folder in left)
    own = [*tmp_path.glob("kept/indexes/.uploads-*"), *tmp_path.glob("kept/documents/documents-*")]
    assert len(own) == 2
    second = make_service(folder=tmp_path / "kept")
    assert all(folder.is_dir() for folder in own)
    second.close(0)
    first.close(0)
    assert not any(folder.exists() for folder in own)


def test_closing_waits_for_translations_and_not_for_a_build_that_does_not_end(
    make_service: Any, opener: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ui.server.service.TO_STOP", 0.2)
    service, stuck = make_service(opener), threading.Event()

    def encoder(retriever: str) -> WordEncoder:
        stuck.wait(60)
        return WordEncoder()

    monkeypatch.setattr(service.indexes, "_encoder", encoder)
    upload = tmp_path / "upload"
    upload.write_text("The train leaves at noon.\n")
    build = service.indexes.build("ann", "x", "en", [("a.txt", upload)], "sentence")
    opener.llm.hold.clear()
    job = service.engine.submit(Order(Choice("de", "en", "phrases"), "Das Haus."))
    threading.Timer(0.3, opener.llm.hold.set).start()
    begin = time.monotonic()
    service.close(5)
    assert time.monotonic() - begin < 20
    assert job.result(0).text == "DAS HAUS."
    assert not build.ended
    stuck.set()
    assert build.wait(20)
