"""Train a cross-lingual phrase retriever from example sentences (XPR).

    python -m finetune.xpr --config configs/xpr-embedded.toml --phrases PHRASES --output MODEL

PHRASES holds a folder of phrase pairs with example sentences per language pair (`python -m finetune.xpr.data` makes
it). A stopped run goes on from its last checkpoint. On several GPUs: `accelerate launch -m finetune.xpr ...`; each
process takes its own batches and has the others' phrases as further negatives. Ablations: `--set data.sentences=0` (no
example sentences), `--set training.momentum=0` (no momentum encoder), `--set model.head=false` (no projection head),
`--set training.queue=1024` (MoCo's queue). Without --phrases those of the sample corpus are used, to try the command
out.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.data.sample_phrases import sample_phrases
from finetune.training.settings import add_run_options, changes_in, shown_options
from finetune.xpr.config import Config, read_config
from finetune.xpr.train import XprTrainer
from rag_mt.base.console import OK, Parser, note, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.paths import cache_dir
from rag_mt.base.settings import shown_path

log = logging.getLogger("rag_mt")


def folders(options: argparse.Namespace, config: Config) -> tuple[Path, Path]:
    """Where the phrases are and where the model goes: without --phrases it is tried out on the sample corpus."""
    if options.phrases and not options.output:
        raise UserError("the model has no place: give --output DIR")
    if options.phrases:
        return Path(options.phrases), Path(options.output)
    note("no --phrases: trying out on phrases of the sample corpus, which makes no model for real use")
    phrases = sample_phrases(options.device)
    name = f"{Path(options.config).stem}-{settings_hash([config.as_dict(), phrases.name])[:8]}"
    return phrases, Path(options.output) if options.output else cache_dir() / "trials" / name


def train(options: argparse.Namespace) -> int:
    """Train, evaluating and saving on the way, and write the model."""
    config = read_config(Path(options.config), changes_in(options))
    phrases, output = folders(options, config)
    command = f"python -m finetune.xpr --config {shown_path(options.config)}"
    command += f"{' --phrases PHRASES' * bool(options.phrases)} --output MODEL{shown_options(options)}"
    trainer = XprTrainer(config, phrases, output, options.device, command)
    training = trainer.config.training
    log.info("%d phrase pairs, %d steps of %d", len(trainer.pool), training.steps, training.batch)
    trainer.train()
    if trainer.accelerator.is_main_process:
        note(f"the model is in {output}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.xpr", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/xpr-embedded.toml")
    parser.add_argument("--phrases", metavar="DIR", help="phrase pairs with example sentences")
    parser.add_argument("--output", metavar="DIR", help="the model's folder; checkpoints lie in it too")
    add_run_options(parser)
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
