"""What all trainings do with their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


def average_gradients(accelerator: Any, parameters: Mapping[str, torch.Tensor]) -> None:
    """Give every process the mean of all processes' gradients; parameters without one are left alone."""
    if accelerator.num_processes > 1:
        for parameter in parameters.values():
            if parameter.grad is not None:
                parameter.grad = accelerator.reduce(parameter.grad, "mean")


def take_step(optimizer: torch.optim.Optimizer, parameters: Mapping[str, torch.Tensor], clip: float) -> None:
    """Change the parameters by their gradients, which are clipped to a norm of `clip` together and then dropped."""
    torch.nn.utils.clip_grad_norm_(list(parameters.values()), clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
