"""Passage retrieval: for questions in one language, is the passage that answers them found in a pool of all languages?

    python -m eval.passages --suite xquad --data DIR [--part dev|test] [--model NAME=FOLDER,... ...] --output RUNS
    python -m eval.passages --passages P.tsv --queries Q.tsv --qrels QRELS --lang de --output RUNS

Suite `xquad`: the questions of one part of XQuAD (articles are split once for all languages), the passages of all parts
in English, German, Romanian, Russian and Turkish, and --distractors passages of each language from documents of the
training data, all in one pool. A collection of your own is two TSV files (id, text and, if you like, language) with
judgements in TREC's format.

Rows: BM25 without and with RM3 and, for each model, its own ranking (cosine), its hybrid with BM25, or with BM25 + RM3
where that is better (P@20; both that and alpha by cross-validation in five folds of articles), and reciprocal rank
fusion with BM25. A model is a name with folders of `finetune.mdpr`, one for each seed, or an encoder (default:
untrained=embedded:e5-small). The first model is the baseline of the others; `--against NAME=OTHER` compares a model
with another one as well, `--primary NAME=OTHER` says which comparison the report is for: it is tested alone, across
languages if there are several, over the questions in languages without parallel data if --without names some. `--run
NAME=FILE` adds a run in TREC's format.

Tables: MRR@100 and Recall@100 for passages in the query's language, for those in the others, and where the passages of
one other language are searched alone, as in an index for translation; averages of languages with and without parallel
data (--without); Recall@20, AP, P@20 and nDCG@20 where the passages of all languages are relevant, language bias, and
differences with p of Fisher's two-sided paired randomization test. What is finished is kept in RUNS, with run and qrels
files; the same command goes on from there. Without --data this runs in its quick form on the sample corpus, which
measures nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.suites import QUICK, SAMPLE
from eval.outputs import check_outputs, write_outputs
from eval.passages.report import ALL, KINDS, Report, System, as_dict, cell_names, markdown
from eval.passages.runs import (
    BM25,
    DENSE,
    RM3,
    Record,
    Rm3Settings,
    cached_records,
    cells_of,
    dense_scorer,
    evaluated,
    measures_library,
    run_scorer,
    term_scorers,
)
from eval.passages.sets import Collection, cached_collection, own_collection, sample_collection, write_qrels
from rag_mt import __version__
from rag_mt.base.console import OK, Parser, add_model_options, note, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import cache_dir, file_sha256, settings_hash
from rag_mt.base.languages import language
from rag_mt.base.types import Encoder
from rag_mt.formats.reading import input_stamp
from retrievers.bm25 import K1, B, Bm25Settings
from retrievers.mdpr import open_mdpr

DISTRACTORS = 1000
NO_MODEL = "none"
UNTRAINED = f"untrained={DEFAULT_ENCODER}"


def evaluate(options: argparse.Namespace) -> int:
    """Run all systems on the collection, or take what is finished, and print the tables."""
    check_outputs(options.report)
    asked = [] if options.model == [NO_MODEL] else options.model or [UNTRAINED]
    models, runs = named(asked, "--model"), named(options.run, "--run")
    if taken := (models.keys() & runs.keys()) | ((models.keys() | runs.keys()) & {BM25, RM3}):
        raise UserError(f"the name {sorted(taken)[0]!r} stands for two systems: give each its own")
    against = named(options.against, "--against")
    primary = named(options.primary, "--primary")
    for option, pairs in (("--against", against), ("--primary", primary)):
        names = [name for label, others in pairs.items() for name in (label, *others)]
        if unknown := [name for name in names if name not in models]:
            raise UserError(f"{option} names {unknown[0]!r}, which is no model: choose among {', '.join(models)}")
    tested = None
    for label, others in primary.items():
        if len(others) > 1 or label in others:
            raise UserError(f"--primary {options.primary[0]} is not one comparison: name a model and another one")
        tested = (label, others[0])
        against[label] = [*against.get(label, []), *others]
    measures_library()  # its lack is said before the hours
    out = Path(options.output) if options.output else cache_dir() / "passage-runs"
    out.mkdir(parents=True, exist_ok=True)
    collection = _collection(options, out)
    without = [language(code).code for code in options.without.split(",") if code]
    if unknown := [code for code in without if code not in collection.codes]:
        known = ", ".join(collection.codes)
        raise UserError(f"--without names {', '.join(unknown)}, which no query is in: choose from {known}")
    write_qrels(out / f"{collection.name}.qrels", collection.qrels)
    systems = _systems(options, collection, models, against, out)
    for label, files in runs.items():
        # A run ranks the whole pool: it is not asked what it finds in another language alone.
        scorers = [run_scorer(collection, Path(file)) for file in files]
        records = [evaluated(collection, {"run": scorer}, None, alone=False)[0] for scorer in scorers]
        systems.append(System(label, records, (BM25,), settings_hash([file_sha256(Path(file)) for file in files])))
    facts = {
        "name": collection.name,
        "fingerprint": collection.fingerprint,
        "passages": collection.counts(),
        "queries": {code: len(collection.asked_in(code)) for code in collection.codes},
    }
    articles = {cell.name: [query.group for query in cell.queries] for cell in cells_of(collection)}
    notes = _notes(collection, options, systems)
    report = Report(facts, collection.codes, without, systems, notes, _command(options), articles, tested)
    print(markdown(report), end="")
    write_outputs(options.report, markdown(report), as_dict(report))
    return OK


def named(pairs: Sequence[str], option: str) -> dict[str, list[str]]:
    """The parts of `NAME=A,B`; raises UserError for another form and for a name that comes twice."""
    parts_of: dict[str, list[str]] = {}
    for text in pairs:
        name, _, parts = text.partition("=")
        if not name or not all(parts.split(",")):
            raise UserError(
                f"{option} {text!r} is not of the form NAME=FOLDER, or NAME=FOLDER,FOLDER for several seeds"
            )
        if name in parts_of:
            raise UserError(f"{option} {name} is given twice: write the folders of all seeds after one NAME=")
        parts_of[name] = parts.split(",")
    return parts_of


def _collection(options: argparse.Namespace, out: Path) -> Collection:
    files = (options.passages, options.queries, options.qrels)
    if any(files):
        if not all(files) or not options.lang:
            raise UserError("a collection of your own needs --passages, --queries, --qrels and the --lang of its texts")
        passages, queries, qrels = map(Path, files)
        return own_collection(passages, queries, qrels, language(options.lang).code)
    if not options.data:
        note(
            "no --data and no --passages are given: this is the quick form on the sample corpus, which measures nothing"
        )
        return sample_collection()
    stamps = [input_stamp(str(Path(options.data) / name)) for name in ("retrieval", "train")]
    settings = {"part": options.part, "distractors": options.distractors, "data": stamps, "version": __version__}
    file = out / f"collection.{options.part}.json"
    return cached_collection(file, settings, Path(options.data), options.part, options.distractors, not options.quiet)


def _systems(
    options: argparse.Namespace,
    collection: Collection,
    models: Mapping[str, Sequence[str]],
    against: Mapping[str, Sequence[str]],
    out: Path,
) -> list[System]:
    """BM25, RM3 and for each model its own ranking, its hybrid with the better of the two and its RRF with BM25."""
    bm25, rm3 = Bm25Settings(options.k1, options.b), Rm3Settings()
    base: dict[str, Any] = {"collection": collection.fingerprint, "bm25": asdict(bm25)}
    terms = term_scorers(collection, bm25, rm3)

    def of_terms() -> list[Record]:
        note(f"{BM25} and {RM3} on {len(collection.ids)} passages")
        return evaluated(collection, terms, out, collection.name)

    def of_model(encoder: Encoder, seed: str) -> list[Record]:
        note(f"{seed}: {encoder.id}")
        dense = dense_scorer(collection, encoder, out / "vectors", not options.quiet)
        return evaluated(collection, {DENSE: dense, **terms}, out, seed)

    settings = {**base, "rm3": asdict(rm3)}
    key = settings_hash(settings)
    first, second = cached_records(out / f"{collection.name}.bm25.json", settings, of_terms)
    systems = [System(BM25, [first], (), key), System(RM3, [second], (BM25,), key)]
    for label, folders in models.items():
        seeds, keys = [], []
        for number, folder in enumerate(folders):
            encoder = open_mdpr(folder, options.device, options.dtype)
            settings = {**base, "rm3": asdict(rm3), "model": encoder.fingerprint, "dtype": str(encoder.dtype)}
            seed = f"{collection.name}.{label}.{number}"
            seeds.append(cached_records(out / f"{seed}.json", settings, partial(of_model, encoder, seed)))
            keys.append(settings_hash(settings))
        key = settings_hash(keys)
        baselines = dict.fromkeys([BM25, next(iter(models)), *against.get(label, [])])
        dense, hybrid, rrf = zip(*seeds, strict=True)
        systems += [
            System(label, dense, [name for name in baselines if name != label], key),
            System(f"{label} + BM25 (hybrid)", hybrid, (BM25, label), key),
            System(f"{label} + BM25 (RRF)", rrf, (BM25, label), key),
        ]
    return systems


def _notes(collection: Collection, options: argparse.Namespace, systems: Sequence[System]) -> list[str]:
    passages = ", ".join(f"{code} {count}" for code, count in collection.counts().items())
    asked = ", ".join(f"{code} {len(collection.asked_in(code))}" for code in collection.codes)
    notes = [
        f"collection {collection.name}: {len(collection.ids)} passages in one pool ({passages}); queries {asked}",
        "same language: the relevant passage is the one in the query's language; cross-language: that in another one, "
        "mean over the others; its versions in further languages are taken out of the ranking, and every other passage "
        "of every language competes",
        "one other language alone: only its passages are searched, as in an index for translation, mean over the "
        "others; BM25 asks for numbers and words of four letters and more, which languages may share",
        f"BM25 with k1 {options.k1:g} and b {options.b:g}, stemmed terms in Latin letters; RM3 with the settings usual "
        "in Anserini",
    ]
    if alphas := "; ".join(
        _alpha(system, collection.codes) for system in systems if any(r.alphas for r in system.records)
    ):
        notes.append(
            "hybrid: by cross-validation in five folds of articles the better of BM25 and BM25 + RM3 (P@20) and alpha, "
            f"mean over cells {alphas}"
        )
    if collection.name == SAMPLE:
        notes.append(QUICK)
    elif options.passages is None and options.part == "dev":
        notes.append("development questions: for choices, not for results")
    if seeds := ", ".join(f"{own.name} {len(own.records)}" for own in systems if len(own.records) > 1):
        notes.append(f"mean ± half the 95 % interval (Student's t) over seeds: {seeds}")
    return notes


def _alpha(system: System, codes: Sequence[str]) -> str:
    """The mean weight of BM25 for each kind of cell."""
    means = []
    for kind in (*KINDS, ALL):
        cells = [(r, name) for r in system.records for code in codes for name in cell_names(code, kind, r)]
        if cells:
            means.append(f"{np.mean([float(np.mean(record.alphas[name])) for record, name in cells]):.2f} {kind}")
    return f"{', '.join(means)} ({system.name})"


def _command(options: argparse.Namespace) -> str:
    """The command that made a report, with folders by their last name only: a report says nothing about a machine."""
    parts = []  # of the quick form none
    if options.passages:
        parts = [f"--{name} {Path(getattr(options, name)).name}" for name in ("passages", "queries", "qrels")]
        parts.append(f"--lang {options.lang}")
    elif options.data:
        parts.append(f"--suite {options.suite} --data DATA --part {options.part} --distractors {options.distractors}")
    for name in ("model", "against", "primary", "run"):
        for pair in getattr(options, name) or []:
            label, sign, folders = pair.partition("=")
            parts.append(f"--{name} {label}{sign}{','.join(Path(folder).name for folder in folders.split(','))}")
    settings = (("without", ""), ("k1", K1), ("b", B), ("dtype", "auto"))
    parts += [f"--{name} {getattr(options, name)}" for name, usual in settings if getattr(options, name) != usual]
    return " ".join(["python -m eval.passages", *parts, "--output RUNS"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.passages",
        description=__doc__,
        examples=[
            "",
            "--suite xquad --data DATA --model mdpr=MODEL --output RUNS",
            "--passages P.tsv --queries Q.tsv --qrels QRELS --lang de --output RUNS",
        ],
    )
    add: Callable[..., Any] = parser.add_argument
    add("--suite", choices=["xquad"], default="xquad", help="what to ask for")
    add("--data", metavar="DIR", help="folder with retrieval/ and train/")
    add("--part", choices=["dev", "test"], default="dev", help="questions to ask")
    add("--distractors", type=count, default=DISTRACTORS, metavar="N", help="per language")
    add("--passages", metavar="FILE", help="passages of your own: id, text, language")
    add("--queries", metavar="FILE", help="queries of your own: id, text, language")
    add("--qrels", metavar="FILE", help="judgements of your own: query 0 passage grade")
    add("--lang", metavar="LANG", help="language of your texts where the file names none")
    add("--model", nargs="+", action="extend", metavar="NAME=FOLDER", help=f"models, or none (default: {UNTRAINED})")
    add("--against", nargs="+", action="extend", default=[], metavar="NAME=OTHER", help="further baselines of models")
    add("--primary", nargs=1, default=[], metavar="NAME=OTHER", help="NAME less OTHER is tested alone")
    add("--run", nargs="+", action="extend", default=[], metavar="NAME=FILE", help="runs in TREC's format")
    add("--without", default="", metavar="XX,...", help="languages that models had no parallel data of")
    add("--k1", type=float, default=K1, metavar="X", help="of BM25")
    add("--b", type=float, default=B, metavar="X", help="of BM25")
    output_help = "folder for what is finished, and for run and qrels files (default: in the cache)"
    add("--output", metavar="RUNS", help=output_help)
    add("--report", nargs="+", default=[], metavar="FILE", help="write the tables to FILE.md, FILE.json or both")
    add("--quiet", action="store_true", help="no progress bar")
    add_model_options(parser)
    return run(evaluate, parser.parse_args(arguments))


def count(text: str) -> int:
    """An argparse type: a whole number of at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 0")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
