"""Seconds per step of our LoRA tuning and of the plain recipe: random padded batches and the logits of all positions.

    python -m finetune.lora.speed --config lora-embedded [--examples FILE ...] [--steps 5]

Both take the same examples in batches of the same size, in the same number format with the same adapter, attention and
optimiser; they run in turn, and the first step of each is left out. Without --examples they are some of the sample
corpus.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import torch

from finetune.lora.config import Config
from finetune.lora.data import data_of
from finetune.lora.train import LoraTrainer, Tokens, collated
from finetune.training.sampling import rows_of
from finetune.training.settings import read_config, settings_parser
from rag_mt.base.console import OK, positive, progress, run

IGNORED = -100
"""The label of tokens without a loss (transformers)."""


def padded(tokens: Sequence[Tokens], pad: int) -> dict[str, torch.Tensor]:
    """The examples as most scripts have them, an example a row: `input_ids`, `attention_mask` and `labels` (rows,
    tokens)."""
    batch = collated(tokens, pad, width=0)
    labels = torch.full_like(batch.input_ids, IGNORED)
    labels[batch.rows, batch.columns + 1] = batch.wanted
    mask = batch.positions < torch.tensor([len(example) for example in tokens])[:, None]
    return {"input_ids": batch.input_ids, "attention_mask": mask, "labels": labels}


def plain_step(trainer: LoraTrainer) -> float:
    """`LoraTrainer.run_step` as most scripts have it; returns the loss.

    Examples are taken as they come, `micro` at a time and padded, with the model's own loss, for which it computes the
    logits of every position.
    """
    training, model = trainer.config.training, trainer.model
    rows = rows_of(trainer.step, training.batch, len(trainer.tokens), training.seed)
    answers, total = sum(trainer.tokens[row].answers for row in rows), 0.0
    model.adapted.train()
    for begin in range(0, len(rows), training.micro):
        batch = padded([trainer.tokens[row] for row in rows[begin : begin + training.micro]], trainer.pad)
        batch = {name: tensor.to(model.loaded.device) for name, tensor in batch.items()}
        with model.autocast():
            output = model.adapted(**batch, num_items_in_batch=answers)
        output.loss.backward()
        total += float(output.loss.detach())
    trainer.update()
    return total


def compare(options: argparse.Namespace) -> int:
    """Time both in turn; print medians and their ratio."""
    config = read_config(options, Config)
    data = data_of(options.examples, [], config.data, options.device)
    trainer = LoraTrainer(config, data, Path("unused"), options.device)
    steps: dict[str, Callable[[], object]] = {"plain recipe": lambda: plain_step(trainer), "ours": trainer.run_step}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    bar = progress(2 * (options.steps + 1), "steps", "timing")
    for number in range(options.steps + 1):
        for name, step in steps.items():
            trainer.step = number  # the same examples for both
            begin = time.perf_counter()
            step()
            seconds[name].append(time.perf_counter() - begin)
            bar.update()
    bar.close()
    training, device = config.training, trainer.model.loaded.device
    parts = f"{training.micro} at a time"
    parts += f" (ours: {training.micro_tokens} tokens)" if training.micro_tokens else ""
    machine = f"{device} with {torch.get_num_threads()} threads" if device.type == "cpu" else str(device)
    sys.stdout.write(
        f"{config.model.llm}, {str(trainer.model.loaded.dtype).removeprefix('torch.')} on {machine}, batches of "
        f"{training.batch} examples of {trainer.mean_tokens:.0f} tokens, {parts}, median of {options.steps} steps\n"
    )
    medians = {name: median(times[1:]) for name, times in seconds.items()}
    for name, value in medians.items():
        sys.stdout.write(f"{name:14s}{value:8.2f} s a step {medians['plain recipe'] / value:6.2f} x\n")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "lora.speed",
        __doc__,
        Config,
        examples=["--config lora-embedded --steps 5"],
    )
    parser.add_argument(
        "--examples", nargs="+", default=[], metavar="FILE", help="examples to time (default: of the sample corpus)"
    )
    parser.add_argument("--steps", type=positive, default=5, metavar="N", help="timed steps of each")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    return run(compare, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
