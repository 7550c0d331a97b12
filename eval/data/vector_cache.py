"""Sentence vectors that were computed once, kept in a folder by their texts: an interrupted run goes on where it was.

A block is two files: `vectors-N.npy`, float16 (texts, dimension), and, written after it, `keys-N.npy`, the hashes of
its texts, uint64 (texts, 2). A block without keys is one that was not finished and is written again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.console import progress
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.paths import alone_in, whole_file
from rag_mt.base.types import Encoder, Floats, Kind

BLOCK = 1024

Key = tuple[int, int]


class VectorCache:
    """The vectors of one encoder for texts of one kind, in a folder of its own under `folder`."""

    def __init__(self, folder: Path, encoder: Encoder, kind: Kind) -> None:
        self.encoder, self.kind = encoder, kind
        precision = str(getattr(encoder, "dtype", ""))
        self.folder = folder / settings_hash([encoder.fingerprint, kind, precision])
        self.encoded = 0

    def vectors(self, texts: Sequence[str], title: str = "encoding", show: bool = True) -> NDArray[np.float16]:
        """The vectors of the texts, float16 (len(texts), dimension); those that are not there yet are made and kept."""
        keys = [_key(text) for text in texts]
        with alone_in(self.folder, f"encoding into {self.folder}", wait=True):
            places, blocks = self._stored()
            missing = list({key: n for n, key in enumerate(keys) if key not in places}.values())
            with closing(progress(len(texts), "sentences", title, len(texts) - len(missing), show)) as bar:
                for begin in range(0, len(missing), BLOCK):
                    rows = missing[begin : begin + BLOCK]
                    made: Floats = self.encoder.encode([texts[n] for n in rows], self.kind)
                    self._write(len(blocks), [keys[n] for n in rows], made)
                    places |= {keys[n]: (len(blocks), at) for at, n in enumerate(rows)}
                    blocks.append(self._mapped(len(blocks)))
                    self.encoded += len(rows)
                    bar.update(len(rows))
        found = np.array([places[key] for key in keys], dtype=np.int64).reshape(-1, 2)
        vectors = np.empty((len(texts), self.encoder.dimension), dtype=np.float16)
        for number in np.unique(found[:, 0]):
            here = found[:, 0] == number
            vectors[here] = blocks[number][found[here, 1]]
        return vectors

    def _stored(self) -> tuple[dict[Key, tuple[int, int]], list[NDArray[np.float16]]]:
        """Block and row of each text that is there, and the blocks, mapped into memory."""
        places: dict[Key, tuple[int, int]] = {}
        blocks: list[NDArray[np.float16]] = []
        while (keys := self._keys(len(blocks))).is_file():
            rows = np.load(keys, allow_pickle=False).tolist()
            places |= {(first, second): (len(blocks), at) for at, (first, second) in enumerate(rows)}
            blocks.append(self._mapped(len(blocks)))
        return places, blocks

    def _mapped(self, number: int) -> NDArray[np.float16]:
        mapped: NDArray[np.float16] = np.load(self._vectors(number), mmap_mode="r", allow_pickle=False)
        return mapped

    def _write(self, number: int, keys: Sequence[Key], vectors: Floats) -> None:
        rows = ((self._vectors(number), vectors.astype(np.float16)), (self._keys(number), np.array(keys, np.uint64)))
        for path, array in rows:
            with whole_file(path) as part, part.open("wb") as file:
                np.save(file, array, allow_pickle=False)

    def _vectors(self, number: int) -> Path:
        return self.folder / f"vectors-{number:06d}.npy"

    def _keys(self, number: int) -> Path:
        return self.folder / f"keys-{number:06d}.npy"


def _key(text: str) -> Key:
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
