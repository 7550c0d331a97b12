"""Where an index is that an engine of others keeps: `NAME:WHERE` in the place of the folder of an index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError

LONGEST = 200
"""Characters of what an engine says that an error quotes."""
SCHEME = re.compile(r"^([a-z][a-z0-9+.-]+):/+")
"""The beginning of a URI, as a Path has it, too."""
UNITS, SENTENCES, FILES = PARTS = "units", "sentences", "files"
"""What the manifest of an index in an engine tells of in the place of files."""


@dataclass(frozen=True)
class Kind:
    """An engine: its name for people, the package that it comes in, and what places of it look like."""

    title: str
    package: str
    places: str


KINDS = {
    "lance": Kind("LanceDB", "lancedb", "lance:FOLDER or lance:s3://BUCKET/FOLDER"),
    "qdrant": Kind("Qdrant", "qdrant_client", "qdrant:FOLDER or qdrant:http://HOST:6333/NAME"),
}
"""By what stands before the colon, which is the name of the extra, too."""


def name_of(folder: str | Path) -> str | None:
    """The engine that the place of an index is in, None for a folder."""
    name, colon, _ = str(folder).partition(":")
    return name if colon and name in KINDS else None


def kind_of(folder: str | Path) -> Kind | None:
    """What is known of the engine that the place of an index is in, None for a folder."""
    name = name_of(folder)
    return None if name is None else KINDS[name]


def only_in_folders(folder: Path) -> None:
    """Raises UserError for a place in an engine, where what is to be done needs the files of an index folder."""
    if kind_of(folder):
        raise UserError(f"{folder} has no files, which this needs: give the folder that it is a copy of")


def where_of(folder: str | Path) -> tuple[str, str]:
    """The scheme of what comes after the colon, which is empty where there is none, and all of it; a Path has made one
    slash of the two of `s3://`."""
    rest = str(folder).partition(":")[2]
    scheme = SCHEME.match(rest)
    return (scheme[1], f"{scheme[1]}://{rest[scheme.end() :]}") if scheme else ("", rest)


def package_of(folder: Path) -> Any:
    """The package of the engine; raises UserError where it is not installed."""
    kind = kind_of(folder)
    assert kind is not None
    try:
        return import_module(kind.package)
    except ImportError as error:
        raise UserError(
            f"{folder} is a place in {kind.title}, which is not installed ({error}): pip install "
            f"'rag-mt[{name_of(folder)}]'"
        ) from error


def no_index(folder: Path, state: str) -> UserError:
    """The error for a place without an index."""
    return UserError(f"index {folder} {state}: copy one there with `rag-mt index copy DIR {folder}`")


def taken(folder: Path) -> UserError:
    """The error for a place with an index that is not to be replaced."""
    return UserError(f"index {folder} exists already: give another place, or --replace (replace=True) to copy it anew")


def changed_by_others(folder: Path, job: str) -> UserError:
    """The error for a change that is not to be finished, for the index is another one by now."""
    return UserError(f"index {folder} was changed by others during its {job}: start the {job} again")


@contextmanager
def store_errors(
    folder: Path, kinds: tuple[type[Exception], ...] = (ValueError, RuntimeError, OSError)
) -> Iterator[None]:
    """What an engine raises, by its kinds, as a UserError."""
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        said = " ".join(str(error).split()) or type(error).__name__
        short = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
        raise UserError(
            f"index {folder} cannot be read or written ({short}): see that its folder, store or server can be reached "
            "and its keys are set; `rag-mt index copy --replace` makes it again if it is damaged"
        ) from error
