"""How long training an encoder takes when sentences of similar length are read together, against whole batches, in one
run.

    python -m finetune.training.speed [--file FILE] [--batch 192] [--batches 4] [--rounds 3] [--layer 8] [--dtype auto]

Measured is what a step of every training of encoders does: the states of a batch, forwards and backwards through LoRA
adapters. The baseline reads each batch at once, padded to its longest sentence. Sentences are those of the sample
corpus in all languages, or those of FILE, drawn at random. On a GPU both are the same.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from finetune.training.encoder import TrainedEncoder, open_encoder
from finetune.training.settings import EncoderTuning
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from retrievers.encoders.encoder import padded

MOST_TOKENS = 80
BASELINE, OURS = "whole batches", "in groups"

Batch = tuple[torch.Tensor, torch.Tensor]


def batches(encoder: TrainedEncoder, texts: Sequence[str], size: int) -> Iterator[Batch]:
    """The ids and masks (size, tokens) of the texts; a rest that fills no batch is left out."""
    ids = encoder.tokenizer(list(texts), truncation=True, max_length=MOST_TOKENS)["input_ids"]
    for begin in range(0, len(ids) - size + 1, size):
        tokens, mask = padded(ids[begin : begin + size], int(encoder.tokenizer.pad_token_id or 0))
        yield torch.from_numpy(tokens), torch.from_numpy(mask)


def gradients(states: Callable[..., torch.Tensor], encoder: TrainedEncoder, work: Sequence[Batch]) -> None:
    """Compute the gradients of each batch, of the sum of its states' squares."""
    for ids, mask in work:
        (states(ids, mask).float() * mask[:, :, None].to(encoder.device)).square().sum().backward()
        encoder.model.zero_grad()


def report(options: argparse.Namespace) -> int:
    """Time both in turn and print medians and ratio."""
    tuning = EncoderTuning(DEFAULT_ENCODER, tuning="lora")
    encoder = open_encoder(tuning, options.layer, "auto", options.dtype, 1)
    files = [Path(options.file)] if options.file else sorted(SAMPLE_CORPUS.glob("*.txt"))
    lines = (line.text or "" for file in files for line in read_lines(file, Skips()))
    texts = list(dict.fromkeys(text for text in lines if text.strip()))
    random.Random(1).shuffle(texts)
    work = list(batches(encoder, texts[: options.batches * options.batch], options.batch))
    if not work:
        raise UserError(f"{len(texts)} sentences do not fill one batch of {options.batch}: give a smaller --batch")
    systems = {BASELINE: encoder.states_at_once, OURS: encoder.states}
    for states in systems.values():
        gradients(states, encoder, work[:1])  # the warm-up
    taken: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(options.rounds):
        for name, states in systems.items():
            begin = time.perf_counter()
            gradients(states, encoder, work)
            taken[name].append((time.perf_counter() - begin) / len(work))
    seconds = {name: statistics.median(each) for name, each in taken.items()}
    read = sum(float(mask.sum()) for _, mask in work) / sum(mask.numel() for _, mask in work)
    printed = [
        f"{encoder.name}, {encoder.layers} layers, {len(work)} batches of {options.batch} sentences, of whose places "
        f"{read:.0%} hold tokens, {encoder.device} with {torch.get_num_threads()} threads in "
        f"{str(encoder.dtype).removeprefix('torch.')}, median of {options.rounds} rounds",
        *(f"{name:16s}{each:8.2f} s a batch" for name, each in seconds.items()),
        f"ratio {seconds[BASELINE] / seconds[OURS]:.2f}",
    ]
    sys.stdout.write("\n".join(printed) + "\n")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m finetune.training.speed", description=__doc__, examples=["", "--file my.txt --batch 96"]
    )
    parser.add_argument("--file", help="text file, one sentence per line (default: the sample corpus)")
    parser.add_argument("--batch", type=positive, default=192, metavar="N", help="sentences of a batch")
    parser.add_argument("--batches", type=positive, default=4, metavar="N", help="batches of each round, at most")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="times that each is measured")
    parser.add_argument("--layer", type=positive, default=8, metavar="N", help="the last layer that is read")
    parser.add_argument("--dtype", default="auto", help="number format: auto, float32, bfloat16")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
