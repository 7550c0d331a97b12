"""The vector index of a table in LanceDB: lists of vectors in 8 bits, whose best ones are compared in fp16."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from retrievers.index.lance.search import LanceIndex
from retrievers.index.manifest import Manifest
from retrievers.index.places import store_errors
from retrievers.index.vectors import measured_on_own

log = logging.getLogger("rag_mt")

LISTS_PER_ROOT = 2
"""Lists per square root of the units: fewer than FAISS has of ours, for the engine looks for centroids one by one."""
MOST_LISTS = 4096
SAMPLE_PER_LIST = 32
ROUNDS = 8


def lists_for(units: int) -> int:
    """The number of lists for so many vectors: a power of two."""
    wanted = 1 << round(math.log2(LISTS_PER_ROOT * math.sqrt(units)))
    return max(1, min(wanted, MOST_LISTS, units // SAMPLE_PER_LIST))


def index_ids(folder: Path, units: Any, sentences: Any) -> None:
    """Let rows be found by their ids without reading all of them."""
    from lancedb.index import BTree

    with store_errors(folder):
        for table, column in ((units, "unit"), (units, "sentence"), (sentences, "sentence")):
            table.create_index(column, config=BTree(), replace=True)


def index_vectors(folder: Path, units: Any, lists: int) -> None:
    """Put the vectors of a table into lists."""
    from lancedb.index import IvfSq

    log.info("index %s: %d vectors into %d lists", folder, units.count_rows(), lists)
    settings: dict[str, Any] = {"sample_rate": SAMPLE_PER_LIST, "max_iterations": ROUNDS}
    with store_errors(folder):
        units.create_index("vector", config=IvfSq(distance_type="dot", num_partitions=lists, **settings), replace=True)


def with_lists(folder: Path, manifest: Manifest, units: Any, sentences: Any, lists: int) -> Manifest:
    """The manifest of an index whose vectors are in so many lists, with how many a query is to look into, measured as
    for an index folder (see `measured_on_own`)."""
    unmeasured = replace(manifest, ivf={"nlist": lists, "nprobe": lists, "measured": {}})
    return replace(manifest, ivf=measured_on_own(LanceIndex(folder, unmeasured, units, sentences), lists))
