"""Models under test in phrase retrieval: untrained encoders, all layers in one pass, and trained phrase models."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Floats, Kind
from retrievers.ccpr.model import open_phrase_encoder
from retrievers.ccpr.retriever import CcprUnits
from retrievers.encoders.encoder import TransformerEncoder, open_encoder
from retrievers.units.unit import NgramUnits, default_layer, span_states

UNTRAINED = "untrained:"


@dataclass(frozen=True)
class Row:
    """A system of the table: a model, or one layer of an untrained encoder."""

    name: str
    fingerprint: str
    layer: int | None = None


class PhraseModel(Protocol):
    """Texts and spans to vectors, for one or several rows of the table in one pass over the text."""

    name: str
    rows: tuple[Row, ...]
    default: int  # the row that stands for the model where none was chosen on development data
    device: torch.device

    def span_vectors(self, texts: Sequence[str], spans: NDArray[np.int32], kind: Kind) -> Iterator[Floats]:
        """For each row the vectors (n, dimension) of spans, int32 (n, 3) text number, start, end."""
        ...


class UntrainedModel:
    """[h_start; h_end] of hidden layers of an encoder (a PhraseModel)."""

    def __init__(self, name: str, encoder: TransformerEncoder, layers: Sequence[int]) -> None:
        self.name, self.encoder, self.layers = name, encoder, tuple(layers)
        self.device = encoder.device
        self.rows = tuple(
            Row(f"{name}@{n}", settings_hash(dict(NgramUnits(encoder, n, max_words=0).settings)), n) for n in layers
        )
        usual = default_layer(encoder)
        self.default = self.layers.index(usual) if usual in self.layers else len(self.layers) - 1

    def span_vectors(self, texts: Sequence[str], spans: NDArray[np.int32], kind: Kind) -> Iterator[Floats]:
        """See `PhraseModel`."""
        made = list(self.encoder.layer_states(texts, self.layers))
        return (span_states([states[n] for states in made], spans) for n in range(len(self.layers)))


class TrainedModel:
    """A phrase model (a PhraseModel)."""

    default = 0

    def __init__(self, name: str, units: CcprUnits) -> None:
        self.name, self.units = name, units
        self.device: torch.device = units.encoder.device
        self.rows: tuple[Row, ...] = (
            Row(name, settings_hash([units.settings["units"], units.settings["fingerprint"]])),
        )

    def span_vectors(self, texts: Sequence[str], spans: NDArray[np.int32], kind: Kind) -> Iterator[Floats]:
        """See `PhraseModel`."""
        yield self.units.span_vectors(texts, spans)


def open_phrase_model(name: str, layers: str = "all", device: str = "auto", dtype: str = "auto") -> PhraseModel:
    """The model of a name: `untrained:ENCODER[@LAYER]`, or a phrase model's name or folder.

    `layers` (`all`, or numbers with commas) are those of an untrained encoder named without `@LAYER`.
    Raises UserError for what cannot be loaded and for layers that are not there.
    """
    if not name.startswith(UNTRAINED):
        return TrainedModel(name, CcprUnits(open_phrase_encoder(name, device, dtype)))
    match = re.fullmatch(r"(.+?)(?:@(\d+))?", name.removeprefix(UNTRAINED))
    if match is None:
        raise UserError(f"model {name!r} names no encoder: give {UNTRAINED}ENCODER or {UNTRAINED}ENCODER@LAYER")
    encoder = open_encoder(match[1], device, dtype)
    wanted = match[2] or layers
    if wanted != "all" and not re.fullmatch(r"\d+(,\d+)*", wanted):
        raise UserError(f"layers {wanted!r} are neither `all` nor numbers such as 6,7,12")
    numbers = range(encoder.layers + 1) if wanted == "all" else sorted(set(map(int, wanted.split(","))))
    if numbers[-1] > encoder.layers:
        raise UserError(f"{match[1]} has no layer {numbers[-1]}: choose among 0 to {encoder.layers}")
    return UntrainedModel(UNTRAINED + match[1], encoder, numbers)
