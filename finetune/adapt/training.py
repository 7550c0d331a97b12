"""The training of an adaptation: the adapter of a direction goes on with the examples of an index."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file, save_file

from finetune.adapt.config import AdaptConfig
from finetune.lora.config import Config, DataConfig
from finetune.lora.data import Data
from finetune.lora.examples import Example
from finetune.lora.train import LoraTrainer
from rag_mt.base.files import read_json, whole_folder, write_json
from rag_mt.models.adapter_files import CONFIG, TRAINING, WEIGHTS, checked_adapter

POINTS = 4
"""Measurements of the held-out examples beside that before the training."""
LORA_A = ".lora_A."
"""In the names of the factors A."""
PROBED = 3
"""Steps to tell the speed by, the first of which is not counted."""


class AdaptTrainer(LoraTrainer):
    """A training whose curve begins with the adapter that it goes on from."""

    measure_first: ClassVar[bool] = True


def training_config(config: AdaptConfig, llm: str, start: str, dtype: str, steps: int) -> Config:
    """The settings of a training of so many steps from the adapter `start`, whose rank and layers it takes over."""
    model = replace(config.model, llm=llm, start=start)
    if start:
        shape: dict[str, Any] = read_json(checked_adapter(start) / CONFIG)
        model = replace(
            model, rank=shape["r"], alpha=shape["lora_alpha"], modules=tuple(sorted(shape["target_modules"]))
        )
    training = replace(
        config.training,
        steps=steps,
        warm_up=min(config.training.warm_up, steps // 5),
        evaluate_every=max(1, ceil(steps / POINTS)),
        dtype=config.training.dtype if dtype == "auto" else dtype,
        seed=config.text.seed,
    )
    return Config(model, DataConfig(), training)


def steps_for(examples: int, passes: int, batch: int) -> int:
    """The steps in which each of the examples is seen so often."""
    return max(1, ceil(examples * passes / batch))


def seconds_per_example(config: Config, examples: Sequence[Example], folder: Path, device: str) -> float:
    """Measured on a few steps; nothing is written."""
    trainer = AdaptTrainer(config, Data(examples), folder, device)
    trainer.run_step()
    begin = time.monotonic()
    for _ in range(PROBED - 1):
        trainer.run_step()
    return (time.monotonic() - begin) / (PROBED - 1) / config.training.batch


def averaged(start: str, tuned: Path, change: float, folder: Path) -> None:
    """Write the adapter `tuned` into `folder`, each factor of its products B A as start + change * (tuned - start); its
    `training.json` tells the change. Without a `start` B began with 0 and is multiplied by the change, and A stays."""
    weights = load_file(tuned / WEIGHTS)
    before = load_file(checked_adapter(start) / WEIGHTS) if start else {}
    for name, weight in weights.items():
        began = before[name] if before else weight if LORA_A in name else torch.zeros_like(weight)
        weights[name] = torch.lerp(began.float(), weight.float(), change).to(weight.dtype)
    with whole_folder(folder) as part:
        for file in tuned.iterdir():
            if file.is_file() and file.name != WEIGHTS:
                shutil.copyfile(file, part / file.name)
        save_file(weights, part / WEIGHTS, metadata={"format": "pt"})
        if (part / TRAINING).is_file():
            write_json(part / TRAINING, {**read_json(part / TRAINING), "average": {"change": change}})


def trained(config: Config, data: Data, folder: Path, device: str, command: str) -> dict[str, Any]:
    """Train the adapter in `folder`, as far as an earlier run did not; returns its `training.json`."""
    facts = folder / TRAINING
    if not facts.is_file() or read_json(facts)["steps"] < config.training.steps:
        AdaptTrainer(config, data, folder, device, command).train()
    written: dict[str, Any] = read_json(facts)
    return written
