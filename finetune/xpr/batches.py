"""Batches for XPR: phrase pairs of mixed languages with example sentences drawn for either side.

Everything that is drawn at random depends on the seed and on the step alone, so that a run can stop and go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from finetune.ccpr.batches import surface_hash
from finetune.losses.phrases import LEFT_OUT
from finetune.training.sampling import epoch_order
from finetune.xpr.sentences import window
from rag_mt.base.errors import UserError
from rag_mt.text.words import token_words
from retrievers.encoders.encoder import padded, trim
from retrievers.xpr.examples import Rows, Side, open_examples


@dataclass(frozen=True)
class Chunk:
    """Sentences of similar length: token ids and mask (sentences, tokens); first and last token of the phrase in each
    (sentences, 2); and the number of each phrase in the batch (sentences,)."""

    input_ids: torch.Tensor
    mask: torch.Tensor
    places: torch.Tensor
    owners: torch.Tensor


@dataclass(frozen=True)
class XprBatch:
    """`chunks` hold the example sentences of the phrases of a batch, the sources (numbers 0 to pairs - 1) and the
    targets (pairs to 2 * pairs - 1); `surfaces` int64 (2 * pairs,) are hashes of what the phrases say, `LEFT_OUT` for
    both phrases of a pair of which one has no sentence left; `counts` (2 * pairs,) their numbers of sentences."""

    chunks: tuple[Chunk, ...]
    surfaces: torch.Tensor
    counts: torch.Tensor


class XprPool:
    """The training pairs of several sets: int32 (pairs, 3) number of the set, source phrase, target phrase."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.sets = [open_examples(folder) for folder in folders]
        parts = [np.insert(own.pairs("train"), 0, number, axis=1) for number, own in enumerate(self.sets)]
        self.rows: Rows = np.concatenate(parts)

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, number: int, size: int, seed: int) -> Rows:
        """The rows of batch `number` of `size` pairs: every epoch has its own random order, and its last pairs, which
        fill no batch, are left out. Raises UserError for fewer pairs than one batch."""
        a_round = len(self) // size
        if not a_round:
            raise UserError(f"{len(self)} phrase pairs do not fill one batch of {size}: lower training.batch")
        epoch, place = divmod(number, a_round)
        order = epoch_order(len(self), epoch, seed)
        return self.rows[order[place * size : (place + 1) * size]]

    def facts(self) -> list[dict[str, Any]]:
        """What each set was made of, for the record."""
        return [{"name": own.name, **{k: own.manifest[k] for k in ("statistics", "files")}} for own in self.sets]


