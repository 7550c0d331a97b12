"""The training of a LoRA adapter: steps, dev loss, checkpoints, what is written."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator

from finetune.lora.batches import ExamplePrompts, Tokens, TokenTable, collated, micro_batches, tokens_of
from finetune.lora.config import Config
from finetune.lora.examples import Example
from finetune.lora.model import open_trainable, save_adapter
from finetune.training.checkpoints import restore_training, training_tensors, write_training
from finetune.training.curves import plot_losses
from finetune.training.loop import run_to_end
from finetune.training.optimisation import share_gradients, take_step
from finetune.training.sampling import rows_of
from finetune.training.warm_start import continued
from rag_mt import __version__
from rag_mt.base.fingerprints import settings_hash


@dataclass(frozen=True)
class Data:
    """Examples to train on and to measure the loss on, with what their files say."""

    train: Sequence[Example]
    dev: Sequence[Example] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Trainer:
    """One training run: the model, its optimiser and the step it has come to."""

    def __init__(
        self, config: Config, data: Data, output: Path, device: str = "auto", command: str = "python -m finetune.lora"
    ) -> None:
        self.config, self.data, self.output, self.command = config, data, output, command
        self.accelerator = Accelerator(cpu=device == "cpu")
        self.model = open_trainable(config, str(self.accelerator.device) if device == "auto" else device)
        training, show = config.training, self.accelerator.is_main_process
        self.prompts = ExamplePrompts(self.model.llm, training.wrapper)
        self.tokens, self.left_out = tokens_of(self.prompts, data.train, training.cutoff, show)
        dev = tokens_of(self.prompts, data.dev, training.cutoff, show) if data.dev else (TokenTable(), 0)
        self.dev, self.dev_left_out = dev
        self.pad: int = self.model.loaded.tokenizer.pad_token_id or 0
        self.parameters = self.model.parameters
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=training.learning_rate, weight_decay=training.weight_decay
        )
        self.step, self.curve, self.seconds = 0, list[dict[str, Any]](), 0.0
        self.since = (0.0, 0)
        before = self.model.before
        self.key = settings_hash(
            [
                asdict(config.model),
                asdict(training),
                self.model.loaded.fingerprint,
                *(_tokens_hash(own) for own in (self.tokens, self.dev)),
                before and before["weights"],
            ]
        )

    @property
    def wrapper(self) -> str:
        """The shape of the prompts, such as `alpaca` (see `prompts.wrappers`)."""
        return self.prompts.builder(self.data.train[0]).wrapper

    @property
    def pairs_a_step(self) -> int:
        """Sentence pairs of all processes together."""
        return self.config.training.batch

    def run_step(self) -> float:
        """One step of optimisation; returns the loss per response token of its batch."""
        training = self.config.training
        rows = rows_of(self.step, training.batch, len(self.tokens), training.seed)
        learnt = int(self.tokens.answers[rows].sum())
        total = torch.zeros((), device=self.model.loaded.device)
        self.model.adapted.train()
        for number, part in self._own(micro_batches(rows, self.tokens, training.micro, training.micro_tokens)):
            torch.manual_seed(hash((training.seed, self.step, number)) % 2**63)  # dropout
            with self.model.autocast():
                loss = self.model.responses.loss(collated([self.tokens[row] for row in part], self.pad))
            (loss / learnt).backward()
            total += loss.detach()
        self.update()
        summed = float(self._sum(total))
        self.since = (self.since[0] + summed, self.since[1] + learnt)
        return summed / learnt

    def update(self) -> None:
        """Change the weights by the gradients of all processes."""
        training = self.config.training
        share_gradients(self.accelerator, self.parameters, "sum")  # the loss is divided by the tokens of all processes
        share = training.share(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = training.learning_rate * share
        take_step(self.optimizer, self.parameters, training.clip)
        self.step += 1

    def _own(self, parts: Sequence[list[int]]) -> list[tuple[int, list[int]]]:
        """The parts of a batch that this process computes, with their numbers."""
        every, own = self.accelerator.num_processes, self.accelerator.process_index
        return [(number, part) for number, part in enumerate(parts) if number % every == own]

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of all processes' tensors."""
        if self.accelerator.num_processes == 1:
            return tensor
        summed: torch.Tensor = self.accelerator.reduce(tensor, "sum")
        return summed

    def evaluate(self) -> dict[str, float]:
        """The loss per response token of the development examples: `dev`, and by direction where there are several."""
        training = self.config.training
        names = self.dev.directions
        sums = torch.zeros(2, len(names), device=self.model.loaded.device)
        self.model.adapted.eval()
        for _, part in self._own(micro_batches(range(len(self.dev)), self.dev, training.micro, training.micro_tokens)):
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

    def train(self) -> None:
        """Train to the last step, measuring and saving on the way."""
        run_to_end(self, self.config.training)

    def measured(self) -> dict[str, float]:
        """The loss per response token since this was last asked, and that of the development examples."""
        (loss, count), self.since = self.since, (0.0, 0)
        return {"loss": round(loss / max(1, count), 4)} | self.evaluate()

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a run needs to go on: the adapter's weights and AdamW's moments."""
        return training_tensors(self.parameters, self.optimizer)

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps beside `state()`."""
        return {"since": self.since}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from `state()` and `facts()`."""
        restore_training(self.parameters, self.optimizer, tensors)
        self.since = (facts["since"][0], facts["since"][1])

    def save(self) -> None:
        """Write the adapter, its `training.json`, which names folders but not where they lie, and its curve."""
        save_adapter(self.model, self.output)
        model, training, before = self.config.model, self.config.training, self.model.before
        start = Path(model.start).name
        facts = {
            "command": self.command,
            "version": __version__,
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
            "steps": self.step,
            "sentence_pairs_seen": self.step * self.pairs_a_step,
            "training_seconds": round(self.seconds),
            "curve": self.curve,
            **({} if before is None else {"started_from": before}),
        }
        write_training(self.output, facts)
        plot_losses(continued(before, self.curve), self.output / "curve.svg")


def _tokens_hash(examples: Sequence[Tokens]) -> str:
    made = hashlib.sha256()
    for own in examples:
        made.update(np.array([own.response, *own.ids], dtype=np.int64).tobytes())
    return made.hexdigest()
