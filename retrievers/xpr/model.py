"""XPR models: phrase vectors from example sentences, with a trained head or of an encoder as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import remembered_sha256, settings_hash
from rag_mt.base.types import Floats
from rag_mt.models.loading import LoadedEncoder, load_encoder
from rag_mt.models.trained import ModelSettings, save_head
from rag_mt.text.words import token_words
from retrievers.ccpr.model import ENCODER
from retrievers.encoders.encoder import TransformerEncoder, family_of
from retrievers.units.unit import rows_by_text
from retrievers.xpr.examples import Numbers, Rows, Side

HEAD = "head.safetensors"
WIDER = 4
HeadOn = Literal["mean", "tokens"]
SENTENCES = 32
"""Number of example sentences of a phrase in a search (XPR, section 4.2)."""
BEST_LAYERS = {"embedded:e5-small": 11}
"""The layer of an untrained encoder whose mean states find most translations on development pairs (reports/xpr.md)."""
BLOCK = 16_384
"""Number of examples whose sentences are encoded at once, and of phrases that are projected at once."""


@dataclass(frozen=True)
class XprSettings(ModelSettings):
    """What makes an XPR model beside its weights.

    `encoder` names the base encoder and `layer` the hidden layer whose token states are averaged (the layers above are
    not run); `head` tells whether there is a projection head, and `head_on` whether it reads the mean over a phrase's
    tokens and sentences, as in the paper's text (section 3.2), or each token before the mean, as in the authors' code:
    not the same, since it is not linear. A model that does not say it has it on the mean. A sentence has up to
    `max_tokens` tokens; `sentences` is the number of example sentences that the model was trained with, 0 for phrases
    alone.
    """

    FILE, KIND, COMMAND = "xpr.json", "XPR model", "python -m finetune.xpr"

    layer: int
    hidden: int
    head: bool = True
    sentences: int = 4
    max_tokens: int = 128
    prefix: str = ""
    head_on: HeadOn = field(default_factory=lambda: "mean")

    def for_vectors(self) -> dict[str, Any]:
        """What changes the vectors. A head on the mean is not named: indexes are older than the choice."""
        settings = asdict(self)
        return settings if self.head_on == "tokens" else {k: v for k, v in settings.items() if k != "head_on"}


is_xpr_model = XprSettings.is_model


class XprHead(nn.Module):
    """Token states to the vector of a phrase: Linear(d, 4d), ReLU, Linear(4d, d), then length 1 (XPR, section 3.2).

        vector = head(mean of head(token states, tokens=True))

    The layers act in one of both calls, as `head_on` says. Without a projection head only the length is changed.
    """

    def __init__(self, settings: XprSettings) -> None:
        super().__init__()
        self.settings = settings
        size = settings.hidden
        layers = (nn.Linear(size, WIDER * size), nn.ReLU(), nn.Linear(WIDER * size, size)) if settings.head else ()
        self.layers = nn.Sequential(*layers)

    def forward(self, states: torch.Tensor, tokens: bool = False) -> torch.Tensor:
        """Vectors (phrases, hidden) of length 1 of means (phrases, hidden); zeros stay zeros without layers. With
        `tokens` what is averaged of token states (..., hidden), of any length."""
        states = states.float()
        if tokens == (self.settings.head_on == "tokens"):
            states = self.layers(states)
        return states if tokens else nn.functional.normalize(states, dim=-1)

    @torch.no_grad()
    def begin_as_identity(self) -> None:
        """Set the weights so that the head returns what it is given, x = relu(x) - relu(-x), with the other half of
        its hidden units free to learn: a short training need not first find again what the encoder knows."""
        if not self.settings.head:
            return
        first, last = self.layers[0], self.layers[-1]
        assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
        size = self.settings.hidden
        one = torch.eye(size)
        first.weight[: 2 * size] = torch.cat([one, -one])
        last.weight.zero_()
        last.weight[:, : 2 * size] = torch.cat([one, -one], dim=1)
        first.bias.zero_()
        last.bias.zero_()

    def save(self, folder: Path, dtype: torch.dtype = torch.float16) -> None:
        """Write settings and, if there is a head, weights."""
        self.settings.save(folder)
        if self.settings.head:
            save_head(self, folder / HEAD, dtype)


def open_xpr(name: str, device: str = "auto", dtype: str = "auto") -> XprEncoder:
    """The trained model `name`, one that ships or a folder that `finetune.xpr` wrote.

    Raises UserError if it or its base encoder cannot be loaded.
    """
    folder = XprSettings.folder(name)
    settings, path = XprSettings.load(folder), folder / HEAD
    head = XprHead(settings)
    if settings.head:
        settings.load_head(head, path)
    loaded = settings.load_encoder(folder, folder / ENCODER, device, dtype)
    return XprEncoder(name, loaded, head.eval(), remembered_sha256(path) if settings.head else "")


def untrained_xpr(
    name: str = DEFAULT_ENCODER, layer: int | None = None, device: str = "auto", dtype: str = "auto"
) -> XprEncoder:
    """XPR with an untrained encoder (XPR, section 3.1): the mean states of a hidden layer, by default the one that
    aligns words best, where that was measured, or two thirds up. Raises UserError if the encoder has no such layer."""
    loaded = load_encoder(name, device, dtype)
    family = family_of(name, loaded.folder)
    depth = int(loaded.model.config.num_hidden_layers)
    if layer is None:
        layer = family.phrase_layer if family.phrase_layer is not None else round(depth * 2 / 3)
    if not 0 <= layer <= depth:
        raise UserError(f"layer {layer} of {name}: it has layers 0 to {depth}")
    settings = XprSettings(name, layer, int(loaded.model.config.hidden_size), head=False, prefix=family.prefix("query"))
    return XprEncoder(name, loaded, XprHead(settings).eval())


class XprEncoder(TransformerEncoder):
    """Phrase vectors from the mean of a phrase's token states, averaged over its example sentences."""

    def __init__(self, name: str, loaded: LoadedEncoder, head: XprHead, head_hash: str = "") -> None:
        settings = head.settings
        family = family_of(settings.encoder, loaded.folder).at_layer(settings.layer, settings.prefix)
        super().__init__(loaded, replace(family, max_tokens=min(family.max_tokens, settings.max_tokens)))
        self.id = name
        self.fingerprint = settings_hash([loaded.fingerprint, head_hash, settings.for_vectors()])
        self.settings = settings
        self.head = head.to(self.device)

    def example_states(self, texts: Sequence[str], spans: Rows, layer: int) -> Floats:
        """The mean of the states of each span's tokens in a layer (XPR, equation 2), float32 (spans, hidden); of a head
        on tokens the mean of what it makes of them.

        `spans` int32 (spans, 3) are text number, start and end character, in any order; each text is encoded once. A
        span without tokens (beyond `max_tokens`) has zeros.
        """
        means = np.zeros((len(spans), self.hidden), dtype=np.float32)
        by_text = {number: rows for number, rows in enumerate(rows_by_text(spans, len(texts))) if len(rows)}
        for rows, text in zip(by_text.values(), self.states([texts[n] for n in by_text], layer), strict=True):
            tokens = token_words(text.offsets, spans[rows, 1:])
            seen = tokens[:, 0] >= 0
            first, last = tokens[seen, 0], tokens[seen, 1]
            states = self._of_tokens(text.states)
            sums = np.concatenate([np.zeros((1, self.hidden)), np.cumsum(states, axis=0, dtype=np.float64)])
            means[rows[seen]] = (sums[last + 1] - sums[first]) / (last - first + 1)[:, None]
        return means

    def _of_tokens(self, states: Floats) -> Floats:
        """What is averaged of token states (tokens, hidden)."""
        if self.settings.head_on == "mean":
            return states
        with torch.inference_mode():
            made: Floats = self.head(torch.from_numpy(states).to(self.device), tokens=True).cpu().numpy()
            return made

    def side_states(self, side: Side, phrases: Numbers, most: int, layer: int) -> Floats:
        """The mean of `example_states` over the first `most` examples of phrases of `side`, or of the phrases alone if
        that is 0, float32 (phrases, hidden). Each sentence is encoded once. Examples without tokens do not count; a
        phrase that has no others has zeros."""
        if not most:
            texts = [side.phrases[n] for n in phrases]
            spans = np.array([(n, 0, len(text)) for n, text in enumerate(texts)], np.int32).reshape(-1, 3)
            return self.example_states(texts, spans, layer)
        examples = side.examples_of(phrases, most)
        examples = examples[np.argsort(examples[:, 1], kind="stable")]  # a sentence is read once for all its phrases
        sums = np.zeros((len(phrases), self.hidden), np.float32)
        counts = np.zeros((len(phrases), 1), np.float32)
        begin = 0
        while begin < len(examples):
            # A block ends with the last example of a sentence.
            last = examples[min(begin + BLOCK, len(examples)) - 1, 1]
            end = int(np.searchsorted(examples[:, 1], last, side="right"))
            owners, sentences, *span = examples[begin:end].T
            block, numbers = np.unique(sentences, return_inverse=True)
            states = self.example_states(side.texts(block), np.stack([numbers, *span], axis=1).astype(np.int32), layer)
            seen = states.any(axis=1)
            np.add.at(sums, owners[seen], states[seen])
            np.add.at(counts, owners[seen], 1)
            begin = end
        sums /= np.maximum(counts, 1)
        return sums

    def project(self, states: Floats) -> Floats:
        """Vectors of length 1, float32 (phrases, hidden), of mean states (phrases, hidden)."""
        vectors = np.empty((len(states), self.settings.hidden), dtype=np.float32)
        with torch.inference_mode():
            for begin in range(0, len(states), BLOCK):
                part = torch.from_numpy(np.ascontiguousarray(states[begin : begin + BLOCK])).to(self.device)
                vectors[begin : begin + BLOCK] = self.head(part).cpu().numpy()
        return vectors
