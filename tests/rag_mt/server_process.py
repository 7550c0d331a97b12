"""Starts the server of `llm_server.py`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SERVER = Path(__file__).with_name("llm_server.py")


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[str]:
    """A server process; the address of its API."""
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **settings},
    )
    assert process.stdin and process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.stdin.close()
        process.wait(10)
