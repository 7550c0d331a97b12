"""The loop of a training run: steps, scores on the way, checkpoints, the model at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from finetune.training.checkpoints import load_checkpoint, save_checkpoint
from rag_mt.base.progress import progress

log = logging.getLogger("rag_mt")

CHECKPOINT = "checkpoint"
"""The folder of the last checkpoint in that of a run."""


class Schedule(Protocol):
    """How long a run is, in steps, and how often it is looked at."""

    @property
    def steps(self) -> int: ...
    @property
    def evaluate_every(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...


class Run(Protocol):
    """A training run. `pairs_a_step` counts the pairs of all processes; `curve` has a point per measurement, `seconds`
    are those of the steps.

    `measured` gives the losses since the last measurement and scores; every process calls it, the point of the main one
    counts. `state` and `facts` are what a checkpoint needs beside step, curve and seconds.
    """

    key: str
    output: Path
    step: int
    curve: list[dict[str, Any]]
    seconds: float
    accelerator: Any

    @property
    def pairs_a_step(self) -> int: ...
    def run_step(self) -> Any: ...
    def measured(self) -> Mapping[str, float]: ...
    def state(self) -> dict[str, torch.Tensor]: ...
    def facts(self) -> dict[str, Any]: ...
    def restore(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None: ...
    def save(self) -> None: ...


@dataclass
class Losses:
    """The losses of the steps since their means were last taken: by name their sum and how many there were, since a
    step need not have every loss."""

    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, losses: Mapping[str, float]) -> None:
        """Count those of one more step."""
        for name, value in losses.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + 1

    def taken(self) -> dict[str, float]:
        """The means, and begin again."""
        means = {name: round(value / self.counts[name], 5) for name, value in self.sums.items()}
        self.sums, self.counts = {}, {}
        return means


def run_to_end(run: Run, schedule: Schedule, measure_first: bool = False) -> None:
    """Take the steps that are left, from the last checkpoint in `output/checkpoint` if there is one; with
    `measure_first` the curve begins before the first step.

    Raises UserError if that checkpoint was written with other settings.
    """
    place = run.output / CHECKPOINT
    main = run.accelerator.is_main_process
    if (found := load_checkpoint(place, run.key)) is not None:
        tensors, facts = found
        run.step, run.curve, run.seconds = facts["step"], facts["curve"], facts["seconds"]
        run.restore(tensors, facts)
        log.info("going on from step %d of %s", run.step, place)
        if main and run.step >= schedule.steps:  # stopped after its last checkpoint
            run.save()
    if measure_first and not run.curve:
        _measure(run)
    bar = progress(schedule.steps, "steps", "training", initial=run.step, show=main)
    while run.step < schedule.steps:
        begun = time.monotonic()
        run.run_step()
        run.seconds += time.monotonic() - begun
        bar.update()
        last = run.step == schedule.steps
        if run.step % schedule.evaluate_every == 0 or last:
            bar.clear()
            _measure(run)
        if main and (run.step % schedule.checkpoint_every == 0 or last):
            own = {"step": run.step, "curve": run.curve, "seconds": run.seconds}
            save_checkpoint(place, run.key, run.state(), own | run.facts())
            run.save()
    bar.close()


def _measure(run: Run) -> None:
    """Add a point to the curve."""
    point = {"step": run.step, "pairs": run.step * run.pairs_a_step, "seconds": round(run.seconds)}
    run.curve.append(point | dict(run.measured()))
    if run.accelerator.is_main_process:
        log.info("%s", "  ".join(f"{name} {value}" for name, value in run.curve[-1].items()))
