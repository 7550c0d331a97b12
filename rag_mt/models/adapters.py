"""PEFT adapters such as LoRA: checked, put onto their base model and merged into it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, cast

from safetensors import safe_open
from transformers import PreTrainedModel

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.models.adapter_files import CONFIG, WEIGHTS, checked_adapter

log = logging.getLogger("rag_mt")


def merge_adapter(model: PreTrainedModel, name: str, adapter: str, merge: bool = True) -> PreTrainedModel:
    """The model `name` with the adapter folder `adapter` merged into its weights or, without `merge`, beside them.

    Raises UserError if the adapter was made for a model with other layers or sizes. If the adapter names another base
    with equal layers that is only logged, because paths differ between machines.
    """
    folder = checked_adapter(adapter)
    settings = read_json(folder / CONFIG)
    base = str(settings.get("base_model_name_or_path") or "")
    misfit = f"the adapter {adapter} was made for {base or 'another model'} and does not fit {name}"
    model = _with_peft(model, folder, merge, f"{misfit}: name its base model")
    if base and Path(base).name != Path(name).name:
        log.warning("the adapter %s names %s as its base and is used with %s", adapter, base, name)
    return model


def _with_peft(model: PreTrainedModel, folder: Path, merge: bool, misfit: str) -> PreTrainedModel:
    """`merge_adapter` by the library; raises UserError with the sentence `misfit`."""
    from peft import PeftModel, get_peft_model_state_dict

    with safe_open(folder / WEIGHTS, "pt") as file:
        stored = set(file.keys())
    try:
        adapted = PeftModel.from_pretrained(model, str(folder))
    except (KeyError, RuntimeError, ValueError) as error:
        if isinstance(error, RuntimeError) and "size mismatch" not in str(error):
            raise
        raise UserError(misfit) from error
    expected = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
    if expected - stored or any("lora_" in key for key in stored - expected):
        raise UserError(misfit)
    result: Any = adapted.merge_and_unload() if merge else adapted
    return cast(PreTrainedModel, result)
