"""An index against its copy in LanceDB: the table, and answers while it changes."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eval.speed.lance import END, PER_FILE, READY, STATE, NumberedUnits, added, main, read, state_of
from rag_mt.base.files import write_whole
from retrievers.index.build import build_index
from retrievers.index.copying import copy_index
from retrievers.index.manifest import read_manifest
from tests.retrievers.index.test_index import build_fixed, unit_rows

pytest.importorskip("lancedb")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a small index and its copy in LanceDB."""
    build_fixed(tmp_path / "index", unit_rows(np.random.default_rng(1), 40, 16))
    copy_index(tmp_path / "index", Path(f"lance:{tmp_path}/copy"))
    return tmp_path


def test_both_are_compared(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(place / "index"), "--sentences", "2", "--rounds", "1", "--bits", "8"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^40 vectors of \d+ dimensions, exact search", told)
    for name in ("FAISS", "LanceDB"):
        assert re.search(rf"^{name} +\d+\.\d +\d+ +\d+\.\d+ +\d+\.\d+ +1\.0000 +\d+\.\d+$", told, re.MULTILINE)
    assert main([]) == 2
    assert main([str(place / "index"), "--readers", "1", "--bits", "8"]) == 2
    assert "leave --bits or --readers out" in capsys.readouterr().err


def watched(place: Path, state: str) -> Counter[str]:
    """What one opening of a reader finds where the appended files are said to be in that state."""
    write_whole(place / STATE, state)
    counts: list[Counter[str]] = []
    reader = threading.Thread(
        target=lambda: counts.append(read(place / "index", Path(f"lance:{place}/copy"), place, 0))
    )
    reader.start()
    while not (place / f"{READY}0").exists() and reader.is_alive():
        pass
    write_whole(place / END, "")
    reader.join()
    for name in (END, f"{READY}0"):
        (place / name).unlink(missing_ok=True)
    return counts[0]


def test_readers_notice_what_is_wrong_or_lost(place: Path) -> None:
    copy = Path(f"lance:{place}/copy")
    manifest = read_manifest(copy)
    options = {"retriever": "x", "language": "en", "show": False}
    build_index(copy, added(0, "en"), NumberedUnits(manifest), without=[], **options)
    fine = watched(place, "0 in\n1 out\n")
    assert fine["openings"] and fine["answers"] and not (fine["wrong"] or fine["lost"] or fine["torn"])
    assert watched(place, "0 out\n")["wrong"] and watched(place, "1 in\n")["lost"] >= PER_FILE
    build_index(copy, added(1, "en")[:3], NumberedUnits(manifest), without=[], **options)
    assert watched(place, "1 changing\n")["torn"] and state_of(place) == {1: "changing"}
    build_index(copy, added(2, "en"), NumberedUnits(manifest), without=[""], **options)
    assert watched(place, "")["wrong"]
