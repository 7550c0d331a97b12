"""Parallel sentences attract each other and repel every other sentence of the batch (mDPR, equation 2)."""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy, normalize


def semantic_contrastive(first: torch.Tensor, second: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """L_semaCL of N sentence pairs, a scalar.

    `first` and `second` (pairs, dimension) are the two sides, row by row; each row may be of another pair of languages.
    With z_1 ... z_2N all vectors of both sides

        L = -1/(2N) sum_(i,j) [ log( exp(sim(z_i, z_j) / t) / sum_(k != i) exp(sim(z_i, z_k) / t) )
                              + log( exp(sim(z_j, z_i) / t) / sum_(k != j) exp(sim(z_j, z_k) / t) ) ]

    where (i, j) runs over the pairs, k over all 2N vectors and sim is the cosine.

    Source: Hu et al. (2023), Language Agnostic Multilingual Information Retrieval with Contrastive Learning, section
    3.1; the temperature t is a setting there without a value.

    >>> german, english = torch.eye(2), torch.eye(2)
    >>> round(float(semantic_contrastive(german, english)), 4)  # log((e + 2) / e)
    0.5514
    >>> round(float(semantic_contrastive(german, english.flip(0))), 4)  # each sentence beside the wrong translation
    1.5514
    """
    vectors = normalize(torch.cat([first, second]), dim=-1)
    count = len(first)
    own = torch.eye(2 * count, dtype=torch.bool, device=vectors.device)
    scores = (vectors @ vectors.T / temperature).masked_fill(own, -torch.inf)
    partners = torch.arange(2 * count, device=vectors.device).roll(count)
    return cross_entropy(scores, partners)
