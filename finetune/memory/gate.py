"""Fitting the gate of a memory: what showing its hints does to the log-probability of the reference.

The label of a sentence is the teacher-forced log-probability of its reference after the prompt with hints less that
after the prompt without, by one model with one adapter, over the full vocabulary, in nats. The report is on held-out
parts, as that of `finetune.memory.similarity`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetune.lora.config import Config
from finetune.lora.examples import Example, Pair
from finetune.lora.model import Trainable, open_trainable
from finetune.lora.train import ExamplePrompts, collated, micro_batches, tokens_of
from finetune.memory.cells import Cell
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Hint
from retrievers.encoders.encoder import ModelEncoder
from retrievers.memory.gate import FEATURES, SURPRISAL, Gate
from retrievers.memory.regression import Regression, fitted
from retrievers.memory.similarity import Similarity

Doubles = NDArray[np.float64]

PENALTY = 10.0
"""Of the gate's weights."""
BLOCK = 64
"""Sentences that are searched together."""


@dataclass(frozen=True)
class Judged:
    """Sentences with hints: their `features` by name, the `gains` in nats and the numbers of tokens of the references
    (sentences,), the `folds`, the `cells` that they are of, and their `directions`."""

    features: dict[str, Floats]
    gains: Doubles
    tokens: NDArray[np.int64]
    folds: NDArray[np.int64]
    cells: NDArray[np.str_]
    directions: NDArray[np.str_]

    @property
    def names(self) -> list[str]:
        """What the gate is fitted on."""
        kinds = [name for name in (*FEATURES, SURPRISAL) if name in self.features]
        directions = np.unique(self.directions).tolist()
        return [*kinds, *(directions if len(directions) > 1 else ())]

    def columns(self, rows: NDArray[Any]) -> dict[str, Floats]:
        """All that it is fitted on, of some of the sentences."""
        own = self.directions[rows]
        directions = {name: (own == name).astype(np.float32) for name in np.unique(self.directions).tolist()}
        return {name: values[rows] for name, values in self.features.items()} | directions


class Judge:
    """The language model with its adapter: losses of answers in nats."""

    def __init__(self, config: Config, device: str) -> None:
        self.model: Trainable = open_trainable(config, device)
        self.model.adapted.eval()
        self.budget = max(config.training.micro_tokens, 1200)
        self.prompts = ExamplePrompts(self.model.llm, config.training.wrapper)
        self.pad: int = self.model.loaded.tokenizer.pad_token_id or 0

    def losses(self, examples: Sequence[Example], title: str, show: bool) -> tuple[Doubles, NDArray[np.int64]]:
        """The sum of the losses of each example's answer, with its end, and the number of its tokens (examples,)."""
        tokens, left_out = tokens_of(self.prompts, examples, self.model.llm.context_length, False)
        if left_out:
            raise UserError(
                f"{left_out} sentences do not fit the window of {self.model.llm.context_length} tokens: leave them out"
            )
        places = {id(one): number for number, one in enumerate(tokens)}
        sums, counts = np.zeros(len(tokens)), np.array([one.answers for one in tokens], dtype=np.int64)
        with closing(progress(len(tokens), "sentences", title, show=show)) as bar:
            for batch in micro_batches(tokens, 1, self.budget):
                losses = self.model.losses(collated(batch, self.pad)).split([one.answers for one in batch])
                for one, loss in zip(batch, losses, strict=True):
                    sums[places[id(one)]] = float(loss.double().sum())
                bar.update(len(batch))
        return sums, counts


