"""The comparison of compressed vectors: a row for each form, and what is no index for it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from eval.speed.codes import main
from retrievers.index.compression import compress_index
from tests.retrievers.index.test_ivf import build_fixed, clustered


def test_every_form_has_a_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = build_fixed(tmp_path / "index", clustered(3000), "ivf", retriever="phrases")
    stored = index.reconstruct(np.arange(3000))
    options = ["--sentences", "3", "--rounds", "1", "--bits", "8", "2"]
    assert main([str(index.folder), *options]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert re.match(r"3000 vectors of 16 dimensions, \d+ of \d+ lists searched, 3 sentences of 45 queries", head)
    names = ["16 bits", "8 bits", "2 bits", "8 bits, re-ranked", "2 bits, re-ranked"]
    values = {name: [float(value) for value in row[20:].split()] for name, row in zip(names, rows, strict=True)}
    assert [row[:20].strip() for row in rows] == names
    recalls = [values[name][3] for name in names]
    assert recalls[2] < recalls[1] <= 1 and recalls[0] == recalls[3] == recalls[4] > 0.95
    assert values["2 bits"][0] < values["8 bits"][0] < values["16 bits"][0] < values["8 bits, re-ranked"][0]
    np.testing.assert_array_equal(index.reconstruct(np.arange(3000)), stored)
    assert [path.name for path in tmp_path.iterdir()] == ["index"], "nothing is left"


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = build_fixed(tmp_path / "index", clustered(300), "exact")
    assert main([str(index.folder), "--queries", "text.txt"]) == 2
    compress_index(index.folder, 8, False, None)
    assert main([str(index.folder)]) == 2
    assert "no vectors in fp16 alone" in capsys.readouterr().err
