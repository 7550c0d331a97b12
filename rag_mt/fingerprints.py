"""Hashes of files and settings; a big file is read once and its hash remembered by size, time and inode."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rag_mt.errors import DamagedFileError, UserError
from rag_mt.paths import cache_dir, whole_file


def settings_hash(settings: Any) -> str:
    """A short stable hash of JSON-able settings."""
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """The sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remembered_sha256(path: Path) -> str:
    """The sha256 of a file, read again only when its size, time or inode has changed."""
    stat = path.stat()
    key = settings_hash([str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino])
    note = cache_dir() / "hashes" / key
    if note.is_file():
        return note.read_text()
    digest = file_sha256(path)
    with whole_file(note) as part:
        part.write_text(digest)
    return digest


def remembered_hashes(paths: Iterable[Path]) -> dict[str, str]:
    """`remembered_sha256` of files by their folder's and their own name."""
    return {f"{path.parent.name}/{path.name}": remembered_sha256(path) for path in paths}


def folder_fingerprint(folder: Path, suffixes: tuple[str, ...] = (".safetensors", ".json", ".model")) -> str:
    """A short hash over the weights, configuration and tokenizer files of a model folder."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.suffix in suffixes)
    return settings_hash([[str(p.relative_to(folder)), remembered_sha256(p)] for p in files])


def read_json(path: Path) -> Any:
    """The parsed contents of a UTF-8 JSON file; raises DamagedFileError if it is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DamagedFileError(f"{path} is no JSON file any more ({error}): delete it and make it again") from error


def read_toml(path: Path, what: str, example: str | Path) -> dict[str, Any]:
    """The parsed contents of a TOML file that a user named, which is to hold `what`, as `example` does.

    Raises UserError for a file that is missing or no TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"there is no {what} {path}: try {example}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not a TOML file: {error}") from error
