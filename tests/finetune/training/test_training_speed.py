"""`finetune.training.speed`: batches read at once and in groups."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from finetune.training.speed import main


def test_both_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "a.txt"
    text.write_text("".join(f"{'word ' * (n % 17)}{n}\n" for n in range(45)), encoding="utf-8")
    shape = ["--file", str(text), "--batch", "20", "--rounds", "1", "--layer", "1", "--dtype", "float32"]
    assert main(shape) == 0
    out = capsys.readouterr().out
    assert "1 layers, 2 batches of 20 sentences, of whose places" in out
    whole, grouped = (float(re.search(rf"{name} +([\d.]+) s a batch", out)[1]) for name in ("batches", "in groups"))  # type: ignore[index]
    assert whole >= 0 and grouped >= 0 and re.search(r"^ratio [\d.]+$", out, re.M)


def test_too_few_sentences_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\ntwo\n\xff\xfe\n")
    assert main(["--file", str(tmp_path / "a.txt"), "--layer", "1"]) == 2
    err = capsys.readouterr().err
    assert "2 sentences do not fill one batch of 192: give a smaller --batch" in err
    assert "a.txt:4" in err, "the line that is no text is named"
