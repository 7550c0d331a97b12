"""The finished parts of an index that is being built, and how spans and sentences of all become one file each."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_mt.base.fingerprints import file_sha256, read_json
from rag_mt.base.paths import whole_folder
from rag_mt.base.types import Sentence
from retrievers.index.files import SCHEMA, SENTENCES, SPANS
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")

NOTE = "shard.json"
BODY = "vectors.f16"
"""A shard's vectors: rows of fp16 without a header."""

_TEXTS = pa.schema([("text", pa.string()), ("file", pa.string()), ("line", pa.int64()), ("start", pa.int64())])


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


def texts_digest(blocks: Sequence[Sequence[Sentence]]) -> str:
    """A hash of the texts of some blocks and where they came from."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(json.dumps([[s.text, s.source.file, s.source.line, s.source.start] for s in block]).encode())
    return digest.hexdigest()


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
    place: Path,
    first: Sequence[Sentence],
    blocks: Iterator[Sequence[Sentence]],
    maker: UnitMaker,
    seconds: float,
    advance: Callable[[int], object],
) -> Shard:
    """Make the units of the first block and of those that follow until `seconds` have passed; the folder `place`
    appears when they are complete. `advance` is told of the sentences of each block."""
    begin = time.monotonic()
    taken: list[Sequence[Sentence]] = []
    spans: list[NDArray[np.int32]] = []
    with whole_folder(place) as part:
        with (part / BODY).open("wb") as body, pa.ipc.new_file(str(part / SENTENCES), _TEXTS) as table:
            sentences = 0
            for block in chain([first], blocks):
                vectors, block_spans = maker.units([s.text for s in block], "passage")
                spans.append(block_spans + np.array([sentences, 0, 0], dtype=np.int32))
                body.write(np.ascontiguousarray(vectors, dtype="<f2").data)
                table.write_batch(_batch(block))
                sentences += len(block)
                taken.append(block)
                advance(len(block))
                if time.monotonic() - begin >= seconds:
                    break
        rows = np.concatenate(spans)
        np.save(part / SPANS, rows, allow_pickle=False)
        shard = Shard(
            place,
            texts_digest(taken),
            sentences,
            len(rows),
            list(dict.fromkeys(s.source.file for block in taken for s in block)),
            {name: file_sha256(part / name) for name in (BODY, SPANS, SENTENCES)},
        )
        note = asdict(shard)
        del note["place"]
        (part / NOTE).write_text(json.dumps(note), encoding="utf-8")
    return shard


def _batch(sentences: Sequence[Sentence]) -> pa.RecordBatch:
    sources = [s.source for s in sentences]
    columns = [
        [s.text for s in sentences],
        *([getattr(s, name) for s in sources] for name in ("file", "line", "start")),
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _TEXTS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_TEXTS)


def merge_texts(shards: Sequence[Shard], folder: Path) -> None:
    """Write the spans and the sentences of all shards, one shard in memory at a time; the bytes do not depend on where
    a shard ends."""
    names = pa.array(dict.fromkeys(name for shard in shards for name in shard.origins), pa.string())
    units = sum(s.units for s in shards)
    spans = np.lib.format.open_memmap(folder / SPANS, mode="w+", dtype="<i4", shape=(units, 3))
    unit = sentence = 0
    with pa.ipc.new_file(str(folder / SENTENCES), SCHEMA) as table:
        for shard in shards:
            rows = np.load(shard.place / SPANS, allow_pickle=False)
            spans[unit : unit + len(rows)] = rows + np.array([sentence, 0, 0], dtype=np.int32)
            unit, sentence = unit + len(rows), sentence + shard.sentences
            batches = pa.ipc.open_file((shard.place / SENTENCES).read_bytes())
            for number in range(batches.num_record_batches):  # one for each block
                texts, files, lines, starts = batches.get_batch(number).columns
                codes = pa.DictionaryArray.from_arrays(pc.index_in(files, names), names)
                table.write_batch(pa.RecordBatch.from_arrays([texts, codes, lines, starts], schema=SCHEMA))
    spans.flush()
