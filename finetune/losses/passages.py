"""The three losses of mDPR: of questions and passages, of parallel sentences, and of third ones beside them.

Source: Hu et al. (2023), Language Agnostic Multilingual Information Retrieval with Contrastive Learning.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import cross_entropy, normalize, softplus


def retrieval(
    queries: torch.Tensor,
    passages: torch.Tensor,
    relevant: Sequence[int],
    left_out: torch.Tensor | None = None,
    temperature: float = 1.0,
) -> torch.Tensor:
    """L_IR (equation 1), a scalar: a question attracts its passage and repels the other passages of the batch.

    `queries` (queries, dimension) stand against `passages` (passages, dimension): all passages of the batch, the
    relevant ones of other queries (in-batch negatives) and hard negatives alike. `relevant[i]` is the row of query i's
    passage r(i). Where `left_out` (queries, passages) is true, the passage is relevant to that query as well, though
    not the one that is asked for, and is no negative of it.

        L = -1/N sum_i log( exp(sim(q_i, p_r(i)) / t) / sum_c exp(sim(q_i, p_c) / t) )

    where sim is the cosine and c runs over r(i) and the negatives.

    Section 2 of the paper (temperature 1, in-batch negatives alone); hard negatives as in Karpukhin et al. (2020).

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


def semantic_contrastive(first: torch.Tensor, second: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """L_semaCL (equation 2) of N sentence pairs, a scalar: they attract each other and repel every other sentence.

    `first` and `second` (pairs, dimension) are the two sides, row by row; each row may be of another pair of languages.
    With z_1 ... z_2N all vectors of both sides

        L = -1/(2N) sum_(i,j) [ log( exp(sim(z_i, z_j) / t) / sum_(k != i) exp(sim(z_i, z_k) / t) )
                              + log( exp(sim(z_j, z_i) / t) / sum_(k != j) exp(sim(z_j, z_k) / t) ) ]

    where (i, j) runs over the pairs, k over all 2N vectors and sim is the cosine.

    Section 3.1 of the paper, where the temperature t is a setting without a value.

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


def language_contrastive(first: torch.Tensor, second: torch.Tensor, others: torch.Tensor | None = None) -> torch.Tensor:
    """L_langCL (equation 3) of the pairs P and the non-parallel sentences Q of a batch, a scalar: any third sentence
    shall be equally near to both sides of a pair.

    `first` and `second` (pairs, dimension) are the sides of P, row by row, `others` (sentences, dimension) is Q, of
    languages without parallel text, say. With all N vectors of P and Q

        L = -1/(N (N - 2)) sum_((i,j) in P) sum_(k not in {i,j})
                [ log( exp(sim(z_i, z_k)) / (exp(sim(z_i, z_k)) + exp(sim(z_j, z_k))) )
                + log( exp(sim(z_j, z_k)) / (exp(sim(z_i, z_k)) + exp(sim(z_j, z_k))) ) ]

    where sim is the cosine. N counts sentences: a pair then has N - 2 third ones, and without Q the loss is the mean of
    all logarithms. The least value of each bracket's negative, 2 log 2, is that of equal cosines (section 3.2).

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
