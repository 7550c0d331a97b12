"""Copying an index into Qdrant."""

from __future__ import annotations

import logging
import time
from base64 import b64encode
from dataclasses import replace as with_fields
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from rag_mt.base.errors import UserError
from retrievers.index.copying import Source, not_a_folder
from retrievers.index.manifest import PAIRS, Manifest
from retrievers.index.places import FILES, SENTENCES, UNITS, changed_by_others, package_of, place_text, taken
from retrievers.index.qdrant.place import Place, asked, connected, place_of
from retrievers.index.qdrant.points import (
    FILE,
    SENTENCE,
    VECTOR,
    Stored,
    collections_of,
    manifest_point,
    read_stored,
    write_points,
)
from retrievers.index.qdrant.search import QdrantIndex
from retrievers.index.vectors import form_for, measured_on_own

log = logging.getLogger("rag_mt")

BLOCK = 1024
"""Points that are written at once."""
PIECE = 1 << 20
"""Bytes of a file in a point."""
MOST_LOCAL = 20000
"""Units from which on the package itself advises a server."""
MOST_EF = 2048
"""Points of the graph that a query may look at; for more it looks at all."""
POLL = 1.0
"""Seconds between two looks at a server that makes its graph."""
_SENTENCES = PAIRS.set(1, pa.field("file", pa.string()))


def write_copy(target: Path, source: Source, *, replace: bool, form: str) -> Manifest:
    """Copy an index to a place in Qdrant; see `retrievers.index.copying`."""
    place, units = place_of(target), source.manifest.units
    wanted = _form(place, form, source.manifest)
    if place.folder is not None:
        not_a_folder(place.folder, target)
        if units > MOST_LOCAL:
            log.warning(
                "%s is to hold %d units, all of which are read into memory: a server is for so many", target, units
            )
    client = connected(target, new=True)
    stored = read_stored(target, client)
    if stored is not None and not replace:
        raise taken(target)
    if stored is None and asked(target, lambda: client.collection_exists(place.name)):
        raise UserError(f"{place_text(target)} is a collection of others: give another name for the index")
    return put(target, source, stored, wanted, "copy")


def put(target: Path, source: Source, replaced: Stored | None, form: str, job: str) -> Manifest:
    """Write an index beside the one that is there, and let it take that one's place; raises UserError if that is no
    longer the one that is to be `replaced`. Who has the old one open goes on with it, until this is done again."""
    client = connected(target)
    _tidy(target, client, replaced, job)
    collection = f"{place_of(target).name}.{uuid4().hex}"
    _create(target, client, collection, source.manifest.dimension, form, quantised=source.rerank)
    _write_units(target, client, collection, source)
    _write_sentences(target, client, collection, source)
    pieces = _write_files(target, client, collection, source)
    manifest = with_fields(
        source.manifest,
        files={
            UNITS: {"collection": collection, **({"rerank": True} if source.rerank else {})},
            SENTENCES: {"originals": source.index.has_originals},
            FILES: {"contents": source.contents, "pieces": pieces},
        },
    )
    if form == "ivf":
        manifest = _with_graph(target, client, collection, manifest)
    write_points(target, client, collection, [manifest_point(target, manifest, 0)])
    _check_still(target, client, replaced, job)
    _let_be(target, client, collection, replaced)
    return manifest


def _tidy(target: Path, client: Any, replaced: Stored | None, job: str) -> None:
    """Delete what interrupted copies left, and the index before the one that is there."""
    _check_still(target, client, replaced, job)
    for left in collections_of(target, client):
        if replaced is None or left != replaced.collection:
            _check_still(target, client, replaced, job)  # or it may be one that was completed since
            asked(target, partial(client.delete_collection, left))


def _write_units(target: Path, client: Any, collection: str, source: Source) -> None:
    """Points of the units, by their numbers."""
    point = package_of(target).models.PointStruct
    for numbers, spans, vectors in source.units(BLOCK):
        rows = zip(numbers.tolist(), spans.tolist(), vectors, strict=True)
        units = (
            point(id=id, vector={VECTOR: row}, payload={"sentence": sentence, "start": start, "end": end})
            for id, (sentence, start, end), row in rows
        )
        write_points(target, client, collection, units)


