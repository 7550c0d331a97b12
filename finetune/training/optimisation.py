"""One step of optimisation: the learning rate over a run, gradients of all processes, the change of the weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch


def rate_share(step: int, steps: int, warm_up: int, fall: Literal["cosine", "linear"] = "cosine") -> float:
    """The share of the learning rate that a step (from 0) of `steps` has: a linear rise over `warm_up` steps, then a
    fall to 0 along half a cosine or a line."""
    if step < warm_up:
        return (step + 1) / warm_up
    done = min(1.0, (step - warm_up) / max(1, steps - warm_up))
    return 1 - done if fall == "linear" else 0.5 * (1 + math.cos(math.pi * done))


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


def take_step(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor], clip: float) -> None:
    """Change the parameters by their gradients, which are clipped to a norm of `clip` together and then dropped."""
    torch.nn.utils.clip_grad_norm_(list(parameters.values()), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
