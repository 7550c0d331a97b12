"""An encoder while it is trained, by LoRA or as a whole: opened, run, saved; and adapters that are trained further."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict
from safetensors.torch import save_file
from torch.func import functional_call
from torch.nn.functional import pad
from transformers import PreTrainedTokenizerBase

from finetune.training.settings import EncoderTuning
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, whole_file
from rag_mt.models.adapter_files import CONFIG, TRAINING, WEIGHTS
from rag_mt.models.loading import LoadedEncoder, load_encoder
from retrievers.ccpr.model import ENCODER

Weights = Mapping[str, torch.Tensor]
NO_WEIGHTS: Weights = {}
FEWEST = 16
"""Rows that are read together, at least, where there are so many."""
SIMILAR = 0.8
"""How long the next row has to be to be read with a group, as a share of the group's longest."""


@dataclass(frozen=True, eq=False)
class TrainedEncoder(LoadedEncoder):
    """A transformer of `layers` layers and `hidden` dimensions with what is trained in it; `fingerprint` is that of the
    weights it was opened with."""

    layers: int
    hidden: int

    def states(self, input_ids: torch.Tensor, mask: torch.Tensor, weights: Weights = NO_WEIGHTS) -> torch.Tensor:
        """States (batch, tokens, hidden) of the last layer for ids and mask (batch, tokens), by the weights as they are
        or with some others by name. On a CPU rows of similar length are read together, so that little of what is read
        is padding, whose states are 0 then."""
        lengths = mask.sum(1)
        groups = alike(lengths, self.device)
        if len(groups) == 1:
            return self.states_at_once(input_ids, mask, weights)
        made = []
        for rows in groups:
            width = int(lengths[rows].max())
            states = self.states_at_once(input_ids[rows, :width], mask[rows, :width], weights)
            made.append(pad(states, (0, 0, 0, mask.shape[1] - width)))
        return torch.cat(made)[torch.cat(groups).argsort()]

    def states_at_once(
        self, input_ids: torch.Tensor, mask: torch.Tensor, weights: Weights = NO_WEIGHTS
    ) -> torch.Tensor:
        """`states` of the whole batch in one pass, with all of its padding."""
        inputs = {"input_ids": input_ids.to(self.device), "attention_mask": mask.to(self.device)}
        with torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32):
            output = functional_call(self.model, dict(weights), kwargs=inputs) if weights else self.model(**inputs)
        states: torch.Tensor = output.last_hidden_state
        return states

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """What is trained, by name, each after `encoder.`."""
        return {f"encoder.{name}": p for name, p in self.model.named_parameters() if p.requires_grad}

    def save(self, folder: Path) -> None:
        """Write the adapter into the folder or, of a model that is trained as a whole, the model into one within it."""
        save_trained(self.model, self.tokenizer, folder if isinstance(self.model, PeftModel) else folder / ENCODER)


def alike(lengths: torch.Tensor, device: torch.device) -> list[torch.Tensor]:
    """The numbers of rows of these lengths in the groups that are best read together on a device: of similar length,
    longest first, on a CPU; elsewhere all in their order."""
    if device.type != "cpu":
        return [torch.arange(len(lengths))]
    order = lengths.argsort(descending=True, stable=True)
    ordered: list[int] = lengths[order].tolist()
    begins = [0]
    for row, length in enumerate(ordered):
        if row - begins[-1] >= FEWEST and length < SIMILAR * ordered[begins[-1]]:
            begins.append(row)
    return list(order.tensor_split(begins[1:]))


def open_encoder(tuning: EncoderTuning, layer: int, device: str, dtype: str, seed: int) -> TrainedEncoder:
    """The encoder of the settings up to `layer` (0: the last one), with what is new in it drawn by `seed`.

    Raises UserError for a model that cannot be loaded, has no such layer, or is not built like BERT.
    """
    loaded = load_encoder(tuning.encoder, device, dtype)
    torch.manual_seed(seed)
    depth = first_layers(loaded.model, layer, tuning.encoder)
    hidden = int(loaded.model.config.hidden_size)
    return TrainedEncoder(
        **vars(loaded) | {"model": trainable(loaded.model, tuning, depth)}, layers=depth, hidden=hidden
    )


