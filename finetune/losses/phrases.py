"""The losses of CCPR and XPR: phrases of one language attract their translations and repel everything else."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn.functional import cross_entropy

NO_TRANSLATION = -(2**63)
"""In place of a hash, for a span that is not paired."""
LEFT_OUT = NO_TRANSLATION
"""The surface, on both sides, of a pair that takes no part in `xpco`: neither asked for nor a negative."""


@dataclass(frozen=True)
class Negatives:
    """Further vectors (n, dimension) with the hashes of their surfaces (n,): spans that are no phrases, or phrases of
    other processes or earlier batches. `translations` (n,) are the hashes of what their own translations say,
    `NO_TRANSLATION` for spans without one; None if no vector has one."""

    vectors: torch.Tensor
    surfaces: torch.Tensor = field(repr=False)
    translations: torch.Tensor | None = field(default=None, repr=False)

    def unpaired(self) -> torch.Tensor:
        """Which vectors (n,) have no translation."""
        if self.translations is None:
            return torch.ones_like(self.surfaces, dtype=torch.bool)
        return self.translations == NO_TRANSLATION


Side = tuple[torch.Tensor, torch.Tensor, Negatives | None]
"""Vectors of phrases (pairs, dimension), hashes of what they say (pairs,), further negatives."""


def phrase_contrastive(
    source: torch.Tensor,
    target: torch.Tensor,
    source_surfaces: torch.Tensor,
    target_surfaces: torch.Tensor,
    temperature: float = 1.0,
    own_phrases: bool = True,
    own_spans: bool = True,
    source_negatives: Negatives | None = None,
    target_negatives: Negatives | None = None,
) -> torch.Tensor:
    """L of CCPR (equations 2 to 4), a scalar: the mean of both directions' InfoNCE.

    `source` and `target` (pairs, dimension) are vectors of phrase pairs, row by row; the surfaces (pairs,) are hashes
    of what the phrases say. For one direction

        L = -mean_i log( exp(s(x_i, y_i) / t) / sum_c exp(s(x_i, c) / t) )

    where s is the inner product and c runs over y_i and the negatives: all other y_j and the further negatives of the
    side that is searched; of the own side with `own_phrases` all other x_j and the further negatives with a
    translation, with `own_spans` those without. Left out is every pair j of which either side says the same as that of
    pair i (y_j like y_i, or x_j like x_i), with both its vectors: y_j is a translation of x_i as well, and x_j has the
    translation that x_i has, also in another language.

    The loss of no pairs is 0. Source: Cross-lingual Contextualized Phrase Retrieval, section 5.1, which has all phrases
    of both sides as negatives and leaves nothing out; its code has, of the own side, only what is in no pair of the
    batch (`own_phrases` false). The temperature is ours (1 for the paper's inner product of unnormalised vectors).
    """
    source_side = source, source_surfaces, source_negatives
    target_side = target, target_surfaces, target_negatives
    there = _direction(source_side, target_side, temperature, own_phrases, own_spans)
    back = _direction(target_side, source_side, temperature, own_phrases, own_spans)
    return (there + back) / 2


def _direction(
    query_side: Side, key_side: Side, temperature: float, own_phrases: bool, own_spans: bool
) -> torch.Tensor:
    queries, query_surfaces, query_negatives = query_side
    keys, key_surfaces, key_negatives = key_side
    own = torch.eye(len(queries), dtype=torch.bool, device=queries.device)
    equal = _same(query_surfaces, query_surfaces) | _same(key_surfaces, key_surfaces)
    columns, left_out = [keys], [equal & ~own]
    if key_negatives is not None:
        columns.append(key_negatives.vectors)
        left_out.append(_equal_to(key_negatives, key_surfaces, query_surfaces))
    if own_phrases:
        columns.append(queries)
        left_out.append(equal)
    if query_negatives is not None:
        wanted = torch.where(query_negatives.unpaired(), own_spans, own_phrases)
        columns.append(query_negatives.vectors)
        left_out.append(_equal_to(query_negatives, query_surfaces, key_surfaces) | ~wanted)
    scores = queries @ torch.cat(columns).T / temperature
    scores = scores.masked_fill(torch.cat(left_out, dim=1), -torch.inf)
    total = cross_entropy(scores, torch.arange(len(queries), device=queries.device), reduction="sum")
    return total / max(1, len(queries))  # the mean of no pairs would be NaN


def _equal_to(negatives: Negatives, surfaces: torch.Tensor, translations: torch.Tensor) -> torch.Tensor:
    """Which negatives (pairs, n) say the same as a phrase of their side, or have its translation."""
    equal = _same(surfaces, negatives.surfaces)
    return equal if negatives.translations is None else equal | _same(translations, negatives.translations)


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, None] == b[None, :]


def xpco(
    source: torch.Tensor,
    target: torch.Tensor,
    source_keys: Negatives,
    target_keys: Negatives,
    temperature: float = 0.06,
    first: int = 0,
) -> torch.Tensor:
    """L of XPR (equations 3 and 4), a scalar: the sum of both directions' InfoNCE, each the mean over phrases.

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
    there = _to_keys(source, target_keys, source_keys, rows, temperature)
    back = _to_keys(target, source_keys, target_keys, rows, temperature)
    return there + back


def _to_keys(
    queries: torch.Tensor, keys: Negatives, own: Negatives, rows: torch.Tensor, temperature: float
) -> torch.Tensor:
    """`own` are the keys of the queries' side: key j of either side belongs to the same pair (or is as old)."""
    same = _same(keys.surfaces[rows], keys.surfaces) | _same(own.surfaces[rows], own.surfaces)
    same |= (keys.surfaces == LEFT_OUT)[None]
    same[torch.arange(len(rows), device=rows.device), rows] = False
    scores = (queries @ keys.vectors.T / temperature).masked_fill(same, -torch.inf)
    asked = keys.surfaces[rows] != LEFT_OUT
    return cross_entropy(scores[asked], rows[asked], reduction="sum") / asked.sum().clamp(min=1)
