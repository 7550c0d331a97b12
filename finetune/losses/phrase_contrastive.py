"""Phrases of one language attract their translations and repel everything else (CCPR, equations 2 to 4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class Negatives:
    """Further vectors (n, dimension) with the hashes of their surfaces (n,): spans that are no phrases, or phrases of
    earlier batches."""

    vectors: torch.Tensor
    surfaces: torch.Tensor = field(repr=False)


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
    and the further negatives of the side that is searched (and, with `both_sides`, of the own side). A negative that
    says the same as what it stands beside (a y like y_i, an x like x_i) is left out: it is a translation as well, or
    the phrase itself in another place.

    Source: Cross-lingual Contextualized Phrase Retrieval, section 5.1; the temperature is ours (1 for the paper's
    inner product of unnormalised vectors).
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
    columns, left_out = [keys], [_same(key_surfaces, key_surfaces) & ~own]
    if key_negatives is not None:
        columns.append(key_negatives.vectors)
        left_out.append(_same(key_surfaces, key_negatives.surfaces))
    if both_sides:
        columns.append(queries)
        left_out.append(_same(query_surfaces, query_surfaces))
        if query_negatives is not None:
            columns.append(query_negatives.vectors)
            left_out.append(_same(query_surfaces, query_negatives.surfaces))
    scores = queries @ torch.cat(columns).T / temperature
    scores = scores.masked_fill(torch.cat(left_out, dim=1), -torch.inf)
    return cross_entropy(scores, torch.arange(len(queries), device=queries.device))


def _same(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a[:, None] == b[None, :]
