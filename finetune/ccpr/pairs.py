"""Phrase pairs of sentence pairs: spans of both sides whose words are linked with each other and with nothing else.

The training data of CCPR (section 4.3) from word-aligned sentence pairs:

    python -m finetune.ccpr.pairs --data DIR --pairs de-en,cs-en --output PAIRS [--exclude FILE ...]

reads `DIR/train/de-en.tsv[.xz]` (English, German and, if there, domain) and writes `PAIRS/de-en/`: `pairs-00000.arrow`
and so on with the columns line, domain, source (German), target (English) and spans (flattened rows of start and end
of the source phrase, start and end of the target phrase, in characters), `frequent.json` and `manifest.json`. Where
there is a `DIR/dev/de-en.tsv`, its sentences are aligned along and their links written to `PAIRS/de-en.dev.jsonl`.
A run that was interrupted goes on when it is started again.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.data.alignments import EflomalAligner
from eval.data.phrase_pairs import MAX_WORDS
from finetune.ccpr.pair_shards import Job, write_pairs
from rag_mt.base.console import OK, Parser, add_model_options, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from retrievers.encoders.alignment import METHODS, Aligner, EncoderAligner


def extract(options: argparse.Namespace) -> int:
    """Write the phrase pairs of all language pairs."""
    jobs = []
    for pair in options.pairs.split(","):
        if not re.fullmatch(r"[a-z]{2,3}-en", pair):
            raise UserError(f"{pair!r} is no pair of a language with English: give pairs such as de-en,cs-en")
        language(pair.removesuffix("-en"))
        jobs.append(
            Job(
                Path(options.data),
                Path(options.output),
                pair,
                tuple(map(Path, options.exclude)),
                options.max_pairs,
                options.max_words,
                options.workers,
            )
        )
    aligner = _aligner(options)
    for job in jobs:
        write_pairs(job, aligner)
    return OK


def _aligner(options: argparse.Namespace) -> Aligner:
    if options.aligner == "eflomal":
        return EflomalAligner(options.symmetrisation, options.length)
    from retrievers.encoders.encoder import open_encoder  # not needed otherwise, and slow to import

    encoder = open_encoder(options.encoder, options.device, options.dtype)
    return EncoderAligner(encoder, options.layer, options.symmetrisation)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.ccpr.pairs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    parser.add_argument("--pairs", required=True, metavar="XX-en,...", help="language pairs")
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder per language pair is made here")
    parser.add_argument(
        "--exclude",
        nargs="*",
        default=[],
        metavar="FILE",
        help="leave out pairs of which a side stands in a column of these files (tabs or ` ||| ` between columns),\n"
        "compared by casefolded letters and digits",
    )
    parser.add_argument("--aligner", choices=["eflomal", "encoder"], default="eflomal", help="default: eflomal")
    parser.add_argument("--symmetrisation", choices=METHODS, default=METHODS[-1], help=f"default: {METHODS[-1]}")
    parser.add_argument("--length", type=float, default=1.0, help="eflomal: relative number of iterations (default: 1)")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help=f"encoder: its name (default: {DEFAULT_ENCODER})")
    parser.add_argument("--layer", type=int, default=6, help="encoder: hidden layer (default: 6)")
    parser.add_argument("--max-pairs", type=positive, metavar="N", help="sentence pairs per language, evenly spread")
    parser.add_argument(
        "--max-words", type=positive, default=MAX_WORDS, help=f"words of a phrase (default: {MAX_WORDS})"
    )
    parser.add_argument("--workers", type=positive, default=os.cpu_count() or 1, help="processes (default: all cores)")
    add_model_options(parser)
    return run(extract, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
