"""How each family of encoders makes a sentence vector: pooling, prefixes, dense layers, longest input.

A model folder in the format of sentence-transformers (`modules.json`) says so itself; the table is for bare models.
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
POOLING_IN_FOLDERS: tuple[Pooling, ...] = ("mean", "cls", "max")
ACTIVATIONS = {"Tanh": torch.tanh, "Identity": lambda x: x, "ReLU": torch.relu, "GELU": torch.nn.functional.gelu}


@dataclass(frozen=True)
class Dense:
    """A linear layer after pooling: the file with its weights and the name of its activation function."""

    file: Path
    activation: str

    def load(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Weight (out, in) and bias (out) of the layer, float32."""
        tensors = {name: tensor.float().to(device) for name, tensor in load_file(self.file).items()}
        return tensors["linear.weight"], tensors.get("linear.bias")


@dataclass(frozen=True)
class Family:
    """Settings of a sentence vector; every vector is L2-normalised at the end. `prefixes` stand before every text of a
    kind, texts are cut after `max_tokens` tokens, prefix included, and `phrase_layer` is the hidden layer whose states
    align words best, where that was measured."""

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
        layers = [[layer.activation, remembered_sha256(layer.file)] for layer in self.dense]
        return {**asdict(replace(self, dense=())), "dense": layers}

    def at_layer(self, layer: int, prefix: str) -> Family:
        """The family of a model that reads the states of a hidden layer, with one prefix for all texts."""
        return Family("mean", {"query": prefix, "passage": prefix}, max_tokens=self.max_tokens, phrase_layer=layer)


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
    """The family of a model: what its folder says, else the table by name, else mean pooling with a note. Prefixes and
    length are those by name where the folder is silent about them. Raises UserError for a folder in the format of
    sentence-transformers with parts that are not known here."""
    by_name = next((family for pattern, family in TABLE if re.search(pattern, name, re.IGNORECASE)), None)
    if folder is None or not (folder / "modules.json").is_file():
        if by_name is None:
            log.info("%s is of no known encoder family: its sentence vectors are the mean of its token states", name)
        return by_name or Family()
    family = replace(by_name or Family(), pooling="mean", dense=())
    for module in read_json(folder / "modules.json"):
        part = folder / module["path"]
        match module["type"].rsplit(".", 1)[-1]:
            case "Pooling":
                family = replace(family, pooling=_pooling(name, read_json(part / "config.json")))
            case "Dense":
                family = replace(family, dense=(*family.dense, _dense(name, part)))
            case "Transformer" | "Normalize":
                pass
            case other:
                raise UserError(
                    f"{name} has a sentence module {other!r}: expected Transformer, Pooling, Dense or Normalize"
                )
    prompts = _optional_json(folder / "config_sentence_transformers.json").get("prompts") or {}
    passage = next((prompts[key] for key in ("passage", "document", "corpus") if key in prompts), "")
    prefixes = {"query": prompts.get("query", ""), "passage": passage}
    return replace(
        family,
        prefixes=prefixes if any(prefixes.values()) else family.prefixes,
        max_tokens=_optional_json(folder / "sentence_bert_config.json").get("max_seq_length") or family.max_tokens,
    )


def _optional_json(path: Path) -> Any:
    return read_json(path) if path.is_file() else {}


def _pooling(name: str, config: Mapping[str, Any]) -> Pooling:
    """The way of pooling that the settings of a Pooling module name; older ones have a flag for each way."""
    flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    mode = config.get("pooling_mode", flags) if config.get("include_prompt", True) else None
    for pooling in POOLING_IN_FOLDERS:
        if mode in (pooling, [f"pooling_mode_{pooling}_token"], [f"pooling_mode_{pooling}_tokens"]):
            return pooling
    raise UserError(
        f"{name} pools its tokens in a way that is not supported: expected mean, cls or max, not {dict(config)}"
    )


def _dense(name: str, folder: Path) -> Dense:
    activation = read_json(folder / "config.json").get("activation_function", "Tanh").rsplit(".", 1)[-1]
    if activation not in ACTIVATIONS:
        raise UserError(f"{name} has a dense layer with {activation}: expected one of {', '.join(ACTIVATIONS)}")
    file = folder / "model.safetensors"
    if not file.is_file():
        raise UserError(f"{name} lacks {folder.name}/model.safetensors: convert its dense layer to safetensors")
    return Dense(file, activation)
