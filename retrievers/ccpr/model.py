"""Phrase models: a base encoder with an adapter and the two heads, opened by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace

import torch

from rag_mt.base.defaults import DEFAULT_PHRASE_MODEL
from rag_mt.base.fingerprints import remembered_sha256, settings_hash
from rag_mt.models.loading import LoadedEncoder
from retrievers.ccpr.heads import ENCODER, WEIGHTS, PhraseHeads, PhraseSettings
from retrievers.ccpr.tokens import Tokenised, tokenised
from retrievers.encoders.encoder import TransformerEncoder, batches
from retrievers.encoders.families import family_of

is_phrase_model = PhraseSettings.is_model
phrase_model_folder = PhraseSettings.folder


def open_phrase_encoder(name: str = DEFAULT_PHRASE_MODEL, device: str = "auto", dtype: str = "auto") -> PhraseEncoder:
    """The phrase model `name`; raises UserError if it or its base encoder cannot be loaded."""
    folder = phrase_model_folder(name)
    heads = PhraseHeads.load(folder)
    loaded = heads.settings.load_encoder(folder, folder / ENCODER, device, dtype)
    return PhraseEncoder(name, loaded, heads, remembered_sha256(folder / WEIGHTS))


class PhraseEncoder(TransformerEncoder):
    """An encoder whose hidden states are read by phrase heads."""

    def __init__(self, name: str, loaded: LoadedEncoder, heads: PhraseHeads, heads_hash: str) -> None:
        settings = heads.settings
        super().__init__(loaded, family_of(settings.encoder, loaded.folder).at_layer(settings.layer, settings.prefix))
        self.id = name
        # Thresholds choose spans and change no vector.
        for_vectors = asdict(replace(settings, index_threshold=0.0, query_threshold=0.0))
        self.fingerprint = settings_hash([loaded.fingerprint, heads_hash, for_vectors])
        self.heads = heads.to(self.device)

    def projected(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[list[int], list[Tokenised], torch.Tensor, torch.Tensor]]:
        """The texts in batches of similar length: their numbers, their tokens, and what each token adds to a span as
        its start and as its end (batch, tokens, dimension + segment width). Texts are cut after `max_tokens` tokens;
        how many were cut is logged."""
        prefix = self.heads.settings.prefix
        ids, offsets = self._tokens(texts, prefix)
        tokens = tokenised(self.tokenizer, texts, ids, offsets, prefix)
        projected = []
        with torch.inference_mode(), self.autocast():  # one context, in which each weight is cast once
            for rows, input_ids, mask in batches(ids, self.tokenizer.pad_token_id or 0):
                (states,) = self._hidden(input_ids.to(self.device), mask.to(self.device), (self.heads.settings.layer,))
                with torch.autocast(self.device.type, enabled=False):
                    projected.append((rows, [tokens[r] for r in rows], *self.heads.project(states)))
        yield from projected
