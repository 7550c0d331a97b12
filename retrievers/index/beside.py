"""What an index has beside vectors and text: models of confidence, terms of BM25, adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from rag_mt.base.files import cache_dir, file_sha256, settings_hash, whole_folder
from retrievers.index.engines import engine_of
from retrievers.index.manifest import MANIFEST, ROWS, SENTENCES, SPANS, VECTORS, Manifest, damaged
from retrievers.index.places import FILES, name_of

IN_TABLES = (MANIFEST, VECTORS, ROWS, SPANS, SENTENCES)


def files_in(folder: Path) -> dict[str, Path]:
    """The files beside vectors and text of an index folder, by their names in it."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in files}
    return {name: path for name, path in names.items() if name not in IN_TABLES and not name.startswith(".")}


def pieces_of(files: Mapping[str, Path], size: int) -> Iterator[tuple[str, int, bytes]]:
    """Name, number and bytes of the pieces of files, at most `size` bytes each; an empty file is one piece."""
    for name, path in files.items():
        with path.open("rb") as file:
            number = 0
            while (data := file.read(size)) or not number:
                yield name, number, data
                number += 1


def contents_of(files: Mapping[str, Path]) -> str:
    """What tells these files from others."""
    return settings_hash([[name, file_sha256(path)] for name, path in files.items()])[:12]


def local_files(folder: Path, manifest: Manifest | None = None) -> Path:
    """The folder with these files of an index: its own, or for one in an engine a copy in the cache, which is made at
    the first call for these contents. Raises UserError if they are not what the manifest says."""
    engine = engine_of(folder)
    if engine is None:
        return folder
    manifest = manifest or engine.stored_manifest(folder)
    contents = str(manifest.files[FILES]["contents"])
    if not contents.isalnum():  # it becomes the name of a folder
        raise damaged(folder, "its manifest has no hash of its files")
    place = cache_dir() / "indexes" / f"{name_of(folder)}-{contents}"
    if place.is_dir():
        return place
    with whole_folder(place) as part:
        for name, data in engine.stored_files(folder, manifest):
            path = part / name
            if not path.resolve().is_relative_to(part.resolve()):
                continue  # a name that leads out of the folder is not one that we wrote
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("ab") as file:
                file.write(data)
        if contents_of(files_in(part)) != contents:
            raise damaged(folder, "its files do not match their hash")
    return place
