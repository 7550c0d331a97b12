"""Phrases of one language attract their translations and repel everything else (CCPR, equations 2 to 4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn.functional import cross_entropy

NO_TRANSLATION = -(2**63)
"""In place of a hash, for a span that is not paired."""


@dataclass(frozen=True)
class Negatives:
    """Further vectors (n, dimension) with the hashes of their surfaces (n,): spans that are no phrases, or phrases of
    other processes or earlier batches. `translations` (n,) are the hashes of what their own translations say,
    `NO_TRANSLATION` for spans without one; None if no vector has one."""

    vectors: torch.Tensor
    surfaces: torch.Tensor = field(repr=False)
    translations: torch.Tensor | None = field(default=None, repr=False)


def phrase_contrastive(
    source: torch.Tensor,
    target: torch.Tensor,
    source_surfaces: torch.Tensor,
    target_surfaces: torch.Tensor,
    temperature: float = 1.0,
    both_sides: bool = True,
    source_negatives: Negatives | None = None,
    target_negatives: Negatives | None = None,
) -> torch.Tensor:
    """The mean of both directions' InfoNCE, a scalar.

    `source` and `target` (pairs, dimension) are vectors of phrase pairs, row by row; the surfaces (pairs,) are hashes
    of what the phrases say. For one direction

        L = -mean_i log( exp(s(x_i, y_i) / t) / sum_c exp(s(x_i, c) / t) )

    where s is the inner product and c runs over y_i and the negatives: all other y_j, with `both_sides` all other x_j,
    and the further negatives of the side that is searched (and, with `both_sides`, of the own side). Left out is every
    pair j of which either side says the same as that of pair i (y_j like y_i, or x_j like x_i), with both its vectors:
    y_j is a translation of x_i as well, and x_j has the translation that x_i has, also in another language.

    The loss of no pairs is 0. Source: Cross-lingual Contextualized Phrase Retrieval, section 5.1, which leaves nothing
    out; the temperature is ours (1 for the paper's inner product of unnormalised vectors).
    """
    there = _direction(
        source, target, source_surfaces, target_surfaces, temperature, both_sides, source_negatives, target_negatives
    )
    back = _direction(
        target, source, target_surfaces, source_surfaces, temperature, both_sides, target_negatives, source_negatives
    )
    return (there + back) / 2


def _direction(
    queries: torch.Tensor,
    keys: torch.Tensor,
    query_surfaces: torch.Tensor,
    key_surfaces: torch.Tensor,
    temperature: float,
    both_sides: bool,
    query_negatives: Negatives | None,
    key_negatives: Negatives | None,
) -> torch.Tensor:
    own = torch.eye(len(queries), dtype=torch.bool, device=queries.device)
    equal = _same(query_surfaces, query_surfaces) | _same(key_surfaces, key_surfaces)
    columns, left_out = [keys], [equal & ~own]
    if key_negatives is not None:
        columns.append(key_negatives.vectors)
        left_out.append(_equal_to(key_negatives, key_surfaces, query_surfaces))
    if both_sides:
        columns.append(queries)
        left_out.append(equal)
        if query_negatives is not None:
            columns.append(query_negatives.vectors)
            left_out.append(_equal_to(query_negatives, query_surfaces, key_surfaces))
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
