"""Small COMET models: a head over the embedded encoder, and the full checkpoints that are rebuilt from it.

A model's folder holds `head.safetensors` (float16: all that was trained) and `training.json`. unbabel-comet loads
whole checkpoints, so the encoder's weights are put beside the head in the program's cache at the first use.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from eval.comet_encoder import xlmr_folder
from rag_mt.errors import UserError
from rag_mt.fingerprints import file_sha256, read_json, settings_hash
from rag_mt.paths import cache_dir, whole_folder

SHIPPED = Path(__file__).parent / "metrics" / "shipped"
EMBEDDED = "comet-e5-small"
"""The model that `--model embedded` means."""
HEAD, TRAINING = "head.safetensors", "training.json"
IDENTIFIERS = {"reference": "regression_metric", "reference-free": "referenceless_regression_metric"}
"""What unbabel-comet calls the kinds of models."""
FORMAT = 1
"""Raised whenever a checkpoint would be written otherwise."""


def checkpoint_of(model: Path) -> Path:
    """The `.ckpt` file of a model's folder, which also `comet-score --model` takes; made in the cache if need be.

    Raises UserError for a folder that holds no such model.
    """
    kind, settings = facts_of(model)
    encoder = xlmr_folder()
    name = settings_hash([file_sha256(model / HEAD), str(encoder), settings, FORMAT])
    folder = cache_dir() / "models" / f"comet-{name}"
    if not folder.is_dir():
        with whole_folder(folder) as part:
            _write(part, kind, settings, model / HEAD, encoder)
    return folder / "checkpoints" / "model.ckpt"


def facts_of(model: Path) -> tuple[str, dict[str, Any]]:
    """The kind of a model and the arguments of its COMET class; raises UserError for another folder."""
    try:
        facts = read_json(model / TRAINING)
        kind, settings = facts["kind"], dict(facts["arguments"])
        if kind in IDENTIFIERS and (model / HEAD).is_file():
            return kind, settings
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise UserError(f"{model} holds no COMET model of `python -m eval.comet_train`: expected {HEAD} and {TRAINING}")


def _write(folder: Path, kind: str, settings: dict[str, Any], head: Path, encoder: Path) -> None:
    """Write `checkpoints/model.ckpt` and `hparams.yaml`, as unbabel-comet's own training does."""
    settings = settings | {
        "class_identifier": IDENTIFIERS[kind],
        "encoder_model": "XLM-RoBERTa",
        "pretrained_model": str(encoder),
        "local_files_only": True,
    }
    weights = {f"encoder.model.{name}": w for name, w in load_file(encoder / "model.safetensors").items()}
    weights |= {name: w.float() for name, w in load_file(head).items()}
    (folder / "checkpoints").mkdir()
    made = {"state_dict": weights, "hyper_parameters": settings, "pytorch-lightning_version": "2.0.0"}
    torch.save(made, folder / "checkpoints" / "model.ckpt")
    (folder / "hparams.yaml").write_text(json.dumps(settings, indent=1) + "\n")  # JSON is YAML
