"""Imports, and what every command runs through, depend on nothing that POSIX systems alone have."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROOMS = ("rag_mt", "retrievers", "prompts", "finetune", "eval", "ui")
POSIX_MODULES = {"fcntl", "pwd", "grp", "resource", "termios", "tty", "pty", "crypt", "syslog"}
POSIX_NAMES = {"pwrite", "pread", "fork", "getuid", "geteuid", "O_DIRECTORY", "O_NOFOLLOW", "mkfifo", "SIGKILL"}
POSIX_NAMES |= {"kill", "killpg"}  # os.kill(pid, 0) asks on POSIX whether a process runs: on Windows it ends it
IMPORT_ALL = """
import builtins, importlib, sys
ROOMS, POSIX = {rooms!r}, {posix!r}
real = builtins.__import__

def without_posix(name, globals=None, locals=None, fromlist=(), level=0):
    room = (globals or {{}}).get("__name__", "").partition(".")[0]
    if room in ROOMS and name.partition(".")[0] in POSIX:
        raise ModuleNotFoundError(f"{{globals['__name__']}} imports {{name}}")
    return real(name, globals, locals, fromlist, level)

builtins.__import__ = without_posix
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def modules() -> dict[str, Path]:
    """All modules of the project by name, save those that run when they are imported."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")) if path.stem != "__main__"]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    return dict(zip(names, files, strict=True))


def test_every_module_is_imported_without_posix_modules() -> None:
    code = IMPORT_ALL.format(rooms=ROOMS, posix=POSIX_MODULES)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", code, *modules()]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_module_calls_what_posix_alone_has() -> None:
    found = {}
    for path in modules().values():
        tree = ast.walk(ast.parse(path.read_text("utf-8")))
        names = {n.attr for n in tree if isinstance(n, ast.Attribute) and isinstance(n.value, ast.Name)
                 and n.value.id in ("os", "signal")}  # fmt: skip
        name = path.relative_to(ROOT).as_posix()
        if wrong := names & POSIX_NAMES:
            found[name] = wrong
    assert not found
