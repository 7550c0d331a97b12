"""The loop of a training run: batches made ahead in a thread, exact resuming, errors on the way."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from finetune.training.settings import Optimisation
from finetune.training.trainer import Group, Trainer
from rag_mt.base.console import run
from rag_mt.base.errors import UserError


@dataclass(frozen=True)
class Settings(Optimisation):
    steps: int = 12
    batch: int = 4
    learning_rate: float = 0.1
    evaluate_every: int = 4
    checkpoint_every: int = 3


class TinyTrainer(Trainer[torch.Tensor]):
    """A linear layer with dropout that learns to give the sum of its input; batches beyond `last` cannot be made."""

    losses_shown = ("square",)
    measure_first = True

    def __init__(self, output: Path, last: int = 100) -> None:
        super().__init__(output, "cpu", "python -m tiny")
        self.last = last
        torch.manual_seed(1)
        self.model = torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(3, 1))
        self.begin(Settings(), [Group(dict(self.model.named_parameters()), 0.1)], [self.model], "tiny")

    def batch(self, step: int) -> torch.Tensor:
        if step > self.last:
            raise UserError(f"batch {step} has no text: give other data")
        return torch.rand(4, 3, generator=torch.Generator().manual_seed(step))

    def backward(self, batch: torch.Tensor) -> dict[str, float]:
        self.seed_dropout(self.step)
        loss = (self.model(batch) - batch.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return {"square": float(loss.detach())}

    def evaluate(self) -> dict[str, float]:
        self.set_training(False)
        with torch.no_grad():
            return {"average": round(float(self.model(torch.ones(1, 3))), 4)}

    def write(self, folder: Path) -> Mapping[str, Any]:
        return {"kind": "tiny"}


def test_batches_are_made_one_ahead_in_one_thread_and_not_while_the_model_is_measured(tmp_path: Path) -> None:
    made: list[int] = []
    threads = set()

    class Watched(TinyTrainer):
        def batch(self, step: int) -> torch.Tensor:
            time.sleep(0.002)
            made.append(step)
            threads.add(threading.current_thread())
            return super().batch(step)

        def evaluate(self) -> dict[str, float]:
            assert made == list(range(min(self.step + 1, 12) if self.step else 0))
            return super().evaluate()

    Watched(tmp_path).train()
    assert made == list(range(12))
    assert len(threads) == 1 and threading.current_thread() not in threads


def test_a_stopped_run_ends_like_one_in_one_piece_and_its_error_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = TinyTrainer(tmp_path / "whole"), TinyTrainer(tmp_path / "parts", last=7)
    whole.train()

    def train(_: object) -> int:
        parts.train()
        return 0

    assert run(train, None) == 2  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("batch 8 has no text: give other data") == 1
    assert parts.step == 8
    again = TinyTrainer(tmp_path / "parts")
    again.train()
    for (name, tensor), other in zip(whole.state().items(), again.state().values(), strict=True):
        assert torch.equal(tensor, other), name
    curves = [[{**point, "seconds": 0} for point in trainer.curve] for trainer in (whole, again)]
    assert curves[0] == curves[1]
    assert [point["step"] for point in curves[0]] == [0, 4, 8, 12]
    assert curves[0][-1]["square"] < curves[0][1]["square"]


def test_losses_are_means_by_weight(tmp_path: Path) -> None:
    trainer = TinyTrainer(tmp_path)
    for losses, weight in (({"a": 1.0, "b": 2.0}, 1.0), ({"a": 4.0}, 3.0)):
        trainer.backward = lambda batch, losses=losses: losses  # type: ignore[method-assign, misc]
        trainer.loss_weight = lambda batch, weight=weight: weight  # type: ignore[method-assign, misc]
        trainer.run_step()
    trainer.measure()
    trainer.measure()
    assert [point.get("a") for point in trainer.curve] == [3.25, None]
    assert [point.get("b") for point in trainer.curve] == [2.0, None]
