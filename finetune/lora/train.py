"""The training of a LoRA adapter."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from finetune.lora.batches import Batch, ExamplePrompts, Tokens, TokenTable, collated, micro_batches, tokens_of
from finetune.lora.config import Config
from finetune.lora.examples import Example
from finetune.lora.model import open_trainable, save_adapter
from finetune.training.curves import plot_losses
from finetune.training.sampling import rows_of
from finetune.training.trainer import Group, Trainer
from rag_mt.base.fingerprints import settings_hash


@dataclass(frozen=True)
class Data:
    """Examples to train on and to measure the loss on, with what their files say."""

    train: Sequence[Example]
    dev: Sequence[Example] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class LoraBatch:
    """The parts of a batch that this process computes, with their numbers, and how many response tokens the whole batch
    has, whoever computes them."""

    parts: Sequence[tuple[int, Batch]]
    answers: int


class LoraTrainer(Trainer[LoraBatch]):
    """A training run of an adapter. The loss is over the response tokens of all processes."""

    reduction = "sum"
    evaluates_everywhere = True

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
        dev = tokens_of(self.prompts, data.dev, training.cutoff, show) if data.dev else (TokenTable(), 0)
        self.dev, self.dev_left_out = dev
        self.pad: int = self.model.loaded.tokenizer.pad_token_id or 0
        key = settings_hash(
            [
                asdict(config.model),
                asdict(training),
                self.model.loaded.fingerprint,
                *(_tokens_hash(own) for own in (self.tokens, self.dev)),
                self.before and self.before["weights"],
            ]
        )
        self.begin(training, [Group(self.model.parameters, training.learning_rate)], [self.model.adapted], key)

    @property
    def wrapper(self) -> str:
        """The shape of the prompts, such as `alpaca` (see `prompts.builder`)."""
        return self.prompts.builder(self.data.train[0]).wrapper

    @property
    def pairs_a_step(self) -> int:
        """Sentence pairs of all processes together, which share a batch."""
        return self.config.training.batch

    def batch(self, step: int) -> LoraBatch:
        """This process's share of the batch of a step."""
        training = self.config.training
        rows = rows_of(step, training.batch, len(self.tokens), training.seed)
        parts = [
            (number, collated([self.tokens[row] for row in part], self.pad))
            for number, part in self._own(rows, self.tokens)
        ]
        return LoraBatch(parts, int(self.tokens.answers[rows].sum()))

    def _own(self, rows: Iterable[int], tokens: TokenTable) -> list[tuple[int, list[int]]]:
        """The rows in parts, of which this process computes some, with their numbers."""
        training = self.config.training
        every, own = self.accelerator.num_processes, self.accelerator.process_index
        parts = micro_batches(rows, tokens, training.micro, training.micro_tokens)
        return [(number, part) for number, part in enumerate(parts) if number % every == own]

    def backward(self, batch: LoraBatch) -> dict[str, float]:
        """The loss per response token of the whole batch."""
        total = torch.zeros((), device=self.model.loaded.device)
        for number, part in batch.parts:
            self.seed_dropout(self.step, number)
            with self.model.autocast():
                loss = self.model.responses.loss(part)
            (loss / batch.answers).backward()
            total += loss.detach()
        return {"loss": float(self._sum(total)) / batch.answers}

    def loss_weight(self, batch: LoraBatch) -> float:
        """The curve shows means over response tokens."""
        return batch.answers

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of all processes' tensors."""
        if self.accelerator.num_processes == 1:
            return tensor
        summed: torch.Tensor = self.accelerator.reduce(tensor, "sum")
        return summed

    def evaluate(self) -> dict[str, float]:
        """The loss per response token of the development examples: `dev`, and by direction where there are several."""
        names = self.dev.directions
        sums = torch.zeros(2, len(names), device=self.model.loaded.device)
        self.set_training(False)
        for _, part in self._own(range(len(self.dev)), self.dev):
            own = [self.dev[row] for row in part]
            with self.model.autocast():
                losses = self.model.responses.losses(collated(own, self.pad))
            for tokens, loss in zip(own, losses.split([t.answers for t in own]), strict=True):
                sums[:, names.index(tokens.direction)] += torch.stack([loss.sum(), loss.new_tensor(len(loss))])
        loss, count = self._sum(sums).double().cpu()
        found = {"dev": loss.sum() / count.sum()} if names else {}
        if len(names) > 1:
            found |= dict(zip(names, loss / count, strict=True))
        return {name: round(float(value), 4) for name, value in found.items()}

    def write(self, folder: Path) -> Mapping[str, Any]:
        """The adapter; its facts name folders, but not where they lie."""
        save_adapter(self.model, folder)
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
            "tokens_per_example": round(float(self.tokens.lengths.mean()), 1),
            "response_tokens_per_example": round(float(self.tokens.answers.mean()), 1),
            "prompts": self.prompts.settings,
        }

    def plot(self, points: Sequence[Mapping[str, Any]], path: Path) -> None:
        """Draw the losses."""
        plot_losses(points, path)


def _tokens_hash(examples: Sequence[Tokens]) -> str:
    made = hashlib.sha256()
    for own in examples:
        made.update(np.array([own.response, *own.ids], dtype=np.int64).tobytes())
    return made.hexdigest()
