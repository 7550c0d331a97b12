"""PEFT adapters such as LoRA: checked, put onto their base model and merged into it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from transformers import PreTrainedModel

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, remembered_sha256, settings_hash

log = logging.getLogger("rag_mt")

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PLAIN_LORA = frozenset(
    [
        *("base_model_name_or_path", "inference_mode", "peft_type", "peft_version", "revision", "task_type"),
        *("bias", "init_lora_weights", "lora_alpha", "lora_dropout", "r", "target_modules"),
        *("megatron_core", "qalora_group_size"),
    ]
)
"""Settings with which an adapter changes nothing but W + alpha / r * B A; where others are set, PEFT does the work."""
ROWS = 128
"""Of a weight, merged at a time: what is computed on the way stays in the processor's cache and its memory is used
again."""
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
    settings = read_json(folder / CONFIG)
    base = str(settings.get("base_model_name_or_path") or "")
    if not (merge and _merged_plainly(model, settings, folder)):
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


def _merged_plainly(model: PreTrainedModel, settings: Mapping[str, Any], folder: Path) -> bool:
    """Merge an adapter that is nothing but LoRA (Hu et al., 2022: W + alpha / r * B A) on linear layers, and return
    True; for any other adapter, and where anything does not fit, change nothing and return False.

    The weights become those that PEFT's merge gives, to the bit, without its wrapper around every layer.
    """
    targets = settings.get("target_modules")
    plain = settings.get("peft_type") == "LORA" and settings.get("bias", "none") == "none"
    plain = plain and isinstance(settings.get("init_lora_weights", True), bool)
    more = [key for key, value in settings.items() if value and key not in PLAIN_LORA]
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if not plain or more or not isinstance(targets, list) or not (rank and alpha):
        return False
    try:
        stored = load_file(folder / WEIGHTS)
    except SafetensorError:  # PEFT says it
        return False
    layers = {n: m for n, m in model.named_modules() if any(f".{n}".endswith(f".{target}") for target in targets)}
    pairs = {n: [stored.pop(f"base_model.model.{n}.lora_{part}.weight", None) for part in "AB"] for n in layers}
    changes: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for name, (a, b) in pairs.items():
        layer = layers[name]
        if type(layer) is not torch.nn.Linear or a is None or b is None:
            return False
        if a.shape != (rank, layer.in_features) or b.shape != (layer.out_features, rank):
            return False
        changes.append((layer.weight.data, a, b))
    if stored or not changes:
        return False
    scale = alpha / rank
    for weight, a, b in changes:
        right = a.to(weight.device, torch.float32)
        for rows, left in zip(weight.split(ROWS), b.to(weight.device, torch.float32).split(ROWS), strict=True):
            rows.copy_((left @ right).mul_(scale).add_(rows.float()))  # adding formats that differ takes longer
    return True
