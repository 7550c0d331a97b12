"""Batches for phrase retrieval: sentence pairs of mixed languages with phrase pairs and spans that are no phrases.

Everything that is drawn at random depends on the seed and on the step alone, so that a run can stop and go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from finetune.training.sampling import weighted_order
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.text.words import surface
from retrievers.ccpr.model import Tokenised, tokenise
from retrievers.encoders.encoder import padded
from retrievers.units.unit import ngrams

BATCHES_PER_POOL = 64
"""Batches whose sentences are sorted by length among each other."""


@dataclass(frozen=True)
class Spans:
    """Spans of a batch: int64 (spans, 3) row in the batch, first and last token; hashes of their surfaces (spans,)."""

    places: torch.Tensor
    surfaces: torch.Tensor

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True)
class PhraseBatch:
    """Token ids and mask (2 * pairs of sentences, tokens), sources first; aligned phrases of both sides, row by row;
    and spans of both sides that are no phrases."""

    input_ids: torch.Tensor
    mask: torch.Tensor
    source: Spans
    target: Spans
    source_others: Spans
    target_others: Spans


class PhrasePool:
    """The sentence pairs of phrase-pair folders (see `eval.data.phrase_pairs`), memory-mapped."""

    def __init__(self, folders: Sequence[Path]) -> None:
        tables = []
        for folder in folders:
            shards = sorted(folder.glob("pairs-*.arrow"))
            if not shards:
                raise UserError(
                    f"there are no phrase pairs in {folder}: make them with `python -m finetune.ccpr.pairs`"
                )
            for shard in shards:
                table = pa.ipc.open_file(pa.memory_map(str(shard))).read_all()
                tables.append(
                    table.select(["domain", "source", "target", "spans"])
                    .set_column(0, "domain", table["domain"].cast(pa.string()))
                    .append_column("pair", pa.array([folder.name] * len(table), pa.string()))
                )
        self.table = pa.concat_tables(tables)
        self.facts = {f.name: read_json(f / "manifest.json") for f in folders if (f / "manifest.json").is_file()}
        lengths = pc.list_value_length(self.table["spans"]).to_numpy()
        self.usable = np.flatnonzero(lengths >= 4)

    def __len__(self) -> int:
        return len(self.usable)

    def order(self, seed: int, domain_weights: Mapping[str, float], language_power: float) -> NDArray[np.int64]:
        """The rows in the order of training (see `weighted_order`).

        A row's weight is that of its domain (1 if none is given, left out if 0) times its language pair's weighted
        size to the power of `language_power` - 1: 1 takes languages as they come, 0 all alike.
        """
        domains = self.table["domain"].to_numpy()[self.usable]
        pairs = self.table["pair"].to_numpy()[self.usable]
        names, numbers = np.unique(domains, return_inverse=True)
        weights = np.array([domain_weights.get(name, 1.0) for name in names], dtype=np.float64)[numbers]
        languages, numbers = np.unique(pairs, return_inverse=True)
        sizes = np.bincount(numbers, weights=weights, minlength=len(languages))
        weights *= np.maximum(sizes, 1e-9)[numbers] ** (language_power - 1)
        found: NDArray[np.int64] = self.usable[weighted_order(weights, seed)]
        return found

    def lengths(self) -> NDArray[np.int64]:
        """Characters of the longer side of every row, for batches of similar length."""
        longer: NDArray[np.int64] = np.maximum(
            *(pc.utf8_length(self.table[side]).to_numpy().astype(np.int64) for side in ("source", "target"))
        )
        return longer

    def rows(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """The rows of these numbers: `source`, `target`, `spans` (flat), `domain`, `pair`."""
        return [self.table.slice(n, 1).to_pylist()[0] for n in numbers]


def batches_of(order: NDArray[np.int64], lengths: NDArray[np.int64], size: int, seed: int) -> list[NDArray[np.int64]]:
    """`order` cut into batches of `size` rows of similar length; the last rows that fill no batch are left out.

    Rows stay within their pool of 64 batches, so that early batches hold early rows.
    """
    batches = []
    rng = np.random.default_rng([seed, 1])
    for begin in range(0, len(order), size * BATCHES_PER_POOL):
        pool = order[begin : begin + size * BATCHES_PER_POOL]
        pool = pool[np.argsort(lengths[pool], kind="stable")]
        own = [pool[at : at + size] for at in range(0, len(pool) - size + 1, size)]
        batches += [own[i] for i in rng.permutation(len(own))]
    return batches


def surface_hash(text: str) -> int:
    """A signed 64-bit hash of the surface of a phrase."""
    return int.from_bytes(hashlib.blake2b(surface(text).encode(), digest_size=8).digest(), signed=True)


class Collator:
    """Rows to a PhraseBatch."""

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, prefix: str, max_tokens: int, max_words: int, per_sentence: int
    ) -> None:
        self.tokenizer, self.prefix, self.max_tokens = tokenizer, prefix, max_tokens
        self.max_words, self.per_sentence = max_words, per_sentence

    def __call__(self, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> PhraseBatch:
        """At most `per_sentence` phrase pairs of each row, drawn at random, and as many spans of each side that are no
        phrases (Li et al. 2020's balance), where there are so many."""
        texts = [row["source"] for row in rows] + [row["target"] for row in rows]
        tokens = tokenise(self.tokenizer, texts, self.prefix, self.max_tokens)
        ids, mask = padded([t.ids for t in tokens], self.tokenizer.pad_token_id or 0)
        made: list[list[tuple[int, int, int, int]]] = [[], [], [], []]  # source, target, source and target others
        for number, row in enumerate(rows):
            spans = np.array(row["spans"], dtype=np.int32).reshape(-1, 4)
            sides = (number, number + len(rows))
            found = np.concatenate([_found(tokens[s], spans[:, 2 * i : 2 * i + 2]) for i, s in enumerate(sides)], 1)
            whole = (found >= 0).all(1)
            spans, found = spans[whole], found[whole]
            chosen = rng.permutation(len(spans))[: self.per_sentence]
            for i, s in enumerate(sides):
                own, places = spans[:, 2 * i : 2 * i + 2], found[:, 2 * i : 2 * i + 2]
                made[i] += [
                    (s, *places[c].tolist(), surface_hash(texts[s][own[c, 0] : own[c, 1]])) for c in chosen.tolist()
                ]
                phrases = row.get(("source_phrases", "target_phrases")[i])  # where `spans` are not all of them
                known = own if phrases is None else np.array(phrases, dtype=np.int32).reshape(-1, 2)
                others = self._others(tokens[s], known, len(chosen), rng)
                made[2 + i] += [(s, a, b, surface_hash(texts[s][x:y])) for a, b, x, y in others]
        return PhraseBatch(torch.from_numpy(ids), torch.from_numpy(mask), *map(_spans, made))

    def _others(
        self, tokens: Tokenised, phrases: NDArray[np.int32], count: int, rng: np.random.Generator
    ) -> list[tuple[int, int, int, int]]:
        """First and last token, start and end of up to `count` random spans of a text that are none of its phrases."""
        firsts, lasts = word_ngrams(len(tokens.words), self.max_words)
        spans = np.stack([tokens.words[firsts, 0], tokens.words[lasts, 1]], axis=1)
        free = np.flatnonzero(~np.isin(span_codes(spans), span_codes(phrases)))
        chosen = rng.permutation(free)[:count]
        return list(
            zip(
                tokens.bounds[firsts[chosen], 0].tolist(),
                tokens.bounds[lasts[chosen], 1].tolist(),
                spans[chosen, 0].tolist(),
                spans[chosen, 1].tolist(),
                strict=True,
            )
        )


def word_ngrams(words: int, longest: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First and last word of every n-gram of up to `longest` of so many words, in lexical order."""
    return ngrams(np.zeros(words, np.int32), np.ones(words, bool), longest)


def span_codes(spans: NDArray[np.int32]) -> NDArray[np.int64]:
    """One number per span of a text (spans, 2)."""
    codes: NDArray[np.int64] = spans[:, 0].astype(np.int64) << 32 | spans[:, 1]
    return codes


def _found(tokens: Tokenised, spans: NDArray[np.int32]) -> NDArray[np.int32]:
    return np.stack([tokens.first_token(spans[:, 0]), tokens.last_token(spans[:, 1])], axis=1)


def _spans(rows: list[tuple[int, int, int, int]]) -> Spans:
    made = torch.tensor(rows, dtype=torch.int64).reshape(-1, 4)
    return Spans(made[:, :3], made[:, 3])
