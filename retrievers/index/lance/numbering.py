"""Numbers without gaps for rows whose own numbers have gaps where some were deleted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class Numbering:
    """Numbers from 0 on for stored ids, in ascending order. `runs` are the first (inclusive) and the last (exclusive)
    id of stretches without a gap: files that were taken out of an index leave few of them."""

    def __init__(self, runs: Sequence[Sequence[int]]) -> None:
        rows = np.array(runs, dtype=np.int64).reshape(-1, 2)
        self._first, self._last = rows[:, 0], rows[:, 1]
        self._before = np.concatenate([[0], np.cumsum(self._last - self._first)])

    def __len__(self) -> int:
        return int(self._before[-1])

    @property
    def runs(self) -> list[list[int]]:
        """The stretches, JSON-able."""
        return _pairs(self._first, self._last)

    @property
    def next_id(self) -> int:
        """An id above all that there are."""
        return int(self._last[-1]) if len(self._last) else 0

    def ids(self, numbers: Ids) -> Ids:
        """The ids of numbers; raises IndexError for a number that there is not."""
        numbers = np.asarray(numbers, dtype=np.int64)
        if numbers.size and (numbers.min() < 0 or numbers.max() >= len(self)):
            raise IndexError(f"numbers {numbers.min()} to {numbers.max()}: expected 0 to {len(self) - 1}")
        run = np.searchsorted(self._before, numbers, side="right") - 1
        ids: Ids = numbers - self._before[run] + self._first[run] if numbers.size else numbers
        return ids

    def numbers(self, ids: Ids) -> Ids:
        """The numbers of ids, -1 for those that are not among them."""
        ids = np.asarray(ids, dtype=np.int64)
        if not len(self) or not ids.size:
            return np.full(ids.shape, -1, dtype=np.int64)
        run = np.maximum(np.searchsorted(self._first, ids, side="right") - 1, 0)
        inside = (ids >= self._first[run]) & (ids < self._last[run])
        return np.where(inside, ids - self._first[run] + self._before[run], -1)

    def without(self, gone: Ids) -> Numbering:
        """Those but the ids `gone`."""
        ids = np.setdiff1d(self.ids(np.arange(len(self))), gone)
        return Numbering(runs_of(ids))

    def extended(self, first: int, last: int) -> Numbering:
        """Those and new ids after them, from `first` (inclusive) to `last` (exclusive)."""
        return Numbering([*self.runs, [first, last]] if last > first else self.runs)


def runs_of(ids: Ids) -> list[list[int]]:
    """The stretches without a gap of ascending ids, the last of each exclusive."""
    if not len(ids):
        return []
    breaks = np.flatnonzero(np.diff(ids) != 1) + 1
    firsts, lasts = ids[np.concatenate([[0], breaks])], ids[np.concatenate([breaks - 1, [len(ids) - 1]])]
    return _pairs(firsts, lasts + 1)


def _pairs(firsts: Ids, lasts: Ids) -> list[list[int]]:
    return [list(pair) for pair in zip(firsts.tolist(), lasts.tolist(), strict=True)]


def condition(column: str, ids: Ids) -> str:
    """The SQL that is true of rows with one of these ascending ids, of which there is at least one."""
    runs = runs_of(ids)
    if len(runs) > max(1, len(ids) // 4):
        return f"{column} IN ({', '.join(map(str, ids.tolist()))})"
    return " OR ".join(f"({column} >= {first} AND {column} < {last})" for first, last in runs)
