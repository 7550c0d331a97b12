"""PEFT adapters such as LoRA: checked, put onto their base model and merged into it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from peft import PeftConfig, PeftModel, get_peft_model_state_dict
from safetensors import safe_open
from transformers import PreTrainedModel

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, remembered_sha256, settings_hash

log = logging.getLogger("rag_mt")

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
TRAINING = "training.json"
"""What our training writes beside an adapter."""


def adapter_fingerprint(adapter: str) -> str:
    """A short hash of an adapter folder's weights and settings."""
    folder = checked_adapter(adapter)
    return settings_hash([remembered_sha256(folder / CONFIG), remembered_sha256(folder / WEIGHTS)])


def trained_wrapper(adapter: str) -> str | None:
    """The prompt wrapper that an adapter was trained with, if a `training.json` in its folder names it."""
    file = Path(adapter).expanduser() / TRAINING
    wrapper = read_json(file).get("wrapper") if file.is_file() else None
    return wrapper if isinstance(wrapper, str) else None


def seen_before(before: Mapping[str, Any] | None) -> tuple[int, float]:
    """The number of sentence pairs (for mDPR: questions) that earlier runs of training were shown, and their seconds.

    `before` is the `training.json` of the run that the present one continues, None for a run from the start; runs that
    it continued itself are in its `started_from`, and count too.
    """
    pairs, seconds = 0, 0.0
    while before:
        pairs += before.get("sentence_pairs_seen", before.get("questions_seen", 0))
        seconds += before.get("training_seconds", 0)
        before = before.get("started_from")
    return pairs, seconds


def checked_adapter(adapter: str) -> Path:
    """The folder `adapter`; UserError if it is none or lacks the adapter's settings or safetensors weights."""
    folder = Path(adapter).expanduser()
    if not folder.is_dir():
        raise UserError(
            f"there is no adapter folder {adapter!r}: check the path (a folder with {CONFIG} and {WEIGHTS})"
        )
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            raise UserError(f"the adapter folder {adapter} lacks {file}: save the adapter with PEFT's save_pretrained")
    return folder


def merge_adapter(model: PreTrainedModel, name: str, adapter: str, merge: bool = True) -> PreTrainedModel:
    """The model `name` with the adapter folder `adapter` merged into its weights or, without `merge`, beside them.

    Raises UserError if the adapter was made for a model with other layers or sizes. If the adapter names another base
    with equal layers that is only logged, because paths differ between machines.
    """
    folder = checked_adapter(adapter)
    base = str(PeftConfig.from_pretrained(str(folder)).base_model_name_or_path or "")
    misfit = (
        f"the adapter {adapter} was made for {base or 'another model'} and does not fit {name}: name its base model"
    )
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
    if base and Path(base).name != Path(name).name:
        log.warning("the adapter %s names %s as its base and is used with %s", adapter, base, name)
    result: Any = adapted.merge_and_unload() if merge else adapted
    return cast(PreTrainedModel, result)
