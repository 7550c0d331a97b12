"""The comparison of forms of lists in LanceDB: rows for each form, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval.speed.lance_forms import COMPARED, main
from tests.retrievers.index.test_ivf import build_fixed, clustered

pytest.importorskip("lancedb")


def test_every_form_has_its_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = build_fixed(tmp_path / "index", clustered(1000), "exact", retriever="phrases")
    options = ["--sentences", "3", "--rounds", "1", "--probes", "1000", "--forms"]
    assert main([str(index.folder), *options, "PQ/4x4", "FLAT"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("1000 vectors of 16 dimensions, ") and "3 sentences of 45 queries" in head
    values = {name: [float(value) for value in values] for name, *values in map(str.split, rows[:: len(COMPARED)])}
    last = {
        name: [float(value) for value in values]
        for name, *values in map(str.split, rows[len(COMPARED) - 1 :: len(COMPARED)])
    }
    assert list(values) == ["PQ/4x4", "FLAT"] and len(rows) == 2 * len(COMPARED)
    assert values["PQ/4x4"][2] < values["FLAT"][2]
    assert values["PQ/4x4"][5] < last["PQ/4x4"][5] and last["FLAT"][5] == 1
    for form in ("PQ/3x8", "PQ/x", "XQ", "RQ/a", "PQ/2x5", "PQ/0x8", "PQ/16x4", "RQ/10", "RQ/0"):
        assert main([str(index.folder), *options, form]) == 2
        assert f"{form} is no form of vectors of 16 dimensions" in capsys.readouterr().err
