"""The comparison of Qdrant's engine with FAISS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eval.speed.qdrant import EFS, main
from tests.retrievers.index.test_ivf import build_fixed, clustered


def test_the_graph_finds_what_faiss_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    index = build_fixed(tmp_path / "index", clustered(2000), "exact", retriever="phrases")
    options = [str(index.folder), "--sentences", "3", "--rounds", "1"]
    assert main(options) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("2000 vectors of 16 dimensions, 135 queries")
    recalls = [(name, float(values[-1])) for name, *values in map(str.split, rows)]
    assert [name for name, _ in recalls] == ["FAISS", *["Qdrant"] * len(EFS)]
    assert all(recall > 0.9 for _, recall in recalls)
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    assert main(options) == 2 and "pip install qdrant-edge-py" in capsys.readouterr().err
