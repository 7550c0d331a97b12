"""Phrase models (CCPR, Li et al. 2024): a base encoder with two heads on the hidden states of a span's first and last
token, opened by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import PreTrainedTokenizerBase

from rag_mt.base.defaults import DEFAULT_PHRASE_MODEL
from rag_mt.base.files import remembered_sha256, settings_hash
from rag_mt.models.loading import LoadedEncoder
from rag_mt.models.trained import ModelSettings, save_head
from rag_mt.text.words import token_words, word_spans
from retrievers.encoders.encoder import BLANK, TransformerEncoder, batches, family_of, token_ids, visible_tokens

WEIGHTS = "heads.safetensors"
ENCODER = "encoder"
"""The folder of an encoder that was tuned as a whole; other models have an adapter for theirs."""


@dataclass(frozen=True)
class PhraseSettings(ModelSettings):
    """What makes a phrase model beside its weights.

    `encoder` names the base encoder, `layer` the hidden layer that the heads read (the layers above are not run),
    `dimension` the length of a phrase vector. `normalised` phrase vectors have length 1; otherwise they are the
    paper's, compared by inner product. `segment_width` is the hidden width of the segmentation head, 0 for the paper's
    single linear layer. Spans have up to `max_words` words. A span of the target text is indexed if its probability is
    above `index_threshold`, one of a source sentence is looked up if it is above `query_threshold` (0.9 in the paper's
    code; here a confidence model judges the hits afterwards, and 0.5 finds more: reports/segmentation-thresholds.md).
    """

    FILE, KIND, COMMAND = "ccpr.json", "phrase model", "python -m finetune.ccpr"

    layer: int
    hidden: int
    dimension: int = 128
    normalised: bool = True
    segment_width: int = 0
    max_words: int = 6
    prefix: str = ""
    index_threshold: float = 0.7
    query_threshold: float = 0.5


class PhraseHeads(nn.Module):
    """Phrase vectors and phrase probabilities from [h_start; h_end] (CCPR, equations 1 and 5). Both first layers are
    linear in the concatenation, so that each token is projected once, as a start and as an end, and a span costs one
    addition: `project` then `spans`."""

    def __init__(self, settings: PhraseSettings) -> None:
        super().__init__()
        self.settings = settings
        self.phrase = nn.Linear(2 * settings.hidden, settings.dimension)
        self.segment = nn.Linear(2 * settings.hidden, settings.segment_width or 1)
        self.decide = nn.Linear(settings.segment_width, 1) if settings.segment_width else None

    def weights(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight (dimension + segment width, 2 * hidden) and bias of both heads' first layers as one."""
        return torch.cat([self.phrase.weight, self.segment.weight]), torch.cat([self.phrase.bias, self.segment.bias])

    def project(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What each token adds as a start and as an end, from states (..., hidden): two float32 tensors (..., dimension
        + segment width) whose sum for a span's two tokens goes into `vectors` and `logits`."""
        weight, bias = self.weights()
        hidden = self.settings.hidden
        starts = nn.functional.linear(states.float(), weight[:, :hidden], bias)
        return starts, nn.functional.linear(states.float(), weight[:, hidden:])

    def vectors(self, spans: torch.Tensor) -> torch.Tensor:
        """Phrase vectors (spans, dimension) of projected spans (spans, dimension + segment width)."""
        vectors = spans[..., : self.settings.dimension]
        return nn.functional.normalize(vectors, dim=-1) if self.settings.normalised else vectors

    def logits(self, spans: torch.Tensor) -> torch.Tensor:
        """Log-odds of being a phrase, shape (spans,), of projected spans (spans, dimension + segment width)."""
        return self.decided(spans[..., self.settings.dimension :])

    def decided(self, hidden: torch.Tensor) -> torch.Tensor:
        """Log-odds of being a phrase of the last columns of projected spans (spans, segment width)."""
        if self.decide is None:
            return hidden.squeeze(-1)
        logits: torch.Tensor = self.decide(torch.relu(hidden)).squeeze(-1)
        return logits

    def save(self, folder: Path, dtype: torch.dtype = torch.float16) -> None:
        """Write settings and weights."""
        self.settings.save(folder)
        save_head(self, folder / WEIGHTS, dtype)

    @staticmethod
    def load(folder: Path) -> PhraseHeads:
        """Read settings and weights, in evaluation mode; raises UserError for what does not belong together."""
        heads = PhraseHeads(PhraseSettings.load(folder))
        heads.settings.load_head(heads, folder / WEIGHTS)
        return heads.eval()


@dataclass(frozen=True, slots=True)
class Tokenised:
    """A text as a model reads it: token `ids`, special ones included, the character spans of its `words` (words, 2),
    and the positions of each word's first and last token in `ids`, `bounds` (words, 2). Words without a token of their
    own, cut off or not known to the tokenizer, are left out."""

    ids: list[int]
    words: NDArray[np.int32]
    bounds: NDArray[np.int32]

    def first_token(self, starts: NDArray[np.int32]) -> NDArray[np.int32]:
        """Positions of the first tokens of the words that start at these characters, -1 where no word does."""
        return self._token_at(0, starts)

    def last_token(self, ends: NDArray[np.int32]) -> NDArray[np.int32]:
        """Positions of the last tokens of the words that end at these characters, -1 where no word does."""
        return self._token_at(1, ends)

    def _token_at(self, side: int, characters: NDArray[np.int32]) -> NDArray[np.int32]:
        edges = self.words[:, side]
        if not len(edges):
            return np.full(len(characters), -1, np.int32)
        at = np.minimum(np.searchsorted(edges, characters), len(edges) - 1)
        return np.where(edges[at] == characters, self.bounds[at, side], -1).astype(np.int32)


def tokenise(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], prefix: str = "", max_tokens: int = 512
) -> list[Tokenised]:
    """Every text with `prefix` before it, cut after `max_tokens` tokens."""
    ids, offsets, _ = token_ids(tokenizer, texts, prefix, max_tokens)
    return _tokenised(tokenizer, texts, ids, offsets, prefix)


def _tokenised(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    ids: Sequence[list[int]],
    offsets: Sequence[NDArray[np.int32]],
    prefix: str,
) -> list[Tokenised]:
    """The words of texts whose tokens are known, with their offsets (tokens, 2) into prefix + text."""
    blank = tokenizer.convert_tokens_to_ids(BLANK)
    tokenised = []
    for text, text_ids, text_offsets in zip(texts, ids, offsets, strict=True):
        positions, spans = visible_tokens(text, text_ids, text_offsets, len(prefix), blank)
        words = word_spans(text)
        bounds = token_words(spans, words)
        words, bounds = words[bounds[:, 0] >= 0], bounds[bounds[:, 0] >= 0]
        tokenised.append(Tokenised(text_ids, words, positions[bounds].astype(np.int32) if len(bounds) else bounds))
    return tokenised


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
        tokens = _tokenised(self.tokenizer, texts, ids, offsets, prefix)
        projected = []
        with torch.inference_mode(), self.autocast():  # one context, in which each weight is cast once
            for rows, input_ids, mask in batches(ids, self.tokenizer.pad_token_id or 0):
                (states,) = self._hidden(input_ids.to(self.device), mask.to(self.device), (self.heads.settings.layer,))
                with torch.autocast(self.device.type, enabled=False):
                    projected.append((rows, [tokens[r] for r in rows], *self.heads.project(states)))
        yield from projected
