"""One process at a time in a folder; a lock ends with its process, and nothing of it stays."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in

ROOT = Path(__file__).parents[3]
HOLD = """
import sys, time
from pathlib import Path
from rag_mt.base.files import alone_in
with alone_in(Path(sys.argv[1]), "test"):
    print("held", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    """A process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_process_that_holds_a_folder_is_named_until_it_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    with holder(folder) as process:
        with (
            pytest.raises(UserError, match=rf"the job is running already \(process {process.pid}\): wait for it"),
            alone_in(folder, "the job"),
        ):
            pass
        process.kill()
        process.wait()
    with alone_in(folder, "the job"):
        assert folder.is_dir()
    assert [path.name for path in folder.parent.iterdir()] == ["folder"]


def test_who_waits_comes_next(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    came = threading.Event()

    def wait() -> None:
        with alone_in(folder, "the job", wait=True):
            came.set()

    with holder(folder) as process:
        thread = threading.Thread(target=wait)
        thread.start()
        assert not came.wait(0.3)
        process.kill()
        assert came.wait(30)
        thread.join()


def test_a_folder_has_one_lock_by_all_its_names_and_can_be_removed_while_held(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with alone_in(tmp_path / "folder", "the job"):
        with pytest.raises(UserError, match=f"process {os.getpid()}"), alone_in(tmp_path / "link", "the job"):
            pass
        (tmp_path / "folder").rmdir()
    assert [path.name for path in tmp_path.iterdir()] == ["link"]
