"""Of overlapping spans the best."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def best_apart(
    starts: NDArray[np.int32], ends: NDArray[np.int32], scores: NDArray[np.float32], limit: int
) -> NDArray[np.int64]:
    """The rows of at most `limit` spans that share no character, best score first.

    Greedy: the best span is taken, what overlaps it is out, and so on. Of equal scores the longer span is taken, then
    the earlier one.
    """
    order = np.lexsort((starts, starts - ends, -scores))
    taken: list[int] = []
    while len(order) and len(taken) < limit:
        best = order[0]
        taken.append(int(best))
        order = order[(ends[order] <= starts[best]) | (starts[order] >= ends[best])]
    return np.array(taken, dtype=np.int64)


def longest_apart(starts: NDArray[np.int32], ends: NDArray[np.int32], limit: int) -> NDArray[np.int64]:
    """The rows of at most `limit` spans that share no character, longer ones first taken, in ascending order."""
    return np.sort(best_apart(starts, ends, (ends - starts).astype(np.float32), limit))
