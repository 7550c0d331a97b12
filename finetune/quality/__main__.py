"""Train the estimator that judges translations without a reference.

    python -m finetune.quality --config quality --data DIR --outputs OUTPUTS.jsonl --output MODEL

DIR has judgements of people in DIR/quality (see `eval.data.judgements`), OUTPUTS.jsonl translations with their chrF
(`python -m finetune.quality.outputs` makes them), for directions that nobody judged. Test parts are not read. A stopped
run goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.data.judgements import JudgedSet, read_judgements, read_outputs
from finetune.quality.config import Config
from finetune.quality.train import QualityTrainer
from finetune.training.settings import run_training, settings_parser
from rag_mt.base.console import note
from rag_mt.base.types import Skips

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train, evaluating and saving on the way, and write the model."""
    skips = Skips()

    def sets(part: str) -> list[JudgedSet]:
        judged = read_judgements(Path(options.data), part, skips)
        return judged + (read_outputs(Path(options.outputs), part, skips) if options.outputs else [])

    trainer = QualityTrainer(config, sets("train"), sets("dev"), Path(options.output), options.device, command)
    log.info("%d translations, %d steps of %d", len(trainer.examples), config.training.steps, config.training.batch)
    trainer.train()
    if trainer.accelerator.is_main_process:
        note(f"the model is in {options.output}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    example = "--config quality --data DIR --outputs OUTPUTS.jsonl --output MODEL"
    parser = settings_parser("quality", __doc__, Config, examples=[example])
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with quality/")
    parser.add_argument("--outputs", metavar="FILE", help="translations with their chrF, of directions nobody judged")
    return run_training(parser, Config, ["data", "outputs"], train, arguments)


if __name__ == "__main__":
    sys.exit(main())
