"""Batches of mDPR: questions with passages, sentence pairs of mixed languages, sentences without translation.

What is drawn at random depends on the seed and the number of the batch alone, so that a run can stop and go on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch

from finetune.mdpr.config import DataConfig, TrainingConfig
from finetune.mdpr.relevance import Passage, read_examples
from finetune.training.sampling import rows_of
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips

Item = TypeVar("Item")


@dataclass(frozen=True)
class MdprBatch(Generic[Item]):
    """Texts, or their token ids: questions and passages, each passage once, and sentences of the contrastive losses.

    The relevant passage of question i is `relevant[i]`; `left_out` (questions, passages) marks what is relevant to it
    as well. Sentences are the first and then the second ones of `pairs` pairs, then `others` others. In one of several
    processes the texts are a part of those of all; `relevant`, `left_out` and `pairs` are those of all.
    """

    queries: Sequence[Item]
    passages: Sequence[Item]
    relevant: Sequence[int]
    left_out: torch.Tensor
    sentences: Sequence[Item] = ()
    pairs: int = 0
    others: int = 0


class TrainingData:
    """What a folder of `finetune.mdpr.data` has for some settings."""

    def __init__(self, folder: Path, data: DataConfig, training: TrainingConfig) -> None:
        self.training = training
        files = [_existing(folder / "relevance" / f"{name}.jsonl") for name in data.relevance]
        self.examples = [e for file in files for e in read_examples("jsonl", str(file), "en", Skips())]
        if not self.examples:
            raise UserError(f"{folder} has no question in {', '.join(data.relevance)}: make it again")
        used = training.semantic_weight or training.language_weight
        self.pairs = _equal_parts(folder / "pairs", data.pairs, ".tsv", data.pair_size) if used else []
        if used and len(self.pairs) < 2:
            raise UserError(f"{folder / 'pairs'} has one sentence pair: the contrastive losses need two")
        used = training.language_weight and training.text_batch
        self.texts = _equal_parts(folder / "texts", data.texts, ".txt", data.text_size) if used else []

    @property
    def fingerprint(self) -> str:
        """Changes with all that is trained on."""
        digest = hashlib.sha256()
        for example in self.examples:
            digest.update(repr((example.query, [p.shown for p in (*example.positives, *example.negatives)])).encode())
        for text in (*self.pairs, *self.texts):
            digest.update(text.encode() + b"\n")
        return digest.hexdigest()[:16]

    def retrieval(self, number: int) -> MdprBatch[str]:
        """The questions of a batch; each has one of its relevant passages and some of its hard negatives, at random."""
        training = self.training
        rng = np.random.default_rng([training.seed, number, 1])
        examples = _drawn(number, training.batch, self.examples, training.seed)
        columns: dict[tuple[str, str], int] = {}  # sets may give the same id to different passages

        def column(passage: Passage) -> int:
            return columns.setdefault((passage.id, passage.shown), len(columns))

        relevant = [column(e.positives[int(rng.integers(len(e.positives)))]) for e in examples]
        for example in examples:
            for n in rng.permutation(len(example.negatives))[: training.hard_negatives].tolist():
                column(example.negatives[n])
        answers = [{passage.id for passage in example.positives} for example in examples]
        left_out = torch.tensor([[key in ids for key, _ in columns] for ids in answers], dtype=torch.bool)
        left_out[torch.arange(len(examples)), torch.tensor(relevant)] = False
        return MdprBatch([e.query for e in examples], [text for _, text in columns], relevant, left_out)

    def sentences(self, number: int) -> tuple[list[list[str]], list[str]]:
        """The sentence pairs of a batch for the contrastive losses, and further sentences: languages are mixed, no
        sentence comes twice."""
        training = self.training
        seen: set[str] = set()
        pairs = []
        for row in _drawn(number, training.pair_batch, self.pairs, training.seed):
            sides = row.split("\t")
            if seen.isdisjoint(sides):
                seen.update(sides)
                pairs.append(sides)
        others = _drawn(number, training.text_batch, self.texts, training.seed)
        return pairs, [text for text in dict.fromkeys(others) if text not in seen]


def _drawn(number: int, batch: int, items: Sequence[Item], seed: int) -> list[Item]:
    """The items of a batch, all if there are fewer than it has places."""
    return [items[row] for row in rows_of(number, min(batch, len(items)), len(items), seed)] if items else []


def _equal_parts(folder: Path, names: Sequence[str], ending: str, size: int) -> list[str]:
    """The first `size` lines (0: all) of each file, as many of each as of the smallest, since a batch is to mix
    languages evenly."""
    files = [_existing(folder / f"{name}{ending}").read_text(encoding="utf-8").splitlines() for name in names]
    if empty := [name for name, lines in zip(names, files, strict=True) if not lines]:
        raise UserError(f"{folder} has no line for {', '.join(empty)}")
    least = min((len(lines) for lines in files), default=0)
    return [line for lines in files for line in lines[: min(size or least, least)]]


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"there is no {path}: give a folder that has it; `python -m finetune.mdpr.data` makes it")
    return path
