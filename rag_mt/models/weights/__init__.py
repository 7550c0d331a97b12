"""The weights that come with rag_mt: one folder each, all of them listed in `table.toml`.

The adapter of the embedded Gemma is a wheel of its own (`packaging/gemma`), and may be left out.
"""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

log = logging.getLogger("rag_mt")

FOLDER = Path(__file__).parent
TABLE = "table.toml"


@dataclass(frozen=True)
class ShippedModel:
    """A row of the table: what the model does, the name of its base model, its licence, its training data in a few
    words, and the sha256 of every file by its path in the model's folder."""

    job: str
    base: str
    licence: str
    trained_on: str
    sha256: Mapping[str, str]


@cache
def shipped_models() -> dict[str, ShippedModel]:
    """The models of the table by name, which is that of their folder in `FOLDER`."""
    rows = tomllib.loads((FOLDER / TABLE).read_text(encoding="utf-8"))
    return {name: ShippedModel(**row) for name, row in rows.items()}


def shipped_with(file: str) -> list[str]:
    """The names of the models that have this file: a kind of model is told by its settings file."""
    return [name for name, model in shipped_models().items() if file in model.sha256]


@cache
def tell_if_left_out(base: str) -> None:
    """Log, once, if the table has models on top of `base` and none of them is installed."""
    names = [name for name, model in shipped_models().items() if model.base == base]
    if names and not any((FOLDER / name).is_dir() for name in names):
        log.warning(
            "the adapter of %s is not installed, so that it translates untuned: install the wheel rag_mt_gemma of this "
            "version, which `make wheels` builds in the project's folder (Gemma Terms of Use)",
            base,
        )
