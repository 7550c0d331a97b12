"""What the program keeps to save time, and how to remove it: `rag-mt cache list|clear`."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rag_mt.base.console import OK, PARTLY, note
from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, locked, release
from rag_mt.base.sizes import bytes_below, size
from rag_mt.cli.tables import Row, show

DESCRIPTION = """Show or clear the cache: what the program keeps to save time.

It is one folder: RAG_MT_CACHE if that is set, else the user's cache folder of this system. Everything in it is made
again when it is needed, with one exception: what users of the server have uploaded. To uninstall rag_mt, clear it with
`rag-mt cache clear` and `rag-mt cache clear server`."""
LIST_DESCRIPTION = "Show where the cache is, and the kinds of things in it with number, size and last use."
CLEAR_DESCRIPTION = """Remove kinds of things from the cache, all but `server` if none is named.

What another process is working on stays, and is named."""
LIST_EXAMPLES, CLEAR_EXAMPLES = ("", "--json"), ("models", "")
EXAMPLES = ("list", "clear", "clear models indexes")

RECENT = 600
"""Seconds in which what is being written without a lock must have changed."""


@dataclass(frozen=True)
class Kind:
    """Things of one kind: what they are, and the patterns of their paths in the cache, which hold nothing that a user
    would call so. What is `kept` is removed only if it is named; what is written without a `lock` is taken to be in use
    as long as it changes."""

    what: str
    patterns: tuple[str, ...]
    kept: bool = False
    lock: bool = True


HEX = "[0-9a-f]"
KINDS = {
    "models": Kind(
        "embedded models, joined or unpacked from their packages",
        (f"models/*-{8 * HEX}-*", f"models/*-{8 * HEX}.gguf*"),
    ),
    "adapters": Kind("adapters as files for llama.cpp", (f"adapters/{16 * HEX}-{8 * HEX}.gguf",)),
    "indexes": Kind(
        "sample indexes, small files of indexes in LanceDB",
        (f"indexes/*-{12 * HEX}", f"indexes/*-{12 * HEX}.unfinished"),
    ),
    "hashes": Kind("sha256 of files that were read", ("hashes.sqlite*",)),
    "trials": Kind("models of trainings without --output", (f"trials/*-{8 * HEX}",), lock=False),
    "evaluations": Kind(
        "vectors and runs of evaluations", ("passage-runs/*", "xpr-sample/*", "mdpr-before/*", "bitext/*"), lock=False
    ),
    "server": Kind("what users of `rag-mt serve` uploaded: cleared only by name", ("server/*/*",), kept=True),
}


def list_cache(options: argparse.Namespace) -> int:
    """Print the folder and a row for each kind; returns the exit code."""
    folder = cache_dir()
    rows: list[Row] = []
    for name, kind in KINDS.items():
        paths = list(_paths(folder, kind))
        used = max((_last_use(path) for path in paths), default=0.0)
        row = {"kind": name, "number": len(paths), "bytes": sum(map(bytes_below, paths))}
        rows.append(
            row | {"last_used": time.strftime("%Y-%m-%d", time.localtime(used)) if used else "", "what": kind.what}
        )
    if not options.json:
        print(f"{folder} ({size(sum(row['bytes'] for row in rows))}; set RAG_MT_CACHE to have it elsewhere)\n")
    show(rows, options.json, "")
    return OK


def clear(options: argparse.Namespace) -> int:
    """Remove what the options name, say what went and what stays; returns the exit code."""
    for name in options.kinds:
        if name not in KINDS:
            raise UserError(f"the cache has no kind {name!r}: choose from {', '.join(KINDS)}")
    folder, code = cache_dir(), OK
    for name in options.kinds or [name for name, kind in KINDS.items() if not kind.kept]:
        freed = number = 0
        for path in _paths(folder, KINDS[name]):
            byte_count = bytes_below(path)
            if holder := _remove(path, KINDS[name]):
                note(f"{path} stays: {holder}")
                code = PARTLY
            else:
                freed, number = freed + byte_count, number + 1
        print(f"{name}: " + (f"{number} removed, {size(freed)}" if number else "nothing to remove"))
    uploads = list(_paths(folder, KINDS["server"]))
    if not options.kinds and uploads:
        note(
            f"what users of the server uploaded stays ({len(uploads)} folders): `rag-mt cache clear server` removes it"
        )
    return code


def _paths(folder: Path, kind: Kind) -> Iterator[Path]:
    """The things of a kind; locks are none."""
    for pattern in kind.patterns:
        yield from (path for path in sorted(folder.glob(pattern)) if not path.name.endswith(".lock"))


def _remove(path: Path, kind: Kind) -> str:
    """Remove a file or folder; what keeps it from being removed, or an empty text."""
    locks = []
    try:
        # Sample indexes are made under the second name; a server holds a lock beside what its users have.
        own = [path.with_name(f".{name}.lock") for name in (path.name, f"{path.name}.unfinished")]
        for place in path.parent.glob(".*.lock") if kind.kept else own:
            if place.exists():
                lock = locked(place)
                if lock is None:
                    with suppress(OSError):
                        return f"process {place.read_text(encoding='ascii')} is working on it"
                    return "another process is working on it"
                locks.append(lock)
        if (not kind.lock or path.name.endswith(".part")) and time.time() - _last_change(path) < RECENT:
            return f"it has changed in the last {RECENT // 60} minutes"
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    finally:
        for lock in locks:
            release(lock)
    return ""


def _last_change(path: Path) -> float:
    return max((file.lstat().st_mtime for file in (path, *path.rglob("*"))), default=0.0)


def _last_use(path: Path) -> float:
    """When something was last read or written, as far as the file system notes it (some do once a day)."""
    times = [0.0]
    for file in [path] if path.is_file() else path.rglob("*"):
        with suppress(OSError):
            times.append(max(file.lstat().st_atime, file.lstat().st_mtime) if file.is_file() else 0.0)
    return max(times)


def add_actions(parser: argparse.ArgumentParser) -> None:
    """The actions of `rag-mt cache` with their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    add = actions.add_parser(
        "list", help="show where it is and what is in it", description=LIST_DESCRIPTION, examples=LIST_EXAMPLES
    )
    add.add_argument("--json", action="store_true", help="print JSON, sizes in bytes")
    add.set_defaults(run=list_cache)
    add = actions.add_parser(
        "clear", help="remove what can be made again", description=CLEAR_DESCRIPTION, examples=CLEAR_EXAMPLES
    )
    kinds_help = f"{', '.join(KINDS)} (default: all but server)"
    add.add_argument("kinds", nargs="*", metavar="KIND", help=kinds_help)
    add.set_defaults(run=clear)
