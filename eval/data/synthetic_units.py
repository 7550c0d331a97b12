"""Random vectors for an index whose size alone matters, and how long a search in an index takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats, Kind, Unit
from retrievers.index.search import Index

DIMENSION = 128
CENTRES = 20_000
SPREAD = 0.6
QUERIES = 45
"""Query phrases of a sentence, and units of a synthetic one."""
SEED = 1


class SyntheticUnits:
    """Random vectors around CENTRES centres, QUERIES for each text, which is its number (a UnitMaker)."""

    unit: Unit = "phrase"
    dimension = DIMENSION
    block = 1024
    settings: Mapping[str, Any] = {"encoder": "synthetic", "fingerprint": f"{CENTRES} {SPREAD} {SEED}"}

    def __init__(self) -> None:
        self.centres = np.random.default_rng(SEED).standard_normal((CENTRES, DIMENSION), dtype=np.float32)

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors of length 1 and their spans: one character each."""
        rng = np.random.default_rng([SEED, int(texts[0])])
        vectors = self.centres[rng.integers(0, CENTRES, len(texts) * QUERIES)]
        vectors += SPREAD * rng.standard_normal(vectors.shape, dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        numbers, starts = np.divmod(np.arange(len(vectors), dtype=np.int32), QUERIES)
        return vectors, np.stack([numbers, starts, starts + 1], axis=1)


def milliseconds(index: Index, sentences: Sequence[Floats], rounds: int) -> float:
    """The median time of the search for one sentence."""
    index.search(sentences[0], 1)
    times = []
    for vectors in list(sentences) * rounds:
        begin = time.perf_counter()
        index.search(vectors, 1)
        times.append(time.perf_counter() - begin)
    return 1000 * statistics.median(times)
