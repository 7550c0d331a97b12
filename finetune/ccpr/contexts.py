"""CPR, the context-free ablation of CCPR: a phrase is shown its translation from another sentence pair.

Everything else is as in CCPR (section 6.2 of the paper): the same phrase pairs, but source and target phrase of a
positive example come from two sentence pairs that both have this phrase pair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetune.ccpr.batches import PhrasePool, surface_hash
from rag_mt.base.console import progress

ROWS = 4096


class OtherContexts:
    """Which rows of a pool have a phrase pair in common: hashes of phrase pairs, sorted, with their rows."""

    def __init__(self, pool: PhrasePool, rows: NDArray[np.int64], show: bool = True) -> None:
        hashes, owners = [], []
        bar = progress(len(rows), "sentence pairs", "phrase pairs in other contexts", show=show)
        for begin in range(0, len(rows), ROWS):
            numbers = rows[begin : begin + ROWS]
            for number, row in zip(numbers.tolist(), pool.rows(numbers.tolist()), strict=True):
                own = pair_hashes(row)
                hashes.append(own)
                owners.append(np.full(len(own), number, np.int64))
            bar.update(len(numbers))
        bar.close()
        order = np.argsort(np.concatenate(hashes), kind="stable")
        self.hashes, self.owners = np.concatenate(hashes)[order], np.concatenate(owners)[order]

    def swapped(self, pool: PhrasePool, numbers: Sequence[int], rng: np.random.Generator) -> list[dict[str, Any]]:
        """For each row its source sentence with the target sentence of another row, and the phrase pairs that both
        have; a row that shares none with any other keeps its own target sentence and has no phrase pairs."""
        rows = pool.rows(numbers)
        partners = []
        for number, row in zip(numbers, rows, strict=True):
            own = pair_hashes(row)
            begin, end = (np.searchsorted(self.hashes, own, side) for side in ("left", "right"))
            others = np.concatenate([self.owners[a:b] for a, b in zip(begin, end, strict=True)] or [begin])
            others = np.unique(others[others != number])
            partners.append(int(rng.choice(others)) if len(others) else number)
        return [
            joined(row, partner if other != number else {**partner, "spans": []})
            for number, other, row, partner in zip(numbers, partners, rows, pool.rows(partners), strict=True)
        ]


def pair_hashes(row: Mapping[str, Any]) -> NDArray[np.int64]:
    """A hash of both surfaces of each phrase pair of a row."""
    source, target, spans = row["source"], row["target"], row["spans"]
    edges = zip(spans[::4], spans[1::4], spans[2::4], spans[3::4], strict=True)
    pair = row["pair"]
    return np.array([surface_hash(f"{pair} {source[a:b]} = {target[c:d]}") for a, b, c, d in edges], dtype=np.int64)


def joined(row: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The source of `row` beside the target of `other`, with the phrase pairs of both; `source_phrases` and
    `target_phrases` are all phrases of the two texts, which are no negative examples of segmentation."""
    own, theirs = (np.array(r["spans"], dtype=np.int32).reshape(-1, 4) for r in (row, other))
    _, first, second = np.intersect1d(pair_hashes(row), pair_hashes(other), return_indices=True)
    return {
        **row,
        "target": other["target"],
        "spans": np.concatenate([own[first, :2], theirs[second, 2:]], axis=1).ravel().tolist(),
        "source_phrases": own[:, :2].ravel().tolist(),
        "target_phrases": theirs[:, 2:].ravel().tolist(),
    }