def first_layers(model: Any, layer: int, name: str) -> int:
    """Leave the layers after `layer` out of an encoder (0: keep all of them) and return how many there are now.

    Raises UserError if the encoder, called `name`, has no such layer, or is not built like BERT.
    """
    layers = getattr(getattr(model, "encoder", None), "layer", None)
    if layers is None:
        raise UserError(
            f"{name} ({type(model).__name__}) is not built like BERT: choose an encoder such as {DEFAULT_ENCODER}, "
            "xlm-roberta-base or bert-base-multilingual-cased"
        )
    if not 0 <= layer <= len(layers):
        raise UserError(f"model.layer is {layer}: {name} has layers 1 to {len(layers)}")
    depth = layer or len(layers)
    model.encoder.layer = layers[:depth]
    model.config.num_hidden_layers = depth
    return depth


def trainable(model: Any, settings: EncoderTuning, depth: int) -> Any:
    """The transformer of `depth` layers with what shall be trained made trainable; token embeddings stay as they are
    unless the whole model is trained. Raises UserError if all layers are frozen."""
    if not 0 <= settings.frozen_layers < depth:
        raise UserError(
            f"model.frozen_layers is {settings.frozen_layers}: {settings.encoder} has {depth} layers here, of which "
            "one at least is to be trained"
        )
    if next(model.parameters()).device.type == "cpu":
        model.set_attn_implementation("eager")  # the fused kernel's backward pass is six times slower on CPUs
    if settings.dropout is not None:
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = settings.dropout
    if settings.tuning == "full":
        for name, parameter in model.named_parameters():
            number = re.search(r"encoder\.layer\.(\d+)\.", name)
            above = number is not None and int(number[1]) >= settings.frozen_layers
            parameter.requires_grad = above or not settings.frozen_layers
        return model
    numbers = "|".join(str(i) for i in range(settings.frozen_layers, depth))
    modules = rf"encoder\.layer\.({numbers})\..*(query|key|value|dense)"
    lora = LoraConfig(
        r=settings.rank, lora_alpha=settings.alpha, lora_dropout=settings.lora_dropout, target_modules=modules
    )
    lora.base_model_name_or_path = settings.encoder
    return with_adapter(model, lora)


def with_adapter(model: Any, settings: LoraConfig) -> Any:
    """PEFT's wrapper of a model with a new adapter."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in an old way
        return get_peft_model(model, settings)


def save_trained(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the LoRA adapter or, of a model that was trained as a whole, model and tokenizer."""
    if isinstance(model, PeftModel):
        save_adapter(model, model.peft_config["default"], folder)
    else:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def save_adapter(model: Any, settings: Any, folder: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a LoRA adapter as PEFT reads it, the weights in float16, each of its files whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    halves = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in tensors.items()}
    with whole_file(folder / WEIGHTS) as part:
        save_file(halves, part, metadata)
    with whole_file(folder / CONFIG) as part, TemporaryDirectory() as scratch:
        settings.save_pretrained(scratch)
        shutil.copyfile(Path(scratch) / CONFIG, part)


def fits_adapter(model: Any, weights: Weights) -> bool:
    """Give the LoRA adapter on `model` these weights (in any number format); whether they are all that it has and no
    more, in the same shapes."""
    try:
        result: Any = set_peft_model_state_dict(model, {name: tensor.float() for name, tensor in weights.items()})
    except RuntimeError:
        return False
    return not result.unexpected_keys and not any("lora_" in key for key in result.missing_keys)


def started_from(folder: Path, weights: Any) -> dict[str, Any]:
    """What a run records of the model that it goes on from: hashes of its `weights`, and its `training.json`."""
    path = folder / TRAINING
    return {"weights": weights, **(read_json(path) if path.is_file() else {})}
