"""Which texts were seen before, in eight bytes per text."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class Seen:
    """A set of texts by 64-bit hash, as sorted runs that are merged when they have become alike in size.

    Two different texts of 100 million share a hash with a probability of 0.03 %; the second would count as seen.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def add(self, texts: Sequence[str]) -> NDArray[np.bool_]:
        """Whether each text is new: neither among the texts of earlier calls nor earlier in this one."""
        hashes = np.array([_hash(t) for t in texts], dtype=np.uint64)
        values, rows = np.unique(hashes, return_index=True)
        new = np.ones(len(values), dtype=bool)
        for run in self._runs:
            at = np.minimum(np.searchsorted(run, values), len(run) - 1)
            new &= run[at] != values
        if new.any():
            self._runs.append(values[new])
        while len(self._runs) > 1 and len(self._runs[-2]) <= 2 * len(self._runs[-1]):
            self._runs.append(np.sort(np.concatenate([self._runs.pop(), self._runs.pop()])))
        found = np.zeros(len(texts), dtype=bool)
        found[rows[new]] = True
        return found


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
