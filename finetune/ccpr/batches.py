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

from eval.data.written import WAYS
from finetune.training.sampling import weighted_order
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.text.words import surface
from retrievers.ccpr.model import Tokenised, tokenise
from retrievers.encoders.encoder import padded
from retrievers.units.unit import ngrams

BATCHES_PER_POOL = 64
"""Batches whose sentences are sorted by length among each other."""
REWRITTEN = ("small", "capital", "unmarked")
"""Those of `eval.data.written.WAYS` in which all spans stay where they are."""
ALL_PHRASES = ("source_phrases", "target_phrases")
"""Keys of a row whose `spans` are not all phrases of its texts."""


@dataclass(frozen=True)
class PhraseBatch:
    """Token ids and mask (2 * pairs of sentences, tokens), sources first; and four kinds of `spans`: the aligned
    phrases of the sources and of the targets, pair by pair, and spans of both that are no phrases.

    Spans are int64 (spans, 4): row in the batch, first and last token, hash of the surface.
    """

    input_ids: torch.Tensor
    mask: torch.Tensor
    spans: tuple[torch.Tensor, ...]


class PhrasePool:
    """The sentence pairs of phrase-pair folders (see `finetune.ccpr.pairs`), memory-mapped."""

    def __init__(self, folders: Sequence[Path]) -> None:
        tables = []
        for folder in folders:
            if not (shards := sorted(folder.glob("pairs-*.arrow"))):
                raise UserError(
                    f"there are no phrase pairs in {folder}: make them with `python -m finetune.ccpr.pairs`"
                )
            for shard in shards:
                table = pa.ipc.open_file(pa.memory_map(str(shard))).read_all()
                table = table.select(["domain", "source", "target", "spans"])
                tables.append(table.append_column("pair", pa.array([folder.name] * len(table), pa.string())))
        self.table = pa.concat_tables(tables)
        self.facts = {f.name: read_json(f / "manifest.json") for f in folders if (f / "manifest.json").is_file()}

    def __len__(self) -> int:
        return len(self.table)

    def order(self, seed: int, domain_weights: Mapping[str, float], language_power: float) -> NDArray[np.int64]:
        """The rows in the order of training (see `weighted_order`).

        A row's weight is that of its domain (1 if none is given, left out if 0) times its language pair's weighted
        size to the power of `language_power` - 1: 1 takes languages as they come, 0 all alike.
        """
        names, numbers = np.unique(self.table["domain"].to_numpy(), return_inverse=True)
        weights = np.array([domain_weights.get(name, 1.0) for name in names], dtype=np.float64)[numbers]
        _, numbers = np.unique(self.table["pair"].to_numpy(), return_inverse=True)
        sizes = np.bincount(numbers, weights=weights)
        weights *= np.maximum(sizes, 1e-9)[numbers] ** (language_power - 1)
        return weighted_order(weights, seed)

    def lengths(self) -> NDArray[np.int64]:
        """Characters of the longer side of every row, for batches of similar length."""
        sides = (pc.utf8_length(self.table[side]).to_numpy().astype(np.int64) for side in ("source", "target"))
        longer: NDArray[np.int64] = np.maximum(*sides)
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
        alike = [pool[at : at + size] for at in range(0, len(pool) - size + 1, size)]
        batches += [alike[i] for i in rng.permutation(len(alike))]
    return batches


def surface_hash(text: str) -> int:
    """A signed 64-bit hash of the surface of a phrase."""
    return int.from_bytes(hashlib.blake2b(surface(text).encode(), digest_size=8).digest(), signed=True)


@dataclass(frozen=True)
class Collator:
    """Rows to a PhraseBatch: texts after a prefix, cut at `max_tokens`; spans of up to `max_words` words. A share of
    the texts, `rewritten`, is written in one of REWRITTEN, each side by itself."""

    tokenizer: PreTrainedTokenizerBase
    prefix: str
    max_tokens: int
    max_words: int
    per_sentence: int
    rewritten: float = 0.0

    def __call__(self, rows: Sequence[Mapping[str, Any]], rng: np.random.Generator) -> PhraseBatch:
        """At most `per_sentence` phrase pairs of each row, drawn at random, and as many spans of each side that are no
        phrases (Li et al. 2020's balance), where there are so many."""
        texts = [row["source"] for row in rows] + [row["target"] for row in rows]
        if self.rewritten:
            texts = [
                WAYS[REWRITTEN[rng.integers(len(REWRITTEN))]](t) if rng.random() < self.rewritten else t for t in texts
            ]
        tokens = tokenise(self.tokenizer, texts, self.prefix, self.max_tokens)
        ids, mask = padded([t.ids for t in tokens], self.tokenizer.pad_token_id or 0)
        kinds: list[list[tuple[int, int, int, int]]] = [[], [], [], []]

        def add(kind: int, sentence: int, places: NDArray[np.int32], edges: NDArray[np.int32]) -> None:
            for (first, last), (start, end) in zip(places.tolist(), edges.tolist(), strict=True):
                kinds[kind].append((sentence, first, last, surface_hash(texts[sentence][start:end])))

        for number, row in enumerate(rows):
            edges = np.array(row["spans"], dtype=np.int32).reshape(-1, 2, 2)  # (phrase pairs, sides, start and end)
            sentences = (number, number + len(rows))
            places = np.stack([places_of(tokens[s], edges[:, side]) for side, s in enumerate(sentences)], axis=1)
            readable = (places >= 0).all((1, 2))
            edges, places = edges[readable], places[readable]
            chosen = rng.permutation(len(edges))[: self.per_sentence]
            for side, sentence in enumerate(sentences):
                add(side, sentence, places[chosen, side], edges[chosen, side])
                phrases = row.get(ALL_PHRASES[side], edges[:, side])
                other_places, others = candidates(tokens[sentence], self.max_words)
                free = np.flatnonzero(~np.isin(span_codes(others), span_codes(np.reshape(phrases, (-1, 2)))))
                free = rng.permutation(free)[: len(chosen)]
                add(2 + side, sentence, other_places[free], others[free])
        spans = tuple(torch.tensor(kind, dtype=torch.int64).reshape(-1, 4) for kind in kinds)
        return PhraseBatch(torch.from_numpy(ids), torch.from_numpy(mask), spans)


