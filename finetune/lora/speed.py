"""Seconds per step of our LoRA tuning and of the plain recipe: random padded batches and the logits of all positions.

    python -m finetune.lora.speed --config configs/lora-embedded.toml [--examples FILE ...] [--steps 5]

Both take the same examples in batches of the same size, in the same number format with the same adapter, attention and
optimiser; they run in turn, and the first step of each is left out. Without --examples they are some of the sample
corpus.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from finetune.lora.__main__ import data_of
from finetune.lora.batches import collated
from finetune.lora.config import Config
from finetune.lora.train import LoraTrainer
from finetune.training.sampling import rows_of
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.settings import changes_of

IGNORED = -100
"""The label of tokens without a loss (transformers)."""


def plain_step(trainer: LoraTrainer) -> float:
    """`LoraTrainer.run_step` as most scripts have it; returns the loss.

    Examples are taken as they come, `micro` at a time and padded, with the model's own loss, for which it computes the
    logits of every position.
    """
    training, model = trainer.config.training, trainer.model
    rows = rows_of(trainer.step, training.batch, len(trainer.tokens), training.seed)
    learnt, total = int(trainer.tokens.answers[rows].sum()), 0.0
    model.adapted.train()
    for begin in range(0, len(rows), training.micro):
        batch = collated([trainer.tokens[row] for row in rows[begin : begin + training.micro]], trainer.pad)
        labels = torch.full_like(batch.input_ids, IGNORED)
        labels[batch.rows, batch.columns + 1] = batch.wanted
        ids, mask, labels = (tensor.to(model.loaded.device) for tensor in (batch.input_ids, batch.mask, labels))
        with model.autocast():
            made = model.adapted(input_ids=ids, attention_mask=mask, labels=labels, num_items_in_batch=learnt)
        made.loss.backward()
        total += float(made.loss.detach())
    trainer.update()
    return total


def compare(options: argparse.Namespace) -> int:
    """Time both in turn; print medians and their ratio."""
    config = Config.read(Path(options.config), changes_of(options.set))
    data = data_of(options.examples, [], config.data, options.device)
    trainer = LoraTrainer(config, data, Path("unused"), options.device)
    steps: dict[str, Callable[[], float]] = {
        "plain recipe": lambda: plain_step(trainer),
        "ours": lambda: trainer.run_step()["loss"],
    }
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
    tokens = trainer.tokens.lengths
    parts = f"{training.micro} at a time"
    parts += f" (ours: {training.micro_tokens} tokens)" if training.micro_tokens else ""
    where = f"{device} with {torch.get_num_threads()} threads" if device.type == "cpu" else str(device)
    sys.stdout.write(
        f"{config.model.llm}, {str(trainer.model.loaded.dtype).removeprefix('torch.')} on {where}, batches of "
        f"{training.batch} examples of {tokens.mean():.0f} tokens, {parts}, median of "
        f"{options.steps} steps\n"
    )
    slow = statistics.median(seconds["plain recipe"][1:])
    for name, own in seconds.items():
        median = statistics.median(own[1:])
        sys.stdout.write(f"{name:14s}{median:8.2f} s a step {slow / median:6.2f} x\n")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.lora.speed", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/lora-embedded.toml")
    parser.add_argument("--examples", nargs="+", default=[], metavar="FILE", help="default: of the sample corpus")
    parser.add_argument("--steps", type=positive, default=5, metavar="N", help="timed steps of each (default: 5)")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    return run(compare, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
