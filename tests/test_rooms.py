"""The floors of the house: a room imports only from the rooms above its own line, no two modules need each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FLOORS = (
    ("rag_mt",),  # the door: its version, and names whose modules are imported when they are asked for
    ("rag_mt.base",),
    ("rag_mt.text",),
    ("rag_mt.checks",),
    ("rag_mt.formats",),
    ("rag_mt.glossary",),
    ("rag_mt.models",),
    ("rag_mt.llm",),
    ("prompts",),
    ("retrievers",),
    ("rag_mt.quality",),
    ("rag_mt.translation",),
    ("ui.server",),
    ("ui.page",),
    ("eval.data",),
    ("eval", "finetune"),
    ("rag_mt.cli",),
    ("rag_mt.translate", "rag_mt.__main__", "ui", "ui.demo"),
)
"""Rooms from the ground up; those on one floor do not know each other."""
FLOOR_OF = {room: number for number, floor in enumerate(FLOORS) for room in floor}
TOPS = {room.partition(".")[0] for room in FLOOR_OF}


def modules() -> dict[str, Path]:
    """All modules of the project by their dotted names."""
    found = {}
    for top in TOPS:
        for path in (ROOT / top).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def room_of(module: str) -> str:
    """The room that a module stands in: the longest name of FLOORS that begins its own."""
    parts = module.split(".")
    rooms = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    return next(room for room in rooms if room in FLOOR_OF)


def imports(path: Path, at_import: bool = False) -> Iterator[str]:
    """The modules of the project that a module imports: anywhere in it, or only while it is imported itself."""
    tree = ast.parse(path.read_text("utf-8"))
    inside: set[ast.AST] = set()
    if at_import:
        for node in ast.walk(tree):
            lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if lazy or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
                inside |= set(ast.walk(node))
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        if node in inside:
            continue
        for name in names:
            if name.partition(".")[0] in TOPS:
                yield name if name in MODULES else name.rpartition(".")[0]


def test_a_room_imports_only_from_the_rooms_above_its_own() -> None:
    wrong = []
    for module, path in MODULES.items():
        own = room_of(module)
        for name in imports(path, at_import=module == "rag_mt"):
            other = room_of(name)
            if other != own and FLOOR_OF[other] >= FLOOR_OF[own]:
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(sorted(wrong))


def test_no_module_needs_itself_to_be_imported() -> None:
    graph = {module: set(imports(path, at_import=True)) - {module} for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" -> ".join(error.args[1])) from None


def test_every_floor_has_something_on_it() -> None:
    rooms = {room_of(module) for module in MODULES}
    assert rooms == FLOOR_OF.keys()
