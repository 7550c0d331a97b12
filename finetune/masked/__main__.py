"""Train a small encoder on text alone, as BERT is (masked words).

    python -m finetune.masked --config masked --text FILE... --output MODEL

Each FILE holds sentences of one language, one a line, such as `python -m eval.data.index_text` writes. They are drawn
one by one, so that the model never sees a sentence beside its translation: it is what an encoder knows of several
languages without parallel text, to set beside one such as multilingual-e5-small, which saw much of it. MODEL is a
folder that `--encoder` and the other trainings (`--set model.encoder=MODEL`) take. A stopped run goes on from its last
checkpoint. On several GPUs: `accelerate launch -m finetune.masked ...`; each process draws its own sentences.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from finetune.masked.config import Config
from finetune.masked.train import MaskedTrainer
from finetune.training.settings import run_training, settings_parser
from rag_mt.base.console import note

log = logging.getLogger("rag_mt")


def train(options: argparse.Namespace, config: Config, command: str) -> None:
    """Train, evaluating and saving on the way, and write the model."""
    output = Path(options.output)
    trainer = MaskedTrainer(config, [Path(name) for name in options.text], output, options.device, command)
    for text, share in zip(trainer.texts, trainer.weights.tolist(), strict=True):
        log.info("%s: %d sentences, %.1f %% of those that are drawn", text.name, len(text.sentences), 100 * share)
    trainer.train()
    if trainer.accelerator.is_main_process:
        note(f"the model is in {output}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "masked", __doc__, Config, examples=["--config masked --text de.txt en.txt --output MODEL"]
    )
    parser.add_argument("--text", nargs="+", required=True, metavar="FILE", help="sentences, one a line")
    return run_training(parser, Config, ["text"], train, arguments)


if __name__ == "__main__":
    sys.exit(main())
