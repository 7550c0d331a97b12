"""Train a multilingual dual encoder for passages (mDPR).

    python -m finetune.mdpr --config mdpr-embedded --prepared PREPARED --output MODEL

PREPARED is made by `python -m finetune.mdpr.data`. A stopped run goes on from its last checkpoint. On several GPUs:
`accelerate launch -m finetune.mdpr ...`; the batches of all processes are one for the losses.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.mdpr.config import Config
from finetune.mdpr.train import MdprTrainer
from finetune.training.settings import run_training, settings_parser

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train, evaluating and saving on the way, and write the model."""
    trainer = MdprTrainer(config, Path(options.prepared), Path(options.output), options.device, command)
    data = trainer.data
    sizes = len(data.examples), len(data.pairs), len(data.texts)
    languages = ", ".join(s.language for s in trainer.dev) or "no language"
    log.info("%d questions, %d sentence pairs, %d other sentences; development questions in %s", *sizes, languages)
    trainer.train()
    if trainer.accelerator.is_main_process:
        log.info("the passage model is in %s", trainer.output)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "mdpr",
        __doc__,
        Config,
        examples=["--config mdpr-embedded --prepared PREPARED --output MODEL"],
    )
    parser.add_argument("--prepared", required=True, metavar="DIR", help="made by `python -m finetune.mdpr.data`")
    return run_training(parser, Config, ["prepared"], train, arguments)


if __name__ == "__main__":
    sys.exit(main())
