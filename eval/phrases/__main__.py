"""Phrase retrieval accuracy: for phrases of one language, is the best hit in English text their translation?

    python -m eval.phrases --suite gold|silver|dev --data DIR --pairs PAIRS --index INDEX [--model NAME ...]

Suites: `gold` asks phrases of human alignments (Romanian and Russian, and French, which no model of this project is
trained on); `silver` those on which two aligners agree, eflomal and an encoder's middle layer, in half B of the
development sentences of all languages; `dev` is for choices: XL-WA's development sentences, and silver phrases of
half A.
A phrase is searched among every span of up to six words of its set's own English sentences and the phrases of INDEX
(1 M or more of them), which every model encodes anew.

Models: `untrained:ENCODER` (all layers in one pass; `untrained:ENCODER@7` for one), where ENCODER is a hub id such as
xlm-roberta-base, bert-base-multilingual-cased or sentence-transformers/LaBSE, a folder or embedded:e5-small; and phrase
models, such as ccpr-e5-small or a folder of `finetune.ccpr`. The first model is the baseline of the others.

Scores: accuracy@1 of the surface (casefolded, white space as single blanks) and of the very instance, mean reciprocal
rank of the surface among the first ten different ones, and the share of queries whose best hit lies in the true
sentence and overlaps the true span. Differences: interval and p-value over sentences (`eval.significance`).

Without --data this runs in its quick form: the sample corpus, aligned by an encoder alone. No measurement.

    python -m eval.phrases --suite xpr [--phrases DIR] [--models DIR] [--data DIR] [--runs DIR]

Suite `xpr` asks for the translation of phrases in both directions, each phrase by its example sentences (XPR), by
itself (CLSE) or by its words (CLWE; --data is the text that they are trained on), in the paper's four settings, with
its sweeps and ablations. Results are kept in --runs: a run that is stopped goes on, and what was not run is named in
the report. Scores: accuracy@1, intervals and p-values over concepts. Without --phrases it runs on phrases of the sample
corpus, aligned by an encoder alone. No measurement.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from eval.data.phrase_sets import (
    QUERIES,
    PhraseSet,
    SilverSource,
    gold_sets,
    sample_sets,
    silver_set,
)
from eval.phrases.candidates import Distractors, SetResult, run_model
from eval.phrases.models import PhraseModel, open_phrase_model
from eval.phrases.report import (
    ENDINGS,
    Line,
    Report,
    chosen_on_dev,
    chosen_row,
    index_facts,
    lines_of,
    table,
    write_report,
)
from eval.xpr.report import OPTIONS as XPR_OPTIONS
from eval.xpr.report import add_options, evaluate_xpr
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER, DEFAULT_PHRASE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from rag_mt.formats.parallel import letters_and_digits
from retrievers.calibration import SAMPLE_CORPUS
from retrievers.encoders.alignment import EncoderAligner
from retrievers.encoders.encoder import open_encoder

log = logging.getLogger("rag_mt")

MODELS = (f"untrained:{DEFAULT_ENCODER}", DEFAULT_PHRASE_MODEL)
SAMPLE_QUERIES = 200
FEW_DISTRACTORS = 1_000_000
PHRASE_OPTIONS = ("pairs", "index", "distractors", "model", "layers", "queries", "dev_report")
"""Those that the suite xpr does not read; the other suites do not read `eval.xpr.OPTIONS`."""


def sets_of(options: argparse.Namespace) -> list[PhraseSet]:
    """The sets of the suite; raises UserError where one is missing or has no query."""
    wanted = options.languages.split(",") if options.languages else [*WMT16, "fr"]
    if unknown := set(wanted) - {*WMT16, "fr"}:
        raise UserError(f"there is no set of {', '.join(sorted(unknown))}: choose among {', '.join(WMT16)} and fr")
    pairs = Path(options.pairs) if options.pairs else None
    if not options.data:
        aligner = EncoderAligner(open_encoder(DEFAULT_ENCODER, options.device, options.dtype))
        sets = sample_sets(SAMPLE_CORPUS, aligner, wanted, min(options.queries, SAMPLE_QUERIES))
    elif options.suite == "gold":
        sets = gold_sets(Path(options.data), pairs, wanted, limit=options.queries)
    else:
        if pairs is None:
            raise UserError(
                f"suite {options.suite} needs a second alignment: give --pairs DIR, the output of "
                "`python -m finetune.ccpr.pairs`"
            )
        aligner = EncoderAligner(open_encoder(DEFAULT_ENCODER, options.device, options.dtype))
        source = SilverSource(Path(options.data), pairs, aligner, options.queries)
        dev = options.suite == "dev"
        sets = gold_sets(Path(options.data), pairs, wanted, dev=True, limit=options.queries) if dev else []
        for code in (code for code in WMT16 if code in wanted):
            note(f"aligning the development sentences of {code}-en")
            sets.append(silver_set(source, code, "A" if dev else "B"))
    empty = [own.name for own in sets if not len(own.queries)]
    if empty or not sets:
        raise UserError(f"there are no phrases to ask ({', '.join(empty) or options.suite}): choose other --languages")
    return sets


def evaluate(options: argparse.Namespace) -> int:
    """Run all models on the suite and print the table."""
    for name in options.output:
        if Path(name).suffix not in ENDINGS:
            raise UserError(f"output {name!r} ends neither in .json nor in .md: give one of them")
    if options.unread:
        unread = ", ".join(f"--{name.replace('_', '-')}" for name in options.unread)
        raise UserError(f"suite {options.suite} does not read {unread}: leave it out, or see --help for what it reads")
    if options.suite == "xpr":
        return evaluate_xpr(options)
    marked = chosen_on_dev(Path(options.dev_report)) if options.dev_report else frozenset()
    if not options.data:
        note("no --data DIR is given: this is the quick form on the sample corpus, which measures nothing")
    sets = sets_of(options)
    for own in sets:
        note(f"{own.name}: {len(own.queries)} of {own.available} queries, sha256 {own.sha256[:16]}")
    distractors = _distractors(options, sets)
    lines: list[Line] = []
    baseline: Sequence[SetResult] | None = None
    for name in options.model or MODELS:
        model = open_phrase_model(name, options.layers, options.device, options.dtype)
        results = run_model(model, sets, distractors)
        chosen = _chosen(model, results, marked, options.suite)
        lines += lines_of(model.name, model.rows, results, chosen, baseline)
        baseline = results[chosen] if baseline is None else baseline
    suite = options.suite if options.data else "sample"
    facts = index_facts(distractors, options.index)
    report = Report(suite, tuple(sets), facts, tuple(lines), _notes(options, distractors))
    print(table(report), end="")
    for name in options.output:
        write_report(report, Path(name))
    return OK


def _distractors(options: argparse.Namespace, sets: Sequence[PhraseSet]) -> Distractors | None:
    if not options.index:
        return None
    left_out = frozenset(letters_and_digits(text) for own in sets for text in own.targets)
    return Distractors(Path(options.index), left_out, options.distractors)


def _chosen(model: PhraseModel, results: Sequence[Sequence[SetResult]], marked: frozenset[str], suite: str) -> int:
    """The row that stands for a model: the best one on development data, else the encoder's usual layer."""
    if len(model.rows) == 1:
        return 0
    if suite == "dev":
        return chosen_row(model.rows, results)
    found = [n for n, row in enumerate(model.rows) if row.name in marked]
    if not found:
        log.info(
            "%s: %s stands for it; give --dev-report FILE.json of `--suite dev` to take the layer that is best there",
            model.name,
            model.rows[model.default].name,
        )
    return found[0] if found else model.default


