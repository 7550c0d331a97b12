"""The sentences of an index that is being built, in shards: finished parts that appear whole or not at all.

A shard has the units of so many of the index's sentences, which its number tells. It does not depend on other shards,
nor on who makes it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rag_mt.base.files import file_sha256, read_json, whole_folder
from rag_mt.base.types import Sentence, TranslatedSentence
from retrievers.index.manifest import SENTENCES, SPANS
from retrievers.index.search import Index
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")

NOTE = "shard.json"
BODY, LISTS = "vectors.f16", "lists.npy"
"""A shard's vectors: rows of fp16 without a header; and, where they come from an IVF index, int32 with their lists."""

COUNTS = ("read", "kept", "duplicates", "unusable")
"""What became of the sentences that were read."""
BLOCK = 65536
"""Units of an index that are copied at once."""

_SURROGATE = re.compile("[\ud800-\udfff]")  # cannot be stored
_STRINGS, _NUMBERS = ("text", "file", "original"), ("line", "start")
TEXTS = pa.schema([*((name, pa.string()) for name in _STRINGS), *((name, pa.int64()) for name in _NUMBERS)])


Blocks = Sequence[Sequence[Sentence]]
"""Sentences in the portions that a unit maker takes at once."""
Writer = Callable[[Iterable[tuple[Path, Blocks]], Callable[[int], object]], Iterator["Shard"]]
"""Makes shards of these places and sentences, in any order; the function is told of sentences that are done."""


class Seen:
    """A set of texts by 64-bit hash, eight bytes for each: sorted runs that are merged when they are alike in size. Two
    different texts of 100 million share a hash with a probability of 0.03 %; the second would count as seen."""

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each text is new: neither among the texts of earlier calls nor earlier in this one."""
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        values, rows = np.unique(np.frombuffer(digests, dtype="<u8"), return_index=True)
        new = np.ones(len(values), dtype=bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, values), len(run) - 1)
            new &= run[at] != values
        if new.any():
            self._runs.append(values[new])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._runs.append(np.sort(np.concatenate([self._runs.pop(), self._runs.pop()])))
        is_new = np.zeros(len(texts), dtype=bool)
        is_new[rows[new]] = True
        return is_new


def distinct_blocks(
    sentences: Iterable[Sentence], size: int, counts: dict[str, int], seen: Seen
) -> Iterator[list[Sentence]]:
    """The sentences to keep, in lists of `size` (the last one shorter): those with a text that was not `seen`.
    `counts` tells what became of each (see COUNTS)."""
    stream = iter(sentences)
    waiting: list[Sentence] = []
    while chunk := list(islice(stream, size)):
        usable = [s for s in chunk if s.text.strip() and not _SURROGATE.search(s.text)]
        new = [s for s, is_new in zip(usable, seen.add([s.text for s in usable]), strict=True) if is_new]
        counts["read"] += len(chunk)
        counts["kept"] += len(new)
        counts["duplicates"] += len(usable) - len(new)
        counts["unusable"] += len(chunk) - len(usable)
        waiting += new
        if len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting


@dataclass(frozen=True)
class Shard:
    """A finished part: `digest` tells its input, `origins` are the names of the input files, `files` the sha256 of
    the shard's files."""

    place: Path
    digest: str
    sentences: int
    units: int
    origins: Sequence[str]
    files: Mapping[str, str]


def texts_digest(blocks: Blocks) -> str:
    """A hash of the texts of some blocks and where they came from."""
    digest = hashlib.sha256()
    for block in blocks:
        digest.update(json.dumps(_rows(block)).encode())
    return digest.hexdigest()


def _rows(block: Sequence[Sentence]) -> list[tuple[str, str, str, int, int]]:
    """The values of TEXTS."""
    originals = [s.original if isinstance(s, TranslatedSentence) else "" for s in block]
    places = [s.source for s in block]
    return [(s.text, p.file, o, p.line, p.start) for s, p, o in zip(block, places, originals, strict=True)]


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


def writer_of(maker: UnitMaker) -> Writer:
    """Makes shards one after the other in this process."""
    return lambda wanted, advance: (write_shard(place, blocks, maker, advance) for place, blocks in wanted)


def write_shard(
    place: Path, blocks: Blocks, maker: UnitMaker, advance: Callable[[int], object] = lambda sentences: None
) -> Shard:
    """Make the units of some blocks; the folder `place` appears when they are complete. `advance` is told of the
    sentences of each block."""
    spans: list[NDArray[np.int32]] = []
    with whole_folder(place) as part:
        with (part / BODY).open("wb") as body, pa.ipc.new_file(str(part / SENTENCES), TEXTS) as table:
            sentences = 0
            for block in blocks:
                vectors, block_spans = maker.units([s.text for s in block], "passage")
                spans.append(block_spans + np.array([sentences, 0, 0], dtype=np.int32))
                body.write(np.ascontiguousarray(vectors, dtype="<f2").data)
                columns = zip(*_rows(block), strict=True)
                arrays = [pa.array(column, kind) for column, kind in zip(columns, TEXTS.types, strict=True)]
                table.write_batch(pa.RecordBatch.from_arrays(arrays, schema=TEXTS))
                sentences += len(block)
                advance(len(block))
        rows = np.concatenate(spans)
        np.save(part / SPANS, rows, allow_pickle=False)
        origins = list(dict.fromkeys(s.source.file for block in blocks for s in block))
        return _noted(Shard(place, texts_digest(blocks), sentences, len(rows), origins, {}), part)


