"""The loop of a training run: batches made ahead, steps, scores on the way, checkpoints, the model at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from finetune.training.checkpoints import load_checkpoint, save_checkpoint
from rag_mt.base.console import progress

if TYPE_CHECKING:
    from finetune.training.trainer import Trainer

log = logging.getLogger("rag_mt")

Batch = TypeVar("Batch")

CHECKPOINT = "checkpoint"
"""The folder of the last checkpoint in that of a run."""


class Prefetch(Generic[Batch]):
    """Batches of the steps `first` to `steps - 1`, each made in a thread while the step before it is computed."""

    def __init__(self, make: Callable[[int], Batch], first: int, steps: int) -> None:
        self._make, self._steps = make, steps
        self._thread = ThreadPoolExecutor(1, "batches")
        self._next: Future[Batch] | None = None
        self._submit(first)

    def _submit(self, step: int) -> None:
        self._next = self._thread.submit(self._make, step) if step < self._steps else None
        self._step = step

    def take(self, step: int) -> Batch:
        """The batch of a step, one after the other; raises what making it raised."""
        if self._next is None or step != self._step:
            raise IndexError(f"step {step} was asked for: expected step {self._step}, below {self._steps}")
        batch = self._next.result()
        self._submit(step + 1)
        return batch

    def pause(self) -> None:
        """Wait until no batch is being made: a tokenizer must not be used by two threads at once."""
        if self._next is not None:
            wait([self._next])

    def __enter__(self) -> Prefetch[Batch]:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)


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
    with Prefetch(trainer.batch, trainer.step, schedule.steps) as batches:
        while trainer.step < schedule.steps:
            begun = time.monotonic()
            trainer.run_step(batches.take(trainer.step))
            trainer.seconds += time.monotonic() - begun
            bar.update()
            last = trainer.step == schedule.steps
            measuring = last or trainer.step % schedule.evaluate_every == 0
            saving = main and (last or trainer.step % schedule.checkpoint_every == 0)
            if measuring or saving:
                batches.pause()
            if measuring:
                bar.clear()
                _measure(trainer)
            if saving:
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