def places_of(tokens: Tokenised, edges: NDArray[np.int32]) -> NDArray[np.int32]:
    """First and last tokens (spans, 2) of spans of whole words at these characters (spans, 2), -1 for none."""
    return np.stack([tokens.first_token(edges[:, 0]), tokens.last_token(edges[:, 1])], axis=1)


def candidates(tokens: Tokenised, longest: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """All spans of up to `longest` words of a text in lexical order: first and last tokens, and start and end, each
    (spans, 2)."""
    words = len(tokens.words)
    firsts, lasts = ngrams(np.zeros(words, np.int32), np.ones(words, bool), longest)
    places, edges = (np.stack([a[firsts, 0], a[lasts, 1]], axis=1) for a in (tokens.bounds, tokens.words))
    return places, edges


def span_codes(spans: NDArray[Any]) -> NDArray[np.int64]:
    """One number per span of a text (spans, 2)."""
    codes: NDArray[np.int64] = spans[:, 0].astype(np.int64) << 32 | spans[:, 1].astype(np.int64)
    return codes


class OtherContexts:
    """Which rows of a pool have a phrase pair in common: hashes of phrase pairs, sorted, with their rows.

    For CPR, the context-free ablation of CCPR (section 6.2 of the paper), which is trained on the same phrase pairs but
    shown source and target phrase of a positive example in two sentence pairs that both have this phrase pair.
    """

    def __init__(self, pool: PhrasePool, rows: NDArray[np.int64], show: bool = True) -> None:
        with progress(len(rows), "sentence pairs", "phrase pairs in other contexts", show=show) as bar:
            hashes, owners = [], []
            for number in rows.tolist():
                hashes.append(pair_hashes(*pool.rows([number])))
                owners.append(np.full(len(hashes[-1]), number, np.int64))
                bar.update()
        order = np.argsort(np.concatenate(hashes), kind="stable")
        self.hashes, self.owners = np.concatenate(hashes)[order], np.concatenate(owners)[order]

    def swapped(self, pool: PhrasePool, numbers: Sequence[int], rng: np.random.Generator) -> list[dict[str, Any]]:
        """For each row its source sentence with the target sentence of another row, and the phrase pairs that both
        have; a row that shares none with any other keeps its own target sentence and has no phrase pairs."""
        rows = []
        for number, row in zip(numbers, pool.rows(numbers), strict=True):
            hashes = pair_hashes(row)
            begin, end = (np.searchsorted(self.hashes, hashes, side) for side in ("left", "right"))
            others = np.concatenate([self.owners[a:b] for a, b in zip(begin, end, strict=True)] or [begin])
            others = np.unique(others[others != number])
            partner = pool.rows([int(rng.choice(others))])[0] if len(others) else {**row, "spans": []}
            rows.append(joined(row, partner))
        return rows


def pair_hashes(row: Mapping[str, Any]) -> NDArray[np.int64]:
    """A hash of both surfaces of each phrase pair of a row."""
    source, target, pair = row["source"], row["target"], row["pair"]
    edges = np.array(row["spans"], dtype=np.int32).reshape(-1, 4).tolist()
    return np.array([surface_hash(f"{pair} {source[a:b]} = {target[c:d]}") for a, b, c, d in edges], dtype=np.int64)


def joined(row: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """The source of `row` beside the target of `other`, with the phrase pairs of both; `ALL_PHRASES` are those of
    either text, which are no negative examples of segmentation."""
    spans, other_spans = (np.array(r["spans"], dtype=np.int32).reshape(-1, 4) for r in (row, other))
    _, first, second = np.intersect1d(pair_hashes(row), pair_hashes(other), return_indices=True)
    return {
        **row,
        "target": other["target"],
        "spans": np.concatenate([spans[first, :2], other_spans[second, 2:]], axis=1).ravel().tolist(),
        ALL_PHRASES[0]: spans[:, :2].ravel().tolist(),
        ALL_PHRASES[1]: other_spans[:, 2:].ravel().tolist(),
    }
