"""Passage retrieval: for questions in one language, is the passage that answers them found in a pool of all languages?

    python -m eval.passages --suite xquad --data DIR [--part dev|test] [--model NAME=FOLDER,... ...] --output RUNS
    python -m eval.passages --passages P.tsv --queries Q.tsv --qrels QRELS --lang de --output RUNS

Suite `xquad`: the questions of one part of XQuAD (articles are split once for all languages), the passages of all parts
in English, German, Romanian, Russian and Turkish, and --distractors passages of each language from documents of the
training data, all in one pool. A collection of your own is two TSV files (id, text and, if you like, language) with
judgements in TREC's format.

Rows: BM25 without and with RM3 and, for each model, its own ranking (cosine), its hybrid with BM25 (alpha by
cross-validation in five folds of articles) and reciprocal rank fusion. A model is a name with folders of
`finetune.mdpr`, one for each seed, or an encoder (default: untrained=embedded:e5-small). The first model is the
baseline of the others; `--against NAME=OTHER` compares a model with another one as well. `--run NAME=FILE` adds a run
in TREC's format.

Tables: MRR@100 and Recall@100 for passages in the query's language, for those in the others, and where the passages of
one other language are searched alone, as in an index for translation; averages of languages with and
without parallel data (--without), AP, P@20 and nDCG@20 where the passages of all languages are relevant, language bias,
and differences with p of Fisher's two-sided paired randomization test. What is finished is kept in RUNS, with run and
qrels files; the same command goes on from there. Without --data this runs in its quick form on the sample corpus, which
measures nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.suites import QUICK, SAMPLE
from eval.passages.report import ALL, KINDS, Report, System, cell_names, markdown, write_report
from eval.passages.rm3 import Rm3Settings
from eval.passages.runs import (
    BM25,
    DENSE,
    RM3,
    Record,
    cells_of,
    dense_scorer,
    evaluated,
    kept_records,
    of_run,
    term_scorers,
)
from eval.passages.sets import Collection, kept_collection, own_collection, sample_collection
from eval.passages.trec import measures_library, read_run, write_qrels
from rag_mt import __version__
from rag_mt.base.console import OK, Parser, add_model_options, note, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import file_sha256, settings_hash
from rag_mt.base.languages import language
from rag_mt.base.paths import cache_dir
from rag_mt.formats.reading import input_stamp
from retrievers.bm25 import K1, B, Bm25Settings
from retrievers.mdpr import open_mdpr

ENDINGS = (".json", ".md")
DISTRACTORS = 1000
NO_MODEL = "none"
UNTRAINED = f"untrained={DEFAULT_ENCODER}"


def evaluate(options: argparse.Namespace) -> int:
    """Run all systems on the collection, or take what is finished, and print the tables."""
    for name in options.report:
        if Path(name).suffix not in ENDINGS:
            raise UserError(f"report {name!r} ends neither in .json nor in .md: give one of them")
    asked = [] if options.model == [NO_MODEL] else options.model or [UNTRAINED]
    models, given = named(asked, "--model"), named(options.run, "--run")
    if taken := (models.keys() & given.keys()) | ((models.keys() | given.keys()) & {BM25, RM3}):
        raise UserError(f"the name {sorted(taken)[0]!r} stands for two systems: give each its own")
    for label, others in named(options.against, "--against").items():
        if unknown := [name for name in (label, *others) if name not in models]:
            raise UserError(f"--against names {unknown[0]!r}, which is no model: choose among {', '.join(models)}")
    measures_library()  # its lack is said before the hours
    out = Path(options.output) if options.output else cache_dir() / "passage-runs"
    out.mkdir(parents=True, exist_ok=True)
    collection = _collection(options, out)
    without = _without(options.without, collection)
    write_qrels(out / f"{collection.name}.qrels", collection.qrels)
    systems = _systems(options, collection, models, given, out)
    facts = {
        "name": collection.name,
        "fingerprint": collection.fingerprint,
        "passages": collection.counts(),
        "queries": {code: len(collection.asked_in(code)) for code in collection.codes},
    }
    articles = {cell.name: [query.group for query in cell.queries] for own in cells_of(collection) for cell in own}
    notes = _notes(collection, options, systems)
    report = Report(facts, collection.codes, without, systems, notes, _command(options), articles)
    print(markdown(report), end="")
    for name in options.report:
        write_report(report, Path(name))
    return OK


def named(given: Sequence[str], option: str) -> dict[str, list[str]]:
    """The parts of `NAME=A,B`; raises UserError for another form and for a name that comes twice."""
    made: dict[str, list[str]] = {}
    for text in given:
        name, sign, parts = text.partition("=")
        if not sign or not name or not all(parts.split(",")):
            raise UserError(
                f"{option} {text!r} is not of the form NAME=FOLDER, or NAME=FOLDER,FOLDER for several seeds"
            )
        if name in made:
            raise UserError(f"{option} {name} is given twice: write the folders of all seeds after one NAME=")
        made[name] = parts.split(",")
    return made


def _collection(options: argparse.Namespace, out: Path) -> Collection:
    own = (options.passages, options.queries, options.qrels)
    if any(own):
        if not all(own) or not options.lang:
            raise UserError("a collection of your own needs --passages, --queries, --qrels and the --lang of its texts")
        files = [Path(name) for name in own]
        return own_collection(files[0], files[1], files[2], language(options.lang).code)
    if not options.data:
        note(
            "no --data and no --passages are given: this is the quick form on the sample corpus, which measures nothing"
        )
        return sample_collection()
    stamps = [input_stamp(str(Path(options.data) / name)) for name in ("retrieval", "train")]
    settings = {"part": options.part, "distractors": options.distractors, "data": stamps, "version": __version__}
    place = out / f"collection.{options.part}.json"
    return kept_collection(place, settings, Path(options.data), options.part, options.distractors, not options.quiet)


def _without(text: str, collection: Collection) -> list[str]:
    codes = [language(code).code for code in text.split(",") if code]
    if unknown := [code for code in codes if code not in collection.codes]:
        asked = ", ".join(collection.codes)
        raise UserError(f"--without names {', '.join(unknown)}, which no query is in: choose from {asked}")
    return codes


def _systems(
    options: argparse.Namespace,
    collection: Collection,
    models: Mapping[str, Sequence[str]],
    given: Mapping[str, Sequence[str]],
    out: Path,
) -> list[System]:
    bm25, rm3 = Bm25Settings(options.k1, options.b), Rm3Settings()
    base: dict[str, Any] = {"collection": collection.fingerprint, "bm25": asdict(bm25)}
    name = collection.name
    scorers: list[Any] = []
    against = named(options.against, "--against")

    def terms() -> Any:
        if not scorers:
            scorers.append(term_scorers(collection, bm25, rm3))
        return scorers[0]

    def of_terms() -> list[Record]:
        note(f"{BM25} and {RM3} on {len(collection.ids)} passages")
        return evaluated(collection, terms(), None, out, name)

    facts = {**base, "rm3": asdict(rm3)}
    found = kept_records(out / f"{name}.bm25.json", facts, of_terms)
    key = settings_hash(facts)
    made = [System(BM25, found[:1], (), key), System(RM3, found[1:], (BM25,), key)]
    first = ""
    for label, folders in models.items():
        seeds, keys = [], list[str]()
        for number, folder in enumerate(folders):
            encoder = open_mdpr(folder, options.device, options.dtype)
            settings = {**base, "model": encoder.fingerprint, "dtype": str(encoder.dtype)}

            def of_model(encoder: Any = encoder, label: str = f"{name}.{label}.{number}") -> list[Record]:
                note(f"{label}: {encoder.id}")
                dense = dense_scorer(collection, encoder, out / "vectors", not options.quiet)
                return evaluated(collection, {DENSE: dense}, terms()[BM25], out, label)

            keys.append(settings_hash(settings))
            seeds.append(kept_records(out / f"{name}.{label}.{number}.json", settings, of_model))
        by_system = [list(records) for records in zip(*seeds, strict=True)]
        baselines = [BM25, *([first] if first else []), *against.get(label, [])]
        rows = [label, f"{label} + BM25 (hybrid)", f"{label} + BM25 (RRF)"]
        made += [
            System(rows[0], by_system[0], tuple(dict.fromkeys(baselines)), key := settings_hash(keys)),
            System(rows[1], by_system[1], (BM25, label), key),
            System(rows[2], by_system[2], (BM25, label), key),
        ]
        first = first or label
    for label, files in given.items():
        records = [_of_run(collection, Path(file)) for file in files]
        made.append(System(label, records, (BM25,), settings_hash([file_sha256(Path(file)) for file in files])))
    return made


def _of_run(collection: Collection, file: Path) -> Record:
    run = read_run(file)
    if run.keys().isdisjoint(query.id for query in collection.queries):
        raise UserError(
            f"{file} ranks passages for no query of {collection.name}: expected ids such as {collection.queries[0].id}"
        )
    return of_run(collection, run)


def _notes(collection: Collection, options: argparse.Namespace, systems: Sequence[System]) -> list[str]:
    passages = ", ".join(f"{code} {count}" for code, count in collection.counts().items())
    asked = ", ".join(f"{code} {len(collection.asked_in(code))}" for code in collection.codes)
    made = [
        f"collection {collection.name}: {len(collection.ids)} passages in one pool ({passages}); queries {asked}",
        "same language: the relevant passage is the one in the query's language; cross-language: that in another one, "
        "mean over the others; its versions in further languages are taken out of the ranking, and every other passage "
        "of every language competes",
        "one other language alone: only its passages are searched, as in an index for translation, mean over the "
        "others; BM25 asks for numbers and words of four letters and more, which languages may share",
        f"BM25 with k1 {options.k1:g} and b {options.b:g}, stemmed terms in Latin letters; RM3 with the settings usual "
        "in Anserini",
    ]
    if chosen := [_alpha(system, collection.codes) for system in systems if any(r.alphas for r in system.records)]:
        alphas = "; ".join(chosen)
        made.append(f"hybrid: alpha by cross-validation in five folds of articles, mean over cells {alphas}")
    if collection.name == SAMPLE:
        made.append(QUICK)
    elif options.passages is None and options.part == "dev":
        made.append("development questions: for choices, not for results")
    seeds = {system.name: len(system.records) for system in systems if len(system.records) > 1}
    if seeds:
        made.append(
            "mean ± half the 95 % interval (Student's t) over seeds: "
            + ", ".join(f"{name} {count}" for name, count in seeds.items())
        )
    return made


def _alpha(system: System, codes: Sequence[str]) -> str:
    """The mean weight of BM25 for each kind of cell."""
    made = []
    for kind in (*KINDS, ALL):
        chosen = [
            float(np.mean(record.alphas[name]))
            for record in system.records
            for code in codes
            for name in cell_names(code, kind, record)
        ]
        if chosen:
            made.append(f"{np.mean(chosen):.2f} {kind}")
    return f"{', '.join(made)} ({system.name})"


def _command(options: argparse.Namespace) -> str:
    """The command that made a report, with folders by their last name only: a report says nothing about a machine."""
    if options.passages:
        files = (f"--{name} {Path(getattr(options, name)).name}" for name in ("passages", "queries", "qrels"))
        parts = [*files, f"--lang {options.lang}"]
    elif not options.data:
        parts = [f"--suite {options.suite}"]
    else:
        parts = [f"--suite {options.suite} --data DATA --part {options.part} --distractors {options.distractors}"]
    if options.model == [NO_MODEL]:
        parts.append(f"--model {NO_MODEL}")
    for name, given in (("model", options.model or []), ("against", options.against), ("run", options.run)):
        for label, folders in named([own for own in given if own != NO_MODEL], f"--{name}").items():
            parts.append(f"--{name} {label}={','.join(Path(folder).name for folder in folders)}")
    settings = (("without", ""), ("k1", K1), ("b", B), ("dtype", "auto"))
    parts += [f"--{name} {getattr(options, name)}" for name, usual in settings if getattr(options, name) != usual]
    return " ".join(["python -m eval.passages", *parts, "--output RUNS"])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.passages", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add: Callable[..., Any] = parser.add_argument
    add("--suite", choices=["xquad"], default="xquad", help="default: xquad")
    add("--data", metavar="DIR", help="folder with retrieval/ and train/")
    add("--part", choices=["dev", "test"], default="dev", help="questions to ask (default: dev)")
    add("--distractors", type=count, default=DISTRACTORS, metavar="N", help=f"per language (default: {DISTRACTORS})")
    add("--passages", metavar="FILE", help="passages of your own: id, text, language")
    add("--queries", metavar="FILE", help="queries of your own: id, text, language")
    add("--qrels", metavar="FILE", help="judgements of your own: query 0 passage grade")
    add("--lang", metavar="LANG", help="language of your texts where the file names none")
    add("--model", nargs="+", action="extend", metavar="NAME=FOLDER", help=f"models, or none (default: {UNTRAINED})")
    add("--against", nargs="+", action="extend", default=[], metavar="NAME=OTHER", help="further baselines of models")
    add("--run", nargs="+", action="extend", default=[], metavar="NAME=FILE", help="runs in TREC's format")
    add("--without", default="", metavar="XX,...", help="languages that models had no parallel data of")
    add("--k1", type=float, default=K1, metavar="X", help=f"of BM25 (default: {K1})")
    add("--b", type=float, default=B, metavar="X", help=f"of BM25 (default: {B})")
    add(
        "--output",
        metavar="RUNS",
        help="folder for what is finished, and for run and qrels files (default: in the cache)",
    )
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
