"""How alike pairs of texts look: chrF and the Dice coefficient of their n-grams of characters, all pairs at once.

chrF is that of sacreBLEU for single sentences (Popović 2015): white space aside, precision and recall of the n-grams of
1 to 6 characters, averaged over the orders that both texts are long enough for, recall weighing BETA² times as much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats

ORDERS = 6
BETA = 2.0
SURPLUS = 0.2
"""For answers of models that were not tuned with hints; chosen on development sentences (`reports/qwen-memory.md`)."""
_STEP, _PAIR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
"""Odd numbers that hash n-grams, and those of different pairs apart: two of a million n-grams share a hash with a
probability of 1 in 10 million."""


@dataclass(frozen=True)
class Overlaps:
    """How many n-grams of each order (pairs, orders) the texts of a pair have, and how many of them they share."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    shared: NDArray[np.int64]

    def chrf(self) -> Floats:
        """chrF of each first text with the second one as its reference, from 0 to 1 (pairs,)."""
        there = (self.first > 0) & (self.second > 0)
        precisions = self.shared / np.maximum(self.first, 1)
        recalls = self.shared / np.maximum(self.second, 1)
        orders = np.maximum(there.sum(axis=1), 1)
        precision, recall = (np.where(there, x, 0).sum(axis=1) / orders for x in (precisions, recalls))
        scores = (1 + BETA**2) * precision * recall / np.maximum(BETA**2 * precision + recall, 1e-12)
        return np.asarray(scores, np.float32)

    def dice(self, order: int = 4) -> Floats:
        """Twice the shared n-grams of an order over all of them, from 0 to 1 (pairs,)."""
        count = self.first[:, order - 1] + self.second[:, order - 1]
        return np.asarray(2 * self.shared[:, order - 1] / np.maximum(count, 1), np.float32)


def by_support(texts: Sequence[str], hits: Sequence[tuple[str, float]], surplus: float = 1.0) -> list[int]:
    """The numbers of several translations of a sentence, those first that the others and the hits support most, equal
    ones in their order.

    The others do by chrF: its mean over all of the texts, as hypothesis and as reference, which prefers neither long
    nor short ones (minimum Bayes risk decoding, Kumar and Byrne 2004). A hit, a stored sentence and its similarity,
    which is the chrF that is expected of it, does by the text's chrF with it times that similarity; the best of the
    hits is added. Of that chrF no more counts than the similarity and `surplus`: what is much closer to a hit than the
    translation is expected to be was copied, which a model that was tuned with hints (surplus 1) does where it fits.
    """
    if len(set(texts)) < 2:
        return list(range(len(texts)))
    alike = _chrf(texts, texts)
    support = (alike + alike.T).mean(axis=1) / 2
    if hits:
        similarities = np.array([similarity for _, similarity in hits], np.float32)
        like_hits = np.minimum(_chrf(texts, [hit for hit, _ in hits]), similarities + surplus)
        support += (like_hits * similarities).max(axis=1)
    order: list[int] = np.argsort(-support, kind="stable").tolist()
    return order


def _chrf(texts: Sequence[str], references: Sequence[str]) -> Floats:
    """chrF of each text with each reference, (texts, references)."""
    pairs = [(text, reference) for text in texts for reference in references]
    first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    return overlaps(first, second).chrf().reshape(len(texts), len(references))


def overlaps(first: Sequence[str], second: Sequence[str]) -> Overlaps:
    """The n-grams of pairs of texts (white space aside), of 1 to ORDERS characters."""
    sides = [_Characters(texts) for texts in (first, second)]
    counts = np.zeros((3, len(first), ORDERS), dtype=np.int64)
    for order in range(ORDERS):
        (hashes, owners), (other_hashes, other_owners) = (side.next_order(order) for side in sides)
        counts[0, :, order] = np.bincount(owners, minlength=len(first))
        counts[1, :, order] = np.bincount(other_owners, minlength=len(first))
        # An n-gram that one text has m times and the other one n times is shared min(m, n) times.
        keys, places, times = np.unique(hashes, return_index=True, return_counts=True)
        other_keys, other_times = np.unique(other_hashes, return_counts=True)
        _, own, other = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
        shared = np.minimum(times[own], other_times[other])
        counts[2, :, order] = np.bincount(owners[places[own]], weights=shared, minlength=len(first))
    return Overlaps(*counts)


class _Characters:
    """The characters of some texts one after the other, and hashes of their n-grams, order by order."""

    def __init__(self, texts: Sequence[str]) -> None:
        bare = ["".join(text.split()) for text in texts]
        joined = "".join(bare).encode("utf-32-le", "surrogatepass")
        self.codes = np.frombuffer(joined, dtype="<u4").astype(np.uint64) + np.uint64(1)
        lengths = np.array([len(text) for text in bare], dtype=np.int64)
        self.owners = np.repeat(np.arange(len(texts)), lengths)
        self.left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(self.codes))  # to the end of the text
        self.hashes = np.zeros(len(self.codes), dtype=np.uint64)

    def next_order(self, order: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hash of pair and n-gram, and number of the text, of all n-grams of `order` + 1 characters; to be called for
        each order from 0 on."""
        shifted = np.zeros_like(self.codes)
        following = self.codes[order:]
        shifted[: len(following)] = following
        self.hashes = _mixed(self.hashes * _STEP + shifted)
        inside = self.left > order
        owners = self.owners[inside]
        return _mixed(self.hashes[inside] + owners.astype(np.uint64) * _PAIR), owners


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The values with their bits mixed, one to one."""
    values = (values ^ (values >> np.uint64(31))) * _STEP
    return values ^ (values >> np.uint64(29))