def _write_sentences(target: Path, client: Any, collection: str, source: Source) -> None:
    """Points of the sentences, by their numbers from SENTENCE on."""
    point, first = package_of(target).models.PointStruct, SENTENCE
    for batch in source.sentences(_SENTENCES, BLOCK):
        payloads = (
            {key: value for key, value in row.items() if key != "original" or value} for row in batch.to_pylist()
        )
        sentences = (point(id=id, vector={}, payload=row) for id, row in enumerate(payloads, first))
        write_points(target, client, collection, sentences)
        first += len(batch)


def _write_files(target: Path, client: Any, collection: str, source: Source) -> int:
    """Points of the pieces of files; returns their number."""
    point, pieces = package_of(target).models.PointStruct, 0
    for file, _, data in source.pieces(PIECE):
        payload = {"name": file, "data": b64encode(data).decode()}
        write_points(target, client, collection, [point(id=FILE + pieces, vector={}, payload=payload)])
        pieces += 1
    return pieces


def _with_graph(target: Path, client: Any, collection: str, manifest: Manifest) -> Manifest:
    """The manifest of an index whose vectors the server puts into a graph, with how much of it a query looks at."""
    _wait(target, client, collection)
    unmeasured = with_fields(manifest, ivf={"nlist": MOST_EF, "nprobe": MOST_EF, "measured": {}})
    measured = measured_on_own(QdrantIndex(target, unmeasured, client), MOST_EF)
    return with_fields(manifest, ivf={**measured, "graph": True})


def _let_be(target: Path, client: Any, collection: str, replaced: Stored | None) -> None:
    """Let the collection be the index, in one step."""
    models, name = package_of(target).models, place_of(target).name
    steps = [models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=collection, alias_name=name))]
    if replaced is not None:
        steps.insert(0, models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name)))
    asked(target, lambda: client.update_collection_aliases(steps))


def _form(place: Place, form: str, manifest: Manifest) -> str:
    """`exact`, or `ivf` where the server is to search by a graph; raises UserError for that in the local mode."""
    if place.local and form == "ivf":
        raise UserError("the local mode of Qdrant looks at all vectors: leave --form out, or copy to a server")
    return "exact" if place.local else form_for(form, manifest.units, manifest.unit)


def _check_still(target: Path, client: Any, replaced: Stored | None, job: str) -> None:
    """Raises UserError if the index that is there is another one by now."""
    if read_stored(target, client) != replaced:
        raise changed_by_others(target, job)


def _create(target: Path, client: Any, collection: str, dimension: int, form: str, *, quantised: bool) -> None:
    """An empty collection for the points of an index: vectors in fp16, and with a graph for the form `ivf`, where they
    are `quantised`, which is in 8 bits, too."""
    models = package_of(target).models
    options: dict[str, Any] = {"size": dimension, "distance": models.Distance.DOT}
    options |= {"datatype": models.Datatype.FLOAT16}
    if form == "exact":
        options["hnsw_config"] = models.HnswConfigDiff(m=0)
    elif quantised:
        scalar = models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
        options["quantization_config"] = models.ScalarQuantization(scalar=scalar)
    vectors = {VECTOR: models.VectorParams(**options)}
    asked(target, lambda: client.create_collection(collection, vectors_config=vectors))
    if not place_of(target).local:
        kind = models.PayloadSchemaType.INTEGER
        asked(target, lambda: client.create_payload_index(collection, "sentence", field_schema=kind))


def _wait(target: Path, client: Any, collection: str) -> None:
    """Until the server has made its graph, and has nothing to do twice."""
    log.info("index %s: the server makes its graph", target)
    idle = 0
    while idle < 2:
        time.sleep(POLL)
        status = asked(target, lambda: client.get_collection(collection).status.value)
        if status == "red":
            raise UserError(
                f"index {place_text(target)} cannot be written: the server could not make its graph, see its log"
            )
        idle = idle + 1 if status == "green" else 0
