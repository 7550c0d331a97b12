"""Where a training run stands, on disk: tensors in safetensors, facts in JSON; no pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rag_mt.errors import UserError
from rag_mt.paths import sync


def save_checkpoint(folder: Path, key: str, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Replace the checkpoint in `folder`; a kill leaves the old one or the new one.

    `key` names the settings of the run; `facts` travel in the header of the same file, so that both fit together.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "new.safetensors"
    flat = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(flat, new, {"key": key, "facts": json.dumps(facts)})
    sync(new)
    new.replace(folder / "checkpoint.safetensors")
    sync(folder)


def load_checkpoint(folder: Path, key: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Tensors and facts of the checkpoint in `folder`, None if there is none.

    Raises UserError if it was written with other settings.
    """
    path = folder / "checkpoint.safetensors"
    if not path.is_file():
        return None
    with safe_open(path, "pt") as file:
        head = file.metadata()
        if head.get("key") != key:
            raise UserError(
                f"{folder.parent} holds a run with other settings or data: give another --output, or remove {folder} "
                "to start again"
            )
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(head["facts"])  # noqa: SIM118
