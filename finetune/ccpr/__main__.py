"""Train a cross-lingual contextualized phrase retriever (CCPR).

    python -m finetune.ccpr --config ccpr-embedded --pairs PAIRS --output MODEL

PAIRS holds a folder of phrase pairs per language and the dev alignments for the scores during training (`python -m
finetune.ccpr.pairs` makes both). A stopped run goes on from its last checkpoint. On several GPUs: `accelerate
launch -m finetune.ccpr ...`; each process takes its own batches and has the others' phrases as further negatives.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.ccpr.config import Config
from finetune.ccpr.train import CcprTrainer
from finetune.training.settings import run_training, settings_parser

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train, evaluating and saving on the way, and write the model."""
    trainer = CcprTrainer(config, Path(options.pairs), Path(options.output), options.device, command)
    log.info("%d sentence pairs, %d batches of %d", len(trainer.pool), len(trainer.batches), config.training.batch)
    trainer.train()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "ccpr",
        __doc__,
        Config,
        examples=["--config ccpr-embedded --pairs PAIRS --output MODEL"],
    )
    parser.add_argument("--pairs", required=True, metavar="DIR", help="phrase pairs and dev alignments")
    return run_training(parser, Config, ["pairs"], train, arguments)


if __name__ == "__main__":
    sys.exit(main())
