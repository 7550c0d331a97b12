"""Bitext mining on sets like those of BUCC: precision, recall and F1 of the pairs that are found.

    python -m eval.bitext --data DIR --languages de,ru [--models NAME ...] [--output FILE.md --output FILE.json]
    python -m eval.bitext --sets DIR --languages de,fr

With --data the sets are made of `DIR/train/XX-en.tsv` (`eval.bitext.sets` says how): two monolingual sides for training
and two for the test, in which 2.5 % of the sentences have their translation. With --sets they are read from a folder in
BUCC's own format (XX-en.training.XX, .en, .gold; XX-en.test.XX, .en, .gold). The threshold with the best F1 and the
number of neighbours are chosen on the training part, and the classifier of `retrievers.mining` is fitted there, on all
languages together; the test part is scored with them. --fit writes the classifier.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval.bitext.runs import COSINE, REACH, WAYS, Way, run_model, timed
from eval.bitext.sets import PARTS, SETTINGS, BitextSet, build_sets, read_corpora, read_set, sample_sets, write_set
from eval.data.suites import QUICK
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Bullets, Code, Heading, Table, Text, as_markdown
from eval.significance import LEVEL, RESAMPLES, TRIALS, holm
from rag_mt import __version__
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.base.settings import shown_path
from rag_mt.formats.reading import input_stamp
from retrievers.mdpr import is_passage_model
from retrievers.registry import sentence_encoder


def sets_of(options: argparse.Namespace, work: Path) -> tuple[list[BitextSet], str]:
    """Both parts of every language, and where they come from in words."""
    languages = options.languages.split(",")
    if options.sets:
        folder = Path(options.sets)
        return [read_set(folder, code, part) for code in languages for part in PARTS], "a folder in BUCC's format"
    if unknown := set(languages) - set(WMT16):
        raise UserError(f"there is no set of {', '.join(sorted(unknown))}: choose among {', '.join(WMT16)}")
    if not options.data:
        note("neither --data nor --sets is given: this is the quick form on the sample corpus, which measures nothing")
        return [bitext for code in languages for bitext in sample_sets(code)], f"the sample corpus ({QUICK})"
    sizes = {"training": options.training_size, "test": options.size}
    made_of = [input_stamp(str(Path(options.data) / "train")), sizes, options.seed, SETTINGS]
    folder = work / f"sets-{settings_hash(made_of)}"
    missing = [code for code in languages if not all((folder / f"{code}-en.{part}.gold").is_file() for part in PARTS)]
    if missing:
        note(f"making the sets of {', '.join(f'{code}-en' for code in missing)}")
        corpora = read_corpora(Path(options.data), missing)
        for code in missing:
            for bitext in build_sets(corpora, code, options.training_size, options.size, options.seed):
                write_set(bitext, folder)
    sets = [read_set(folder, code, part) for code in languages for part in PARTS]
    return sets, f"made of parallel training text, seed {options.seed}"


def evaluate(options: argparse.Namespace) -> int:
    """Make or read the sets, run all models, print the report and write it."""
    check_outputs(options.output)
    work = Path(options.work) if options.work else cache_dir() / "bitext"
    sets, source = sets_of(options, work)
    runs: list[dict[str, Any]] = []
    for name in options.models:
        if options.data and is_passage_model(name):
            note(f"{name} was trained on sentence pairs: its scores are too good where these sets hold some of them")
        encoder = sentence_encoder(name, options.device, options.dtype)
        measured, classifier = run_model(name, encoder, sets, work / "vectors", options.kind)
        runs.append(measured)
        if options.fit:
            facts = {**classifier.fitted, "command": options.command}
            replace(classifier, fitted=facts).save(Path(options.fit))
        note(f"{name}: {runs[-1]['encoded']} sentences encoded, {runs[-1]['seconds']:.0f} s of comparing them")
    facts = {
        "command": options.command,
        "version": __version__,
        "source": source,
        "sets": [
            {
                "name": bitext.name,
                "sources": len(bitext.sources),
                "targets": len(bitext.targets),
                "pairs": len(bitext.gold),
                "sha256": bitext.sha256,
            }
            for bitext in sets
        ],
        "runs": runs,
        "timing": timed(options.speed, encoder.dimension) if options.speed else None,
    }
    markdown = as_markdown(list(_blocks(facts)))
    print(markdown, end="")
    write_outputs(options.output, markdown, facts)
    return OK


def _blocks(facts: Mapping[str, Any]) -> Iterator[Block]:
    """The report from its title on."""
    yield Heading("Bitext mining", 1)
    yield Text(
        "Sentence pairs hidden in two monolingual sides are to be found, as in the BUCC task. The threshold and "
        "the number of neighbours are those of the best F1 on the training part; scores are of the test part."
    )
    yield Code(facts["command"])
    sets = (
        f"{bitext['name']}: {bitext['sources']} and {bitext['targets']} sentences, {bitext['pairs']} true pairs, "
        f"sha256 {bitext['sha256'][:16]}"
        for bitext in facts["sets"]
    )
    intervals = f"intervals: 95 %, {RESAMPLES} bootstrap samples of source sentences; rag_mt {__version__}"
    p = (
        f"p: two-sided, {TRIALS} random exchanges of source sentences, by Holm over the differences of a model's "
        f"table; below {LEVEL} is significant"
    )
    yield Bullets((f"sets: {facts['source']}", *sets, intervals, p))
    for model_run in facts["runs"]:
        yield from _run_blocks(model_run)
    if timing := facts["timing"]:
        yield Heading("Speed")
        yield Text(
            "{sentences} x {sentences} vectors of {dimension} dimensions, {neighbours} neighbours both ways, {threads} "
            "threads: {seconds:.0f} s ({processor_seconds:.0f} s of processor time).".format(**timing)
        )


def _run_blocks(run: Mapping[str, Any]) -> Iterator[Block]:
    yield Heading(f"{run['model']}, encoded as {run['kind']}")
    scores = ("P", "R", "F1", "interval", "F1 less cosine's", "p")
    head = ("test part", "threshold", *scores, "best threshold's F1", "nearest")
    corrected = holm({n: r["gain"]["p"] for n, r in enumerate(run["results"]) if Way(**r["way"]) != COSINE})
    yield Table(head, tuple(_result_row(result, corrected.get(n)) for n, result in enumerate(run["results"])))
    yield Text(
        "best threshold's F1: if the threshold had been chosen on the test part. nearest: true pairs whose translation "
        "is the nearest sentence of all."
    )
    fitted = run["classifier"]
    yield Text(
        f"classifier: the probability of {fitted['fitted']['candidates']} candidates of the training parts, of which "
        f"{fitted['fitted']['right']} are right; F1 there, on sentences that it was not fitted on: "
        + ", ".join(f"{code} {_percent(f1)}" for code, f1 in fitted["f1"].items())
        + ". One threshold for all languages."
    )
    yield Text(
        "By words of the source sentence, with the chosen neighbours and thresholds. near 4, near 16: true pairs "
        "that are among so many nearest sentences of either side; candidates: those that the classifier sees, whose "
        "share is the most that its recall can be."
    )
    rows: list[tuple[str, ...]] = []
    for row in run["lengths"]:
        percents = (row["right"] / max(1, row["found"]), row["right"] / max(1, row["true"]), row["f1"]["value"])
        counts = (f"{row['least']} to {row['most']}", str(row["sentences"]), str(row["true"]))
        shown = (*map(_percent, percents), _interval(row["f1"]), *map(_percent, row["reach"]))
        rows.append((f"{row['language']}: {Way(**row['way']).score}", *counts, *shown))
    columns = ("P", "R", "F1", "interval", *(f"near {near}" for near in REACH), "candidates")
    yield Table(("test part", "words", "sentences", "true pairs", *columns), tuple(rows))
    languages = list(dict.fromkeys(trial["language"] for trial in run["trials"]))
    cells = {(t["language"], Way(**t["way"])): f"{_percent(t['f1'])} ({t['threshold']:.4f})" for t in run["trials"]}
    yield Text(f"Training part, F1 at the best threshold (which follows); chosen: {run['neighbours']} neighbours.")
    yield Table(("", *languages), tuple((way.name, *(cells[code, way] for code in languages)) for way in WAYS))


def _result_row(result: Mapping[str, Any], p: float | None) -> tuple[str, ...]:
    scores, gain = result["scores"], result["gain"]
    return (
        f"{result['language']}: {Way(**result['way']).name}",
        f"{result['threshold']:.4f}",
        *map(_percent, (scores["precision"], scores["recall"], scores["f1"]["value"])),
        _interval(scores["f1"]),
        "" if p is None else f"{100 * gain['value']:+.2f} {_interval(gain)}",
        "" if p is None else f"{p:.4f}",
        *map(_percent, (result["best"], result["nearest"])),
    )


def _percent(share: float) -> str:
    return f"{100 * share:.2f}"


def _interval(interval: Mapping[str, float]) -> str:
    return f"[{_percent(interval['low'])}, {_percent(interval['high'])}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(
        prog="python -m eval.bitext",
        description=__doc__,
        examples=[
            "",
            "--data DATA --languages de,ru --models embedded:e5-small mdpr-e5-small --output bitext.md",
            "--sets DIR --languages de,fr",
        ],
    )
    add = parser.add_argument
    add("--data", metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    add("--sets", metavar="DIR", help="sets in BUCC's format, instead of --data")
    add("--languages", default="de,ru", metavar="XX,XX", help="languages to pair with English")
    add("--models", nargs="+", default=[DEFAULT_ENCODER], metavar="NAME", help="encoders")
    add("--size", type=positive, default=50_000, metavar="N", help="sentences of a test side")
    add("--training-size", type=positive, default=10_000, metavar="N", help="sentences of a training side")
    add("--seed", type=int, default=1, help="of the sets")
    kind_help = "what both sides are encoded as"
    add("--kind", choices=("query", "passage"), default="query", help=kind_help)
    add("--speed", type=positive, metavar="N", help="time the mining of N x N vectors as well")
    add("--fit", metavar="FILE", help="write the fitted classifier of the last model here, as JSON")
    add("--work", metavar="DIR", help="sets and vectors (default: in the cache folder)")
    add("--output", action="append", default=[], metavar="FILE", help=".md or .json; may be repeated")
    add_model_options(parser)
    parser.set_defaults(command=f"python -m eval.bitext {shlex.join(map(shown_path, words))}")
    return run(evaluate, parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main())
