"""Train a cross-lingual phrase retriever from example sentences (XPR).

    python -m finetune.xpr --config xpr-embedded --phrases PHRASES --output MODEL

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

from eval.data.phrase_sets import sample_phrases
from finetune.training.settings import run_training, settings_parser, trial_folder
from finetune.xpr.config import Config
from finetune.xpr.train import XprTrainer
from rag_mt.base.console import note

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train, evaluating and saving on the way, and write the model."""
    if options.phrases:
        phrases = Path(options.phrases)
    else:
        note("no --phrases: trying out on phrases of the sample corpus, which makes no model for real use")
        phrases = sample_phrases(options.device)
    output = Path(options.output) if options.output else trial_folder(options, config, phrases.name)
    trainer = XprTrainer(config, phrases, output, options.device, command)
    training = trainer.config.training
    log.info("%d phrase pairs, %d steps of %d", len(trainer.pool), training.steps, training.batch)
    trainer.train()
    if trainer.accelerator.is_main_process:
        note(f"the model is in {output}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "xpr",
        __doc__,
        Config,
        examples=["--config xpr-embedded --max-steps 5", "--config xpr-embedded --phrases PHRASES --output MODEL"],
    )
    parser.add_argument("--phrases", metavar="DIR", help="phrase pairs with example sentences")
    return run_training(parser, Config, ["phrases"], train, arguments, trial=True)


if __name__ == "__main__":
    sys.exit(main())
