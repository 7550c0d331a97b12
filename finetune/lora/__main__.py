"""Tune a language model for translation with hints: a LoRA adapter for one method and group of directions.

    python -m finetune.lora --config lora-embedded --examples phrase.to-en.jsonl \\
        --dev phrase.to-en.dev.jsonl --output ADAPTER [--merge FOLDER]

`python -m finetune.lora.data` makes the examples. A stopped run goes on from its last checkpoint. On several GPUs:
`accelerate launch -m finetune.lora ...`; the processes share each batch, so that their number changes the time and
nothing else but rounding. Without --examples sentences of the sample corpus are used, to try the command out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.lora.config import Config
from finetune.lora.data import data_of
from finetune.lora.model import write_merged
from finetune.lora.train import LoraTrainer
from finetune.training.settings import run_training, settings_parser, trial_folder
from finetune.training.trainer import CHECKPOINT
from rag_mt.base.console import note
from rag_mt.base.errors import UserError
from rag_mt.models.adapter_files import WEIGHTS
from rag_mt.models.loading import resolve_model


def _check_place(output: Path) -> None:
    """Raise UserError where an adapter that is not this run's would be overwritten."""
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is no folder: name one for the adapter")
    if (output / WEIGHTS).exists() and not (output / CHECKPOINT).is_dir():
        raise UserError(f"{output} has an adapter and no checkpoint to go on from: give --output another folder")


def tune(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train the adapter, and merge it if that is asked for."""
    merged = Path(options.merge) if options.merge else None
    if merged and merged.exists():
        raise UserError(f"{merged} is there already: give --merge another folder, or remove it")
    if options.dev and not options.examples:
        raise UserError("--dev without --examples: give the examples to train on too")
    output = Path(options.output or "")
    if options.output:
        _check_place(output)
    resolve_model(config.model.llm)  # a model that cannot be had is reported at once
    data = data_of(options.examples, options.dev, config.data, options.device)
    if not options.output:
        output = trial_folder(options, config, [str(example) for example in (*data.train, *data.dev)])
    trainer = LoraTrainer(config, data, output, options.device, command)
    if trainer.accelerator.is_main_process:
        longest = min(config.training.cutoff, trainer.model.llm.context_length)
        note(
            f"{len(trainer.tokens)} examples of {trainer.mean_tokens:.0f} tokens, {trainer.mean_answers:.0f} of them "
            f"learnt; left out, having over {longest} tokens: {trainer.left_out}, to measure on {trainer.dev_left_out}"
        )
    trainer.train()
    if trainer.accelerator.is_main_process:
        note(f"the adapter is in {output} (`--adapter {output}` of `rag-mt translate` takes it)")
        if merged:
            write_merged(config, output, merged, trainer.model.loaded.dtype)
            note(f"the merged model is in {merged} (use it with --wrapper {trainer.wrapper})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "lora",
        __doc__,
        Config,
        examples=[
            "--config lora-embedded --max-steps 5",
            "--config lora-embedded --examples phrase.to-en.jsonl --dev phrase.to-en.dev.jsonl --output ADAPTER",
        ],
    )
    parser.add_argument("--examples", nargs="+", default=[], metavar="FILE", help="examples to train on")
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="examples for the loss during training")
    parser.add_argument("--merge", metavar="DIR", help="also write the model with the adapter merged into it")
    return run_training(parser, Config, ["examples", "dev"], tune, arguments, "adapter", trial=True)


if __name__ == "__main__":
    sys.exit(main())
