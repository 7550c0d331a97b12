"""Phrases attract the momentum encoder's vectors of their translations and repel the rest (XPR, equations 3 and 4)."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

from finetune.losses.phrase_contrastive import Negatives

LEFT_OUT = -(2**63)
"""The surface, on both sides, of a pair that takes no part: neither asked for nor a negative."""


def xpco(
    source: torch.Tensor,
    target: torch.Tensor,
    source_keys: Negatives,
    target_keys: Negatives,
    temperature: float = 0.06,
    first: int = 0,
) -> torch.Tensor:
    """The sum of both directions' InfoNCE, each the mean over phrases, a scalar.

    `source` and `target` (pairs, dimension) are the trained encoder's vectors of phrase pairs, length 1, row by row.
    The keys (keys, dimension) are the momentum encoder's vectors of phrases, with hashes of what they say: rows `first`
    to `first + pairs` belong to the same pairs, the others (of other processes, or a queue of earlier batches) are only
    negatives. For the direction from source to target

        L(P -> Q) = -mean_i log( exp(p_i · q*_i / T) / sum_j exp(p_i · q*_j / T) )

    where q* are the target keys. A key that says the same as the right one is no negative, nor is the key of a phrase
    whose own translation says the same as p_i: in batches of several languages both are translations as well.

        loss = xpco(p, q, Negatives(p_star, p_hashes), Negatives(q_star, q_hashes))

    Source: Cross-Lingual Phrase Retrieval, section 3.2, whose sums over phrases are means here; the temperature is that
    of the authors' code. A pair whose surfaces are `LEFT_OUT` does not count, in any way; the loss of none is 0.
    """
    rows = torch.arange(first, first + len(source), device=source.device)
    there = _direction(source, target_keys, source_keys, rows, temperature)
    back = _direction(target, source_keys, target_keys, rows, temperature)
    return there + back


def _direction(
    queries: torch.Tensor, keys: Negatives, own: Negatives, rows: torch.Tensor, temperature: float
) -> torch.Tensor:
    """`own` are the keys of the queries' side: key j of either side belongs to the same pair (or is as old)."""
    same = (keys.surfaces[rows][:, None] == keys.surfaces[None]) | (own.surfaces[rows][:, None] == own.surfaces[None])
    same |= (keys.surfaces == LEFT_OUT)[None]
    same[torch.arange(len(rows), device=rows.device), rows] = False
    scores = (queries @ keys.vectors.T / temperature).masked_fill(same, -torch.inf)
    asked = keys.surfaces[rows] != LEFT_OUT
    return cross_entropy(scores[asked], rows[asked], reduction="sum") / asked.sum().clamp(min=1)
