"""XPR models: phrase vectors from example sentences, with a trained head or of an encoder as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import remembered_sha256, settings_hash
from rag_mt.base.types import Floats
from rag_mt.models.adapters import WEIGHTS as ADAPTER
from rag_mt.models.loading import LoadedEncoder, load_encoder
from rag_mt.models.weights import FOLDER as SHIPPED
from rag_mt.text.words import token_words
from retrievers.ccpr.heads import ENCODER
from retrievers.encoders.encoder import TransformerEncoder
from retrievers.encoders.families import Family, family_of
from retrievers.xpr.examples import Rows, Side
from retrievers.xpr.head import SETTINGS, WEIGHTS, XprHead, XprSettings

SENTENCES = 32
"""Example sentences of a phrase in a search (XPR, section 4.2)."""
BEST_LAYERS = {"embedded:e5-small": 11}
"""The layer of an untrained encoder whose mean states find most translations on development pairs (reports/xpr.md)."""
BLOCK = 4096
"""Examples whose sentences are encoded at once, and phrases that are projected at once."""


@dataclass
class Sums:
    """Sums of states over the examples of phrases: `sums` float32 (counts, layers, phrases, hidden) and the numbers of
    examples in them, `seen` float32 (counts, phrases), after the first `done` examples in the order of sentences."""

    sums: Floats
    seen: Floats
    done: int = 0

    @staticmethod
    def none(counts: int, layers: int, phrases: int, hidden: int) -> Sums:
        """Sums of nothing."""
        sums = np.zeros((counts, layers, phrases, hidden), dtype=np.float32)
        return Sums(sums, np.zeros((counts, phrases), dtype=np.float32))

    @property
    def means(self) -> Floats:
        """The means, of the shape of `sums`; zeros where nothing was seen."""
        made: Floats = (self.sums / np.maximum(self.seen, 1)[:, None, :, None]).astype(np.float32, copy=False)
        return made


def is_xpr_model(name: str) -> bool:
    """Whether `name` is that of a trained XPR model."""
    return _folder(name) is not None


def open_xpr(name: str, device: str = "auto", dtype: str = "auto") -> XprEncoder:
    """The trained model of a name, one that comes with rag_mt or a folder that `finetune.xpr` wrote; raises UserError
    if it or its base encoder cannot be loaded."""
    folder = _folder(name)
    if folder is None:
        ours = ", ".join(sorted(p.name for p in SHIPPED.iterdir() if p.is_dir())) if SHIPPED.is_dir() else ""
        raise UserError(
            f"{name!r} is no XPR model: give {ours or 'a model'} or a folder with {SETTINGS} (`python -m finetune.xpr` "
            "makes one)"
        )
    head = XprHead.load(folder)
    adapted = (folder / ADAPTER).is_file()
    base = head.settings.encoder if adapted else str(folder / ENCODER)
    loaded = load_encoder(base, device, dtype, adapter=str(folder) if adapted else None)
    weights = remembered_sha256(folder / WEIGHTS) if head.settings.head else ""
    return XprEncoder(name, loaded, head, weights)


def untrained_xpr(
    name: str = DEFAULT_ENCODER, layer: int | None = None, device: str = "auto", dtype: str = "auto"
) -> XprEncoder:
    """XPR with an encoder as it is (XPR, section 3.1): the mean states of a hidden layer, by default the one that
    aligns words best, where that was measured, or two thirds up. Raises UserError for a layer that it has not."""
    loaded = load_encoder(name, device, dtype)
    family = family_of(name, loaded.folder)
    depth = int(loaded.model.config.num_hidden_layers)
    if layer is None:
        layer = family.phrase_layer if family.phrase_layer is not None else round(depth * 2 / 3)
    if not 0 <= layer <= depth:
        raise UserError(f"layer {layer} of {name}: it has layers 0 to {depth}")
    settings = XprSettings(name, layer, int(loaded.model.config.hidden_size), head=False, prefix=family.prefix("query"))
    return XprEncoder(name, loaded, XprHead(settings).eval())


def _folder(name: str) -> Path | None:
    return next((f for f in (SHIPPED / name, Path(name).expanduser()) if (f / SETTINGS).is_file()), None)


class XprEncoder(TransformerEncoder):
    """Phrase vectors from the mean of a phrase's token states, averaged over its example sentences."""

    def __init__(self, name: str, loaded: LoadedEncoder, head: XprHead, head_hash: str = "") -> None:
        settings = head.settings
        family = family_of(settings.encoder, loaded.folder)
        prefixes = {"query": settings.prefix, "passage": settings.prefix}
        length = min(family.max_tokens, settings.max_tokens)
        super().__init__(loaded, Family("mean", prefixes, max_tokens=length, phrase_layer=settings.layer))
        self.id = name
        self.fingerprint = settings_hash([loaded.fingerprint, head_hash, asdict(settings)])
        self.settings = settings
        self.head = head.to(self.device)

    def example_states(self, texts: Sequence[str], spans: Rows, layers: Sequence[int]) -> Floats:
        """The mean of the states of each span's tokens (XPR, equation 2), float32 (layers, spans, hidden).

        `spans` int32 (spans, 3) are text number, start and end character, in any order; each text is encoded once. A
        span without tokens (beyond `max_tokens`) has zeros.
        """
        made = np.zeros((len(layers), len(spans), self.hidden), dtype=np.float32)
        order = np.argsort(spans[:, 0], kind="stable")
        bounds = np.searchsorted(spans[order, 0], np.arange(len(texts) + 1))
        wanted = np.flatnonzero(np.diff(bounds)).tolist()
        for number, states in zip(wanted, self.layer_states([texts[n] for n in wanted], layers), strict=True):
            rows = order[bounds[number] : bounds[number + 1]]
            tokens = token_words(states[0].offsets, spans[rows, 1:])
            seen = tokens[:, 0] >= 0
            first, last = tokens[seen, 0], tokens[seen, 1]
            for at, own in enumerate(states):
                sums = np.concatenate([np.zeros((1, self.hidden)), np.cumsum(own.states, axis=0, dtype=np.float64)])
                made[at, rows[seen]] = (sums[last + 1] - sums[first]) / (last - first + 1)[:, None]
        return made

    def side_states(self, side: Side, phrases: NDArray[np.integer[Any]], most: int, layers: Sequence[int]) -> Floats:
        """The mean of `example_states` over the first `most` examples of phrases of a side, (layers, phrases, hidden);
        each sentence is encoded once. Examples without tokens do not count."""
        made: Floats = self.side_states_by_count(side, phrases, (most,), layers)[0]
        return made

    def side_states_by_count(
        self, side: Side, phrases: NDArray[np.integer[Any]], counts: Sequence[int], layers: Sequence[int]
    ) -> Floats:
        """As `side_states` for several numbers of examples, (counts, layers, phrases, hidden), in one pass."""
        *_, made = self.growing_sums(side, phrases, counts, layers)
        return made.means

    def growing_sums(
        self,
        side: Side,
        phrases: NDArray[np.integer[Any]],
        counts: Sequence[int],
        layers: Sequence[int],
        begun: Sums | None = None,
    ) -> Iterator[Sums]:
        """The sums behind `side_states_by_count` as they grow, block of sentences by block, or from those that `begun`
        has: the same object each time, first before anything is added, last when all is."""
        examples = side.examples_of(phrases, max(counts))
        first = np.searchsorted(examples[:, 0], np.arange(len(phrases)))
        within = np.arange(len(examples)) - first[examples[:, 0]]
        by_sentence = np.argsort(examples[:, 1], kind="stable")  # so that a sentence is read once for all its phrases
        sentences = examples[by_sentence, 1]
        made = begun or Sums.none(len(counts), len(layers), len(phrases), self.hidden)
        yield made
        while made.done < len(examples):
            last = sentences[min(made.done + BLOCK, len(examples)) - 1]
            end = int(np.searchsorted(sentences, last, side="right"))
            rows = by_sentence[made.done : end]
            own, numbers = np.unique(examples[rows, 1], return_inverse=True)
            spans = np.concatenate([numbers[:, None].astype(np.int32), examples[rows, 2:]], axis=1)
            states = self.example_states(side.texts(own), spans, layers)
            there = states.any(axis=(0, 2))
            for at, count in enumerate(counts):
                used = np.flatnonzero(there & (within[rows] < count))
                owners = examples[rows[used], 0]
                np.add.at(made.seen[at], owners, 1)
                for layer in range(len(layers)):
                    np.add.at(made.sums[at, layer], owners, states[layer, used])
            made.done = end
            yield made

    def project(self, states: Floats) -> Floats:
        """Vectors of length 1, float32 (phrases, hidden), of mean states (phrases, hidden)."""
        made = np.empty((len(states), self.settings.hidden), dtype=np.float32)
        with torch.inference_mode():
            for begin in range(0, len(states), BLOCK):
                part = torch.from_numpy(np.ascontiguousarray(states[begin : begin + BLOCK])).to(self.device)
                made[begin : begin + BLOCK] = self.head(part).cpu().numpy()
        return made
