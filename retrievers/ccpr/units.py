"""Phrases of texts for the index and for queries: all spans scored at once, the likely ones kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Floats, Kind, Unit
from retrievers.ccpr.model import PhraseEncoder
from retrievers.ccpr.tokens import Tokenised
from retrievers.units.phrases import ngrams
from retrievers.units.unit import QUERY_THRESHOLD

Rows = NDArray[np.int32]


class CcprUnits:
    """The spans of whole words that the segmentation head takes for phrases (a UnitMaker; CCPR, section 5.2).

    A span has up to `max_words` words, at least one letter, and a probability above the threshold of its kind:
    `index_threshold` for text of the index ("passage"), `query_threshold` for sentences to translate ("query").
    Vectors are those of the phrase head, length 1 if the model is a normalised one.
    """

    unit: Unit = "phrase"
    block = 256

    def __init__(
        self, encoder: Encoder, index_threshold: float | None = None, query_threshold: float | None = None
    ) -> None:
        if not isinstance(encoder, PhraseEncoder):
            raise UserError(
                f"the encoder {encoder.id} has no phrase heads: give a phrase model such as ccpr-e5-small, or use "
                "--retriever phrases"
            )
        self.encoder = encoder
        own = encoder.heads.settings
        self.thresholds: Mapping[Kind, float] = {
            "passage": own.index_threshold if index_threshold is None else index_threshold,
            "query": own.query_threshold if query_threshold is None else query_threshold,
        }
        self.dimension = own.dimension
        self.settings: Mapping[str, Any] = {
            "units": "ccpr",
            "encoder": encoder.id,
            "fingerprint": encoder.fingerprint,
            "index_threshold": self.thresholds["passage"],
            QUERY_THRESHOLD: self.thresholds["query"],
            **({} if own.normalised else {"normalised": False}),
        }

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, Rows]:
        """Vectors (units, dimension) and int32 (units, 3) text number, start, end, ordered by all three."""
        vectors, spans, _ = self.scored(texts, self.thresholds[kind])
        return vectors, spans

    def scored(self, texts: Sequence[str], threshold: float) -> tuple[Floats, Rows, Floats]:
        """As `units`, with the probability of each unit (units,)."""
        heads = self.encoder.heads
        vectors, spans, chances = [np.zeros((0, self.dimension), np.float32)], [np.zeros((0, 3), np.int32)], []
        chances.append(np.zeros(0, np.float32))
        for words, first, last, starts, ends in self._candidates(texts):
            size = self.dimension
            with torch.inference_mode():
                mixed = starts[:, size:][first] + ends[:, size:][last]
                chance = torch.sigmoid(heads.decided(mixed))
                kept = torch.nonzero(chance > threshold).squeeze(1)
                begin, end = first[kept], last[kept]
                vectors.append(heads.vectors(starts[begin, :size] + ends[end, :size]).cpu().numpy())
            a, b = begin.cpu().numpy(), end.cpu().numpy()
            spans.append(np.stack([words[a, 0], words[a, 1], words[b, 2]], axis=1))
            chances.append(chance[kept].cpu().numpy())
        rows = np.concatenate(spans)
        order = np.lexsort((rows[:, 2], rows[:, 1], rows[:, 0]))
        return np.concatenate(vectors)[order], rows[order], np.concatenate(chances)[order]

    def span_vectors(self, texts: Sequence[str], spans: Rows, kind: Kind = "query") -> Floats:
        """Vectors (spans, dimension) of given spans of whole words, int32 (spans, 3) text number, start, end.

        A span whose words the model does not see (cut off, unknown to the tokenizer) has a vector of zeros.
        """
        made = np.zeros((len(spans), self.dimension), dtype=np.float32)
        order = np.argsort(spans[:, 0], kind="stable")
        bounds = np.searchsorted(spans[order, 0], np.arange(len(texts) + 1))
        for rows, tokens, starts, ends in self.encoder.projected(texts):
            for at, (row, own) in enumerate(zip(rows, tokens, strict=True)):
                mine = order[bounds[row] : bounds[row + 1]]
                a, b = own.first_token(spans[mine, 1]), own.last_token(spans[mine, 2])
                seen = np.flatnonzero((a >= 0) & (b >= 0))
                if len(seen):
                    mixed = starts[at, a[seen].astype(np.int64)] + ends[at, b[seen].astype(np.int64)]
                    with torch.inference_mode():
                        made[mine[seen]] = self.encoder.heads.vectors(mixed).cpu().numpy()
        return made

    def _candidates(
        self, texts: Sequence[str]
    ) -> Iterator[tuple[Rows, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Per batch: its words (words, 3) text number, start, end; first and last word of every n-gram; and what each
        word adds to a span as its first and as its last one (words, dimension + segment width)."""
        longest = self.encoder.heads.settings.max_words
        for rows, tokens, starts, ends in self.encoder.projected(texts):
            counts = [len(t.words) for t in tokens]
            words = np.concatenate([t.words for t in tokens])
            bounds = np.concatenate([t.bounds for t in tokens]).astype(np.int64)
            batch = np.repeat(np.arange(len(rows)), counts)
            lettered = _lettered([texts[r] for r in rows], tokens)
            first, last = ngrams(batch.astype(np.int32), lettered, longest)
            at = torch.from_numpy(batch).to(starts.device)
            places = torch.from_numpy(bounds).to(starts.device)
            yield (
                np.concatenate([np.array(rows, np.int32)[batch, None], words], axis=1),
                torch.from_numpy(first).to(starts.device),
                torch.from_numpy(last).to(starts.device),
                starts[at, places[:, 0]],
                ends[at, places[:, 1]],
            )


def _lettered(texts: Sequence[str], tokens: Sequence[Tokenised]) -> NDArray[np.bool_]:
    """Whether each word of the texts has a letter."""
    found = [np.zeros(0, bool)]
    for text, own in zip(texts, tokens, strict=True):
        letters = np.concatenate([[0], np.cumsum(np.fromiter(map(str.isalpha, text), bool, len(text)))])
        found.append(letters[own.words[:, 1]] > letters[own.words[:, 0]])
    return np.concatenate(found)
