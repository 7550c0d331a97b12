"""Qdrant's own engine against FAISS: build, size, latency and recall of the same vectors.

    python -m eval.speed.qdrant INDEX [--limit N] [--sentences 30] [--rounds 3]

The engine is that of a Qdrant server, in this process (`pip install qdrant-edge-py`): what a network and other clients
cost is not in these numbers. It has one segment, a graph (HNSW) of vectors in fp16 as an index in a server has, and
searches with one thread, one query after the other. INDEX is only read: its first N sentences are built anew for FAISS,
whose time is without that of making vectors. Queries are vectors of the index, each turned at random to a cosine of 0.7
with itself; `looked at` are the lists of FAISS that are searched, and `ef` of the graph. Recall@1 is measured against
exact search of the same vectors. Bytes are those on the disk, of Qdrant with its journal of changes; its graph is made
by a thread of low priority, so that beside other programs it takes longer.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.vectors import milliseconds
from eval.speed.growing import seconds
from eval.speed.index import built, query_vectors
from eval.speed.timing import add_measuring_options, table_row
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.index.manifest import VECTORS
from retrievers.index.search import MOST_LISTS, Index

EFS = (32, 64, 128, 256)
WRITTEN_AT_ONCE = 4096
HEADINGS = ("", "build, s", "bytes/unit", "looked at", "ms/query", "ratio", "recall@1")
WIDTHS = (8, 10, 12, 11, 10, 8, 10)


class Graph:
    """Vectors (units, dimension) in a shard of Qdrant, by number."""

    def __init__(self, folder: Path, dimension: int) -> None:
        """An empty shard; raises UserError where the engine is not installed."""
        try:
            import qdrant_edge as engine
        except ImportError:
            raise UserError("Qdrant's engine is not installed: `pip install qdrant-edge-py`") from None
        self._engine: Any = engine
        kind = engine.EdgeVectorParams(
            size=dimension, distance=engine.Distance.Dot, datatype=engine.VectorStorageDatatype.Float16
        )
        graph = engine.HnswIndexConfig(m=16, ef_construct=100, full_scan_threshold=10000, max_indexing_threads=1)
        segments = engine.EdgeOptimizersConfig(
            default_segment_number=1, indexing_threshold=1000, max_segment_size=10_000_000
        )
        folder.mkdir()
        config = engine.EdgeConfig(vectors=kind, hnsw_config=graph, max_search_threads=1, optimizers=segments)
        self._shard = engine.EdgeShard.create(str(folder), config)
        self.ef = EFS[0]

    def fill(self, index: Index) -> None:
        """Write the vectors of an index and make their graph."""
        for begin in range(0, len(index), WRITTEN_AT_ONCE):
            ids = np.arange(begin, min(begin + WRITTEN_AT_ONCE, len(index)))
            rows = zip(ids.tolist(), index.reconstruct(ids).tolist(), strict=True)
            points = [self._engine.Point(number, row, {}) for number, row in rows]
            self._shard.update(self._engine.UpdateOperation.upsert_points(points))
        while self._shard.optimize():
            pass
        self._shard.flush()

    def search(self, queries: Floats, k: int) -> NDArray[np.int64]:
        """The unit of the greatest inner product with each of the queries, as the graph finds it; k is 1."""
        how = self._engine.SearchParams(hnsw_ef=self.ef)
        nearest = map(self._engine.Query.Nearest, queries.tolist())
        found = (self._shard.query(self._engine.QueryRequest(limit=k, query=query, params=how)) for query in nearest)
        return np.array([hits[0].id for hits in found], dtype=np.int64)


def blocks_below(folder: Path) -> int:
    """The bytes that a folder takes on the disk: the engine keeps room for what it has not written yet."""
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Build both and print their rows."""
    graph_folder = folder / "graph"
    index, rate = built(folder, "ivf", options)
    graph = Graph(graph_folder, index.manifest.dimension)
    note(f"making a graph of {len(index)} vectors")
    build = seconds(lambda: graph.fill(index))
    sentences = query_vectors(options, index)
    best = np.concatenate([index.search(queries, 1, probes=MOST_LISTS)[1][:, 0] for queries in sentences])
    found = np.concatenate([index.search(queries, 1)[1][:, 0] for queries in sentences])
    assert index.manifest.ivf is not None

    def print_row(*values: object) -> None:
        print(table_row(values, WIDTHS), flush=True)

    def each(searched: Any) -> float:
        """Milliseconds of a query that is searched by itself."""
        singles = [query[None] for queries in sentences for query in queries]
        return milliseconds(searched, singles, options.rounds)

    base = each(index)
    print(
        f"{len(index)} vectors of {index.manifest.dimension} dimensions, {len(best)} queries, median of "
        f"{options.rounds} rounds"
    )
    print_row(*HEADINGS)
    size = int(index.manifest.files[VECTORS]["size"]) / len(index)
    recall = f"{(found == best).mean():.4f}"
    print_row(
        "FAISS", f"{len(index) / rate:.1f}", f"{size:.0f}", index.manifest.ivf["nprobe"], f"{base:.3f}", 1, recall
    )
    size = blocks_below(graph_folder) / len(index)
    for graph.ef in EFS:
        found = np.concatenate([graph.search(queries, 1) for queries in sentences])
        time, recall = each(graph), f"{(found == best).mean():.4f}"
        print_row("Qdrant", f"{build:.1f}", f"{size:.0f}", graph.ef, f"{time:.3f}", f"{time / base:.1f}", recall)


def report(options: argparse.Namespace) -> int:
    """Measure and print."""
    with TemporaryDirectory() as name:
        compare(Path(name), options)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    examples = ["INDEX --limit 8000"]
    parser = Parser(prog="python -m eval.speed.qdrant", description=__doc__, examples=examples)
    parser.add_argument("index", metavar="INDEX", help="folder of an index")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N sentences of INDEX")
    add_measuring_options(parser, sentences=30)
    parser.set_defaults(synthetic=0, queries=None)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
