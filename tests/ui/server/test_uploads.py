"""Uploads: what of their names is shown and may be part of a path, and folders that go with their process."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from ui.server.uploads import MOST_NAME_CHARS, OwnFolder, keep, safe_suffix, shown_name, shown_title


@pytest.mark.parametrize(
    ("name", "shown", "suffix"),
    [
        ("report.po", "report.po", ".po"),
        ("../../etc/passwd", "passwd", ""),
        ("C:\\plans\\a.TXT.GZ", "a.TXT.GZ", ".txt.gz"),
        ("a.exe.gz", "a.exe.gz", ".gz"),
        ("a.tar.gz/../x.tmx", "x.tmx", ".tmx"),
        ("evil\u202ega.txt\x00.xliff", "evilga.txt.xliff", ".xliff"),
        ("<script>alert(1)</script>.txt", "script>.txt", ".txt"),
        ("..", "unnamed", ""),
        ("", "unnamed", ""),
    ],
)
def test_names(name: str, shown: str, suffix: str) -> None:
    assert shown_name(name) == shown
    assert safe_suffix(name) == suffix


@given(st.text(max_size=200))
def test_any_name_can_be_shown_and_written(name: str) -> None:
    for shown in (shown_name(name), shown_title(name)):
        assert 0 < len(shown) <= MOST_NAME_CHARS
        assert shown == shown.strip()
        assert all(unicodedata.category(c)[0] != "C" for c in shown)
        assert shown.encode()
    assert "/" not in safe_suffix(name)


@pytest.mark.parametrize(
    "name", ["page.html", "readme.md", "de.yaml", "messages_de.properties", "strings.xml", "a.md.gz"]
)
def test_structured_files_are_refused_as_by_the_command_line(tmp_path: Path, name: str) -> None:
    upload = tmp_path / "upload"
    upload.write_text("Hallo")
    with pytest.raises(UserError, match=rf"^{name} is a .* file, .* expected text \(.txt, .text\), tsv"):
        keep(upload, tmp_path, "source", name, 1000)
    assert keep(upload, tmp_path, "source", "notes.srt", 1000).read_text() == "Hallo"


HOLD = """
import sys, time
from pathlib import Path
from ui.server.uploads import OwnFolder
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
