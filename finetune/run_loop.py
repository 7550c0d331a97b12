"""The loop of a training run: steps, scores on the way, checkpoints, the model at the end."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from finetune.checkpoints import load_checkpoint, save_checkpoint
from rag_mt.progress import progress

log = logging.getLogger("rag_mt")


class Schedule(Protocol):
    """How long a run is, in steps, and how often it is looked at."""

    @property
    def steps(self) -> int: ...
    @property
    def evaluate_every(self) -> int: ...
    @property
    def checkpoint_every(self) -> int: ...


class Run(Protocol):
    """A training run. `pairs_a_step` counts the pairs of all processes; `curve` has a point per evaluation."""

    key: str
    output: Path
    step: int
    curve: list[dict[str, Any]]
    seconds: float
    accelerator: Any

    @property
    def pairs_a_step(self) -> int: ...
    def run_step(self) -> dict[str, float]: ...
    def evaluate(self) -> dict[str, float]: ...
    def state(self) -> dict[str, torch.Tensor]: ...
    def restore(self, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None: ...
    def save(self) -> None: ...


def run_to_end(run: Run, schedule: Schedule) -> None:
    """Take the steps that are left, from the last checkpoint in `output/checkpoint` if there is one.

    Raises UserError if that was written with other settings.
    """
    place = run.output / "checkpoint"
    main = run.accelerator.is_main_process
    if (found := load_checkpoint(place, run.key)) is not None:
        run.restore(*found)
        log.info("going on from step %d of %s", run.step, place)
        if main and run.step >= schedule.steps:  # stopped after its last checkpoint
            run.save()
    bar = progress(schedule.steps, "steps", "training", initial=run.step, show=main)
    begun, sums = time.monotonic() - run.seconds, list[dict[str, float]]()
    while run.step < schedule.steps:
        sums.append(run.run_step())
        bar.update()
        run.seconds = time.monotonic() - begun
        last = run.step == schedule.steps
        if run.step % schedule.evaluate_every == 0 or last:
            losses = {k: round(float(np.mean([s[k] for s in sums])), 4) for k in sums[0]}
            if main:
                point: dict[str, float] = {"step": run.step, "pairs": run.step * run.pairs_a_step}
                point["seconds"] = round(run.seconds)
                point |= losses | run.evaluate()
                run.curve.append(point)
                log.info("%s", "  ".join(f"{k} {v}" for k, v in point.items()))
            sums.clear()
        if main and (run.step % schedule.checkpoint_every == 0 or last):
            facts = {"step": run.step, "curve": run.curve, "seconds": run.seconds}
            save_checkpoint(place, run.key, run.state(), facts)
            run.save()
    bar.close()
