"""What hints are worth to adapters: their loss on development examples with and without them, by their least score.

    python -m finetune.lora.cut_off ADAPTER ... --config lora-embedded --dev DEV.jsonl [--cut-offs 0.3,0.8]

Only examples with hints count. Losses are natural logarithms per token of the answer; a cut-off whose loss is above
that without hints shows hints that do harm.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from finetune.lora.config import Config
from finetune.lora.data import Data
from finetune.lora.examples import Example, read_examples
from finetune.lora.train import LoraTrainer, tokens_of
from finetune.training.settings import read_config, settings_parser
from rag_mt.base.console import OK, run
from rag_mt.base.errors import UserError

CUT_OFFS = "0.3,0.5,0.65,0.8"


def above(examples: Sequence[Example], least: float) -> list[Example]:
    """The examples with their hints of at least that score."""
    return [replace(e, hints=tuple(hint for hint in e.hints if hint.hit.score >= least)) for e in examples]


def measure(options: argparse.Namespace) -> int:
    """Print a Markdown table: for each adapter a row without hints and one for each cut-off."""
    try:
        cut_offs = [float(text) for text in options.cut_offs.split(",")]
    except ValueError:
        raise UserError(f"--cut-offs {options.cut_offs} are no numbers: give some such as {CUT_OFFS}") from None
    examples = [example for example in read_examples([Path(options.dev)]) if example.hints]
    if not examples:
        raise UserError(f"{options.dev} has no example with hints: make some with `python -m finetune.lora.data`")
    sys.stdout.write("| adapter | least score | hints | loss | by direction |\n| --- | --- | --- | --- | --- |\n")
    for adapter in options.adapters:
        config = read_config(options, Config, {"model.start": adapter})
        trainer = LoraTrainer(config, Data(examples[:1]), Path("unused"), options.device)
        for title, least in [("no hints", math.inf), *((str(cut_off), cut_off) for cut_off in cut_offs)]:
            shown = above(examples, least)
            trainer.dev, left_out = tokens_of(trainer.prompts, shown, config.training.cutoff, False)
            if left_out:
                raise UserError(f"{left_out} examples have over {config.training.cutoff} tokens: raise training.cutoff")
            losses = trainer.evaluate()
            directions = ", ".join(f"{name} {value:.3f}" for name, value in losses.items() if name != "dev")
            hints, name = sum(len(example.hints) for example in shown), Path(adapter).resolve().name
            sys.stdout.write(f"| {name} | {title} | {hints} | {losses['dev']:.4f} | {directions} |\n")
            sys.stdout.flush()
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "lora.cut_off",
        __doc__,
        Config,
        examples=["ADAPTER --config lora-embedded --dev phrase.to-en.dev.jsonl --cut-offs 0.3,0.8"],
    )
    parser.add_argument("adapters", nargs="+", metavar="ADAPTER", help="folders that `python -m finetune.lora` wrote")
    parser.add_argument("--dev", required=True, metavar="FILE", help="examples of `python -m finetune.lora.data`")
    parser.add_argument("--cut-offs", default=CUT_OFFS, metavar="C,...", help="least scores")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    return run(measure, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
