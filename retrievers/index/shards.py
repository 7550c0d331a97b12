"""The finished parts of an index that is being built, and how they become one."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.fingerprints import file_sha256, read_json
from rag_mt.base.paths import whole_folder
from rag_mt.base.types import Sentence
from retrievers.index.ivf import Form, Part, write_lists
from retrievers.index.store import SCHEMA, SENTENCES, SPANS, VECTORS, spans_header, vectors_header
from retrievers.units.unit import UnitMaker, index_block

log = logging.getLogger("rag_mt")

NOTE = "shard.json"
BODY = "vectors.f16"
"""A shard's vectors: rows of fp16 without a header."""


@dataclass(frozen=True)
class Shard:
    """A finished part: `digest` tells its input, `origins` are the names of the input files, `files` the sha256 of
    its own."""

    place: Path
    digest: str
    sentences: int
    units: int
    origins: Sequence[str]
    files: Mapping[str, str]


def shard_digest(sentences: Sequence[Sentence]) -> str:
    """A hash of the texts and where they came from."""
    rows = [[s.text, s.source.file, s.source.line, s.source.start] for s in sentences]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def read_shard(place: Path) -> Shard | None:
    """The finished shard in the folder `place`, or None; a damaged one is removed."""
    if not place.exists():
        return None
    try:
        shard = Shard(place, **read_json(place / NOTE))
        if all(file_sha256(place / name) == digest for name, digest in shard.files.items()):
            return shard
    except (ValueError, TypeError, AttributeError, OSError):
        pass
    log.warning("%s is damaged and is made again", place)
    shutil.rmtree(place)
    return None


def write_shard(
    place: Path, sentences: Sequence[Sentence], maker: UnitMaker, advance: Callable[[int], object]
) -> Shard:
    """Make the units of the sentences; the folder `place` appears when they are complete."""
    spans: list[NDArray[np.int32]] = []
    with whole_folder(place) as part:
        with (part / BODY).open("wb") as body:
            size = index_block(maker)
            for begin in range(0, len(sentences), size):
                block = sentences[begin : begin + size]
                vectors, found = maker.units([s.text for s in block], "passage")
                spans.append(found + np.array([begin, 0, 0], dtype=np.int32))
                body.write(np.ascontiguousarray(vectors, dtype="<f2").data)
                advance(len(block))
        rows = np.concatenate(spans)
        np.save(part / SPANS, rows, allow_pickle=False)
        _write_sentences(part / SENTENCES, sentences)
        shard = Shard(
            place,
            shard_digest(sentences),
            len(sentences),
            len(rows),
            list(dict.fromkeys(s.source.file for s in sentences)),
            {name: file_sha256(part / name) for name in (BODY, SPANS, SENTENCES)},
        )
        note = asdict(shard)
        del note["place"]
        (part / NOTE).write_text(json.dumps(note), encoding="utf-8")
    return shard


def _write_sentences(path: Path, sentences: Sequence[Sentence]) -> None:
    table = pa.table(
        {
            "text": pa.array([s.text for s in sentences], pa.string()),
            "file": pa.array([s.source.file for s in sentences], pa.string()),
            "line": pa.array([s.source.line for s in sentences], pa.int64()),
            "start": pa.array([s.source.start for s in sentences], pa.int64()),
        }
    )
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def merge(shards: Sequence[Shard], folder: Path, dimension: int, form: Form, work: Path) -> int:
    """Write the files of an index from its shards, one shard in memory at a time; without a dimension no vectors.

    Returns the number of lists of the IVF form (else 0). What that has computed is kept in the folder `work` for when
    it is interrupted.
    """
    units = sum(s.units for s in shards)
    lists = 0
    if not dimension:
        pass  # BM25 searches alone
    elif form == "ivf":
        lists = write_lists(folder, [_part(shard, dimension) for shard in shards], dimension, work)
    else:
        with (folder / VECTORS).open("wb") as vectors:
            vectors.write(vectors_header(dimension, units))
            for shard in shards:
                with (shard.place / BODY).open("rb") as body:
                    shutil.copyfileobj(body, vectors, 1 << 20)
    with (folder / SPANS).open("wb") as spans:
        spans.write(spans_header(units))
        for rows in _spans(shards):
            spans.write(rows.data)
    with pa.ipc.new_file(str(folder / SENTENCES), SCHEMA) as writer:
        for batch in _batches(shards):
            writer.write_batch(batch)
    return lists


def described(folder: Path) -> dict[str, dict[str, Any]]:
    """The size and hash of every file in a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return {path.name: {"size": path.stat().st_size, "sha256": file_sha256(path)} for path in files}


def _part(shard: Shard, dimension: int) -> Part:
    """The vectors of a shard."""

    def load() -> NDArray[np.float16]:
        return np.fromfile(shard.place / BODY, "<f2").reshape(shard.units, dimension)

    return Part(shard.units, shard.files[BODY], load)


def _spans(shards: Sequence[Shard]) -> Iterator[NDArray[np.int32]]:
    """The spans of each shard with the sentence numbers of the whole index."""
    before = 0
    for shard in shards:
        rows = np.load(shard.place / SPANS, allow_pickle=False)
        rows[:, 0] += before
        before += shard.sentences
        yield np.ascontiguousarray(rows, dtype="<i4")


def _batches(shards: Sequence[Shard]) -> Iterator[pa.RecordBatch]:
    """The sentences of each shard with one dictionary of file names for all."""
    names = list(dict.fromkeys(name for shard in shards for name in shard.origins))
    code = {name: i for i, name in enumerate(names)}
    dictionary = pa.array(names, pa.string())
    for shard in shards:
        table = pa.ipc.open_file((shard.place / SENTENCES).read_bytes()).read_all().combine_chunks()
        codes = pa.array([code[name] for name in table.column("file").to_pylist()], pa.int32())
        files = pa.DictionaryArray.from_arrays(codes, dictionary)
        texts, lines, starts = (table.column(name).chunk(0) for name in ("text", "line", "start"))
        yield pa.RecordBatch.from_arrays([texts, files, lines, starts], schema=SCHEMA)