class Collator:
    """Phrase pairs to batches: `sentences` examples a phrase (0: the phrase alone), each of at most `max_chars`
    characters and `max_tokens` tokens."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prefix: str,
        sentences: int,
        max_chars: int,
        max_tokens: int,
        chunks: int,
    ) -> None:
        self.tokenizer, self.prefix = tokenizer, prefix
        self.sentences, self.max_chars, self.max_tokens, self.chunks = sentences, max_chars, max_tokens, chunks
        self._blank = tokenizer.convert_tokens_to_ids("\u2581")  # alone it has the offsets of the character behind it

    def __call__(self, sides: Sequence[tuple[Side, Side]], pairs: Rows, rng: np.random.Generator | None) -> XprBatch:
        """The batch of `pairs` (pairs, 3) number in `sides`, source phrase, target phrase. Examples are drawn without
        repetition, a phrase that has fewer gives all; without `rng` they are the first ones."""
        texts, spans, owners, surfaces = list[str](), list[tuple[int, int]](), list[int](), list[int]()
        for which in (0, 1):
            for number, row in enumerate(pairs.tolist()):
                side, phrase = sides[row[0]][which], row[1 + which]
                surfaces.append(surface_hash(side.phrases[phrase]))
                for text, start, end in self._examples(side, phrase, rng):
                    cut, first, last = window(text, start, end, self.max_chars)
                    texts.append(cut)
                    spans.append((first, last))
                    owners.append(which * len(pairs) + number)
        ids, places = self._whole_phrases(texts, spans)
        seen = [n for n in range(len(texts)) if places[n, 0] >= 0]
        if not seen:
            raise UserError(f"no phrase of a batch is seen in data.max_tokens = {self.max_tokens}: give more")
        order = sorted(seen, key=lambda n: len(ids[n]))
        made = []
        for part in np.array_split(np.array(order), min(self.chunks, len(order))):
            rows, mask = padded([ids[n] for n in part], int(self.tokenizer.pad_token_id or 0))
            made.append(
                Chunk(
                    torch.from_numpy(rows),
                    torch.from_numpy(mask),
                    torch.from_numpy(places[part]),
                    torch.tensor([owners[n] for n in part]),
                )
            )
        counts = torch.bincount(torch.tensor([owners[n] for n in seen]), minlength=2 * len(pairs))
        lost = (counts.reshape(2, -1) == 0).any(0).repeat(2)
        return XprBatch(tuple(made), torch.tensor(surfaces).masked_fill(lost, LEFT_OUT), counts)

    def _examples(self, side: Side, phrase: int, rng: np.random.Generator | None) -> list[tuple[str, int, int]]:
        if not self.sentences:
            return [(side.phrases[phrase], 0, len(side.phrases[phrase]))]
        first, end = side.bounds[phrase : phrase + 2].tolist()
        count = min(self.sentences, end - first)
        chosen = np.arange(count) if rng is None else rng.choice(end - first, count, replace=False)
        rows = side.examples[first + chosen]
        return [
            (text, start, stop)
            for text, (start, stop) in zip(side.texts(rows[:, 1]), rows[:, 2:].tolist(), strict=True)
        ]

    def _whole_phrases(
        self, texts: list[str], spans: list[tuple[int, int]]
    ) -> tuple[list[list[int]], NDArray[np.int64]]:
        """As `_tokens`; where a phrase was cut off, of half as much text around it, until it is whole or alone. Both
        lists are changed so."""
        ids, places, cut = self._tokens(texts, spans)
        room = self.max_chars
        while len(again := [n for n in np.flatnonzero(cut) if len(texts[n]) > spans[n][1] - spans[n][0]]):
            room //= 2
            for n in again:
                texts[n], *span = window(texts[n], *spans[n], room)
                spans[n] = (span[0], span[1])
            found = self._tokens([texts[n] for n in again], [spans[n] for n in again])
            for n, own in zip(again, found[0], strict=True):
                ids[n] = own
            places[again], cut[again] = found[1:]
        return ids, places

    def _tokens(
        self, texts: Sequence[str], spans: Sequence[tuple[int, int]]
    ) -> tuple[list[list[int]], NDArray[np.int64], NDArray[np.bool_]]:
        """Token ids; first and last token of each phrase (texts, 2), -1 where there is none; and whether the phrase was
        cut off, in part at least."""
        batch = self.tokenizer(
            [self.prefix + text for text in texts],
            truncation=True,
            max_length=self.max_tokens,
            return_offsets_mapping=True,
        )
        ids: list[list[int]] = batch["input_ids"]
        places = np.full((len(texts), 2), -1, dtype=np.int64)
        cut = np.zeros(len(texts), dtype=bool)
        for number, (text, span, offsets) in enumerate(zip(texts, spans, batch["offset_mapping"], strict=True)):
            own = trim(text, np.array(offsets, dtype=np.int32).reshape(-1, 2), len(self.prefix))
            kept = np.flatnonzero((own[:, 1] > own[:, 0]) & (np.array(ids[number]) != self._blank))
            found = token_words(own[kept], np.array([span], dtype=np.int32))[0]
            if found[0] >= 0:
                places[number] = kept[found]
            cut[number] = len(ids[number]) >= self.max_tokens and own[kept, 1].max(initial=0) < span[1]
        return ids, places, cut
