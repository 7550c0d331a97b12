"""Sentences per second of our encoder against sentence-transformers' default on the same weights, in one run.

    python -m eval.speed.encoder [--sentences 256] [--rounds 3] [--encoder ID] [--file FILE] [--dtype auto]

The baseline is `SentenceTransformer(folder).encode(texts)` with its own defaults (float32, batches of 32).
Sentences are those of the sample corpus (all languages, or FILE) that have at least 20 tokens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import torch

from eval.speed.timing import by_turns
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER, INT8
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Floats
from retrievers.encoders.encoder import TransformerEncoder
from retrievers.registry import encoder_for

MIN_TOKENS = 20


def baseline(encoder: TransformerEncoder) -> Callable[[Sequence[str]], Floats]:
    """sentence-transformers' `encode` on the same folder, with the pooling and prefix of our table."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    from rag_mt.models.loading import resolve_model

    folder = resolve_model(encoder.id)
    if (folder / "modules.json").is_file():
        model = SentenceTransformer(str(folder), device=str(encoder.device))
    else:
        pooling = Pooling(encoder.hidden, pooling_mode=encoder.family.pooling)
        modules = [Transformer(str(folder)), pooling, Normalize()]
        model = SentenceTransformer(modules=modules, device=str(encoder.device))
    prefix = encoder.family.prefix("query")
    return partial(model.encode, prompt=prefix, normalize_embeddings=True, show_progress_bar=False)


def long_sentences(encoder: TransformerEncoder, file: str | None, number: int) -> list[str]:
    """The first `number` sentences of at least MIN_TOKENS tokens, languages taken in turn."""
    files = [Path(file)] if file else sorted(SAMPLE_CORPUS.glob("*.txt"))
    sides = [path.read_text(encoding="utf-8").splitlines() for path in files]
    texts = list(chain.from_iterable(zip(*sides, strict=True)))
    counts = [len(ids) for ids in encoder.tokenizer(texts, add_special_tokens=False)["input_ids"]]
    sentences = [text for text, count in zip(texts, counts, strict=True) if count >= MIN_TOKENS][:number]
    if not sentences:
        raise UserError(f"{file} holds no sentence of {MIN_TOKENS} tokens: expected one sentence per line")
    return sentences


def report(options: argparse.Namespace) -> int:
    """Time both in turn and print medians, ratio and how near the vectors are."""
    encoder = encoder_for("sentence", options.encoder, "cpu" if options.dtype == INT8 else "auto", options.dtype)
    assert isinstance(encoder, TransformerEncoder)
    texts = long_sentences(encoder, options.file, options.sentences)
    systems = {"sentence-transformers": baseline(encoder), "rag_mt": encoder.encode}
    theirs, ours = (encode(texts) for encode in systems.values())  # also the warm-up
    rounds = by_turns({name: partial(encode, texts) for name, encode in systems.items()}, options.rounds)
    rates = {name: len(texts) / statistics.median(seconds) for name, (seconds, _) in rounds.items()}
    tokens = statistics.mean(len(i) for i in encoder.tokenizer(texts)["input_ids"])
    print(
        f"{encoder.id}, {len(texts)} sentences of {tokens:.0f} tokens on average, {encoder.device} with "
        f"{torch.get_num_threads()} threads, ours in {str(encoder.dtype).removeprefix('torch.')}, "
        f"median of {options.rounds} rounds"
    )
    for name, rate in rates.items():
        print(f"{name:24s}{rate:8.1f} sentences/s")
    cosine = float((ours * theirs).sum(axis=1).min())
    print(f"ratio {rates['rag_mt'] / rates['sentence-transformers']:.2f}, lowest cosine of the vectors {cosine:.5f}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.encoder",
        description=__doc__,
        examples=["", "--file my.txt --sentences 256", "--dtype int8"],
    )
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, metavar="ID", help="encoder")
    parser.add_argument("--sentences", type=positive, default=256, metavar="N", help="sentences of each round")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="times that each is measured")
    parser.add_argument("--file", help="text file, one sentence per line (default: the sample corpus)")
    parser.add_argument("--dtype", default="auto", help="our number format: auto, float32, bfloat16, int8")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
