"""Shards of phrase pairs, written by processes that import no more than this: loading torch would cost each one
seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from eval.data.phrase_pairs import Frequent, all_phrase_pairs
from rag_mt.base.files import whole_file
from rag_mt.formats.parallel import Corpus
from retrievers.encoders.alignment import Links, Method, symmetrised

TEXT = pa.string()
SCHEMA = pa.schema({"line": pa.int32(), "domain": TEXT, "source": TEXT, "target": TEXT, "spans": pa.list_(pa.int32())})


def write_shard(
    path: Path,
    corpus: Corpus,
    directions: Sequence[Sequence[Links]],
    method: Method,
    frequent: Frequent,
    max_words: int,
) -> int:
    """Write the phrase pairs of some sentence pairs, with counts in the metadata of the schema; sentence pairs without
    any are left out. Returns the number of all sentence pairs."""
    links = symmetrised(directions[0], directions[1], method)
    spans = all_phrase_pairs(corpus.sources, corpus.targets, links, frequent, max_words)
    rows = [n for n, phrase_pairs in enumerate(spans) if len(phrase_pairs)]
    counts = {
        "sentences": len(corpus),
        "pairs": len(rows),
        "without phrase pairs": len(corpus) - len(rows),
        "links": sum(map(len, links)),
        "phrases": sum(map(len, spans)),
    }
    part = corpus.rows(rows)
    columns = part.lines, part.domains, part.sources, part.targets, [spans[n].ravel() for n in rows]
    schema = SCHEMA.with_metadata({key: str(count) for key, count in counts.items()})
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    with whole_file(path) as temporary, pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as out:
        out.write_batch(pa.record_batch(arrays, schema=schema))
    return len(corpus)
