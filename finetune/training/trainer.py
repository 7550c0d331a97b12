"""What every training run does in the same way: steps of optimisation, measurements, checkpoints, `training.json`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from accelerate import Accelerator

from finetune.training.checkpoints import restore_training, training_tensors, write_training
from finetune.training.curves import plot_scores
from finetune.training.loop import run_to_end
from finetune.training.optimisation import share_gradients, take_step
from finetune.training.settings import Optimisation
from finetune.training.warm_start import continued
from rag_mt import __version__

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Group:
    """Parameters by name that share a learning rate, the highest of the run."""

    parameters: Mapping[str, torch.nn.Parameter]
    learning_rate: float


@dataclass
class Losses:
    """The losses since their means were last taken: by name their weighted sum and the sum of the weights, since a step
    need not have every loss."""

    sums: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, losses: Mapping[str, float], weight: float = 1) -> None:
        """Count the losses of one more step."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + weight * value
            self.weights[name] = self.weights.get(name, 0) + weight

    def taken(self) -> dict[str, float]:
        """The weighted means; what follows is counted anew."""
        means = {name: round(value / self.weights[name], 5) for name, value in self.sums.items()}
        self.sums, self.weights = {}, {}
        return means


class Trainer(ABC, Generic[Batch]):
    """One training run: the model, its optimiser and the step it has come to.

    A training says what a batch is, what its losses are, how the model is measured and what is written of it. Its
    `__init__` calls this one first, which finds the device, and `begin` once the model is there.
    """

    losses_shown: ClassVar[tuple[str, ...]] = ()
    """The losses in the lower half of the curve."""
    scores_shown: ClassVar[str] = "accuracy@1, strict"
    unit: ClassVar[str] = "sentence pairs"
    """What a batch has `batch` of."""
    reduction: ClassVar[Literal["mean", "sum"]] = "mean"
    """How the gradients of several processes become one."""
    measure_first: ClassVar[bool] = False
    """Whether the curve begins with the model before training."""
    evaluates_everywhere: ClassVar[bool] = False
    """Whether all processes evaluate together, or the main one alone."""

    def __init__(self, output: Path, device: str, command: str) -> None:
        self.output, self.command = output, command
        self.accelerator = Accelerator(cpu=device == "cpu")
        self.device_name = str(self.accelerator.device) if device == "auto" else device
        self.before: Mapping[str, Any] | None = None  # the `training.json` of the model that this run starts from
        self.step, self.curve, self.seconds, self.losses = 0, list[dict[str, Any]](), 0.0, Losses()

    def begin(
        self, optimisation: Optimisation, groups: Sequence[Group], models: Sequence[torch.nn.Module], key: str
    ) -> None:
        """Make the optimiser. `models` have dropout; `key` names the settings and data of the run (see
        `save_checkpoint`)."""
        self.optimisation, self.models, self.key = optimisation, models, key
        self.parameters = {name: p for group in groups for name, p in group.parameters.items()}
        self.rates = [group.learning_rate for group in groups]
        self.optimizer = torch.optim.AdamW(
            [{"params": list(g.parameters.values()), "lr": g.learning_rate} for g in groups],
            weight_decay=optimisation.weight_decay,
        )

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """The batch of a step of this process. It depends on the seed, the step and the process alone, so that a run
        can stop and go on, and draws nothing from torch's global generator."""

    @abstractmethod
    def backward(self, batch: Batch) -> dict[str, float]:
        """Add the gradients of a batch to the parameters; returns its losses by name."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """The development scores of the model as it is."""

    @abstractmethod
    def write(self, folder: Path) -> Mapping[str, Any]:
        """Write the model into an existing folder; returns what `training.json` says beside the course of the run."""

    def loss_weight(self, batch: Batch) -> float:
        """How much the losses of a batch count in the means of the curve."""
        return 1

    def after_step(self) -> None:
        """What else changes with the weights."""

    def extra_tensors(self) -> dict[str, torch.Tensor]:
        """What a checkpoint holds beside weights and AdamW's moments."""
        return {}

    def restore_extra(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from `extra_tensors`."""

    @property
    def pairs_a_step(self) -> int:
        """What all processes together see in a step, counted in `unit`."""
        return self.optimisation.batch * int(self.accelerator.num_processes)

    def number(self, step: int) -> int:
        """The number of this process's batch of a step among the batches of all processes."""
        return step * int(self.accelerator.num_processes) + int(self.accelerator.process_index)

    def seed_dropout(self, *place: int) -> None:
        """Begin the dropout that belongs to a place of the run: step, process, part of the batch."""
        torch.manual_seed(hash((self.optimisation.seed, *place)) % 2**63)

    def set_training(self, training: bool) -> None:
        """Switch dropout on or off."""
        for model in self.models:
            model.train(training)

    def run_step(self, batch: Batch | None = None) -> dict[str, float]:
        """One step of optimisation, with the batch that is next or with another one; returns its losses."""
        if batch is None:
            batch = self.batch(self.step)
        self.set_training(True)
        losses = self.backward(batch)
        self.update()
        self.losses.add(losses, self.loss_weight(batch))
        return losses

    def update(self) -> None:
        """Change the weights by the gradients of all processes."""
        share = self.optimisation.share(self.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share
        share_gradients(self.accelerator, self.parameters, self.reduction)
        take_step(self.optimizer, self.parameters, self.optimisation.clip)
        self.after_step()
        self.step += 1

    def scores(self) -> dict[str, float]:
        """The development scores of a point of the curve."""
        return self.evaluate()

    def measured(self) -> dict[str, float]:
        """The mean losses since this was last asked, and development scores; every process has to call it."""
        losses = self.losses.taken()
        return losses | self.scores() if self.evaluates_everywhere or self.accelerator.is_main_process else losses

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a run needs to go on: weights, AdamW's moments, `extra_tensors`."""
        return training_tensors(self.parameters, self.optimizer) | self.extra_tensors()

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps beside `state()`."""
        return {"step": self.step, "curve": self.curve, "seconds": self.seconds, "losses": vars(self.losses)}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from `state()` and `facts()`."""
        restore_training(self.parameters, self.optimizer, tensors)
        self.restore_extra(tensors)
        self.step, self.curve, self.seconds = facts["step"], facts["curve"], facts["seconds"]
        self.losses = Losses(**facts["losses"])

    def train(self) -> None:
        """Take the steps that are left, measuring and saving on the way (see `run_to_end`)."""
        run_to_end(self)

    def save(self) -> None:
        """Write the model with its `training.json` and its curve."""
        self.output.mkdir(parents=True, exist_ok=True)
        facts = {
            "command": self.command,
            "version": __version__,
            **self.write(self.output),
            "steps": self.step,
            f"{self.unit.replace(' ', '_')}_seen": self.step * self.pairs_a_step,
            "training_seconds": round(self.seconds),
            "curve": self.curve,
            **({} if self.before is None else {"started_from": self.before}),
        }
        write_training(self.output, facts)
        self.plot(continued(self.before, self.curve), self.output / "curve.svg")

    def plot(self, points: Sequence[Mapping[str, Any]], path: Path) -> None:
        """Draw the points of this run and of those that it goes on from."""
        plot_scores(points, path, self.losses_shown, self.unit, self.scores_shown)
