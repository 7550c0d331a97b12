"""Waiting for what other threads and processes do."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition; fails if it does not come true in a time that is long even for a busy machine."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def until_while_running(
    process: subprocess.Popen[bytes], condition: Callable[[], object], seconds: float = 60.0
) -> None:
    """Wait for a condition that a process brings about; fails at once if it ends before."""
    until(lambda: process.poll() is not None or condition(), seconds)
    assert process.poll() is None, "the process has ended"
