"""The vector index of a table in LanceDB: lists of vectors in 8 bits a number or fewer, whose best ones are compared in
fp16. `python -m eval.speed.lance_forms` compares what LanceDB offers for that."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from retrievers.index.codes import TOGETHER
from retrievers.index.lance.search import FEW, SQ_BITS, LanceIndex
from retrievers.index.manifest import Manifest
from retrievers.index.places import UNITS, store_errors
from retrievers.index.vectors import measured_on_own

log = logging.getLogger("rag_mt")

LISTS_PER_ROOT = 2
"""Lists per square root of the units: fewer than FAISS has of ours, for the engine looks for centroids one by one."""
MOST_LISTS = 4096
SAMPLE_PER_LIST = 32
ROUNDS = 8
DIVISOR = 4
"""What the dimension of vectors must be a multiple of for FEW bits: the engine wants an even number of pairs."""


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


def settings_of(lists: int) -> dict[str, Any]:
    """How so many lists are made, whatever is in them."""
    return {
        "distance_type": "dot",
        "num_partitions": lists,
        "sample_rate": SAMPLE_PER_LIST,
        "max_iterations": ROUNDS,
    }


def bits_for(manifest: Manifest) -> int:
    """The bits of each number in lists of a copy of an index, and in those of a copy of a copy: FEW if it is compressed
    to 4 bits or 2, else SQ_BITS."""
    bits = int(manifest.files.get(UNITS, {}).get("bits", manifest.bits))
    return FEW if bits in TOGETHER and manifest.dimension % DIVISOR == 0 else SQ_BITS


def index_vectors(folder: Path, units: Any, lists: int, bits: int, dimension: int) -> None:
    """Put the vectors of a table into lists, in SQ_BITS a number (scalar quantization) or FEW (product quantization of
    two numbers)."""
    from lancedb.index import IvfPq, IvfSq

    log.info("index %s: %d vectors into %d lists", folder, units.count_rows(), lists)
    settings = settings_of(lists)
    if bits == FEW:
        config: Any = IvfPq(num_sub_vectors=dimension // 2, num_bits=2 * FEW, **settings)
    else:
        config = IvfSq(**settings)
    with store_errors(folder):
        units.create_index("vector", config=config, replace=True)


def with_lists(folder: Path, manifest: Manifest, units: Any, sentences: Any, lists: int) -> Manifest:
    """The manifest of an index whose vectors are in so many lists, with how many a query is to look into, measured as
    for an index folder (see `measured_on_own`)."""
    unmeasured = replace(manifest, ivf={"nlist": lists, "nprobe": lists, "measured": {}})
    return replace(manifest, ivf=measured_on_own(LanceIndex(folder, unmeasured, units, sentences), lists))
