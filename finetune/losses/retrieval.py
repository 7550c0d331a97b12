"""A question attracts its passage and repels the other passages of the batch (mDPR, equation 1)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import cross_entropy, normalize


def retrieval(
    queries: torch.Tensor,
    passages: torch.Tensor,
    relevant: Sequence[int],
    left_out: torch.Tensor | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """L_IR, a scalar.

    `queries` (queries, dimension) stand against `passages` (passages, dimension): all passages of the batch, the
    relevant ones of other queries (in-batch negatives) and hard negatives alike. `relevant[i]` is the row of query i's
    passage r(i). Where `left_out` (queries, passages) is true, the passage is relevant to that query as well, though
    not the one that is asked for, and is no negative of it.

        L = -1/N sum_i log( exp(sim(q_i, p_r(i)) / t) / sum_c exp(sim(q_i, p_c) / t) )

    where sim is the cosine and c runs over r(i) and the negatives.

    Source: Hu et al. (2023), Language Agnostic Multilingual Information Retrieval with Contrastive Learning, section 2
    (temperature 1, in-batch negatives alone); hard negatives as in Karpukhin et al. (2020).

    >>> questions, texts = torch.eye(2), torch.eye(2)
    >>> round(float(retrieval(questions, texts, [0, 1])), 4)  # log((e + 1) / e)
    0.3133
    >>> round(float(retrieval(questions, torch.cat([texts, texts]), [0, 1])), 4)  # the relevant ones once more
    1.0064
    """
    scores = normalize(queries, dim=-1) @ normalize(passages, dim=-1).T / temperature
    if left_out is not None:
        scores = scores.masked_fill(left_out, -torch.inf)
    return cross_entropy(scores, torch.tensor(relevant, device=scores.device))
