"""One process at a time in a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rag_mt.errors import UserError

LOCK = "lock"


@contextmanager
def alone_in(folder: Path, job: str, wait: bool = False) -> Iterator[None]:
    """Hold the folder, made if need be.

    If another process does, raises UserError that names it and the `job`, or waits for its end. The system frees the
    lock when its process ends, however that happens.
    """
    handle = _take(folder, job, wait)
    try:
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
    finally:
        handle.close()


def _take(folder: Path, job: str, wait: bool) -> TextIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            handle = (folder / LOCK).open("a+", encoding="ascii")
        except FileNotFoundError:  # its last holder has just removed the folder
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.path.samestat(os.fstat(handle.fileno()), (folder / LOCK).stat()):
                return handle
        except FileNotFoundError:
            pass
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read() or "unknown"
            handle.close()
            raise UserError(f"{job} is running already (process {holder}): wait for it or stop it first") from None
        handle.close()
