"""What tests of indexes in Qdrant share."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The local mode does not wait for the disk at each point."""
    if find_spec("qdrant_client") is None:
        return
    from qdrant_client.local.persistence import CollectionPersistence

    ensure = CollectionPersistence._ensure_table

    def ensured(self: Any) -> None:
        self.storage.execute("PRAGMA synchronous=OFF")
        self.storage.execute("PRAGMA journal_mode=MEMORY")
        ensure(self)

    monkeypatch.setattr(CollectionPersistence, "_ensure_table", ensured)
