"""Folders of a process: those of killed ones go, those of living ones stay."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ui.server.own_folders import OwnFolder

HOLD = """
import sys, time
from pathlib import Path
from ui.server.own_folders import OwnFolder
own = OwnFolder(Path(sys.argv[1]), "mine-")
(own.path / "text").write_text("secret")
print(own.path, flush=True)
time.sleep(60)
"""


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        assert (left / "text").is_file()
        first = OwnFolder(tmp_path, "mine-")
        assert left.is_dir()  # its process lives
        process.kill()
    second = OwnFolder(tmp_path, "mine-")
    assert not left.exists()
    assert first.path.is_dir()  # of this process
    first.close()
    second.close()
    assert list(tmp_path.iterdir()) == []


def test_nothing_else_is_touched(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "other-1").mkdir()
    (tmp_path / "mine-file").write_text("x")
    (tmp_path / "mine-link").symlink_to(tmp_path / "elsewhere")
    OwnFolder(tmp_path, "mine-").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "mine-file", "mine-link", "other-1"]
