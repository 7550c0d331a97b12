"""The README's code blocks marked `<!-- run -->` are run, in order, in one copy of the folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- run -->\n```(bash|python)\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", place / "examples")
    return place


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_readme_runs(folder: Path, number: int) -> None:
    kind, code = BLOCKS[number]
    bin_folder = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-euo", "pipefail", "-c", code] if kind == "bash" else [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    assert done.stdout.strip()


def test_there_is_something_to_run() -> None:
    assert len(BLOCKS) >= 3


def test_the_plain_lines_are_those_of_the_makefile() -> None:
    """`make` and the lines that the README gives for it do the same."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in re.findall(r"^\.venv/bin/python (.*)$", README, re.MULTILINE):
        short = line.removeprefix("-m pip ")
        assert short in makefile, line
