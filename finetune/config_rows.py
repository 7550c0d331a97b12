"""What is checked of the settings that several trainings share."""

from __future__ import annotations

from math import inf
from typing import Any

from rag_mt.toml_settings import Row, at_least, drop_row

LEAST_TOKENS = 8
"""Fewer tokens hold no words beside a prefix and the marks of beginning and end."""


def tuning_rows(model: Any) -> list[Row]:
    """How an encoder is tuned (see `finetune.trainable.Tuning`)."""
    return [
        *at_least(1, "model", model, "rank", "alpha"),
        *at_least(0, "model", model, "frozen_layers"),
        drop_row("model.lora_dropout", model.lora_dropout),
        drop_row("model.dropout", model.dropout or 0.0),
    ]


def token_rows(data: Any, *keys: str) -> list[Row]:
    """Where texts are cut."""
    return at_least(LEAST_TOKENS, "data", data, *keys)


def above_zero(training: Any, *keys: str) -> list[Row]:
    """Finite numbers of the optimisation that are more than 0; None, where it may be, fits."""
    found = {key: getattr(training, key) for key in keys}
    return [(f"training.{key}", v, v is None or 0 < v < inf, "a number above 0") for key, v in found.items()]