def judged_of(
    cells: Sequence[Cell],
    encoder: ModelEncoder,
    similarity: Similarity,
    judge: Judge,
    surprisal: bool = False,
    show: bool = True,
) -> Judged:
    """The sentences of all cells that the memory has hints for, with what the gate looks at and their gains."""
    hinted: list[Example] = []
    columns: list[tuple[str, tuple[Hint, ...], int, str, str]] = []
    features: list[dict[str, Floats]] = []
    for cell in cells:
        retriever = cell.retriever(encoder, similarity)
        pairs = [Pair(cell.source, cell.target, *pair) for pair in zip(cell.sentences, cell.references, strict=True)]
        folds = cell.folds()
        with closing(progress(len(pairs), "sentences", f"recalling {cell.index.name}", show=show)) as bar:
            for begin in range(0, len(pairs), BLOCK):
                part = slice(begin, begin + BLOCK)
                recalled = retriever.recall(cell.as_sentences[part], cell.drafts[part])
                rows = [n for n, own in enumerate(recalled) if own.hints]
                chosen = [pairs[begin + n] for n in rows]
                hints = [recalled[n].hints for n in rows]
                drafts = [cell.drafts[begin + n] for n in rows]
                hinted += [Example(pair, "memory", own) for pair, own in zip(chosen, hints, strict=True)]
                columns += [
                    (draft, own, int(folds[begin + n]), f"{cell.index.name} {pair.direction}", pair.direction)
                    for pair, draft, own, n in zip(chosen, drafts, hints, rows, strict=True)
                ]
                if rows:
                    features.append(retriever.gate_features([pair.source for pair in chosen], drafts, hints))
                bar.update(len(recalled))
    if not hinted:
        raise UserError("the memories have nothing for these sentences: give other indexes, or drafts")
    plain = [Example(example.pair, example.unit) for example in hinted]
    with_hints, tokens = judge.losses(hinted, "references with hints", show)
    without, _ = judge.losses(plain, "references without hints", show)
    joined = {name: np.concatenate([part[name] for part in features]) for name in features[0]}
    if surprisal:
        drafted = [
            Example(Pair(e.pair.source_language, e.pair.target_language, e.pair.source, draft or " "), e.unit)
            for e, (draft, *_) in zip(plain, columns, strict=True)
        ]
        sums, counts = judge.losses(drafted, "drafts", show)
        joined[SURPRISAL] = (sums / counts).astype(np.float32)
    folds_of, cells_of, directions = (np.array([column[n] for column in columns]) for n in (2, 3, 4))
    return Judged(joined, without - with_hints, tokens, folds_of, cells_of, directions)


def fit_gate(judged: Judged, fitted_on: dict[str, Any], bound: float) -> Gate:
    """The gate on all sentences, with the report on held-out folds among what it was fitted on."""
    everything = np.ones(len(judged.gains), bool)
    return Gate(_fitted(judged, everything), bound, {**fitted_on, "held out": report(judged, bound)})


def _fitted(judged: Judged, rows: NDArray[np.bool_]) -> Regression:
    return fitted(judged.columns(rows), judged.names, judged.gains[rows], logistic=False, penalty=PENALTY)


def report(judged: Judged, bound: float) -> dict[str, Any]:
    """What gates of the other folds do for each: the share of sentences whose hints they show, and the mean gain in
    nats a sentence with them, with hints always shown, and if all that gain are shown and no others; never showing
    gains 0. By cell, and by quarters of the expected gain."""
    expected = np.zeros(len(judged.gains))
    for fold in np.unique(judged.folds):
        own = judged.folds == fold
        expected[own] = _fitted(judged, ~own).value(judged.columns(own))
    shown = (expected > bound) & (judged.features["novelty"] > 0)
    quarters = np.argsort(np.argsort(expected, kind="stable")) * 4 // max(len(expected), 1)
    values: dict[str, Any] = {
        "correlation": round(float(np.corrcoef(expected, judged.gains)[0, 1]), 4),
        "quarters": [
            {
                "expected": round(float(expected[quarters == n].mean()), 3),
                "gain": round(float(judged.gains[quarters == n].mean()), 3),
            }
            for n in np.unique(quarters)
        ],
    }
    for cell in ("all", *np.unique(judged.cells).tolist()):
        rows = (judged.cells == cell) | (cell == "all")
        gains = judged.gains[rows]
        values[cell] = {
            "sentences": int(rows.sum()),
            "tokens": int(judged.tokens[rows].sum()),
            "shown": round(float(shown[rows].mean()), 3),
            "gate": round(float(np.where(shown[rows], gains, 0).mean()), 3),
            "always": round(float(gains.mean()), 3),
            "at best": round(float(np.maximum(gains, 0).mean()), 3),
        }
    return values