def write_kept(place: Path, index: Index, without: Collection[str], block: int) -> Shard:
    """A shard of what an index has, except the sentences of the files `without`; the folder `place` appears when it is
    complete. Vectors and spans are copied BLOCK units at a time, sentences `block` at a time; in memory are some bytes
    for each sentence and unit."""
    column = index.sentences.column("file").combine_chunks()
    names, codes = column.dictionary.to_pylist(), column.indices.to_numpy()
    kept = np.flatnonzero(~np.isin(codes, [code for code, name in enumerate(names) if name in without]))
    numbers = np.full(index.manifest.sentences, -1, dtype=np.int32)
    numbers[kept] = np.arange(len(kept), dtype=np.int32)
    blocks = [np.arange(begin, min(begin + BLOCK, len(index))) for begin in range(0, len(index), BLOCK)]
    staying = [rows[numbers[index.spans(rows)[:, 0]] >= 0] for rows in blocks]
    units, filled = sum(map(len, staying)), 0
    with whole_folder(place) as part:
        stored = np.lib.format.open_memmap(part / SPANS, mode="w+", dtype="<i4", shape=(units, 3))
        with (part / BODY).open("wb") as body:
            for rows in staying:
                spans = index.spans(rows)
                stored[filled : filled + len(rows)] = np.column_stack([numbers[spans[:, 0]], spans[:, 1:]])
                filled += len(rows)
                if index.manifest.dimension and len(rows):
                    body.write(index.reconstruct(rows).astype("<f2").data)
        stored.flush()
        if index.manifest.ivf is not None:
            np.save(part / LISTS, np.concatenate([index.lists_of(rows) for rows in staying]).astype(np.int32))
        with pa.ipc.new_file(str(part / SENTENCES), TEXTS) as table:
            for begin in range(0, len(kept), block):
                taken = index.sentences.take(pa.array(kept[begin : begin + block]))
                columns = {name: taken.column(name).combine_chunks() for name in taken.schema.names}
                columns["file"] = columns["file"].cast(pa.string())
                columns.setdefault("original", pa.array([""] * len(taken), pa.string()))
                table.write_batch(pa.RecordBatch.from_arrays([columns[n] for n in TEXTS.names], schema=TEXTS))
        used, firsts = np.unique(codes[kept], return_index=True)
        origins = [names[code] for code in used[np.argsort(firsts)].tolist()]
        return _noted(Shard(place, "", len(kept), units, origins, {}), part)


def _noted(shard: Shard, part: Path) -> Shard:
    """The shard with the hashes of its files, which are in the folder `part`; its note is written there."""
    names = (name for name in (BODY, LISTS, SPANS, SENTENCES) if (part / name).is_file())
    shard = replace(shard, files={name: file_sha256(part / name) for name in names})
    note = {name: value for name, value in asdict(shard).items() if name != "place"}
    (part / NOTE).write_text(json.dumps(note), encoding="utf-8")
    return shard


def batches_of(shard: Shard) -> Iterator[pa.RecordBatch]:
    """The sentences of a shard with the columns of TEXTS, mapped into memory, a batch for each block."""
    with pa.memory_map(str(shard.place / SENTENCES)) as mapped:
        file = pa.ipc.open_file(mapped)
        for number in range(file.num_record_batches):
            yield file.get_batch(number)


def merge_texts(shards: Sequence[Shard], folder: Path, schema: pa.Schema) -> None:
    """Write the spans and the sentences of all shards, one shard in memory at a time, the latter with the columns of
    `schema`; the bytes do not depend on where a shard ends."""
    names = pa.array(dict.fromkeys(name for shard in shards for name in shard.origins), pa.string())
    shape = (sum(shard.units for shard in shards), 3)
    spans = np.lib.format.open_memmap(folder / SPANS, mode="w+", dtype="<i4", shape=shape)
    unit = sentence = 0
    with pa.ipc.new_file(str(folder / SENTENCES), schema) as table:
        for shard in shards:
            rows = np.load(shard.place / SPANS, allow_pickle=False)
            spans[unit : unit + len(rows)] = rows + np.array([sentence, 0, 0], dtype=np.int32)
            unit, sentence = unit + len(rows), sentence + shard.sentences
            for batch in batches_of(shard):
                codes = pa.DictionaryArray.from_arrays(pc.index_in(batch.column("file"), names), names)
                columns = [codes if name == "file" else batch.column(name) for name in schema.names]
                table.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    spans.flush()
