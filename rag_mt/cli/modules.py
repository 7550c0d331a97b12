"""Training and evaluation: `rag-mt train NAME` is `python -m finetune.NAME`, `rag-mt eval NAME` is of `eval`."""

from __future__ import annotations

import argparse
import ast
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rag_mt.base.console import OK, Parser, run
from rag_mt.base.errors import UserError


@dataclass(frozen=True)
class Room:
    """A package whose modules are commands: its verb, its name, what it is for, and arguments to try."""

    verb: str
    package: str
    title: str
    examples: tuple[str, ...]


_ROOMS = (
    Room(
        "train",
        "finetune",
        "Train models, or make the data that they are trained on.",
        ("lora --config lora-embedded --max-steps 5", "ccpr.pairs --help"),
    ),
    Room(
        "eval",
        "eval",
        "Evaluate translations, retrievers and speed.",
        ("translation --limit 2 --systems plain", "bitext --help"),
    ),
)
ROOMS = {room.verb: room for room in _ROOMS}


def commands(room: Room) -> dict[str, str]:
    """What each command of a room is for, by name; read from the files, of which none is run."""
    folder = _folder(room)
    purposes = {}
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if '__name__ == "__main__"' not in text or "arser(" not in text:
            continue
        parts = file.relative_to(folder).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__main__" else parts)
        paragraph = (ast.get_docstring(ast.parse(text)) or "").split("\n\n")[0]
        purposes[name] = " ".join(paragraph.split()).rstrip(".")
    return dict(sorted(purposes.items()))


def _folder(room: Room) -> Path:
    spec = find_spec(room.package)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(f"the package {room.package} is not installed: `rag-mt {room.verb}` needs the whole of rag_mt")
    return Path(spec.submodule_search_locations[0])


def parser(room: Room) -> Parser:
    """The parser of `rag-mt train` or `rag-mt eval` as far as the name of a command."""
    purposes = commands(room)
    width = max(map(len, purposes))
    rows = "\n".join(f"  {name.ljust(width)}  {purpose}" for name, purpose in purposes.items())
    top = Parser(
        prog=f"rag-mt {room.verb}",
        usage=f"rag-mt {room.verb} NAME [OPTION ...]",
        description=f"{room.title} Each command has its own help: `rag-mt {room.verb} NAME --help`.\n\n{rows}",
        examples=room.examples,
    )
    top.add_argument("name", nargs="?", metavar="NAME", help="one of the commands above (default: list them)")
    top.add_argument("arguments", nargs=argparse.REMAINDER, metavar="OPTION", help="what is for the command itself")
    return top


def main(verb: str, arguments: Sequence[str]) -> int:
    """Run a command of a room with its arguments, or list them; returns the exit code."""
    room = ROOMS[verb]
    if arguments and not arguments[0].startswith("-"):
        return run(lambda _: _call(room, arguments[0], arguments[1:]), argparse.Namespace())
    top = parser(room)
    top.parse_args(arguments)
    print(top.format_help(), end="")
    return OK


def command_main(room: Room, name: str, arguments: Sequence[str]) -> int:
    """Call the `main` of a command; its help and errors name it as `rag-mt` does."""
    folder = _folder(room).joinpath(*name.split("."))
    module = import_module(f"{room.package}.{name}" + (".__main__" if folder.is_dir() else ""))
    before = Parser.renamed
    Parser.renamed = {f"python -m {each.package}.": f"rag-mt {each.verb} " for each in ROOMS.values()}
    try:
        return int(module.main(list(arguments)))
    finally:
        Parser.renamed = before


def _call(room: Room, name: str, arguments: Sequence[str]) -> int:
    names = commands(room)
    if name not in names:
        near = get_close_matches(name, names, n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(near)}? " if near else ""
        raise UserError(
            f"there is nothing called {name!r} to {room.verb}: {meant}`rag-mt {room.verb}` lists what there is"
        )
    try:
        return command_main(room, name, arguments)
    except ModuleNotFoundError as error:
        raise UserError(
            f"`rag-mt {room.verb} {name}` needs the package {error.name}, which is not installed: "
            f"pip install 'rag-mt[{room.verb}]'"
        ) from error
