"""`eval.speed.start`: what programs take of the processor."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from eval.speed import start
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json


def test_seconds_are_those_of_the_processor() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(0.6)"
    assert 0.3 <= start.cpu_seconds([sys.executable, "-S", "-c", busy]) < 0.6


def test_a_program_that_fails_is_named() -> None:
    with pytest.raises(UserError, match=r"-c raise ValueError\('no'\) failed: ValueError: no"):
        start.cpu_seconds([sys.executable, "-S", "-c", "raise ValueError('no')"])


def test_medians_without_the_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = iter([100.0] * 5 + [2.0, 0.5, 0.5, 4.0, 6.0] + [4.0, 0.5, 0.5, 6.0, 9.0])
    asked: list[list[str]] = []

    def seconds(program: list[str]) -> float:
        asked.append(program)
        return next(taken)

    monkeypatch.setattr(start, "cpu_seconds", seconds)
    assert start.main(["--rounds", "2", "--output", str(tmp_path / "seconds.json")]) == 0
    written = read_json(tmp_path / "seconds.json")
    assert written["median"]["one sentence, none"] == 5 and written["median"][written["baseline"]] == 3
    assert "one sentence, ccpr             7.50 s of CPU   2.50 x" in capsys.readouterr().out
    assert [program[-1] for program in asked[3:5]] == ["none", "ccpr"]
