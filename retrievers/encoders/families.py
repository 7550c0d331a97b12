"""How each family of encoders makes a sentence vector: pooling, prefixes, dense layer, longest input.

A model folder that says so itself (sentence-transformers' `modules.json`) is followed; the table is for bare models.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, remembered_sha256
from rag_mt.base.types import Kind

log = logging.getLogger("rag_mt")

Pooling = Literal["mean", "cls", "max", "pooler"]
ACTIVATIONS = {"Tanh": torch.tanh, "Identity": lambda x: x, "ReLU": torch.relu, "GELU": torch.nn.functional.gelu}


@dataclass(frozen=True)
class Dense:
    """A linear layer after pooling, weights in `folder`."""

    folder: Path
    activation: str


@dataclass(frozen=True)
class Family:
    """Settings of a sentence vector; every vector is L2-normalised at the end.

    `phrase_layer` is the hidden layer whose states align words best, where that was measured.
    """

    pooling: Pooling = "mean"
    prefixes: Mapping[str, str] = field(default_factory=dict)
    dense: tuple[Dense, ...] = ()
    max_tokens: int = 512
    phrase_layer: int | None = None

    def prefix(self, kind: Kind) -> str:
        """What stands before every text of a kind (multilingual-e5: `query: `, `passage: `)."""
        return self.prefixes.get(kind, "")

    def settings(self) -> dict[str, Any]:
        """JSON-able: all that changes vectors beside the transformer's own weights."""
        layers = [[d.activation, remembered_sha256(d.folder / "model.safetensors")] for d in self.dense]
        return {**asdict(replace(self, dense=())), "dense": layers}


E5_PREFIXES = {"query": "query: ", "passage": "passage: "}

# The first pattern found in the model's name wins. The layer for phrase vectors is that of a trial on dev data; sizes
# that were not tried have none.
TABLE: tuple[tuple[str, Family], ...] = (
    (r"(^|[^a-z])e5[-_]small", Family("mean", E5_PREFIXES, phrase_layer=7)),
    (r"(^|[^a-z])e5[-_]", Family("mean", E5_PREFIXES)),
    (r"labse", Family("pooler", max_tokens=256)),
    (r"xlm-?r|xlm-?roberta|infoxlm|mbert|bert-base-multilingual", Family("mean")),
)


def family_of(name: str, folder: Path | None) -> Family:
    """The family of a model: what its folder says, else the table by name, else mean pooling with a note."""
    known = next((f for pattern, f in TABLE if re.search(pattern, name, re.IGNORECASE)), None)
    if folder and (folder / "modules.json").is_file():
        return _from_modules(name, folder, known)
    if known is None:
        log.info("%s is of no known encoder family: its sentence vectors are the mean of its token states", name)
        return Family()
    return known


def _from_modules(name: str, folder: Path, known: Family | None) -> Family:
    family = replace(known or Family(), pooling="mean", dense=(), prefixes={})
    dense: list[Dense] = []
    for module in read_json(folder / "modules.json"):
        kind, place = module["type"].rsplit(".", 1)[-1], folder / module["path"]
        if kind == "Pooling":
            family = replace(family, pooling=_pooling(name, read_json(place / "config.json")))
        elif kind == "Dense":
            dense.append(_dense(name, place))
        elif kind not in ("Transformer", "Normalize"):
            raise UserError(f"{name} has a sentence module {kind!r}: expected Transformer, Pooling, Dense or Normalize")
    limits = folder / "sentence_bert_config.json"
    if limits.is_file() and (length := read_json(limits).get("max_seq_length")):
        family = replace(family, max_tokens=length)
    prompts = folder / "config_sentence_transformers.json"
    if prompts.is_file():
        family = replace(family, prefixes=_prefixes(read_json(prompts).get("prompts") or {}))
    if not any(family.prefixes.values()) and known is not None:
        family = replace(family, prefixes=known.prefixes)
    return replace(family, dense=tuple(dense))


def _prefixes(prompts: Mapping[str, str]) -> dict[str, str]:
    passage = next((prompts[k] for k in ("passage", "document", "corpus") if k in prompts), "")
    return {"query": prompts.get("query", ""), "passage": passage}


def _pooling(name: str, config: Mapping[str, Any]) -> Pooling:
    mode = config.get("pooling_mode")
    flags: dict[str, Pooling] = {
        "pooling_mode_mean_tokens": "mean",
        "pooling_mode_cls_token": "cls",
        "pooling_mode_max_tokens": "max",
    }
    found: list[Pooling] = [p for key, p in flags.items() if config.get(key)]
    if mode in ("mean", "cls", "max"):
        found = [mode]
    if len(found) != 1:
        raise UserError(
            f"{name} pools its tokens in a way that is not supported: expected mean, cls or max, not {dict(config)}"
        )
    return found[0]


def _dense(name: str, place: Path) -> Dense:
    activation = read_json(place / "config.json").get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = activation.rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS:
        raise UserError(f"{name} has a dense layer with {activation}: expected one of {', '.join(ACTIVATIONS)}")
    if not (place / "model.safetensors").is_file():
        raise UserError(f"{name} lacks {place.name}/model.safetensors: convert its dense layer to safetensors")
    return Dense(place, activation)


def load_dense(dense: Dense, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Weight (out, in) and bias (out) of a dense layer, float32."""
    tensors = load_file(dense.folder / "model.safetensors")
    bias = tensors.get("linear.bias")
    return tensors["linear.weight"].float().to(device), None if bias is None else bias.float().to(device)
