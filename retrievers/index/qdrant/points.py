"""The points of an index in Qdrant, which are a collection of their own whose name nobody else has. The name of the
index is an alias of it, which changes in one step, so that an index is seen as a whole or not at all.

units       vector (fp16), sentence, start, end; their ids are their numbers
sentences   text, file, line, start, and what it translates, if that is known; ids from SENTENCE on
files       what else an index folder has, in pieces: name, data (base64); ids from FILE on
manifest    one point: the manifest as in a folder, and its revision, by which changes know each other
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from retrievers.index.manifest import Manifest, damaged, manifest_of, manifest_text
from retrievers.index.places import FILES, PARTS, UNITS, changed_by_others, no_index, package_of
from retrievers.index.qdrant.place import asked, connected, place_of

SENTENCE, FILE, MANIFEST = 1 << 40, 1 << 50, 1 << 60
VECTOR = "unit"
_UNIQUE = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Stored:
    """What is there: the collection, the revision of its manifest, and the manifest, None where it cannot be read."""

    collection: str
    revision: int
    text: str


def collections_of(folder: Path, client: Any) -> list[str]:
    """The collections with points of an index of this name: the one that it is, the one that it was before, and those
    of interrupted copies."""
    own = f"{place_of(folder).name}."
    names = [entry.name for entry in asked(folder, client.get_collections).collections]
    return [name for name in names if name.startswith(own) and _UNIQUE.fullmatch(name.removeprefix(own))]


def read_stored(folder: Path, client: Any) -> Stored | None:
    """What the alias leads to, None where there is none; raises UserError for a collection of others."""
    name = place_of(folder).name
    aliases = {entry.alias_name: entry.collection_name for entry in asked(folder, client.get_aliases).aliases}
    if name not in aliases:
        return None
    points = asked(folder, lambda: client.retrieve(aliases[name], [MANIFEST], with_payload=True))
    payload = points[0].payload or {} if points else {}
    text, revision = payload.get("manifest"), payload.get("revision")
    if not isinstance(text, str) or not isinstance(revision, int):
        raise damaged(folder, "its collection has no manifest, or is one of others")
    return Stored(aliases[name], revision, text)


def finished(folder: Path, client: Any) -> tuple[Stored, Manifest]:
    """What is there with its manifest; raises UserError where there is no index, or no whole one."""
    stored = read_stored(folder, client)
    if stored is None:
        begun = bool(collections_of(folder, client))
        raise no_index(folder, "is not complete, its copy was interrupted" if begun else "does not exist")
    try:
        contents = json.loads(stored.text)
    except ValueError:
        raise damaged(folder, "its manifest is not JSON") from None
    manifest = manifest_of(folder, contents, PARTS)
    if manifest.files[UNITS].get("collection") != stored.collection:
        raise damaged(folder, "its manifest is that of another collection")
    return stored, manifest


def stored_manifest(folder: Path) -> Manifest:
    """The manifest of an index; raises UserError where there is none, or no whole one."""
    return finished(folder, connected(folder))[1]


def write_points(folder: Path, client: Any, collection: str, points: Iterable[Any], **options: Any) -> None:
    """Write points, whose ids may be taken already."""
    batch = list(points)
    if batch:
        asked(folder, lambda: client.upsert(collection, batch, wait=True, **options))


def manifest_point(folder: Path, manifest: Manifest, revision: int) -> Any:
    """The point with the manifest."""
    payload = {"manifest": manifest_text(manifest), "revision": revision}
    return package_of(folder).models.PointStruct(id=MANIFEST, vector={}, payload=payload)


def change_stored(folder: Path, known: Manifest, job: str, change: Callable[[Manifest], Manifest]) -> Manifest:
    """`change_manifest` for an index in Qdrant."""
    client, models = connected(folder), package_of(folder).models
    stored, manifest = finished(folder, client)
    if manifest.files != known.files:
        raise changed_by_others(folder, job)
    manifest = change(manifest)
    unchanged = models.FieldCondition(key="revision", match=models.MatchValue(value=stored.revision))
    point = manifest_point(folder, manifest, stored.revision + 1)
    write_points(folder, client, stored.collection, [point], update_filter=models.Filter(must=[unchanged]))
    now = read_stored(folder, client)
    if now is None or now.text != manifest_text(manifest):
        raise changed_by_others(folder, job)
    return manifest


def stored_files(folder: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """What else the index has, by name in pieces, those of one file in their order."""
    client, collection = connected(folder), str(manifest.files[UNITS]["collection"])
    for number in range(int(manifest.files[FILES]["pieces"])):
        points = asked(folder, partial(client.retrieve, collection, [FILE + number], with_payload=True))
        if not points:
            raise damaged(folder, "pieces of files are missing")
        payload = points[0].payload or {}
        name, data = payload.get("name"), payload.get("data")
        try:
            if not isinstance(name, str) or not isinstance(data, str):
                raise ValueError
            piece = b64decode(data)
        except ValueError:
            raise damaged(folder, "a piece of a file is none") from None
        yield name, piece
