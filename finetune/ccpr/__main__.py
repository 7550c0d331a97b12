"""Train a cross-lingual contextualized phrase retriever (CCPR).

    python -m finetune.ccpr --config configs/ccpr-embedded.toml --pairs PAIRS --output MODEL

PAIRS holds a folder of phrase pairs per language and the dev alignments for the scores during training (`python -m
eval.data.phrase_pairs` makes both). A stopped run goes on from its last checkpoint. On several GPUs: `accelerate
launch -m finetune.ccpr ...`; each process takes its own batches and has the others' phrases as further negatives.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.ccpr.config import read_config
from finetune.ccpr.train import CcprTrainer
from finetune.training.settings import add_run_options, changes_in, shown_options
from rag_mt.base.console import OK, Parser, run
from rag_mt.base.settings import shown_path

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace) -> int:
    """Train, evaluating and saving on the way, and write the model."""
    config = read_config(Path(options.config), changes_in(options))
    command = f"python -m finetune.ccpr --config {shown_path(options.config)} --pairs PAIRS --output MODEL"
    command += shown_options(options)
    trainer = CcprTrainer(config, Path(options.pairs), Path(options.output), options.device, command)
    log.info("%d sentence pairs, %d batches of %d", len(trainer.pool), len(trainer.batches), config.training.batch)
    trainer.train()
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m finetune.ccpr", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", required=True, metavar="FILE", help="settings, such as configs/ccpr-embedded.toml")
    parser.add_argument("--pairs", required=True, metavar="DIR", help="phrase pairs and dev alignments")
    parser.add_argument("--output", required=True, metavar="DIR", help="the model's folder; checkpoints lie in it too")
    add_run_options(parser)
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
