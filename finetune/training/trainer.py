"""What every training run does in the same way: steps, measurements, checkpoints, `training.json`.

A checkpoint is one safetensors file with all tensors that the run needs to go on and its facts in JSON; no pickle.
"""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from accelerate import Accelerator
from safetensors import safe_open
from safetensors.torch import save_file

from finetune.training.gradients import share_gradients
from finetune.training.settings import Optimisation
from rag_mt import __version__
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import sync, whole_file, write_json
from rag_mt.models.adapter_files import TRAINING, seen_before

log = logging.getLogger("rag_mt")

Batch = TypeVar("Batch")

CHECKPOINT = "checkpoint"
"""The folder of the last checkpoint in that of a run."""
CHECKPOINT_FILE = "checkpoint.safetensors"
FORMAT = "2"
"""Raised whenever checkpoints hold something else than before."""
Point = Mapping[str, Any]
NO_SCORE = ("step", "pairs", "seconds")
STYLES: Mapping[str, Mapping[str, Any]] = {
    "loss": {"color": "grey", "linestyle": "--"},
    "dev": {"color": "black", "linewidth": 3},
    "average": {"color": "black", "linewidth": 3},
}
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of a parameter."""


class Group(NamedTuple):
    """Parameters by name that share a learning rate, the highest of the run."""

    parameters: Mapping[str, torch.nn.Parameter]
    learning_rate: float


def save_checkpoint(folder: Path, key: str, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
    """Replace the checkpoint in `folder`; a kill leaves the old one or the new one.

    `key` names the settings of the run; `facts` travel in the header of the same file, so that both fit together.
    """
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / "new.safetensors"
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, new, {"format": FORMAT, "key": key, "facts": json.dumps(facts)})
    sync(new)
    new.replace(folder / CHECKPOINT_FILE)
    sync(folder)


def load_checkpoint(folder: Path, key: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]] | None:
    """Tensors and facts of the checkpoint in `folder`, None if there is none; raises UserError if it was written with
    other settings, or by another version."""
    path = folder / CHECKPOINT_FILE
    if not path.is_file():
        return None
    with safe_open(path, "pt") as file:
        header = file.metadata()
        if header.get("format") != FORMAT:
            raise UserError(f"{folder} was written by another version of rag_mt: remove it to start again")
        if header.get("key") != key:
            raise UserError(
                f"{folder.parent} holds a run with other settings or data: give another --output, or remove {folder} "
                "to start again"
            )
        return {name: file.get_tensor(name) for name in file.keys()}, json.loads(header["facts"])  # noqa: SIM118


class Trainer(ABC, Generic[Batch]):
    """One training run: the model, its optimiser and the step it has come to.

    The `__init__` of a training calls this one first, which finds the device, and `begin` once the model is there.
    """

    losses_shown: ClassVar[tuple[str, ...]] = ()
    """The losses in the lower half of the curve; without any, all its values are losses."""
    scores_shown: ClassVar[str] = "accuracy@1, strict, %"
    unit: ClassVar[str] = "sentence pairs"
    """What a batch has `batch` of."""
    shares_batches: ClassVar[bool] = False
    """Whether `batch` is that of all processes, which add their gradients and evaluate together; otherwise each has as
    much, gradients are averaged, and the main process evaluates."""
    measure_first: ClassVar[bool] = False
    """Whether the curve begins with the model before training."""

    def __init__(self, output: Path, device: str, command: str) -> None:
        self.output, self.command = output, command
        self.accelerator = Accelerator(cpu=device == "cpu")
        self.device_name = str(self.accelerator.device) if device == "auto" else device
        self.before: Mapping[str, Any] | None = None  # the `training.json` of the model that this run starts from
        self.step, self.curve, self.seconds = 0, list[dict[str, Any]](), 0.0
        # By name, since the last point of the curve: a step need not have every loss.
        self.loss_sums, self.loss_weights = defaultdict[str, float](float), defaultdict[str, float](float)

    def begin(
        self, optimisation: Optimisation, groups: Sequence[Group], models: Sequence[torch.nn.Module], key: str
    ) -> None:
        """Make the optimiser. `models` have dropout; `key` names the settings and data of the run (see
        `save_checkpoint`)."""
        self.optimisation, self.models, self.key = optimisation, models, key
        self.parameters = {name: p for parameters, _ in groups for name, p in parameters.items()}
        self.rates = [rate for _, rate in groups]
        lists = [{"params": list(parameters.values()), "lr": rate} for parameters, rate in groups]
        self.optimizer = torch.optim.AdamW(lists, weight_decay=optimisation.weight_decay)

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

    def scores(self) -> dict[str, float]:
        """The development scores of a point of the curve."""
        return self.evaluate()

    @property
    def pairs_a_step(self) -> int:
        """What all processes together see in a step, counted in `unit`."""
        return self.optimisation.batch * (1 if self.shares_batches else int(self.accelerator.num_processes))

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

    def train(self) -> None:
        """Take the steps that are left, from the last checkpoint if there is one, measuring and saving on the way; the
        next batch is made in a thread meanwhile. Raises UserError if the checkpoint is of other settings."""
        schedule, folder = self.optimisation, self.output / CHECKPOINT
        is_main = bool(self.accelerator.is_main_process)
        if (checkpoint := load_checkpoint(folder, self.key)) is not None:
            self.restore(*checkpoint)
            log.info("going on from step %d of %s", self.step, folder)
            if is_main and self.step >= schedule.steps:  # stopped after its last checkpoint
                self.save()
        if self.measure_first and not self.curve:
            self.measure()
        if self.step >= schedule.steps:
            return
        bar = progress(schedule.steps, "steps", "training", initial=self.step, show=is_main)
        with ThreadPoolExecutor(1, "batches") as thread:
            batch = thread.submit(self.batch, self.step)
            while self.step < schedule.steps:
                begun = time.monotonic()
                current = batch.result()
                if self.step + 1 < schedule.steps:
                    batch = thread.submit(self.batch, self.step + 1)
                self.run_step(current)
                self.seconds += time.monotonic() - begun
                bar.update()
                last = self.step == schedule.steps
                measuring = last or self.step % schedule.evaluate_every == 0
                saving = is_main and (last or self.step % schedule.checkpoint_every == 0)
                if measuring or saving:
                    wait([batch])  # a tokenizer must not be used by two threads at once
                if measuring:
                    bar.clear()
                    self.measure()
                if saving:
                    save_checkpoint(folder, self.key, self.state(), self.facts())
                    self.save()
        bar.close()

    def run_step(self, batch: Batch | None = None) -> dict[str, float]:
        """One step of optimisation, with the batch that is next or with another one; returns its losses."""
        if batch is None:
            batch = self.batch(self.step)
        self.set_training(True)
        losses = self.backward(batch)
        self.update()
        weight = self.loss_weight(batch)
        for name, loss in losses.items():
            self.loss_sums[name] += weight * loss
            self.loss_weights[name] += weight
        return losses

    def update(self) -> None:
        """Change the weights by the gradients of all processes, which are clipped together and then dropped."""
        share = self.optimisation.share(self.step)
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * share
        share_gradients(self.accelerator, self.parameters, "sum" if self.shares_batches else "mean")
        torch.nn.utils.clip_grad_norm_(list(self.parameters.values()), self.optimisation.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.after_step()
        self.step += 1

    def measure(self) -> None:
        """Add a point to the curve: the mean losses since the last one, and development scores."""
        is_main = self.accelerator.is_main_process
        point: dict[str, Any] = {
            "step": self.step,
            "pairs": self.step * self.pairs_a_step,
            "seconds": round(self.seconds),
        }
        point |= {name: round(total / self.loss_weights[name], 5) for name, total in self.loss_sums.items()}
        if self.shares_batches or is_main:
            point |= self.scores()
        self.curve.append(point)
        self.loss_sums.clear()
        self.loss_weights.clear()
        if is_main:
            log.info("%s", "  ".join(f"{name} {value}" for name, value in point.items()))

    def state(self) -> dict[str, torch.Tensor]:
        """All tensors that a run needs to go on: weights, AdamW's moments, `extra_tensors`."""
        tensors = {f"parameter.{name}": p.detach() for name, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            tensors |= {f"adam.{key}.{name}": value for key, value in self.optimizer.state[parameter].items()}
        return tensors | self.extra_tensors()

    def facts(self) -> dict[str, Any]:
        """What a checkpoint keeps beside `state()`."""
        losses = {"sums": self.loss_sums, "weights": self.loss_weights}
        return {"step": self.step, "curve": self.curve, "seconds": self.seconds, "losses": losses}

    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from `state()` and `facts()`."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"parameter.{name}"])
                self.optimizer.state[parameter] = {
                    key: tensors[f"adam.{key}.{name}"].to("cpu" if key == "step" else parameter.device)
                    for key in MOMENTS
                    if f"adam.{key}.{name}" in tensors
                }
        self.restore_extra(tensors)
        self.step, self.curve, self.seconds = facts["step"], facts["curve"], facts["seconds"]
        self.loss_sums.update(facts["losses"]["sums"])
        self.loss_weights.update(facts["losses"]["weights"])

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
        write_json(self.output / TRAINING, facts)
        points = continued(self.before, self.curve)
        plot_curve(points, self.output / "curve.svg", self.losses_shown, self.scores_shown, self.unit)


def continued(before: Mapping[str, Any] | None, curve: Sequence[Point]) -> list[Point]:
    """The points of a run and of those it started from, one from the other, with the sentence pairs of all counted.
    `before` is the `training.json` of the run that this one goes on from, if there is one."""
    if before is None:
        return list(curve)
    seen, _ = seen_before(before)
    earlier = continued(before.get("started_from"), before.get("curve", []))
    return [*earlier, *({**point, "pairs": point["pairs"] + seen} for point in curve)]


def plot_curve(curve: Sequence[Point], path: Path, losses: Sequence[str], scores: str, unit: str) -> None:
    """Draw the losses of those names (all values, if there are none) and, above, the other values, which are `scores`,
    against what was seen, counted in `unit`, as SVG; nothing if there is no point yet or no matplotlib."""
    if not curve:
        return
    if find_spec("matplotlib") is None:
        log.info("%s is not drawn: it needs matplotlib: `pip install 'rag-mt[train]'`", path)
        return
    from matplotlib.figure import Figure

    names = [name for name in curve[-1] if name not in NO_SCORE]
    panes = {"loss": losses or names}
    if losses:
        panes = {f"development, {scores}": [name for name in names if name not in losses], **panes}
    figure = Figure(figsize=(7, 7 if losses else 5), layout="constrained")
    rows = figure.subplots(len(panes), sharex=True, squeeze=False)
    for (axes,), (label, pane) in zip(rows, panes.items(), strict=True):
        for name in pane:
            if points := [(point["pairs"], point[name]) for point in curve if name in point]:
                axes.plot(*zip(*points, strict=True), label=name, marker=".", **STYLES.get(name, {}))
        if axes.lines:
            axes.legend(ncols=2)
        axes.set_ylabel(label)
    axes.set_xlabel(f"{unit} seen")
    with whole_file(path) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})
