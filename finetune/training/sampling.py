"""In what order training examples come. All that is drawn depends on the seed and the step alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

ORDERS = 8
"""Random orders that are remembered: a step reads at most two epochs of each of up to three kinds of examples."""


@lru_cache(maxsize=ORDERS)
def epoch_order(examples: int, epoch: int, seed: int) -> NDArray[np.int64]:
    """The random order (examples,) of an epoch; it is shared and cannot be written to."""
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    order.setflags(write=False)
    return order


def rows_of(step: int, batch: int, examples: int, seed: int) -> list[int]:
    """The examples of a step (from 0): one random order after the other, so that each is seen equally often."""
    places = (divmod(at, examples) for at in range(step * batch, (step + 1) * batch))
    return [int(epoch_order(examples, epoch, seed)[place]) for epoch, place in places]


def weighted_order(weights: NDArray[np.float64], seed: int | Sequence[int]) -> NDArray[np.int64]:
    """A weighted random order without repetition of the rows whose weight is above 0 (Efraimidis and Spirakis 2006,
    algorithm A): of the rows that are left, each comes next with a probability in proportion to its weight."""
    keys = np.log(np.random.default_rng(seed).random(len(weights))) / np.maximum(weights, 1e-300)
    order: NDArray[np.int64] = np.argsort(-keys, kind="stable")
    return order[weights[order] > 0]


def random_for(text: str, seed: int) -> np.random.Generator:
    """The generator of what is drawn for one text, whatever else there is."""
    return np.random.default_rng([seed, *hashlib.blake2b(text.encode(), digest_size=8).digest()])
