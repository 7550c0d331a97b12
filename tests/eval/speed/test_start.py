"""`eval.speed.start`: what programs take of the processor, of memory and of the disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from eval.speed import start
from eval.speed.start import Cost, cost_of
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json

ROOT = Path(__file__).parents[3]


def python(code: str) -> list[str]:
    """A program of Python."""
    return [sys.executable, "-S", "-c", code]


def test_seconds_are_those_of_the_clock_and_of_the_processor(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\ntime.sleep(0.6)"
    taken = cost_of(python(busy), tmp_path)
    assert 0.3 <= taken.cpu < 0.6 and taken.wall > 0.89


def test_memory_is_the_peak(tmp_path: Path) -> None:
    """A program has at first what its parent has, which here is a small one."""
    block = python("block = bytearray(b'1' * 300_000_000)\ndel block")
    code = f"from pathlib import Path\nfrom eval.speed.start import cost_of\nprint(cost_of({block}, Path('.')).peak)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert 300e6 < float(printed) < 1e9


def test_a_program_has_its_own_cache(tmp_path: Path) -> None:
    cost_of(python("import os; open(os.environ['RAG_MT_CACHE'] + '/made', 'w').close()"), tmp_path)
    assert (tmp_path / "made").exists()


def test_a_program_that_fails_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"-c raise ValueError\('no'\) failed: ValueError: no"):
        cost_of(python("raise ValueError('no')"), tmp_path)


def test_the_first_round_stands_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = iter([100.0] * 5 + [2.0, 0.5, 0.5, 4.0, 6.0] + [4.0, 0.5, 0.5, 6.0, 9.0])
    asked: list[tuple[Sequence[str], Path]] = []

    def cost(program: Sequence[str], cache: Path) -> Cost:
        asked.append((program, cache))
        (cache / "file").write_bytes(b"12345678")
        seconds = next(taken)
        return Cost(2 * seconds, seconds, 1e9)

    monkeypatch.setattr(start, "cost_of", cost)
    assert start.main(["--rounds", "2", "--output", str(tmp_path / "costs.json")]) == 0
    written = read_json(tmp_path / "costs.json")
    programs = written["programs"]
    one = programs["one sentence, none, engine auto"]
    assert one["first"] == {"wall": 200, "cpu": 100, "peak": 1e9} and one["median"]["cpu"] == 5
    assert one["cache_bytes"] == 8 and len(one["rounds"]) == 2
    assert programs[written["baseline"]]["median"]["cpu"] == 3
    last = " ".join(capsys.readouterr().out.splitlines()[-1].split())
    assert last == "one sentence, none, engine transformers 200.00 s 100.00 s 1.0 GB 15.00 s 7.50 s 1.0 GB 2.50 x 8 B"
    assert [program[-1] for program, _ in asked[3:5]] == ["auto", "transformers"]
    assert len({cache for _, cache in asked}) == 5, "one for each program"
