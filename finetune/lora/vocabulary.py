"""A part of the vocabulary for the loss of a step: on a CPU the logits of all tokens take longer than all layers do.

The frequent tokens of the answers and those of the batch count as they are; a sample of the others, each as many times
as it stands for, makes up for the rest (Jean et al. 2015, section 3, with a uniform proposal for the rest):

    Z = sum over frequent and wanted tokens v of exp(l_v) + (tokens left / tokens drawn) * sum over drawn v of exp(l_v)

so that the sum is right in the mean, and a loss is -log(exp(l_wanted) / Z).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import log

import torch

DRAWN_SHARE = 0.25
"""Tokens that are drawn for each frequent one."""


@dataclass(frozen=True)
class Candidates:
    """The tokens `ids` (tokens,) whose logits count, what is added to each logit (tokens,), and the place of each
    `wanted` token among them."""

    ids: torch.Tensor
    added: torch.Tensor
    wanted: torch.Tensor


class Vocabulary:
    """The `frequent` tokens (in ascending order) of a vocabulary of `size`."""

    def __init__(self, frequent: torch.Tensor, size: int) -> None:
        self.frequent, self.size = frequent, size
        self._places = torch.full((size,), -1, dtype=torch.long)

    @classmethod
    def of(cls, answers: Iterable[Iterable[int]], count: int, size: int) -> Vocabulary:
        """That of the `count` tokens that are most frequent in the answers; of equal ones those with lower numbers."""
        counts = Counter(token for answer in answers for token in answer)
        ranked = sorted(counts, key=lambda token: (-counts[token], token))
        return cls(torch.tensor(sorted(ranked[:count]), dtype=torch.long), size)

    def candidates(self, wanted: torch.Tensor, seed: int) -> Candidates:
        """The tokens that count where `wanted` (tokens,) are to be predicted; what is drawn depends on the seed."""
        places = self._places
        places[self.frequent] = 0
        seen = torch.unique(wanted)
        known = torch.cat((self.frequent, seen[places[seen] < 0]))
        places[known] = torch.arange(len(known))
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(self.size, (int(DRAWN_SHARE * len(self.frequent)),), generator=generator).unique()
        drawn = drawn[places[drawn] < 0]
        left = self.size - len(known)
        added = torch.zeros(len(known) + len(drawn))
        if len(drawn):
            added[len(known) :] = log(left / len(drawn))
        result = Candidates(torch.cat((known, drawn)), added, places[wanted])
        places[known] = -1
        return result
