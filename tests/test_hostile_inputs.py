"""Hostile inputs: whatever a text of 4 kB holds, nothing that reads one takes longer than a second.

A regular expression that runs away holds the interpreter, so every input is tried in a process that can be ended.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 1.0
MOST = 4000

SCRIPT = """
import sys
from pathlib import Path
from rag_mt.corpora.formats import Side
from rag_mt.corpora.registry import format_of
from rag_mt.errors import UserError
from rag_mt.skips import Skips
print("ready", flush=True)
try:
    form = format_of(Path(sys.argv[1]))
    list(form.segments(Path(sys.argv[1]), Side("de"), Skips(shown=0)))
except UserError:
    pass
print("done", flush=True)
"""


@pytest.mark.parametrize("suffix", ["", ".gz", ".tmx", ".xlf"])
@pytest.mark.parametrize("prefix", ["<!--a-->", "<?xml?>", "<?a?>", " ", "<!DOCTYPE a>", '<!DOCTYPE tmx "'])
@pytest.mark.parametrize(
    "end",
    ["", "<!", "x", '<!DOCTYPE xliff SYSTEM "x.dtd">\n<xliff version="1.2"/>', '<!DOCTYPE tmx>\n<tmx version="1.4"/>'],
)
def test_a_long_prolog_is_read_in_a_second(tmp_path: Path, prefix: str, end: str, suffix: str) -> None:
    file = tmp_path / f"upload{suffix}"
    file.write_text(f"{prefix * (MOST // len(prefix))}\n{end}")
    with subprocess.Popen([sys.executable, "-c", SCRIPT, file], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout and child.stdout.readline() == "ready\n"
        try:
            child.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            raise AssertionError(f"{prefix!r} repeated before {end!r} in a file {file.name} takes too long") from None
        assert child.returncode == 0
