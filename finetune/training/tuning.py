"""An encoder made trainable, by LoRA or as a whole, and what of it is saved."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import save_file
from transformers import PreTrainedTokenizerBase

from finetune.training.settings import EncoderTuning
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.models.adapters import WEIGHTS


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


def save_trained(model: Any, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the LoRA adapter in float16 or, of a model that was trained as a whole, model and tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    if not isinstance(model, PeftModel):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return
    adapter = get_peft_model_state_dict(model, save_embedding_layers=False)
    halves = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in adapter.items()}
    save_file(halves, folder / WEIGHTS)
    settings: Any = model.peft_config["default"]
    settings.save_pretrained(folder)
