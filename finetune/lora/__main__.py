"""Tune a language model for translation with hints: a LoRA adapter for one method and group of directions.

    python -m finetune.lora --config configs/lora-embedded.toml --examples phrase.to-en.jsonl \\
        --dev phrase.to-en.dev.jsonl --output ADAPTER [--merge FOLDER]

`python -m finetune.lora.data` makes the examples. A stopped run goes on from its last checkpoint. On several GPUs:
`accelerate launch -m finetune.lora ...`; the processes share each batch, so that their number changes the time and
nothing else but rounding. Without --examples sentences of the sample corpus are used, to try the command out.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.lora.config import Config, DataConfig
from finetune.lora.examples import facts_of, read_examples
from finetune.lora.model import write_merged
from finetune.lora.quick import quick_data
from finetune.lora.train import Data, LoraTrainer
from finetune.training.command import run_training, training_parser, trial_folder
from finetune.training.loop import CHECKPOINT
from rag_mt.base.console import note
from rag_mt.base.errors import UserError
from rag_mt.models.adapters import WEIGHTS

log = logging.getLogger("rag_mt")


def data_of(examples: Sequence[str], dev: Sequence[str], settings: DataConfig, device: str) -> Data:
    """The examples of files, or those of the sample corpus where no file is named."""
    if not examples:
        note("no --examples: trying out on sentences of the sample corpus, which makes no adapter for real use")
        return Data(*quick_data(settings, device))
    own, measured = [Path(p) for p in examples], [Path(p) for p in dev]
    facts = {"examples": facts_of(own), "dev": facts_of(measured)}
    return Data(read_examples(own), read_examples(measured), facts)


def _check_place(output: Path) -> None:
    """Raise UserError where an adapter that is not this run's would be overwritten."""
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is no folder: name one for the adapter")
    if (output / WEIGHTS).exists() and not (output / CHECKPOINT).is_dir():
        raise UserError(f"{output} has an adapter and no checkpoint to go on from: give --output another folder")


def tune(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train the adapter, and merge it if that is asked for."""
    merged = Path(options.merge) if options.merge else None
    if merged is not None and merged.exists():
        raise UserError(f"{merged} is there already: give --merge another folder, or remove it")
    if options.dev and not options.examples:
        raise UserError("--dev without --examples: give the examples to train on too")
    if options.output:
        _check_place(Path(options.output))
    data = data_of(options.examples, options.dev, config.data, options.device)
    if options.output:
        output = Path(options.output)
    else:
        output = trial_folder(options, config, [str(example) for example in (*data.train, *data.dev)])
    trainer = LoraTrainer(config, data, output, options.device, command)
    if trainer.accelerator.is_main_process:
        tokens = trainer.tokens
        log.info(
            "%d examples of %.0f tokens, %.0f of them learnt; left out, having over %d tokens: %d, to measure on %d",
            len(tokens),
            tokens.lengths.mean(),
            tokens.answers.mean(),
            min(config.training.cutoff, trainer.model.llm.context_length),
            trainer.left_out,
            trainer.dev_left_out,
        )
    trainer.train()
    if trainer.accelerator.is_main_process:
        note(f"the adapter is in {output} (`--adapter {output}` of rag_mt.translate takes it)")
        if merged is not None:
            write_merged(config, output, merged, trainer.model.loaded.dtype)
            note(f"the merged model is in {merged} (use it with --wrapper {trainer.wrapper})")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = training_parser("lora", __doc__, Config)
    parser.add_argument("--examples", nargs="+", default=[], metavar="FILE", help="examples to train on")
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="examples for the loss during training")
    parser.add_argument("--merge", metavar="DIR", help="also write the model with the adapter merged into it")
    return run_training(parser, Config, ["examples", "dev"], tune, arguments, "adapter", trial=True)


if __name__ == "__main__":
    sys.exit(main())
