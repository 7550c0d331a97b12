"""Which folder may import which: what would make two of them depend on each other is found here."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = {
    "rag_mt": {"rag_mt"},
    "prompts": {"prompts", "rag_mt"},
    "retrievers": {"retrievers", "rag_mt"},
    "ui": {"ui", "rag_mt", "retrievers", "prompts"},
    "eval": {"eval", "rag_mt", "retrievers", "prompts", "ui"},
    "finetune": {"finetune", "eval", "rag_mt", "retrievers", "prompts"},
}
"""A folder and those that it may import."""
COMPOSED = {"cli", "mine", "shipped_adapters", "translator"}
"""Modules of rag_mt that put the other folders together; its other modules do not know them."""


def imported(path: Path) -> set[str]:
    """The first names of all that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_folder_imports_those_that_it_may(room: str) -> None:
    wrong = {}
    for path in (ROOT / room).rglob("*.py"):
        composed = room == "rag_mt" and path.stem in COMPOSED
        allowed = ROOMS[room] | ({"retrievers", "prompts", "ui"} if composed else set())
        if odd := imported(path) & ROOMS.keys() - allowed:
            wrong[path.relative_to(ROOT).as_posix()] = sorted(odd)
    assert not wrong


def test_only_the_modules_that_put_folders_together_are_excepted() -> None:
    modules = {path.stem: path for path in (ROOT / "rag_mt").rglob("*.py")}
    assert {name for name in COMPOSED if imported(modules[name]) & ROOMS.keys() > {"rag_mt"}} == COMPOSED
