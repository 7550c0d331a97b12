"""The encoders of mDPR while they are trained."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import load_file

from finetune.mdpr.config import ModelConfig
from finetune.training.encoder import fits_adapter, save_trained, started_from, trainable
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import folder_fingerprint, read_json
from rag_mt.base.types import Floats, Kind
from rag_mt.models.adapters import WEIGHTS
from rag_mt.models.loading import LoadedEncoder, load_encoder
from retrievers.encoders.encoder import TOKENS_PER_BATCH, TransformerEncoder, batches
from retrievers.encoders.families import family_of
from retrievers.mdpr import MdprSettings, passage_model_folder

MODULES = "modules.json"
GPU_TOKENS = 32_768
"""Tokens that a GPU computes at once; a CPU is faster with batches that are padded less."""


class Towers:
    """The query and the passage encoder, which are one if they are shared; in LoRA tuning both have the same frozen
    weights in memory."""

    def __init__(self, config: ModelConfig, device: str, dtype: str, seed: int) -> None:
        self.config = config
        start = passage_model_folder(config.start) if config.start else None
        if start is not None:
            _check_start(start, config)
        whole = start is not None and config.tuning == "full"
        base = str(start / "passage") if start is not None and whole else config.encoder
        loaded = load_encoder(base, device, dtype)
        if whole:
            loaded = replace(loaded, name=config.encoder)
        self.device, self.fingerprint, self.folder = loaded.device, loaded.fingerprint, loaded.folder
        family = family_of(config.encoder, loaded.folder)
        settings = MdprSettings.of_family(config.encoder, family, config.shared)
        self.settings = replace(settings, pooling=config.pooling or settings.pooling)
        torch.manual_seed(seed)
        self.encoders: dict[Kind, TransformerEncoder] = {}
        self.models: dict[Kind, Any] = {}
        for kind in self.settings.kinds:
            own = replace(loaded, model=self._copied(loaded, kind, start if whole else None))
            encoder = TransformerEncoder(own, self.settings.family(family))
            encoder.model = self.models[kind] = trainable(own.model, config, encoder.layers)
            self.encoders[kind] = encoder
        self.before = self._started(start) if start is not None else None

    def _copied(self, loaded: LoadedEncoder, kind: Kind, start: Path | None) -> Any:
        """The base model for one encoder: the first one takes it, a second one its own copy of what is trained."""
        if kind == "passage":
            return loaded.model
        if start is not None:
            return load_encoder(str(start / kind), str(loaded.device), "float32").model
        frozen = {id(p): p for p in loaded.model.parameters()} if self.config.tuning == "lora" else {}
        return copy.deepcopy(loaded.model, frozen)

    def _started(self, start: Path) -> dict[str, Any]:
        """Give the encoders the weights of a trained model; returns what is recorded of it."""
        for kind, model in self.models.items():
            if isinstance(model, PeftModel) and not fits_adapter(model, load_file(start / kind / WEIGHTS)):
                raise _unfit(self.config)
        return started_from(start, weights_of(start))

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """What is trained, by name."""
        return {
            f"{kind}.{name}": parameter
            for kind, model in self.models.items()
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }

    def token_ids(self, texts: Sequence[str], kind: Kind, max_tokens: int) -> list[list[int]]:
        """The tokens of texts, which are cut at `max_tokens`."""
        encoder = self.encoders.get(kind, self.encoders["passage"])
        prefix = encoder.family.prefix(kind)
        longest = min(max_tokens, encoder.max_tokens)
        ids: list[list[int]] = encoder.tokenizer(
            [prefix + text for text in texts], truncation=True, max_length=longest
        )["input_ids"]
        return ids

    def vectors(self, ids: Sequence[Sequence[int]], kind: Kind) -> torch.Tensor:
        """L2-normalised vectors (texts, dimension), float32 with gradients, of texts with these token ids."""
        encoder = self.encoders.get(kind, self.encoders["passage"])
        order: list[int] = []
        made = []
        tokens = TOKENS_PER_BATCH if self.device.type == "cpu" else GPU_TOKENS
        for rows, input_ids, mask in batches(ids, encoder.tokenizer.pad_token_id or 0, tokens):
            mask = mask.to(self.device)
            with encoder.autocast():
                output = encoder.model(input_ids=input_ids.to(self.device), attention_mask=mask)
            made.append(encoder.pool(output, mask))
            order += rows
        back = torch.empty(len(order), dtype=torch.int64)
        back[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(made)[back.to(self.device)]

    def encode(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Vectors without gradients, as the saved model makes them."""
        return self.encoders.get(kind, self.encoders["passage"]).encode(texts, kind)

    def save(self, folder: Path) -> None:
        """Write the passage model."""
        folder.mkdir(parents=True, exist_ok=True)
        for kind, model in self.models.items():
            save_trained(model, self.encoders[kind].tokenizer, folder / kind)
            if self.config.tuning == "full" and self.folder is not None:
                _copy_modules(self.folder, folder / kind)
        self.settings.save(folder)


def weights_of(folder: Path) -> list[str]:
    """The hashes of a trained model's weights, one for each of its encoders."""
    return [folder_fingerprint(folder / kind, (".safetensors",)) for kind in MdprSettings.load(folder).kinds]


def _copy_modules(base: Path, folder: Path) -> None:
    """Put what a sentence-transformers model has above its transformer (pooling, a dense layer) beside its new
    weights."""
    if not (base / MODULES).is_file():
        return
    for module in read_json(base / MODULES):
        if module["path"]:
            shutil.copytree(base / module["path"], folder / module["path"], dirs_exist_ok=True)
    shutil.copyfile(base / MODULES, folder / MODULES)


def _check_start(start: Path, config: ModelConfig) -> None:
    """Raise UserError for a model of another backbone, pooling, number of encoders or tuning."""
    found = MdprSettings.load(start)
    adapted = all((start / kind / WEIGHTS).is_file() for kind in found.kinds)
    same = (found.encoder, found.shared, adapted) == (config.encoder, config.shared, config.tuning == "lora")
    if not same or (config.pooling and config.pooling != found.pooling):
        raise _unfit(config)


def _unfit(config: ModelConfig) -> UserError:
    return UserError(
        f"model.start {config.start!r} does not fit these settings: give its encoder, shared, pooling, rank and tuning"
    )
