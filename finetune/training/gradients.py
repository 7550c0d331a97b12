"""Gradients of a whole batch: with the memory of one part of it (gradient caching), and of all processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch

Features = tuple[torch.Tensor, ...]
"""What the loss reads of a chunk."""
Loss = tuple[torch.Tensor, dict[str, float]]
"""A loss, a scalar with gradients, and its parts by name."""


def cached_backward(
    chunks: Sequence[Callable[[], Features]], loss: Callable[[list[Features]], Loss], cached: bool
) -> dict[str, float]:
    """Add the gradients of `loss`, which reads the features of all chunks; returns its parts.

    With `cached` each chunk is computed twice and no more than one is in memory with its gradients. So a chunk must
    give the same features again: it seeds its dropout itself.

    Source: Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup (Gao et al. 2021), section 3.2.
    """
    if not cached:
        whole, parts = loss([chunk() for chunk in chunks])
        whole.backward()
        return parts
    # 1. The features of each chunk, without gradients.
    with torch.no_grad():
        leaves = [tuple(tensor.detach() for tensor in chunk()) for chunk in chunks]
    # 2. The gradients of the loss for the features.
    for tensor in (tensor for features in leaves for tensor in features):
        tensor.requires_grad_()
    whole, parts = loss(leaves)
    whole.backward()
    # 3. Each chunk once more, to pass these gradients on.
    for chunk, features in zip(chunks, leaves, strict=True):
        gradients = [torch.zeros_like(t) if t.grad is None else t.grad for t in features]
        torch.autograd.backward(chunk(), gradients)
    return parts


def share_gradients(
    accelerator: Any, parameters: Mapping[str, torch.Tensor], reduction: Literal["mean", "sum"] = "mean"
) -> None:
    """Give every process the mean or the sum of all processes' gradients.

    A parameter without a gradient in some process counts as zero there: every process must take part in the exchange
    of every parameter, or the others wait for it for ever.
    """
    if accelerator.num_processes > 1:
        for parameter in parameters.values():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = accelerator.reduce(gradient, reduction)
