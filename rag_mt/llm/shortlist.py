"""The likeliest token of a float32 model on a CPU, by less work than its own output layer does.

In a small model with a large vocabulary most of the work of a token is the product with the output embeddings. Where
the processor multiplies bfloat16 itself, that product is computed in bfloat16 first; its error has a bound, and only
tokens that could be the likeliest within it are scored in float32. The choice is that of the float32 scores.
Elsewhere the product is turned round: few states are multiplied up to three times as fast as the right side of it.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from rag_mt.models.devices import cpu_has_bfloat16

ROUNDING = 2.0**-8
"""The largest relative error of a number that is rounded to bfloat16."""
ERROR = 3.02 * ROUNDING
"""Of a score, relative to the product of the lengths of its vectors: both are rounded, and so is their product; the
sum in between, in float32, errs by some 1e-5 more."""
FAMILIES = frozenset({"gemma3_text", "llama"})
"""Models whose scores are the plain product of their last states and their output embeddings."""
LEAST_TOKENS = 16_384
"""Vocabularies below this size are not worth it."""


class Shortlist:
    """The output embeddings of a model, (tokens, width) in float32, with a copy in bfloat16."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.coarse = weight.detach(), weight.detach().to(torch.bfloat16)
        self.longest = float(torch.linalg.vector_norm(self.weight, dim=1).max())

    def likeliest(self, states: Tensor) -> Tensor:
        """The token with the largest float32 score of each row, shape (rows,), from states (rows, width)."""
        scores = (states.to(torch.bfloat16) @ self.coarse.T).float()
        reach = 2 * ERROR * self.longest * torch.linalg.vector_norm(states, dim=1)
        least = scores.amax(dim=1) - reach
        rows, tokens = (scores >= least[:, None]).nonzero(as_tuple=True)
        exact = (states[rows] * self.weight[tokens]).sum(dim=1)
        best = exact.new_full((len(states),), -torch.inf).scatter_reduce_(0, rows, exact, "amax")
        first = tokens.new_full((len(states),), self.weight.shape[0])
        at_best = exact == best[rows]  # of equal scores the first, as argmax has it
        found: Tensor = first.scatter_reduce_(0, rows[at_best], tokens[at_best], "amin")
        return found.clamp_(max=self.weight.shape[0] - 1)  # states that are not numbers have no likeliest token


class Turned:
    """The output embeddings of a model, (tokens, width) in float32, as the left side of their product with states."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight.detach()

    def likeliest(self, states: Tensor) -> Tensor:
        """The token with the largest score of each row, shape (rows,), from states (rows, width)."""
        return (self.weight @ states.T).argmax(dim=0)


Chooser = Shortlist | Turned
_CHOOSERS: WeakKeyDictionary[Any, Chooser | None] = WeakKeyDictionary()


def chooser_of(model: Any) -> Chooser | None:
    """What chooses the next tokens of a causal language model, made once for all with the same output layer; None for
    models that it does not suit."""
    head = model.get_output_embeddings()
    if head not in _CHOOSERS:
        kind = Shortlist if cpu_has_bfloat16() else Turned
        _CHOOSERS[head] = kind(head.weight) if _suits(model) else None
    return _CHOOSERS[head]


def _suits(model: Any) -> bool:
    head = model.get_output_embeddings()
    return (
        model.config.model_type in FAMILIES
        and type(head) is torch.nn.Linear
        and head.bias is None
        and head.weight.dtype == torch.float32
        and head.weight.device.type == "cpu"
        and head.weight.shape[0] >= LEAST_TOKENS
    )
