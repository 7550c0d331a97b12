"""The training of a LoRA adapter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from finetune.lora.batches import Batch, ExamplePrompts, Tokens, collated, micro_batches, tokens_of
from finetune.lora.config import Config
from finetune.lora.data import Data
from finetune.lora.model import open_trainable
from finetune.training.sampling import rows_of
from finetune.training.trainer import Group, Trainer
from rag_mt.base.fingerprints import settings_hash

LoraBatch = tuple[list[tuple[int, Batch]], int]
"""The numbered parts of a batch that this process computes, and the response tokens of the whole batch."""


class LoraTrainer(Trainer[LoraBatch]):
    """A training run of an adapter. The loss is over the response tokens of all processes."""

    shares_batches = True

    def __init__(
        self, config: Config, data: Data, output: Path, device: str = "auto", command: str = "python -m finetune.lora"
    ) -> None:
        super().__init__(output, device, command)
        self.config, self.data = config, data
        self.model = open_trainable(config, self.device_name)
        self.before = self.model.before
        training, show = config.training, self.accelerator.is_main_process
        self.prompts = ExamplePrompts(self.model.llm, training.wrapper)
        self.tokens, self.left_out = tokens_of(self.prompts, data.train, training.cutoff, show)
        self.dev, self.dev_left_out = list[Tokens](), 0
        if data.dev:
            self.dev, self.dev_left_out = tokens_of(self.prompts, data.dev, training.cutoff, show)
        self.pad: int = self.model.loaded.tokenizer.pad_token_id or 0
        start = self.before and self.before["weights"]
        data_hashes = _tokens_hash(self.tokens), _tokens_hash(self.dev)
        key = settings_hash(
            [asdict(config.model), asdict(training), self.model.loaded.fingerprint, *data_hashes, start]
        )
        self.begin(training, [Group(self.model.parameters, training.learning_rate)], [self.model.adapted], key)

    @property
    def wrapper(self) -> str:
        """The shape of the prompts, such as `alpaca` (see `prompts.wrappers`)."""
        return self.prompts.builder(self.data.train[0]).wrapper

    def batch(self, step: int) -> LoraBatch:
        """This process's share of the batch of a step."""
        rows = rows_of(step, self.config.training.batch, len(self.tokens), self.config.training.seed)
        examples = [self.tokens[row] for row in sorted(rows)]
        parts = [(number, collated(part, self.pad)) for number, part in self._own_parts(examples)]
        return parts, sum(example.answers for example in examples)

    def _own_parts(self, examples: Iterable[Tokens]) -> list[tuple[int, list[Tokens]]]:
        """The parts of the examples that this process computes, with their numbers."""
        parts = micro_batches(examples, self.config.training.micro, self.config.training.micro_tokens)
        return list(enumerate(parts))[self.accelerator.process_index :: self.accelerator.num_processes]

    def backward(self, batch: LoraBatch) -> dict[str, float]:
        """The loss per response token of the whole batch."""
        parts, answers = batch
        total = torch.zeros((), device=self.model.loaded.device)
        for number, part in parts:
            self.seed_dropout(self.step, number)
            total += self.model.backward(part, answers)
        return {"loss": float(self._sum(total)) / answers}

    def loss_weight(self, batch: LoraBatch) -> float:
        """The curve shows means over response tokens."""
        return batch[1]

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of all processes' tensors."""
        summed: torch.Tensor = self.accelerator.reduce(tensor, "sum")
        return summed

    def evaluate(self) -> dict[str, float]:
        """The loss per response token of the development examples: `dev`, and by direction where there are several."""
        directions = sorted({example.direction for example in self.dev})
        sums = torch.zeros(2, len(directions), device=self.model.loaded.device)
        self.set_training(False)
        for _, examples in self._own_parts(self.dev):
            losses = self.model.losses(collated(examples, self.pad))
            for example, loss in zip(examples, losses.split([e.answers for e in examples]), strict=True):
                sums[:, directions.index(example.direction)] += torch.stack([loss.sum(), loss.new_tensor(len(loss))])
        loss, count = self._sum(sums).double().cpu()
        scores = {"dev": loss.sum() / count.sum()} if directions else {}
        if len(directions) > 1:
            scores |= dict(zip(directions, loss / count, strict=True))
        return {name: round(float(value), 4) for name, value in scores.items()}

    def write(self, folder: Path) -> Mapping[str, Any]:
        """The adapter; its facts name folders, but not where they lie."""
        self.model.save(folder)
        model, training = self.config.model, self.config.training
        start = Path(model.start).name
        return {
            "settings": {"model": asdict(replace(model, start=start)), "training": asdict(training)},
            "base_fingerprint": self.model.loaded.fingerprint,
            "dtype": str(self.model.loaded.dtype).removeprefix("torch."),
            **self.data.facts,
            "wrapper": self.wrapper,
            "examples_used": len(self.tokens),
            "examples_too_long": self.left_out,
            "dev_examples_used": len(self.dev),
            "dev_examples_too_long": self.dev_left_out,
            "tokens_per_example": round(self.mean_tokens, 1),
            "response_tokens_per_example": round(self.mean_answers, 1),
            "prompts": self.prompts.settings,
        }

    @property
    def mean_tokens(self) -> float:
        """Tokens of an example to train on."""
        return float(np.mean([len(example) for example in self.tokens]))

    @property
    def mean_answers(self) -> float:
        """Tokens of an example that are learnt."""
        return float(np.mean([example.answers for example in self.tokens]))


def _tokens_hash(examples: Sequence[Tokens]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(np.array([example.response, *example.ids], dtype=np.int64).tobytes())
    return digest.hexdigest()
