"""The encoders of mDPR while they are trained."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from finetune.mdpr.config import ModelConfig
from finetune.training.encoder import fits_adapter, save_trained, started_from, trainable
from rag_mt.base.errors import UserError
from rag_mt.base.files import folder_fingerprint, read_json
from rag_mt.base.types import Floats, Kind
from rag_mt.models.adapter_files import WEIGHTS
from rag_mt.models.loading import LoadedEncoder, load_encoder
from retrievers.encoders.encoder import TOKENS_PER_BATCH, TransformerEncoder, batches, family_of
from retrievers.mdpr import MdprSettings, passage_model_folder

MODULES = "modules.json"
GPU_TOKENS = 32_768
"""Tokens that a GPU computes at once; a CPU is faster with batches that are padded less."""


class Towers:
    """The query and the passage encoder, which are one if they are shared; in LoRA tuning both have the same frozen
    weights in memory. `before` is the `training.json` of the model that they start from, with the hashes of its
    weights, or None."""

    def __init__(self, config: ModelConfig, device: str, dtype: str, seed: int) -> None:
        self.config = config
        start = passage_model_folder(config.start) if config.start else None
        unfit = UserError(
            f"model.start {config.start!r} does not fit these settings: give its encoder, shared, pooling, rank and "
            "tuning"
        )
        if start is not None and not _fits(MdprSettings.load(start), start, config):
            raise unfit
        whole = start if config.tuning == "full" else None  # the folder of a model whose encoders are loaded as such
        loaded = load_encoder(str(whole / "passage") if whole else config.encoder, device, dtype)
        loaded = replace(loaded, name=config.encoder)
        self.device, self.fingerprint, self.folder = loaded.device, loaded.fingerprint, loaded.folder
        family = family_of(config.encoder, loaded.folder)
        settings = MdprSettings.of_family(config.encoder, family, config.shared)
        self.settings = replace(settings, pooling=config.pooling or settings.pooling)
        torch.manual_seed(seed)
        self.encoders: dict[Kind, TransformerEncoder] = {}
        for kind in self.settings.kinds:
            base = replace(loaded, model=self._base(loaded, kind, whole))
            encoder = self.encoders[kind] = TransformerEncoder(base, self.settings.family(family))
            encoder.model = trainable(base.model, config, encoder.layers)
            if start and not whole and not fits_adapter(encoder.model, load_file(start / kind / WEIGHTS)):
                raise unfit
        self.before = started_from(start, weights_of(start)) if start else None

    def _base(self, loaded: LoadedEncoder, kind: Kind, whole: Path | None) -> Any:
        """The base model for one encoder: that of passages takes it, that of queries its own copy of what is
        trained."""
        if kind == "passage":
            return loaded.model
        if whole is not None:
            return load_encoder(str(whole / kind), str(loaded.device), "float32").model
        frozen = {id(p): p for p in loaded.model.parameters()} if self.config.tuning == "lora" else {}
        return copy.deepcopy(loaded.model, frozen)

    def encoder(self, kind: Kind) -> TransformerEncoder:
        """The encoder of texts of that kind."""
        return self.encoders.get(kind, self.encoders["passage"])

    @property
    def parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """What is trained, by name."""
        return {
            f"{kind}.{name}": parameter
            for kind, encoder in self.encoders.items()
            for name, parameter in encoder.model.named_parameters()
            if parameter.requires_grad
        }

    def token_ids(self, texts: Sequence[str], kind: Kind, max_tokens: int) -> list[list[int]]:
        """The tokens of texts, which are cut at `max_tokens`."""
        encoder = self.encoder(kind)
        prefixed = [encoder.family.prefix(kind) + text for text in texts]
        limit = min(max_tokens, encoder.max_tokens)
        ids: list[list[int]] = encoder.tokenizer(prefixed, truncation=True, max_length=limit)["input_ids"]
        return ids

    def vectors(self, ids: Sequence[Sequence[int]], kind: Kind) -> torch.Tensor:
        """L2-normalised vectors (texts, dimension), float32 with gradients, of texts with these token ids."""
        encoder = self.encoder(kind)
        order: list[int] = []
        parts = []
        tokens = TOKENS_PER_BATCH if self.device.type == "cpu" else GPU_TOKENS
        for rows, input_ids, mask in batches(ids, encoder.tokenizer.pad_token_id or 0, tokens):
            mask = mask.to(self.device)
            with encoder.autocast():
                output = encoder.model(input_ids=input_ids.to(self.device), attention_mask=mask)
            parts.append(encoder.pool(output, mask))
            order += rows
        return torch.cat(parts)[torch.tensor(order).argsort().to(self.device)]

    def encode(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Vectors without gradients, as the saved model makes them."""
        return self.encoder(kind).encode(texts, kind)

    def save(self, folder: Path) -> None:
        """Write the passage model.

        What a sentence-transformers model has above its transformer (pooling, a dense layer) is put beside new weights.
        """
        folder.mkdir(parents=True, exist_ok=True)
        base = self.folder if self.config.tuning == "full" else None
        for kind, encoder in self.encoders.items():
            save_trained(encoder.model, encoder.tokenizer, folder / kind)
            if base is not None and (base / MODULES).is_file():
                for path in filter(None, (module["path"] for module in read_json(base / MODULES))):
                    shutil.copytree(base / path, folder / kind / path, dirs_exist_ok=True)
                shutil.copyfile(base / MODULES, folder / kind / MODULES)
        self.settings.save(folder)


def weights_of(folder: Path) -> list[str]:
    """The hashes of a trained model's weights, one for each of its encoders."""
    return [folder_fingerprint(folder / kind, (".safetensors",)) for kind in MdprSettings.load(folder).kinds]


def _fits(settings: MdprSettings, folder: Path, config: ModelConfig) -> bool:
    """Whether a model has the backbone, pooling, number of encoders and tuning of a configuration."""
    adapted = all((folder / kind / WEIGHTS).is_file() for kind in settings.kinds)
    same = (settings.encoder, settings.shared, adapted) == (config.encoder, config.shared, config.tuning == "lora")
    return same and config.pooling in ("", settings.pooling)
