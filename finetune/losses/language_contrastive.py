"""Any third sentence shall be equally near to both sides of a parallel pair (mDPR, equation 3)."""

from __future__ import annotations

import torch
from torch.nn.functional import normalize, softplus


def language_contrastive(first: torch.Tensor, second: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """L_langCL of the pairs P and the non-parallel sentences Q of a batch, a scalar.

    `first` and `second` (pairs, dimension) are the sides of P, row by row, `others` (sentences, dimension) is Q, of
    languages without parallel text, say. With all N vectors of P and Q

        L = -1/(N (N - 2)) sum_((i,j) in P) sum_(k not in {i,j})
                [ log( exp(sim(z_i, z_k)) / (exp(sim(z_i, z_k)) + exp(sim(z_j, z_k))) )
                + log( exp(sim(z_j, z_k)) / (exp(sim(z_i, z_k)) + exp(sim(z_j, z_k))) ) ]

    where sim is the cosine. N counts sentences: a pair then has N - 2 third ones, and without Q the loss is the mean of
    all logarithms. The least value of each bracket's negative, 2 log 2, is that of equal cosines.

    Source: Hu et al. (2023), Language Agnostic Multilingual Information Retrieval with Contrastive Learning, section
    3.2.

    >>> german, english = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> between, aside = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> round(float(language_contrastive(german, english, between)), 4)  # 2 log 2 / 3
    0.4621
    >>> round(float(language_contrastive(german, english, aside)), 4)
    0.5422
    """
    pairs = len(first)
    parts = [first, second] if others is None else [first, second, others]
    vectors = normalize(torch.cat(parts), dim=-1)
    count = len(vectors)
    if count < 3:
        raise ValueError(f"a batch of {count} sentences has no third one beside a pair")
    # log(exp(a) / (exp(a) + exp(b))) = -softplus(b - a)
    difference = (vectors[:pairs] - vectors[pairs : 2 * pairs]) @ vectors.T
    terms = softplus(difference) + softplus(-difference)
    rows = torch.arange(pairs, device=vectors.device)
    third = torch.ones(pairs, count, dtype=torch.bool, device=vectors.device)
    third[rows, rows] = False
    third[rows, rows + pairs] = False
    return (terms * third).sum() / (count * (count - 2))
