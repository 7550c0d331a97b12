"""The loop of a training run: steps, scores on the way, checkpoints, the model at the end."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from finetune.training.checkpoints import load_checkpoint, save_checkpoint
from rag_mt.base.progress import progress

if TYPE_CHECKING:
    from finetune.training.trainer import Trainer

log = logging.getLogger("rag_mt")

CHECKPOINT = "checkpoint"
"""The folder of the last checkpoint in that of a run."""


def run_to_end(trainer: Trainer[Any]) -> None:
    """Take the steps that are left, from the last checkpoint in `output/checkpoint` if there is one.

    Raises UserError if that checkpoint was written with other settings.
    """
    schedule, place = trainer.optimisation, trainer.output / CHECKPOINT
    main = trainer.accelerator.is_main_process
    if (checkpoint := load_checkpoint(place, trainer.key)) is not None:
        trainer.restore(*checkpoint)
        log.info("going on from step %d of %s", trainer.step, place)
        if main and trainer.step >= schedule.steps:  # stopped after its last checkpoint
            trainer.save()
    if trainer.measure_first and not trainer.curve:
        _measure(trainer)
    bar = progress(schedule.steps, "steps", "training", initial=trainer.step, show=main)
    while trainer.step < schedule.steps:
        begun = time.monotonic()
        trainer.run_step(trainer.batch(trainer.step))
        trainer.seconds += time.monotonic() - begun
        bar.update()
        last = trainer.step == schedule.steps
        if trainer.step % schedule.evaluate_every == 0 or last:
            bar.clear()
            _measure(trainer)
        if main and (trainer.step % schedule.checkpoint_every == 0 or last):
            save_checkpoint(place, trainer.key, trainer.state(), trainer.facts())
            trainer.save()
    bar.close()


def _measure(trainer: Trainer[Any]) -> None:
    """Add a point to the curve."""
    point = {
        "step": trainer.step,
        "pairs": trainer.step * trainer.pairs_a_step,
        "seconds": round(trainer.seconds),
        **trainer.measured(),
    }
    trainer.curve.append(point)
    if trainer.accelerator.is_main_process:
        log.info("%s", "  ".join(f"{name} {value}" for name, value in point.items()))
