"""Phrase models: a base encoder with an adapter and the two heads, opened by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import torch

from rag_mt.base.defaults import DEFAULT_PHRASE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import remembered_sha256, settings_hash
from rag_mt.models.adapters import WEIGHTS as ADAPTER
from rag_mt.models.loading import LoadedEncoder, load_encoder
from rag_mt.models.weights import FOLDER as SHIPPED
from retrievers.ccpr.heads import ENCODER, SETTINGS, WEIGHTS, PhraseHeads
from retrievers.ccpr.tokens import Tokenised, tokenised
from retrievers.encoders.encoder import TransformerEncoder, batches
from retrievers.encoders.families import Family, family_of


def phrase_model_folder(name: str) -> Path:
    """The folder of a phrase model: one that comes with rag_mt, or any folder that `finetune.ccpr` wrote.

    Raises UserError for anything else.
    """
    if (found := _folder(name)) is not None:
        return found
    ours = ", ".join(sorted(p.name for p in SHIPPED.iterdir() if p.is_dir())) if SHIPPED.is_dir() else ""
    raise UserError(
        f"{name!r} is no phrase model: give {ours or 'a model'} or a folder with {SETTINGS} (`python -m finetune.ccpr` "
        "makes one)"
    )


def is_phrase_model(name: str) -> bool:
    """Whether `name` is that of a phrase model."""
    return _folder(name) is not None


def _folder(name: str) -> Path | None:
    return next((f for f in (SHIPPED / name, Path(name).expanduser()) if (f / SETTINGS).is_file()), None)


def open_phrase_encoder(name: str = DEFAULT_PHRASE_MODEL, device: str = "auto", dtype: str = "auto") -> PhraseEncoder:
    """The phrase model of a name; raises UserError if it or its base encoder cannot be loaded."""
    folder = phrase_model_folder(name)
    heads = PhraseHeads.load(folder)
    adapted = (folder / ADAPTER).is_file()
    base = heads.settings.encoder if adapted else str(folder / ENCODER)
    loaded = load_encoder(base, device, dtype, adapter=str(folder) if adapted else None)
    return PhraseEncoder(name, loaded, heads, remembered_sha256(folder / WEIGHTS))


class PhraseEncoder(TransformerEncoder):
    """An encoder whose hidden states are read by phrase heads."""

    def __init__(self, name: str, loaded: LoadedEncoder, heads: PhraseHeads, heads_hash: str) -> None:
        settings = heads.settings
        family = family_of(settings.encoder, loaded.folder)
        prefixes = {"query": settings.prefix, "passage": settings.prefix}
        family = Family("mean", prefixes, max_tokens=family.max_tokens, phrase_layer=settings.layer)
        super().__init__(loaded, family)
        self.id = name
        # Thresholds choose spans and change no vector.
        shape = asdict(replace(settings, index_threshold=0.0, query_threshold=0.0))
        self.fingerprint = settings_hash([loaded.fingerprint, heads_hash, shape])
        self.heads = heads.to(self.device)

    def projected(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], list[Tokenised], torch.Tensor, torch.Tensor]]:
        """The texts in batches of similar length: their numbers, their tokens, and what each token adds to a span as
        its start and as its end (batch, tokens, dimension + segment width). Texts beyond `max_tokens` are cut; how many
        is logged."""
        prefix = self.heads.settings.prefix
        ids, offsets = self._tokens(texts, prefix)
        tokens = tokenised(self.tokenizer, texts, ids, offsets, prefix)
        made = []
        with torch.inference_mode(), self.autocast():  # one context, in which each weight is cast once
            for rows, input_ids, mask in batches(ids, self.tokenizer.pad_token_id or 0):
                (states,) = self._hidden(input_ids.to(self.device), mask.to(self.device), (self.heads.settings.layer,))
                with torch.autocast(self.device.type, enabled=False):
                    made.append((rows, [tokens[r] for r in rows], *self.heads.project(states)))
        yield from made
