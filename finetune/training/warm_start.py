"""Training an adapter further: its weights, and the course of the training that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peft import set_peft_model_state_dict
from safetensors.torch import load_file

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, read_json
from rag_mt.models.adapters import TRAINING, WEIGHTS, seen_before
from retrievers.ccpr.model import WEIGHTS as HEADS
from retrievers.ccpr.model import PhraseHeads, phrase_model_folder


def start_from(name: str, encoder: Any, heads: PhraseHeads) -> dict[str, Any]:
    """Give `encoder` (with a LoRA adapter) and `heads` the weights of a phrase model; returns its `training.json` and
    the hash of its weights.

    Raises UserError for a model of another shape, or one that was tuned as a whole.
    """
    folder = phrase_model_folder(name)
    unfit = f"model.start {name!r} does not fit these settings: give its encoder, layer, rank and heads, tuning 'lora'"
    if not (folder / WEIGHTS).is_file() or not hasattr(encoder, "peft_config"):
        raise UserError(unfit)
    try:
        fits = fits_adapter(encoder, load_file(folder / WEIGHTS))
        heads.load_state_dict(PhraseHeads.load(folder).state_dict())
    except RuntimeError as error:
        raise UserError(unfit) from error
    if not fits:
        raise UserError(unfit)
    before: dict[str, Any] = read_json(folder / TRAINING) if (folder / TRAINING).is_file() else {}
    before.pop("pairs", None)  # the data of both runs stand in the new file
    return {"weights": [file_sha256(folder / file)[:16] for file in (WEIGHTS, HEADS)], **before}


def fits_adapter(model: Any, weights: Mapping[str, torch.Tensor]) -> bool:
    """Give the LoRA adapter on `model` these weights (in any number format); whether they are all that it has and no
    more, in the same shapes."""
    try:
        found: Any = set_peft_model_state_dict(model, {name: tensor.float() for name, tensor in weights.items()})
    except RuntimeError:
        return False
    return not found.unexpected_keys and not any("lora_" in key for key in found.missing_keys)


def continued(before: Mapping[str, Any] | None, curve: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The points of a run and of those it started from, one from the other, with the sentence pairs of all counted."""
    if before is None:
        return list(curve)
    seen, _ = seen_before(before)
    earlier = continued(before.get("started_from"), before.get("curve", []))
    return [*earlier, *({**point, "pairs": point["pairs"] + seen} for point in curve)]
