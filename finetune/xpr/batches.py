"""Batches for XPR: phrase pairs of mixed languages with example sentences drawn for either side.

Everything that is drawn at random depends on the seed and on the step alone, so that a run can stop and go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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

Example = tuple[str, int, int]
"""A text, start and end of a phrase in it."""


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
        if len(self) < size:
            raise UserError(f"{len(self)} phrase pairs do not fill one batch of {size}: lower training.batch")
        epoch, place = divmod(number, len(self) // size)
        return self.rows[epoch_order(len(self), epoch, seed)[place * size : (place + 1) * size]]


@dataclass
class Collator:
    """Phrase pairs to batches: `sentences` examples a phrase (0: the phrase alone), each of at most `max_chars`
    characters and `max_tokens` tokens."""

    tokenizer: PreTrainedTokenizerBase
    prefix: str
    sentences: int
    max_chars: int
    max_tokens: int
    chunks: int

    def __call__(self, sides: Sequence[tuple[Side, Side]], pairs: Rows, rng: np.random.Generator | None) -> XprBatch:
        """The batch of `pairs` (pairs, 3) number in `sides`, source phrase, target phrase. Examples are drawn without
        repetition, a phrase that has fewer gives all; without `rng` they are the first ones."""
        examples, owners, surfaces = list[Example](), list[int](), list[int]()
        for side in (0, 1):
            for number, *phrases in pairs.tolist():
                drawn = self._drawn(sides[number][side], phrases[side], rng)
                examples += (window(*example, self.max_chars) for example in drawn)
                owners += [len(surfaces)] * len(drawn)
                surfaces.append(surface_hash(sides[number][side].phrases[phrases[side]]))
        ids, places = self._whole_phrases(examples)
        seen = [n for n in range(len(examples)) if places[n, 0] >= 0]
        if not seen:
            raise UserError(f"no phrase of a batch is seen in data.max_tokens = {self.max_tokens}: give more")
        by_length = np.array(sorted(seen, key=lambda n: len(ids[n])))
        owner_of = torch.tensor(owners)
        chunks = []
        for rows in np.array_split(by_length, min(self.chunks, len(seen))):
            tokens, mask = map(torch.from_numpy, padded([ids[n] for n in rows], int(self.tokenizer.pad_token_id or 0)))
            chunks.append(Chunk(tokens, mask, torch.from_numpy(places[rows]), owner_of[rows]))
        counts = torch.bincount(owner_of[seen], minlength=2 * len(pairs))
        lost = (counts.reshape(2, -1) == 0).any(0).repeat(2)
        return XprBatch(tuple(chunks), torch.tensor(surfaces).masked_fill(lost, LEFT_OUT), counts)

    def _drawn(self, side: Side, phrase: int, rng: np.random.Generator | None) -> list[Example]:
        if not self.sentences:
            return [(side.phrases[phrase], 0, len(side.phrases[phrase]))]
        first, end = side.bounds[phrase : phrase + 2].tolist()
        count = min(self.sentences, end - first)
        chosen = np.arange(count) if rng is None else rng.choice(end - first, count, replace=False)
        rows = side.examples[first + chosen]
        return [(text, *span) for text, span in zip(side.texts(rows[:, 1]), rows[:, 2:].tolist(), strict=True)]

    def _whole_phrases(self, examples: list[Example]) -> tuple[list[list[int]], NDArray[np.int64]]:
        """As `_tokens`; where a phrase was cut off, of half as much text around it, until it is whole or alone."""
        ids, places, cut = self._tokens(examples)
        examples, room = list(examples), self.max_chars
        while again := [n for n in np.flatnonzero(cut) if len(examples[n][0]) > examples[n][2] - examples[n][1]]:
            room //= 2
            for n in again:
                examples[n] = window(*examples[n], room)
            new_ids, places[again], cut[again] = self._tokens([examples[n] for n in again])
            for n, own in zip(again, new_ids, strict=True):
                ids[n] = own
        return ids, places

    def _tokens(self, examples: Sequence[Example]) -> tuple[list[list[int]], NDArray[np.int64], NDArray[np.bool_]]:
        """Token ids; first and last token of each phrase (examples, 2), -1 where there is none; and whether the phrase
        was cut off, in part at least."""
        batch = self.tokenizer(
            [self.prefix + text for text, _, _ in examples],
            truncation=True,
            max_length=self.max_tokens,
            return_offsets_mapping=True,
        )
        ids: list[list[int]] = batch["input_ids"]
        blank = self.tokenizer.convert_tokens_to_ids("\u2581")  # alone it has the offsets of the character behind it
        places = np.full((len(examples), 2), -1, dtype=np.int64)
        cut = np.zeros(len(examples), dtype=bool)
        for number, ((text, *span), offsets) in enumerate(zip(examples, batch["offset_mapping"], strict=True)):
            inside = trim(text, np.array(offsets, dtype=np.int32).reshape(-1, 2), len(self.prefix))
            tokens = np.flatnonzero((inside[:, 1] > inside[:, 0]) & (np.array(ids[number]) != blank))
            ends = token_words(inside[tokens], np.array([span], dtype=np.int32))[0]
            if ends[0] >= 0:
                places[number] = tokens[ends]
            cut[number] = len(ids[number]) >= self.max_tokens and inside[tokens, 1].max(initial=0) < span[1]
        return ids, places, cut
