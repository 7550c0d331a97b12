"""Train a multilingual dual encoder for passages (mDPR).

    python -m finetune.mdpr --config configs/mdpr-embedded.toml --prepared PREPARED --output MODEL

PREPARED is made by `python -m finetune.mdpr.data`. A stopped run goes on from its last checkpoint. On several GPUs:
`accelerate launch -m finetune.mdpr ...`; each process takes its own batches.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.mdpr.config import EXAMPLE, read_config
from finetune.mdpr.train import MdprTrainer
from finetune.training.settings import add_run_options, changes_in, shown_options
from rag_mt.base.console import OK, Parser, run
from rag_mt.base.settings import shown_path

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace) -> int:
    """Train, evaluating and saving on the way, and write the model."""
    config = read_config(Path(options.config), changes_in(options))
    command = f"python -m finetune.mdpr --config {shown_path(options.config)} --prepared PREPARED --output MODEL"
    command += shown_options(options)
    trainer = MdprTrainer(config, Path(options.prepared), Path(options.output), options.device, command)
    data = trainer.data
    log.info(
        "%d questions, %d sentence pairs, %d other sentences; development questions in %s",
        len(data.examples),
        len(data.pairs),
        len(data.texts),
        ", ".join(s.language for s in trainer.dev) or "no language",
    )
    trainer.train()
    if trainer.accelerator.is_main_process:
        log.info("the passage model is in %s", trainer.output)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.mdpr", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help=f"settings, such as {EXAMPLE}")
    parser.add_argument("--prepared", required=True, metavar="DIR", help="made by `python -m finetune.mdpr.data`")
    parser.add_argument("--output", required=True, metavar="DIR", help="the model's folder; checkpoints lie in it too")
    add_run_options(parser)
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
