"""Where a training run stands, in tensors and on disk: safetensors with facts in JSON; no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from finetune.losses.phrase_contrastive import Negatives
from rag_mt.base.errors import UserError
from rag_mt.base.paths import sync, whole_file
from rag_mt.models.adapters import TRAINING

FORMAT = "2"
"""Raised whenever checkpoints hold something else than before."""


def save_checkpoint(folder: Path, key: str, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Replace the checkpoint in `folder`; a kill leaves the old one or the new one.

    `key` names the settings of the run; `facts` travel in the header of the same file, so that both fit together.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "new.safetensors"
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(flat, new, {"format": FORMAT, "key": key, "facts": json.dumps(facts)})
    sync(new)
    new.replace(folder / "checkpoint.safetensors")
    sync(folder)


def load_checkpoint(folder: Path, key: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Tensors and facts of the checkpoint in `folder`, None if there is none.

    Raises UserError if it was written with other settings, or by another version.
    """
    path = folder / "checkpoint.safetensors"
    if not path.is_file():
        return None
    with safe_open(path, "pt") as file:
        head = file.metadata()
        if head.get("format") != FORMAT:
            raise UserError(f"{folder} was written by another version of rag_mt: remove it to start again")
        if head.get("key") != key:
            raise UserError(
                f"{folder.parent} holds a run with other settings or data: give another --output, or remove {folder} "
                "to start again"
            )
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(head["facts"])  # noqa: SIM118


def training_tensors(
    parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer
) -> dict[str, torch.Tensor]:
    """All tensors that the optimisation of some parameters (by name) needs to go on: weights and AdamW's moments."""
    tensors = {f"parameter.{name}": p.detach() for name, p in parameters.items()}
    for name, parameter in parameters.items():
        tensors |= {f"adam.{key}.{name}": value for key, value in optimizer.state[parameter].items()}
    return tensors


def restore_training(
    parameters: Mapping[str, torch.Tensor], optimizer: torch.optim.Optimizer, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Go on from `training_tensors`."""
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"parameter.{name}"])
            optimizer.state[parameter] = {
                key: tensors[f"adam.{key}.{name}"].to("cpu" if key == "step" else parameter.device)
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"adam.{key}.{name}" in tensors
            }


def queue_tensors(queues: Sequence[Negatives]) -> dict[str, torch.Tensor]:
    """The tensors of the queues of both sides, of which there may be none."""
    return {
        f"queue.{key}.{side}": tensor
        for side, queue in enumerate(queues)
        for key, tensor in (("vectors", queue.vectors), ("surfaces", queue.surfaces))
    }


def queues_of(tensors: Mapping[str, torch.Tensor], device: torch.device) -> list[Negatives]:
    """The queues among the tensors of a run: two, or none."""
    sides = (0, 1) if "queue.vectors.0" in tensors else ()
    return [
        Negatives(tensors[f"queue.vectors.{s}"].to(device), tensors[f"queue.surfaces.{s}"].to(device)) for s in sides
    ]


def write_training(folder: Path, facts: Mapping[str, Any]) -> None:
    """Write `training.json`: how the model in `folder` was made."""
    with whole_file(folder / TRAINING) as part:
        part.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
