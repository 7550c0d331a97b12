"""Vectors for evaluations: those of sentences, kept on disk, and random ones for an index whose size alone matters."""

from __future__ import annotations

import hashlib
import sqlite3
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.console import progress
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Encoder, Floats, Kind, Unit
from retrievers.index.search import Index

BLOCK = 1024
"""Texts that are encoded, and then kept, together."""
DIMENSION = 128
CENTRES = 20_000
SPREAD = 0.6
QUERIES = 45
"""Query phrases of a sentence, and units of a synthetic one."""
SEED = 1


class VectorCache:
    """The vectors of one encoder for texts of one kind, in an SQLite file of `folder`: each is computed once, and an
    interrupted run goes on where it was."""

    def __init__(self, folder: Path, encoder: Encoder, kind: Kind) -> None:
        self.encoder, self.kind = encoder, kind
        precision = str(getattr(encoder, "dtype", ""))
        self.file = folder / f"vectors-{settings_hash([encoder.fingerprint, kind, precision])}.sqlite"
        self.encoded = 0

    def vectors(self, texts: Sequence[str], title: str = "encoding", show: bool = True) -> NDArray[np.float16]:
        """The vectors of the texts, float16 (len(texts), dimension); those that are not there yet are made and kept."""
        keys = [hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts]
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(self.file, timeout=60)) as database:
            database.execute("CREATE TABLE IF NOT EXISTS vectors (text BLOB PRIMARY KEY, vector BLOB)")
            select = "SELECT text, vector FROM vectors WHERE text = ?"
            stored = dict(row for key in keys for row in database.execute(select, [key]))
            missing = list({key: text for key, text in zip(keys, texts, strict=True) if key not in stored}.items())
            with closing(progress(len(texts), "sentences", title, len(texts) - len(missing), show)) as bar:
                for begin in range(0, len(missing), BLOCK):
                    block = missing[begin : begin + BLOCK]
                    vectors = self.encoder.encode([text for _, text in block], self.kind).astype(np.float16)
                    rows = [(key, row.tobytes()) for (key, _), row in zip(block, vectors, strict=True)]
                    with database:
                        database.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
                    stored |= dict(rows)
                    self.encoded += len(block)
                    bar.update(len(block))
        joined = b"".join(stored[key] for key in keys)
        return np.frombuffer(joined, np.float16).reshape(len(texts), self.encoder.dimension)


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
