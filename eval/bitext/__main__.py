"""Bitext mining on sets like those of BUCC: precision, recall and F1 of the pairs that are found.

    python -m eval.bitext --data DIR --languages de,ru [--models NAME ...] [--output FILE.md --output FILE.json]
    python -m eval.bitext --sets DIR --languages de,fr

With --data the sets are made of `DIR/train/XX-en.tsv` (`eval.bitext.sets` says how): two monolingual sides for training
and two for the test, in which 2.5 % of the sentences have their translation. With --sets they are read from a folder in
BUCC's own format (XX-en.training.XX, .en, .gold; XX-en.test.XX, .en, .gold). The threshold with the best F1 and the
number of neighbours are chosen on the training part; the test part is scored with them.

Models are names of encoders: embedded:e5-small, sentence-transformers/LaBSE, folders, and models that were trained here
(mdpr-e5-small, ccpr-e5-small or a folder). Sets and sentence vectors are kept under --work, so that an interrupted run
goes on where it was and a further model or larger sets cost only what is new.

Without --data or --sets this runs in its quick form on the sample corpus, which measures nothing. --speed N times the
mining of N x N vectors.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import faiss

from eval.bitext.known import ParallelText
from eval.bitext.report import ENDINGS, Report, Timing, report_blocks, write_report
from eval.bitext.runs import ModelRun, run_model, timed
from eval.bitext.sets import PARTS, SETTINGS, BitextSet, Sizes, build_sets, read_set, sample_sets, write_set
from eval.data.suites import QUICK
from eval.report.blocks import as_markdown
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.base.paths import cache_dir
from rag_mt.base.settings import shown_path
from rag_mt.formats.reading import input_stamp
from retrievers.mdpr import is_passage_model
from retrievers.registry import sentence_encoder

SEED = 1
TIMED_NEIGHBOURS = 4


def sets_of(options: argparse.Namespace, work: Path) -> tuple[list[BitextSet], str]:
    """Both parts of every language, and where they come from in words."""
    languages = options.languages.split(",")
    if options.sets:
        folder = Path(options.sets)
        return [read_set(folder, code, part) for code in languages for part in PARTS], "a folder in BUCC's format"
    if unknown := set(languages) - set(WMT16):
        raise UserError(f"there is no set of {', '.join(sorted(unknown))}: choose among {', '.join(WMT16)}")
    if not options.data:
        return [own for code in languages for own in sample_sets(code)], f"the sample corpus ({QUICK})"
    sizes = Sizes(options.training_size, options.size)
    made_of = [input_stamp(str(Path(options.data) / "train")), asdict(sizes), options.seed, SETTINGS]
    folder = work / f"sets-{settings_hash(made_of)}"
    missing = [code for code in languages if not all((folder / f"{code}-en.{part}.gold").is_file() for part in PARTS)]
    if missing:
        note(f"making the sets of {', '.join(f'{code}-en' for code in missing)}")
        text = ParallelText(Path(options.data))
        for own in (own for code in missing for own in build_sets(text, code, sizes, options.seed)):
            write_set(own, folder)
    made = [read_set(folder, code, part) for code in languages for part in PARTS]
    return made, f"made of parallel training text, seed {options.seed}"


def evaluate(options: argparse.Namespace) -> int:
    """Make or read the sets, run all models and print the report."""
    for name in options.output:
        if Path(name).suffix not in ENDINGS:
            raise UserError(f"output {name!r} ends neither in .json nor in .md: give one of them")
    work = Path(options.work) if options.work else cache_dir() / "bitext"
    sets, source = sets_of(options, work)
    if not (options.data or options.sets):
        note("neither --data nor --sets is given: this is the quick form on the sample corpus, which measures nothing")
    runs: list[ModelRun] = []
    dimension = 0
    for name in options.models:
        if options.data and is_passage_model(name):
            note(f"{name} was trained on sentence pairs: its scores are too good where these sets hold some of them")
        encoder = sentence_encoder(name, options.device, options.dtype)
        dimension = encoder.dimension
        runs.append(run_model(name, encoder, sets, work / "vectors", options.kind))
        note(f"{name}: {runs[-1].encoded} sentences encoded, {runs[-1].seconds:.0f} s of comparing them")
    timing = _timing(options.speed, dimension) if options.speed else None
    report = Report(sets, runs, timing, source, options.command)
    print(as_markdown(report_blocks(report)), end="")
    if options.examples:
        _print_examples(runs)
    for name in options.output:
        write_report(report, Path(name))
    return OK


def _timing(sentences: int, dimension: int) -> Timing:
    seconds, processor_seconds, _ = timed(sentences, dimension, TIMED_NEIGHBOURS)
    threads = faiss.omp_get_max_threads()
    return Timing(sentences, dimension, TIMED_NEIGHBOURS, seconds, processor_seconds, threads)


def _print_examples(runs: Sequence[ModelRun]) -> None:
    for own in runs:
        for code, examples in own.examples.items():
            for example in examples:
                print(f"{own.model}\t{code}\t{example.kind}\t{example.score:.4f}\t{example.source}\t{example.target}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(prog="python -m eval.bitext", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    parser.add_argument("--sets", metavar="DIR", help="sets in BUCC's format, instead of --data")
    parser.add_argument("--languages", default="de,ru", metavar="XX,XX", help="default: de,ru")
    parser.add_argument(
        "--models", nargs="+", default=[DEFAULT_ENCODER], metavar="NAME", help=f"default: {DEFAULT_ENCODER}"
    )
    parser.add_argument("--size", type=positive, default=50_000, metavar="N", help="sentences of a test side (50000)")
    parser.add_argument(
        "--training-size", type=positive, default=10_000, metavar="N", help="sentences of a training side (10000)"
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"of the sets (default: {SEED})")
    parser.add_argument(
        "--kind", choices=("query", "passage"), default="query", help="what both sides are encoded as (default: query)"
    )
    parser.add_argument("--speed", type=positive, metavar="N", help="time the mining of N x N vectors as well")
    parser.add_argument("--examples", action="store_true", help="print pairs that were wrong or missed")
    parser.add_argument("--work", metavar="DIR", help="sets and vectors (default: in the cache folder)")
    parser.add_argument("--output", action="append", default=[], metavar="FILE", help=".md or .json; may be repeated")
    add_model_options(parser)
    parser.set_defaults(command=f"python -m eval.bitext {shlex.join(map(shown_path, given))}")
    return run(evaluate, parser.parse_args(given))


if __name__ == "__main__":
    sys.exit(main())
