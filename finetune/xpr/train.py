"""The training of an XPR model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.func import functional_call

from finetune.losses.phrases import Negatives, xpco
from finetune.training.encoder import NO_WEIGHTS, Weights, open_encoder
from finetune.training.gradients import Features, Loss, cached_backward
from finetune.training.trainer import Group, Trainer
from finetune.xpr.batches import Chunk, Collator, XprBatch, XprPool
from finetune.xpr.config import Config
from rag_mt.base.files import settings_hash
from retrievers.xpr.model import XprHead, XprSettings


class XprTrainer(Trainer[XprBatch]):
    """A training run of an encoder with a projection head, and of the momentum copy of both."""

    losses_shown = ("contrastive",)
    unit = "phrase pairs"
    measure_first = True

    def __init__(
        self, config: Config, phrases: Path, output: Path, device: str = "auto", command: str = "python -m finetune.xpr"
    ) -> None:
        super().__init__(output, device, command)
        self.pool = XprPool([phrases / name for name in config.data.languages])
        model, data, training = config.model, config.data, config.training
        processes = int(self.accelerator.num_processes)
        if not training.steps:
            steps = training.epochs * (len(self.pool) // training.batch) // processes
            training = replace(training, steps=max(1, steps))
        self.config = config = replace(config, training=training)
        self.pool.batch(0, training.batch, training.seed)  # says now if there are too few
        self.encoder = open_encoder(model, model.layer, self.device_name, training.dtype, training.seed)
        self.device = self.encoder.device
        self.settings = XprSettings(
            model.encoder,
            self.encoder.layers,
            self.encoder.hidden,
            model.head,
            data.sentences,
            prefix=model.prefix,
            head_on=model.head_on,
        )
        self.head = XprHead(self.settings)
        if model.head_start == "identity":
            self.head.begin_as_identity()
        self.head.to(self.device)
        self.queues: list[Negatives] = []
        self.collate = self._collator(data.sentences, training.chunks)
        groups = [Group(self.encoder.parameters(), training.learning_rate)]
        if heads := {f"head.{name}": p for name, p in self.head.named_parameters()}:
            groups.append(Group(heads, training.head_learning_rate or training.learning_rate))
        sets = [own.manifest["files"] for own in self.pool.sets]
        key = settings_hash([config.as_dict(), self.encoder.fingerprint, sets, processes])
        self.begin(training, groups, [self.encoder.model], key)
        self.slow = {n: p.detach().clone() for n, p in self.parameters.items()} if training.momentum else {}

    def _collator(self, sentences: int, chunks: int) -> Collator:
        model, data = self.config.model, self.config.data
        return Collator(self.encoder.tokenizer, model.prefix, sentences, data.max_chars, data.max_tokens, chunks)

    def batch(self, step: int) -> XprBatch:
        """The phrase pairs of a step, with examples drawn for each phrase."""
        training, number = self.config.training, self.number(step)
        pairs = self.pool.batch(number, training.batch, training.seed)
        rng = np.random.default_rng([training.seed, number])
        return self.collate([own.sides for own in self.pool.sets], pairs, rng)

    def backward(self, batch: XprBatch) -> dict[str, float]:
        """Equations 3 and 4."""
        with torch.no_grad():
            slow = self.whole_vectors(batch, self.slow) if self.slow else None
        runs = [partial(self._features, chunk, number) for number, chunk in enumerate(batch.chunks)]

        def loss(features: list[Features]) -> Loss:
            contrastive = self.loss(batch, [means for (means,) in features], slow)
            return contrastive, {"contrastive": float(contrastive.detach())}

        return cached_backward(runs, loss, self.config.training.cached)

    def _features(self, chunk: Chunk, number: int) -> Features:
        return (self.means(chunk, number),)

    def means(self, chunk: Chunk, number: int, weights: Weights = NO_WEIGHTS) -> torch.Tensor:
        """The mean state of the phrase in each sentence of chunk `number`, float32 (sentences, hidden), by the encoder
        as it is or with other `weights`; of a head on tokens the mean of what it makes of them. The same chunk of a
        step has the same dropout."""
        self.seed_dropout(self.step, number, int(self.accelerator.process_index))
        states = self.encoder.states(chunk.input_ids, chunk.mask, _of_part(weights, "encoder."))
        states = functional_call(self.head, _of_part(weights, "head."), (states, True))
        first, last = chunk.places.to(self.device)[:, :, None].unbind(1)
        at = torch.arange(states.shape[1], device=self.device)[None]
        inside = ((at >= first) & (at <= last)).float()
        means: torch.Tensor = torch.einsum("nt,nth->nh", inside / inside.sum(1, keepdim=True), states)
        return means

    def vectors(self, batch: XprBatch, means: Sequence[torch.Tensor], weights: Weights = NO_WEIGHTS) -> torch.Tensor:
        """Vectors of length 1 (2 * pairs, hidden) of the phrases whose sentences have these means (see `XprBatch`)."""
        owners = torch.cat([chunk.owners for chunk in batch.chunks]).to(self.device)
        sums = torch.zeros(len(batch.counts), self.settings.hidden, device=self.device)
        sums = sums.index_add(0, owners, torch.cat(list(means)))
        states = sums / batch.counts.to(self.device).clamp(min=1)[:, None]
        vectors: torch.Tensor = functional_call(self.head, _of_part(weights, "head."), (states,))
        return vectors

    def whole_vectors(self, batch: XprBatch, weights: Weights = NO_WEIGHTS) -> torch.Tensor:
        """The `vectors` of a batch, chunk by chunk."""
        return self.vectors(batch, [self.means(c, n, weights) for n, c in enumerate(batch.chunks)], weights)

    def loss(self, batch: XprBatch, means: Sequence[torch.Tensor], slow: torch.Tensor | None) -> torch.Tensor:
        """XpCo of a batch, with the keys of other processes and of the queue as further negatives; `slow` are the
        momentum encoder's vectors, None without momentum. The keys go into the queue."""
        training = self.config.training
        vectors = self.vectors(batch, means)
        source, target = vectors.chunk(2)
        surfaces = batch.surfaces.to(self.device).chunk(2)
        keys = [Negatives(v, s) for v, s in zip((vectors if slow is None else slow).chunk(2), surfaces, strict=True)]
        first = 0
        if self.accelerator.num_processes > 1:
            keys = [self._of_all(own) for own in keys]
            first = int(self.accelerator.process_index) * len(source)
        if self.queues:
            keys = [
                Negatives(torch.cat([new.vectors, old.vectors]), torch.cat([new.surfaces, old.surfaces]))
                for new, old in zip(keys, self.queues, strict=True)
            ]
        if training.queue:
            self.queues = [
                Negatives(own.vectors.detach()[: training.queue], own.surfaces[: training.queue]) for own in keys
            ]
        return xpco(source, target, keys[0], keys[1], training.temperature, first)

    def _of_all(self, own: Negatives) -> Negatives:
        """The keys of all processes in their order; the own ones keep their gradients."""
        vectors, surfaces = (self.accelerator.gather(t.detach()) for t in (own.vectors, own.surfaces))
        begin = int(self.accelerator.process_index) * len(own.vectors)
        parts = (vectors[:begin], own.vectors, vectors[begin + len(own.vectors) :])
        return Negatives(torch.cat(parts), surfaces)

    def after_step(self) -> None:
        """The momentum encoder follows the trained one."""
        for name, tensor in self.slow.items():
            tensor.lerp_(self.parameters[name].detach(), 1 - self.config.training.momentum)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Accuracy@1 in per cent among the first dev pairs of each set, without an index, the mean of both directions,
        by the set's name; and `average`."""
        data = self.config.data
        self.set_training(False)
        collate = self._collator(data.dev_sentences if data.sentences else 0, data.dev_pairs // 16 + 1)
        scores: dict[str, float] = {}
        for examples in self.pool.sets:
            pairs = np.insert(examples.pairs("dev")[: data.dev_pairs], 0, 0, axis=1)
            if len(pairs):
                source, target = self.whole_vectors(collate([examples.sides], pairs, None)).chunk(2)
                similarity, right = source @ target.T, torch.arange(len(pairs), device=self.device)
                both = torch.stack([(similarity.argmax(d) == right).float().mean() for d in (0, 1)])
                scores[examples.name] = round(100 * float(both.mean()), 2)
        return {**scores, "average": round(float(np.mean(list(scores.values()))), 2) if scores else 0.0}

    def extra_tensors(self) -> dict[str, torch.Tensor]:
        """The momentum encoder and the queues."""
        slow = {f"slow.{name}": tensor for name, tensor in self.slow.items()}
        for side, queue in enumerate(self.queues):
            slow |= {f"queue.vectors.{side}": queue.vectors, f"queue.surfaces.{side}": queue.surfaces}
        return slow

    def restore_extra(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from `extra_tensors`."""
        for name, tensor in self.slow.items():
            tensor.copy_(tensors[f"slow.{name}"])
        if "queue.vectors.0" in tensors:
            sides = [(tensors[f"queue.vectors.{side}"], tensors[f"queue.surfaces.{side}"]) for side in (0, 1)]
            self.queues = [Negatives(v.to(self.device), s.to(self.device)) for v, s in sides]

    def write(self, folder: Path) -> Mapping[str, Any]:
        """Adapter (or the whole encoder) and head."""
        self.encoder.save(folder)
        self.head.save(folder)
        phrases = [
            {"name": own.name, "statistics": own.manifest["statistics"], "files": own.manifest["files"]}
            for own in self.pool.sets
        ]
        fingerprint = self.encoder.fingerprint
        return {"settings": self.config.as_dict(), "encoder_fingerprint": fingerprint, "phrases": phrases}


def _of_part(weights: Weights, prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
