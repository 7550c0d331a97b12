"""The files of PEFT adapters, read without the libraries that train them: nothing here loads torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, remembered_sha256, settings_hash

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PLAIN_LORA = frozenset(
    [
        *("base_model_name_or_path", "inference_mode", "peft_type", "peft_version", "revision", "task_type"),
        *("bias", "init_lora_weights", "lora_alpha", "lora_dropout", "r", "target_modules"),
        *("megatron_core", "qalora_group_size"),
    ]
)
"""Settings with which an adapter changes nothing but W + alpha / r * B A."""
TRAINING = "training.json"
"""What our training writes beside an adapter."""
ADAPTERS = "adapters"
"""The folder of an index that holds adapters which were tuned on its text, one for each source language."""


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


def plain_lora(settings: Mapping[str, Any]) -> tuple[int, float] | None:
    """The rank and alpha of an adapter that is nothing but LoRA (Hu et al., 2022: W + alpha / rank * B A) according to
    its `adapter_config.json`; None for any other one."""
    plain = settings.get("peft_type") == "LORA" and settings.get("bias", "none") == "none"
    plain = plain and isinstance(settings.get("init_lora_weights", True), bool)
    rank, alpha = settings.get("r"), settings.get("lora_alpha")
    if not plain or any(value and key not in PLAIN_LORA for key, value in settings.items()):
        return None
    numbers = isinstance(rank, int) and isinstance(alpha, int | float)
    return (rank, alpha) if numbers and rank and alpha else None
