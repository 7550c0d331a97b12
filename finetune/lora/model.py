"""The language model with a LoRA adapter on it: opened for training, saved, merged."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict, prepare_model_for_kbit_training
from safetensors.torch import load_file, save_file

from finetune.lora.config import Config, ModelConfig
from finetune.lora.loss import Responses, check_head
from finetune.training.warm_start import fits_adapter
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, read_json
from rag_mt.base.paths import whole_file, whole_folder
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.adapters import CONFIG, TRAINING, WEIGHTS, checked_adapter
from rag_mt.models.loading import LoadedLLM, choose_device, choose_dtype, load_llm

TERMS = ("LICENCE*", "LICENSE*", "NOTICE*")
"""Files of a base model whose terms hold for what is trained on it."""
KEPT_SETTINGS = ("r", "lora_alpha", "target_modules")


@dataclass(frozen=True)
class Trainable:
    """A model to tune: as loaded, with PEFT's wrapper `adapted`, its prompts' side `llm` and its loss `responses`.

    The adapter's weights are float32; `loaded.dtype` is the format to compute in, under autocast.
    """

    loaded: LoadedLLM
    adapted: Any
    llm: TransformersLLM
    responses: Responses
    before: Mapping[str, Any] | None

    @property
    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """The adapter's weights by name."""
        return {name: p for name, p in self.adapted.named_parameters() if p.requires_grad}

    def autocast(self) -> torch.autocast:
        """The context to compute in."""
        number = self.loaded.dtype
        return torch.autocast(self.loaded.device.type, dtype=number, enabled=number != torch.float32)


def open_trainable(config: Config, device: str) -> Trainable:
    """The model of the settings with a new adapter, or with the one that `model.start` names.

    Raises UserError for a model, device, quantization or module that cannot be used.
    """
    model, training = config.model, config.training
    if training.dtype == "float16":
        raise UserError("training.dtype float16 loses small gradients: choose auto, bfloat16 or float32")
    target = choose_device(device)
    number = training.dtype
    if number == "auto" and choose_dtype("auto", target) == torch.float16:
        number = "float32"  # an older card
    loaded = load_llm(model.llm, device=device, dtype=number, quantization=model.quantization)
    causal: Any = loaded.model
    _check_modules(causal, model)
    llm = TransformersLLM(loaded, adapter=model.start or "in training")  # prompts as for a model with an adapter
    if target.type == "cpu":
        causal.set_attn_implementation("eager")
    again = {"use_reentrant": False}
    if model.quantization != "none":
        prepare: Any = prepare_model_for_kbit_training
        causal = prepare(causal, training.checkpointing, again)
    elif training.checkpointing:
        causal.gradient_checkpointing_enable(gradient_checkpointing_kwargs=again)
    torch.manual_seed(training.seed)
    lora = LoraConfig(
        r=model.rank,
        lora_alpha=model.alpha,
        lora_dropout=model.dropout,
        target_modules=list(model.modules),
        task_type="CAUSAL_LM",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers in an old way
        adapted: Any = get_peft_model(causal, lora)
    before = _start(model.start, adapted) if model.start else None
    made = Trainable(loaded, adapted, llm, Responses(adapted.get_base_model()), before)
    with made.autocast():
        check_head(adapted.get_base_model(), model.llm)
    return made


def _check_modules(causal: Any, model: ModelConfig) -> None:
    head = causal.get_output_embeddings()
    linear = [(n, m) for n, m in causal.named_modules() if isinstance(m, torch.nn.Linear) and m is not head]
    known = sorted({name.rpartition(".")[2] for name, _ in linear})
    unknown = [name for name in model.modules if name not in known]
    if unknown:
        raise UserError(
            f"model.modules names {', '.join(unknown)}, which {model.llm} does not have: choose from {', '.join(known)}"
        )


def _start(name: str, adapted: Any) -> dict[str, Any]:
    """Give the adapter the weights of the folder `name`; returns its `training.json` and the hash of its weights.

    Raises UserError for an adapter of another shape.
    """
    folder = checked_adapter(name)
    own, found = adapted.peft_config["default"].to_dict(), read_json(folder / CONFIG)
    same = all(_plain(own[key]) == _plain(found.get(key)) for key in KEPT_SETTINGS)
    if not same or not fits_adapter(adapted, load_file(folder / WEIGHTS)):
        raise UserError(
            f"model.start {name!r} does not fit these settings: give its llm, rank, alpha and modules, which are "
            f"{ {key: found.get(key) for key in KEPT_SETTINGS} }"
        )
    before: dict[str, Any] = read_json(folder / TRAINING) if (folder / TRAINING).is_file() else {}
    return {"weights": file_sha256(folder / WEIGHTS)[:16], **before}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list | set | tuple) else value


def save_adapter(model: Trainable, folder: Path) -> None:
    """Write the adapter as PEFT reads it, weights in float16, with the terms of the model that it is for."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = get_peft_model_state_dict(model.adapted, save_embedding_layers=False)
    halves = {name: tensor.detach().to("cpu", torch.float16).contiguous() for name, tensor in tensors.items()}
    settings = copy(model.adapted.peft_config["default"])
    settings.inference_mode, settings.target_modules = True, _plain(settings.target_modules)
    with whole_file(folder / WEIGHTS) as part:
        save_file(halves, part, {"format": "pt"})
    with whole_file(folder / CONFIG) as part, TemporaryDirectory() as own:
        settings.save_pretrained(own)
        shutil.copyfile(Path(own) / CONFIG, part)
    _copy_terms(model.loaded.folder, folder)


def write_merged(config: Config, adapter: Path, folder: Path, dtype: torch.dtype) -> None:
    """Write the model with the adapter merged into its weights, and its tokenizer, as `from_pretrained` reads them.

    The weights are merged into the model as it is without quantization. Raises UserError if `folder` is there already.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already: give --merge another folder, or remove it")
    number = str(dtype).removeprefix("torch.")
    loaded = load_llm(config.model.llm, str(adapter), "cpu", number)
    with whole_folder(folder) as part:
        loaded.model.save_pretrained(part)
        loaded.tokenizer.save_pretrained(part)
        _copy_terms(loaded.folder, part)


def _copy_terms(source: Path | None, target: Path) -> None:
    for pattern in TERMS if source else ():
        for file in sorted(source.glob(pattern)) if source else ():
            shutil.copyfile(file, target / file.name)
