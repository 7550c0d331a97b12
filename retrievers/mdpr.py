"""mDPR: a dual encoder for passage retrieval, with one encoder for queries and one for passages, or one for both.

A trained model is a folder that `python -m finetune.mdpr` writes: `mdpr.json` and, for each encoder, a folder with a
PEFT adapter or, if it was tuned as a whole, with the encoder itself. Any plain encoder is an untrained mDPR.

Source: Hu et al. (2023), Language Agnostic Multilingual Information Retrieval with Contrastive Learning, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from rag_mt.base.defaults import DEFAULT_PASSAGE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Floats, Kind, TokenStates
from rag_mt.models.trained import ModelSettings
from retrievers.encoders.encoder import Family, Pooling, TransformerEncoder, family_of, open_encoder


@dataclass(frozen=True)
class MdprSettings(ModelSettings):
    """What makes a dual encoder beside its weights. `encoder` names the base model. Texts are cut after `max_tokens`
    tokens and prefixes stand before every text. Token states are pooled and vectors L2-normalised, so that inner
    products are cosines."""

    FILE, KIND, COMMAND = "mdpr.json", "passage model", "python -m finetune.mdpr"

    shared: bool = True
    pooling: Pooling = "mean"
    query_prefix: str = ""
    passage_prefix: str = ""
    max_tokens: int = 512

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The names of the folders of the model's encoders; a shared one is called after passages."""
        return ("passage",) if self.shared else ("query", "passage")

    def family(self, base: Family) -> Family:
        """How the model makes vectors if its base model is of the family `base`, whose dense layers it keeps."""
        prefixes = {"query": self.query_prefix, "passage": self.passage_prefix}
        return replace(base, pooling=self.pooling, prefixes=prefixes, max_tokens=self.max_tokens)

    @staticmethod
    def of_family(encoder: str, base: Family, shared: bool) -> MdprSettings:
        """The settings of an untrained model with this encoder, which is of the family `base`."""
        prefixes = base.prefix("query"), base.prefix("passage")
        return MdprSettings(encoder, shared, base.pooling, *prefixes, base.max_tokens)


is_passage_model = MdprSettings.is_model
passage_model_folder = MdprSettings.folder


def open_mdpr(name: str = DEFAULT_PASSAGE_MODEL, device: str = "auto", dtype: str = "auto") -> DualEncoder:
    """The trained dual encoder of a name, or any plain encoder (hub id, folder, `embedded:NAME`) as an untrained one.
    Raises UserError for a model that cannot be loaded."""
    folder = MdprSettings.find(name)
    if folder is None:
        encoder = open_encoder(name, device, dtype)
        return DualEncoder(name, encoder, encoder)
    settings = MdprSettings.load(folder)
    encoders = []
    for kind in settings.kinds:
        if not (folder / kind).is_dir():
            raise UserError(f"the passage model {folder} lacks the folder {kind!r}: copy the whole folder again")
        loaded = settings.load_encoder(folder / kind, folder / kind, device, dtype)
        encoders.append(TransformerEncoder(loaded, settings.family(family_of(settings.encoder, loaded.folder))))
    return DualEncoder(name, encoders[0], encoders[-1])


class DualEncoder:
    """Queries and passages to vectors whose inner product is their cosine (the Encoder protocol). `query` and `passage`
    are the same object where one encoder serves for both."""

    def __init__(self, name: str, query: TransformerEncoder, passage: TransformerEncoder) -> None:
        self.id = name
        self.query, self.passage = query, passage
        self.shared = query is passage
        self.device = passage.device
        self.dimension, self.hidden, self.layers = passage.dimension, passage.hidden, passage.layers
        both = [query.fingerprint, passage.fingerprint]
        self.fingerprint = both[0] if self.shared else settings_hash(both)

    @property
    def dtype(self) -> torch.dtype:
        """The number format that both compute in."""
        return self.passage.dtype

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        """L2-normalised vectors, float32 (len(texts), dimension), in order, by the encoder of that kind."""
        return (self.query if kind == "query" else self.passage).encode(texts, kind)

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        """The passage encoder's hidden states of `layer` of each text, in order."""
        return self.passage.states(texts, layer)
