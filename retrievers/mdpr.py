"""mDPR: a dual encoder for passages, one encoder for queries and one for passages, or one for both.

A trained model is a folder that `python -m finetune.mdpr` writes: `mdpr.json` and, for each encoder, a folder with a
PEFT adapter or, if it was tuned as a whole, with the encoder itself. Any plain encoder is an untrained mDPR.

Source: Hu et al. (2023), Language Agnostic Multilingual Information Retrieval with Contrastive Learning, section 2.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rag_mt.base.defaults import DEFAULT_PASSAGE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.types import Floats, Kind, TokenStates
from rag_mt.models.adapters import WEIGHTS as ADAPTER
from rag_mt.models.loading import load_encoder
from rag_mt.models.weights import FOLDER as SHIPPED
from retrievers.encoders.encoder import TransformerEncoder, open_encoder
from retrievers.encoders.families import Family, Pooling, family_of

SETTINGS = "mdpr.json"
SHARED: tuple[Kind, ...] = ("passage",)
SEPARATE: tuple[Kind, ...] = ("query", "passage")
"""The folders of the encoders of a model: the one for passages serves for queries too where it is the only one."""


@dataclass(frozen=True)
class MdprSettings:
    """What makes a dual encoder beside its weights.

    `encoder` names the base model; texts are cut at `max_tokens`, prefixes stand before every text, token states are
    pooled and the vectors L2-normalised, so that inner products are cosines.
    """

    encoder: str
    shared: bool = True
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 512

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The encoders that the model has."""
        return SHARED if self.shared else SEPARATE

    def family(self, base: Family) -> Family:
        """How vectors are made; a dense layer after pooling is that of the base model."""
        prefixes = {"query": self.query_prefix, "passage": self.passage_prefix}
        return replace(base, pooling=self.pooling, prefixes=prefixes, max_tokens=self.max_tokens)

    @staticmethod
    def of_family(encoder: str, base: Family, shared: bool) -> MdprSettings:
        """The settings that leave an encoder as it is."""
        prefixes = base.prefix("query"), base.prefix("passage")
        return MdprSettings(encoder, shared, base.pooling, *prefixes, base.max_tokens)

    def save(self, folder: Path) -> None:
        """Write `mdpr.json`."""
        (folder / SETTINGS).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @staticmethod
    def load(folder: Path) -> MdprSettings:
        """Read `mdpr.json`; raises UserError if it is of another make."""
        found: Mapping[str, Any] = read_json(folder / SETTINGS)
        known = {f.name for f in fields(MdprSettings)}
        if found.keys() != known:
            odd = ", ".join(sorted(found.keys() ^ known))
            raise UserError(f"{folder / SETTINGS} does not fit this version of rag_mt ({odd}): train the model again")
        return MdprSettings(**found)


def is_passage_model(name: str) -> bool:
    """Whether `name` is that of a trained dual encoder."""
    return _folder(name) is not None


def passage_model_folder(name: str) -> Path:
    """The folder of a trained dual encoder: one that comes with rag_mt, or one that `finetune.mdpr` wrote.

    Raises UserError for anything else.
    """
    if (found := _folder(name)) is not None:
        return found
    ours = ", ".join(sorted(p.name for p in SHIPPED.iterdir() if p.is_dir())) if SHIPPED.is_dir() else ""
    raise UserError(
        f"{name!r} is no passage model: give {ours or 'a model'} or a folder with {SETTINGS} "
        "(`python -m finetune.mdpr` makes one)"
    )


def _folder(name: str) -> Path | None:
    return next((f for f in (SHIPPED / name, Path(name).expanduser()) if (f / SETTINGS).is_file()), None)


def open_mdpr(name: str = DEFAULT_PASSAGE_MODEL, device: str = "auto", dtype: str = "auto") -> DualEncoder:
    """The trained dual encoder of a name, or any plain encoder (hub id, folder, `embedded:NAME`) as an untrained one.

    Raises UserError for a model that cannot be loaded.
    """
    folder = _folder(name)
    if folder is None:
        encoder = open_encoder(name, device, dtype)
        return DualEncoder(name, encoder, encoder)
    settings = MdprSettings.load(folder)
    opened = [_open_one(settings, folder, kind, device, dtype) for kind in settings.kinds]
    return DualEncoder(name, opened[0], opened[-1])


def _open_one(settings: MdprSettings, folder: Path, kind: Kind, device: str, dtype: str) -> TransformerEncoder:
    place = folder / kind
    if not place.is_dir():
        raise UserError(f"the passage model {folder} lacks the folder {kind!r}: copy the whole folder again")
    adapted = (place / ADAPTER).is_file()
    base = settings.encoder if adapted else str(place)
    loaded = load_encoder(base, device, dtype, adapter=str(place) if adapted else None)
    return TransformerEncoder(loaded, settings.family(family_of(settings.encoder, loaded.folder)))


class DualEncoder:
    """Queries and passages to vectors whose inner product is their cosine (the Encoder protocol).

    `query` and `passage` are the same object where one encoder serves for both.
    """

    def __init__(self, name: str, query: TransformerEncoder, passage: TransformerEncoder) -> None:
        self.id = name
        self.query, self.passage = query, passage
        self.shared = query is passage
        self.device, self.dtype = passage.device, passage.dtype
        self.dimension, self.hidden, self.layers = passage.dimension, passage.hidden, passage.layers
        prints = [query.fingerprint, passage.fingerprint]
        self.fingerprint = prints[0] if self.shared else settings_hash(prints)

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        """L2-normalised vectors, float32 (len(texts), dimension), in order, by the encoder of that kind."""
        return (self.query if kind == "query" else self.passage).encode(texts, kind)

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Vectors of queries, float32 (len(texts), dimension), L2-normalised."""
        return self.encode(texts, "query")

    def encode_passages(self, texts: Sequence[str]) -> Floats:
        """Vectors of passages, float32 (len(texts), dimension), L2-normalised."""
        return self.encode(texts, "passage")

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        """The passage encoder's hidden states of `layer` of each text, in order."""
        return self.passage.states(texts, layer)
