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

from finetune.lora.config import Config, DataConfig, read_config
from finetune.lora.examples import facts_of, read_examples
from finetune.lora.model import write_merged
from finetune.lora.quick import quick_data
from finetune.lora.train import Data, LoraTrainer
from finetune.training.loop import CHECKPOINT
from finetune.training.settings import add_run_options, changes_in, shown_options
from rag_mt.base.console import OK, Parser, note, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.paths import cache_dir
from rag_mt.base.settings import shown_path
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


def trial_folder(name: str, config: Config, data: Data) -> Path:
    """Where a run without a place of its own is kept, by its settings and examples."""
    made_of = settings_hash([config.as_dict(), [str(example) for example in (*data.train, *data.dev)]])
    return cache_dir() / "trials" / f"{name}-{made_of[:8]}"


def _check_place(output: Path) -> None:
    """Raise UserError where an adapter that is not this run's would be overwritten."""
    if output.exists() and not output.is_dir():
        raise UserError(f"--output {output} is no folder: name one for the adapter")
    if (output / WEIGHTS).exists() and not (output / CHECKPOINT).is_dir():
        raise UserError(f"{output} has an adapter and no checkpoint to go on from: give --output another folder")


def tune(options: argparse.Namespace) -> int:
    """Train the adapter, and merge it if that is asked for."""
    config = read_config(Path(options.config), changes_in(options))
    merged = Path(options.merge) if options.merge else None
    if merged is not None and merged.exists():
        raise UserError(f"{merged} is there already: give --merge another folder, or remove it")
    if options.examples and not options.output:
        raise UserError("the adapter has no place: give --output DIR")
    if options.dev and not options.examples:
        raise UserError("--dev without --examples: give the examples to train on too")
    if options.output:
        _check_place(Path(options.output))
    data = data_of(options.examples, options.dev, config.data, options.device)
    output = Path(options.output) if options.output else trial_folder(Path(options.config).stem, config, data)
    command = f"python -m finetune.lora --config {shown_path(options.config)}"
    command += " --examples EXAMPLES" * bool(options.examples) + " --dev DEV" * bool(options.dev) + " --output ADAPTER"
    command += shown_options(options)
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
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.lora", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/lora-llama2.toml")
    parser.add_argument("--examples", nargs="+", default=[], metavar="FILE", help="examples to train on")
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="examples for the loss during training")
    parser.add_argument("--output", metavar="DIR", help="the adapter's folder; checkpoints lie in it too")
    parser.add_argument("--merge", metavar="DIR", help="also write the model with the adapter merged into it")
    add_run_options(parser)
    return run(tune, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
