"""What the trainings of encoders share: what is trained of an encoder, the optimiser's state, and the saved model."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file

from rag_mt.adapters import WEIGHTS as ADAPTER_WEIGHTS
from rag_mt.errors import UserError
from retrievers.ccpr.heads import ENCODER


class Tuning(Protocol):
    """The settings of an encoder that is trained; `layer` 0 is its last one, `dropout` None its own."""

    @property
    def encoder(self) -> str: ...
    @property
    def layer(self) -> int: ...
    @property
    def tuning(self) -> Literal["lora", "full"]: ...
    @property
    def rank(self) -> int: ...
    @property
    def alpha(self) -> int: ...
    @property
    def lora_dropout(self) -> float: ...
    @property
    def frozen_layers(self) -> int: ...
    @property
    def dropout(self) -> float | None: ...


def trainable(model: Any, settings: Tuning) -> Any:
    """The encoder up to the chosen layer, with what shall be trained made trainable."""
    if next(model.parameters()).device.type == "cpu":
        model.set_attn_implementation("eager")  # the fused kernel's backward pass is six times slower on CPUs
    layers = model.encoder.layer
    if not 0 <= settings.layer <= len(layers):
        raise UserError(f"model.layer is {settings.layer}: {settings.encoder} has layers 1 to {len(layers)}")
    depth = settings.layer or len(layers)
    model.encoder.layer = layers[:depth]
    model.config.num_hidden_layers = depth
    if settings.dropout is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = settings.dropout
    if settings.tuning == "full":
        for name, parameter in model.named_parameters():
            number = re.search(r"encoder\.layer\.(\d+)\.", name)
            parameter.requires_grad = number is not None and int(number[1]) >= settings.frozen_layers
        return model
    kept = "|".join(str(i) for i in range(settings.frozen_layers, depth))
    lora = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.lora_dropout,
        target_modules=rf"encoder\.layer\.({kept})\..*(query|key|value|dense)",
    )
    lora.base_model_name_or_path = settings.encoder
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in an old way
        return get_peft_model(model, lora)


def save_encoder(encoder: Any, tokenizer: Any, tuning: Literal["lora", "full"], folder: Path) -> None:
    """Write the adapter in fp16, or the whole encoder with its tokenizer into a folder of its own."""
    if tuning == "lora":
        adapter = get_peft_model_state_dict(encoder, save_embedding_layers=False)
        halves = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in adapter.items()}
        save_file(halves, folder / ADAPTER_WEIGHTS)
        encoder.peft_config["default"].save_pretrained(folder)
    else:
        encoder.save_pretrained(folder / ENCODER)
        tokenizer.save_pretrained(folder / ENCODER)


def run_tensors(
    parameters: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    """The weights that are trained and AdamW's moments, as a checkpoint holds them."""
    tensors = {f"parameter.{n}": p.detach() for n, p in parameters.items()}
    for name, parameter in parameters.items():
        tensors |= {f"adam.{k}.{name}": v for k, v in optimizer.state[parameter].items()}
    return tensors


def restore_run(
    parameters: Mapping[str, torch.nn.Parameter],
    optimizer: torch.optim.Optimizer,
    tensors: Mapping[str, torch.Tensor],
) -> None:
    """Give weights and optimiser the state that `run_tensors` took."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"parameter.{name}"])
            optimizer.state[parameter] = {
                key: tensors[f"adam.{key}.{name}"].to("cpu" if key == "step" else parameter.device)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}.{name}" in tensors
            }
