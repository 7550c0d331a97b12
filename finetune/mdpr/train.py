"""The training of a passage model (mDPR).

Each of several processes reads its part of a step's texts and then has the vectors of all, so that it computes the
losses of all: passages and sentences of other processes are negatives and third sentences like its own. Apart from
rounding and dropout, n processes do what one does with batches n times as large.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from finetune.losses.passages import language_contrastive, retrieval, semantic_contrastive
from finetune.mdpr.batches import MdprBatch, TrainingData
from finetune.mdpr.config import Config
from finetune.mdpr.dev import dev_scores, read_dev
from finetune.mdpr.model import Towers
from finetune.training.trainer import Group, Trainer
from rag_mt import __version__
from rag_mt.base.files import cache_dir, read_json, settings_hash, write_whole
from rag_mt.base.types import Kind


class MdprTrainer(Trainer[MdprBatch[list[int]]]):
    """A training run of the encoders of questions and passages."""

    losses_shown = ("retrieval", "semantic", "language")
    scores_shown = "MRR@100, %"
    unit = "questions"
    measure_first = True

    def __init__(self, config: Config, prepared: Path, output: Path, device: str = "auto", command: str = "") -> None:
        super().__init__(output, device, command)
        self.config, self.prepared, training = config, prepared, config.training
        sizes = {name: getattr(training, name) * self.processes for name in ("batch", "pair_batch", "text_batch")}
        of_all = replace(training, **sizes)
        self.data = TrainingData(prepared, config.data, of_all)
        self.towers = Towers(config.model, self.device_name, training.dtype, training.seed)
        self.before = self.towers.before
        self.start = self.before and self.before["weights"]
        self.dev = read_dev(prepared / "dev", training.dev_queries)
        settings = replace(config, training=of_all).as_dict()
        key = settings_hash([settings, self.towers.fingerprint, self.data.fingerprint, self.start])
        groups = [Group(self.towers.parameters, training.learning_rate)]
        self.begin(training, groups, [encoder.model for encoder in self.towers.encoders.values()], key)

    @property
    def processes(self) -> int:
        """How many there are."""
        return int(self.accelerator.num_processes)

    def batch(self, step: int) -> MdprBatch[list[int]]:
        """The tokens of this process's part of the questions, passages and sentences of a step."""
        data, training = self.config.data, self.config.training
        asked = self.data.retrieval(step)
        queries = self.towers.token_ids(self._part(asked.queries), "query", data.query_tokens)
        passages = self.towers.token_ids(self._part(asked.passages), "passage", data.passage_tokens)
        if not (training.semantic_weight or training.language_weight):
            return MdprBatch(queries, passages, asked.relevant, asked.left_out)
        pairs, others = self.data.sentences(step)
        texts = [*(first for first, _ in pairs), *(second for _, second in pairs), *others]
        sentences = self.towers.token_ids(self._part(texts), "passage", data.sentence_tokens)
        return MdprBatch(queries, passages, asked.relevant, asked.left_out, sentences, len(pairs), len(others))

    def _part(self, texts: Sequence[str]) -> list[str]:
        """This process's part of the texts of all: equally many neighbours for each process. Where they do not come out
        even, the first texts come again at the end."""
        size = -(-len(texts) // self.processes)
        first = int(self.accelerator.process_index) * size
        return [texts[at % len(texts)] for at in range(first, first + size)]

    def _vectors(self, part: Sequence[Sequence[int]], kind: Kind, count: int) -> torch.Tensor:
        """The vectors (count, dimension) of all processes' texts. Those of this process's `part` have gradients."""
        own = self.towers.vectors(part, kind)
        first = int(self.accelerator.process_index) * len(own)
        of_all = self.accelerator.gather(own.detach())
        return torch.cat([of_all[:first], own, of_all[first + len(own) :]])[:count]

    def _pass_on(self, loss: torch.Tensor) -> None:
        """Add the gradients of a loss that every process computes of the vectors of all. Each process has those of its
        own texts: their sum over the processes is what is wanted, and `update` takes the mean, hence the factor."""
        (self.processes * loss).backward()

    def backward(self, batch: MdprBatch[list[int]]) -> dict[str, float]:
        """Equation 4. Each loss passes its gradients on before the next one is computed, so that the memory is that of
        the largest."""
        self.seed_dropout(self.number(self.step))
        losses = {"retrieval": self._retrieval(batch)}
        return losses | self._contrastive(batch) if batch.sentences else losses

    def _retrieval(self, batch: MdprBatch[list[int]]) -> float:
        """L_IR (equation 1)."""
        questions, texts = batch.left_out.shape
        queries = self._vectors(batch.queries, "query", questions)
        passages = self._vectors(batch.passages, "passage", texts)
        temperature = self.config.training.retrieval_temperature
        loss = retrieval(queries, passages, batch.relevant, batch.left_out.to(passages.device), temperature)
        self._pass_on(loss)
        return float(loss.detach())

    def _contrastive(self, batch: MdprBatch[list[int]]) -> dict[str, float]:
        """L_semaCL and L_langCL (equations 2 and 3), weighted, of the passage encoder; both read the same vectors."""
        training = self.config.training
        vectors = self._vectors(batch.sentences, "passage", 2 * batch.pairs + batch.others)
        first, second, others = vectors.tensor_split([batch.pairs, 2 * batch.pairs])
        losses, weighted = {}, []
        if training.semantic_weight:
            losses["semantic"] = semantic_contrastive(first, second, training.semantic_temperature)
            weighted.append(training.semantic_weight * losses["semantic"])
        if training.language_weight and len(vectors) > 2:  # fewer where a sentence came twice
            losses["language"] = language_contrastive(first, second, others)
            weighted.append(training.language_weight * losses["language"])
        if weighted:
            self._pass_on(torch.stack(weighted).sum())
        return {name: float(loss.detach()) for name, loss in losses.items()}

    def evaluate(self) -> dict[str, float]:
        """The development scores of the model as it is."""
        self.set_training(False)
        return dev_scores(self.dev, self.towers.encode)

    def scores(self) -> dict[str, float]:
        """`evaluate`; before the first step it is kept in the cache for all runs that start with this model."""
        if self.step:
            return self.evaluate()
        start = [self.towers.fingerprint, self.start, asdict(self.config.model), self.config.training.dtype]
        asked = [[s.language, s.queries, [sorted(ids) for ids in s.relevant], s.passages] for s in self.dev]
        path = cache_dir() / "mdpr-before" / f"{settings_hash([__version__, start, asked])}.json"
        if not path.is_file():
            write_whole(path, json.dumps(self.evaluate()) + "\n")
        scores: dict[str, float] = read_json(path)
        return scores

    def write(self, folder: Path) -> Mapping[str, Any]:
        """The passage model."""
        self.towers.save(folder)
        manifest = self.prepared / "manifest.json"
        return {
            "settings": self.config.as_dict(),
            "processes": self.processes,
            "encoder_fingerprint": self.towers.fingerprint,
            "data_fingerprint": self.data.fingerprint,
            "prepared": read_json(manifest) if manifest.is_file() else {},
            "questions": len(self.data.examples),
            "sentence_pairs": len(self.data.pairs),
            "other_sentences": len(self.data.texts),
            "dtype": str(self.towers.encoders["passage"].dtype).removeprefix("torch."),
        }
