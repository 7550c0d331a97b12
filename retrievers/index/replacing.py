"""Replacing an index folder by a new one: what is there is moved aside, and put back where that fails or is killed."""

from __future__ import annotations

from pathlib import Path

from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, sync

REPLACED = "replaced"
"""The index that gives way, in the folder in which the new one is made."""


def building_place(folder: Path) -> Path:
    """Where the index of that folder is built."""
    folder = folder.resolve()
    return folder.parent / f"{folder.name}.building"


def copying_place(folder: Path) -> Path:
    """Where a copy is made before it becomes that folder."""
    folder = folder.resolve()
    return folder.parent / f".{folder.name}.copying"


def take_place(new: Path, folder: Path, work: Path) -> None:
    """Let the folder `new` become `folder`, and what that was go to the folder `work`; it comes back on any error. Who
    calls holds `work`."""
    folder = folder.resolve()
    if folder.exists():
        folder.rename(work / REPLACED)
    try:
        new.rename(folder)
    except BaseException:
        put_back(folder, work)
        raise
    sync(folder.parent)


def put_back(folder: Path, work: Path) -> None:
    """Put the index back that was moved to `work` for one that did not take its place. Who calls holds `work`."""
    if not folder.exists() and (work / REPLACED).is_dir():
        (work / REPLACED).rename(folder.resolve())


def restore(folder: Path) -> None:
    """Put the index back that a killed build or copy had moved aside for the one that was to replace it; one that is
    just being replaced is waited for. Raises UserError where it cannot be moved."""
    for work, job in ((building_place(folder), "build"), (copying_place(folder), "copy")):
        if folder.exists() or not (work / REPLACED).is_dir():
            continue
        try:
            with alone_in(work, f"the {job} of index {folder}", wait=True):
                put_back(folder, work)
        except OSError as error:
            raise UserError(
                f"a {job} that was killed left index {folder} in {work / REPLACED}, and it cannot be moved back "
                f"({error.strerror}): move it yourself"
            ) from error
