"""A stand-in for a Qdrant server as a process of its own, which tests stop and kill: `python -m
tests.retrievers.index.qdrant_process PORT FOLDER` answers gRPC with the points of a folder of the local mode."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from retrievers.index.copying import copy_index
from retrievers.index.places import TIMEOUT
from retrievers.index.qdrant import place


def free_port() -> int:
    """A port that is free, as is the one after it: those of HTTP and gRPC."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


class Process:
    """The server of a folder, which is not running at first; `place` is that of its index."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._port = folder, free_port()
        self.place = f"qdrant:http://127.0.0.1:{self._port}/index"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", __name__, str(self._port + 1), str(self.folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self._process.stdout is not None and self._process.stdout.readline() == b"listening\n"

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def halt(self) -> None:
        """It answers no more, and its connections stay."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        while Path(f"/proc/{self._process.pid}/stat").read_text(encoding="ascii").split()[2] != "T":
            pass

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def serving_copy(index: Path, work: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """A process that will serve a copy of an index, and waits of the client that are short."""
    monkeypatch.setattr(place, "_CLIENTS", {})
    monkeypatch.setattr(place, "WAITS", (0.01, 0.01))
    monkeypatch.setattr(place, "RECONNECT", 100)
    monkeypatch.setenv(TIMEOUT, "1")
    copy = Path(f"qdrant:{work}/points")
    copy_index(index, copy)
    place.connected(copy).close()
    process = Process(work / "points")
    yield process
    process.kill()


def main(port: str, folder: str) -> None:
    from qdrant_client import QdrantClient

    from tests.retrievers.index.qdrant_server import running

    with running(int(port)) as server:
        server.client = QdrantClient(path=folder, force_disable_check_same_thread=True)
        print("listening", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