def _notes(options: argparse.Namespace, distractors: Distractors | None) -> tuple[str, ...]:
    notes = []
    if not options.data:
        notes.append("quick form on the sample corpus, aligned by an encoder alone: measures nothing")
    if distractors is None:
        notes.append("no index: phrases are searched among the sets' own sentences only, which flatters every model")
    else:
        notes.append(
            f"distractors: {distractors.phrases} phrases of {distractors.sentences} sentences of an index; "
            f"{distractors.dropped} of its sentences are left out because they stand in the sets"
        )
        if distractors.phrases < FEW_DISTRACTORS:
            notes.append(f"fewer than {FEW_DISTRACTORS} distractors: a small index flatters every model")
    if options.data and not options.pairs:
        notes.append("too frequent words are counted in the development data or the set, for want of --pairs")
    if options.data and options.suite == "dev":
        notes.append("development data (silver: half A): for choices, not for results")
    if options.data and options.suite == "silver":
        notes.append("silver sets are half B of the development sentences; half A serves choices")
    return tuple(notes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.phrases", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--suite", choices=["gold", "silver", "dev", "xpr"], default="gold", help="default: gold")
    parser.add_argument("--data", metavar="DIR", help="folder with align/ and dev/ (xpr: train/)")
    parser.add_argument(
        "--pairs",
        metavar="DIR",
        help="output of `python -m finetune.ccpr.pairs` with eflomal: XX-en.dev.jsonl, XX-en/frequent.json",
    )
    parser.add_argument("--index", metavar="DIR", help="index of English phrases: the distractors")
    parser.add_argument(
        "--distractors", type=positive, metavar="N", help="take about N of its phrases, whole sentences (default: all)"
    )
    parser.add_argument(
        "--model",
        nargs="+",
        action="extend",
        metavar="NAME",
        help=f"models, the baseline first (default: {' '.join(MODELS)})",
    )
    parser.add_argument("--layers", default="all", help="layers of untrained encoders: all, or 6,7,12 (default: all)")
    parser.add_argument("--languages", metavar="XX,...", help="sets of these languages only (default: all)")
    parser.add_argument(
        "--queries", type=positive, default=QUERIES, metavar="N", help=f"most queries per set (default: {QUERIES})"
    )
    parser.add_argument(
        "--dev-report", metavar="FILE.json", help="report of `--suite dev`: its layers stand for untrained encoders"
    )
    parser.add_argument(
        "--output", nargs="+", default=[], metavar="FILE", help="write the report to FILE.json, FILE.md or both"
    )
    add_model_options(parser)
    add_options(parser)
    options = parser.parse_args(arguments)
    others = PHRASE_OPTIONS if options.suite == "xpr" else XPR_OPTIONS
    options.unread = [name for name in others if getattr(options, name) != parser.get_default(name)]
    return run(evaluate, options)


if __name__ == "__main__":
    sys.exit(main())
