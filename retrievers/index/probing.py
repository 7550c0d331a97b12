"""How many lists of an IVF index a query looks into: as few as find the exact best unit nearly always."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from retrievers.index.manifest import Manifest, change_manifest
from retrievers.index.opening import map_index
from retrievers.index.search import Index

log = logging.getLogger("rag_mt")

RECALL = 0.99
QUERIES = 1024
"""Real queries that are enough to tune with."""

OWN = "own vectors"
"""The name of the measurement at build time."""
OWN_QUERIES = 512
OWN_COSINE = 0.7
OWN_MARGIN = 2
"""Times the lists that the index's own vectors need, until real queries tell."""

BLOCK = 128
SEED = 1


def tune_nprobe(index: Index, queries: Floats, recall: float = RECALL, source: str = "queries") -> int:
    """The number of lists that finds the exact best unit for a share `recall` of the `queries` float32 (n, dimension),
    now what the IVF index searches with unless another source language needs more.

    It is the smallest that does so for a share one standard error above `recall`, so that it holds for other queries of
    their kind. It is stored in the manifest under the name `source`, in the place of what was measured on the index's
    own vectors, and returned. Raises ValueError for an exact index, no queries or a share that is none, UserError if
    the index was replaced meanwhile.
    """
    if index.manifest.ivf is None or not len(queries) or not 0 < recall <= 1:
        raise ValueError(
            f"{len(queries)} queries, recall {recall}: expected queries for an IVF index and 0 < recall <= 1"
        )
    needed = needed_probes(index, queries)
    probes = _enough(needed, recall)

    def change(manifest: Manifest) -> Manifest:
        ivf: dict[str, Any] = dict(manifest.ivf or {})
        measured = {**ivf["measured"], source: _measurement(needed, probes)}
        tuned = [int(m["nprobe"]) for name, m in measured.items() if name != OWN]
        return replace(manifest, ivf={**ivf, "measured": measured, "nprobe": max(tuned)})

    index.manifest = change_manifest(index.folder, index.manifest, "calibration", change)
    return probes


def with_ivf(folder: Path, manifest: Manifest, lists: int) -> Manifest:
    """The manifest of the IVF index in `folder` with `nlist`, and `nprobe` and recall@1 measured on vectors of its own.

    The queries are OWN_QUERIES of its vectors, each turned in a random direction until its cosine with itself is
    OWN_COSINE: as far as a phrase is from its translation.
    """
    unknown = {"nlist": lists, "nprobe": lists, "measured": {}}
    index = map_index(folder, replace(manifest, ivf=unknown))
    chosen = np.unique(np.linspace(0, len(index) - 1, OWN_QUERIES).astype(np.int64))
    needed = needed_probes(index, turned(index.reconstruct(chosen), OWN_COSINE, np.random.default_rng(SEED)))
    probes = min(OWN_MARGIN * _enough(needed, RECALL), lists)
    log.info("%d of %d lists are searched", probes, lists)
    measured = {OWN: _measurement(needed, probes)}
    ivf = {"nlist": lists, "nprobe": probes, "measured": measured}
    return replace(manifest, ivf=ivf)


def turned(vectors: Floats, cosine: float, rng: np.random.Generator) -> Floats:
    """The vectors (n, dimension), each turned in a random direction to that cosine with itself, lengths kept."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    own = vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
    noise = rng.standard_normal(vectors.shape, dtype=np.float32)
    noise -= (noise * own).sum(axis=1, keepdims=True) * own
    noise /= np.maximum(np.linalg.norm(noise, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    made: Floats = (lengths * (cosine * own + math.sqrt(1 - cosine**2) * noise)).astype(np.float32)
    return made


def needed_probes(index: Index, queries: Floats) -> NDArray[np.int64]:
    """For each query (n, dimension) the number of lists to look into for its exact best unit."""
    assert index.manifest.ivf is not None
    lists = int(index.manifest.ivf["nlist"])
    found = []
    for begin in range(0, len(queries), BLOCK):
        block = queries[begin : begin + BLOCK]
        found.append(index.list_ranks(block, index.search(block, 1, probes=lists)[1][:, 0]) + 1)
    return np.concatenate(found)


def _enough(needed: NDArray[np.int64], recall: float) -> int:
    share = min(1.0, recall + math.sqrt(recall * (1 - recall) / len(needed)))
    return int(np.sort(needed)[math.ceil(share * len(needed)) - 1])


def _measurement(needed: NDArray[np.int64], probes: int) -> dict[str, Any]:
    return {"nprobe": probes, "recall": float((needed <= probes).mean()), "queries": len(needed)}
