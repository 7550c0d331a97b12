"""Phrase pairs of sentence pairs: spans of both sides whose words are linked with each other and with nothing else.

The training data of CCPR (section 4.3) from word-aligned sentence pairs:

    python -m finetune.ccpr.pairs --data DIR --pairs de-en,cs-en --output PAIRS [--exclude FILE ...]

reads `DIR/train/de-en.tsv[.xz]` (English, German and, if there, domain) and writes `PAIRS/de-en/`: `pairs-00000.arrow`
and so on with the columns line, domain, source (German), target (English) and spans (flattened rows of start and end
of the source phrase, start and end of the target phrase, in characters), `frequent.json` and `manifest.json`. Where
there is a `DIR/dev/de-en.tsv`, its sentences are aligned too and their links written to `PAIRS/de-en.dev.jsonl`.
A run that was interrupted goes on when it is started again.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import re
import signal
import sys
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from eval.data.alignments import EflomalAligner
from eval.data.phrase_pairs import FREQUENT_LEAST, FREQUENT_SHARE, MAX_WORDS, Frequent
from eval.data.phrase_sets import counted
from finetune.ccpr.shards import write_shard
from rag_mt.base.console import OK, Parser, add_model_options, positive, progress, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, read_json, remembered_sha256, whole_file, write_json
from rag_mt.base.languages import language
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import (
    Corpus,
    excluded_texts,
    existing_file,
    letters_and_digits,
    read_corpus,
    training_file,
)
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import METHODS, Aligner, EncoderAligner, Links, symmetrised
from retrievers.index.manifest import differences

log = logging.getLogger("rag_mt")

FORMAT = 1
PLAN, MANIFEST, FREQUENT, LINKS = "plan.json", "manifest.json", "frequent.json", "links.npz"
DIRECTIONS = ("forward", "backward")
PAIRS_PER_SHARD = 20_000
FEWEST_WORDS, MOST_WORDS = 3, 60
"""Sentences with fewer or more words make no phrase pairs."""
EXCLUDE_HELP = """leave out pairs of which a side stands in a column of these files (tabs or ` ||| ` between columns),
compared by casefolded letters and digits"""


@dataclass(frozen=True)
class Job:
    """What to extract: language pair `pair` (`de-en`) of folder `data`, less what stands in the `exclude` files; at
    most `max_pairs` sentence pairs; phrases of at most `max_words` words; by so many processes."""

    data: Path
    output: Path
    pair: str
    exclude: tuple[Path, ...] = ()
    max_pairs: int | None = None
    max_words: int = MAX_WORDS
    workers: int = 1

    @property
    def folder(self) -> Path:
        return self.output / self.pair

    @property
    def dev_file(self) -> Path:
        return self.output / f"{self.pair}.dev.jsonl"


def write_pairs(job: Job, aligner: Aligner, show: bool = True) -> Mapping[str, Any]:
    """Write the phrase pairs of a language pair and return the contents of its manifest.

    Finished shards of an interrupted run with the same settings are kept. Raises UserError for missing files, for a
    folder that was made with other settings and for data without usable pairs.
    """
    train = training_file(job.data, job.pair)
    settings: dict[str, Any] = {
        "format": FORMAT,
        "languages": job.pair.split("-"),
        "data": {"file": train.name, "sha256": remembered_sha256(train)},
        "excluded": {remembered_sha256(existing_file(path)): path.name for path in job.exclude},
        "aligner": dict(aligner.settings),
        "symmetrisation": aligner.method,
        "max_pairs": job.max_pairs,
        "sentence_words": [FEWEST_WORDS, MOST_WORDS],
        "phrase_words": job.max_words,
        "frequent": {"share": FREQUENT_SHARE, "least": FREQUENT_LEAST},
        "pairs_per_shard": PAIRS_PER_SHARD,
    }
    with alone_in(job.folder, f"the extraction of {job.folder}"):
        manifest = _begin(job.folder, settings)
        before = "" if manifest is None else " is finished already"
        if manifest is None:
            skips = Skips(shown=3)
            corpus = _read(job, train, skips)
            frequent = counted(corpus.sources, corpus.targets)
            source, target = settings["languages"]
            write_json(job.folder / FREQUENT, {source: sorted(frequent.source), target: sorted(frequent.target)})
            counts = _write_shards(job, aligner, corpus, frequent, show)
            manifest = {**settings, "counts": counts, "skips": dict(skips.counts)}
            write_json(job.folder / MANIFEST, manifest)
            for name in (PLAN, LINKS):
                (job.folder / name).unlink(missing_ok=True)
    counts, left = manifest["counts"], Skips(counts=Counter(manifest["skips"])).summary()
    summary = f"{counts['phrases']} phrase pairs in {counts['pairs']} sentence pairs{f'; {left}' if left else ''}"
    log.info("%s%s: %s", job.folder, before, summary)
    return manifest


def _begin(folder: Path, settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Compare the settings with those of what is in the folder; the manifest if all is done already."""
    if not (folder / MANIFEST).is_file() and not (folder / LINKS).is_file() and not any(folder.glob("pairs-*.arrow")):
        write_json(folder / PLAN, settings)
        return None
    path = folder / (MANIFEST if (folder / MANIFEST).is_file() else PLAN)
    try:
        known: Mapping[str, Any] = read_json(path)
    except (OSError, ValueError):
        raise UserError(f"{path} is missing or damaged: remove the folder {folder} and run again") from None
    wanted = json.loads(json.dumps(settings))
    if different := differences({key: value for key, value in known.items() if key in wanted}, wanted):
        raise UserError(
            f"{folder} was made with other settings ({'; '.join(different)}): "
            "give those to go on, another --output, or remove the folder"
        )
    return known if path.name == MANIFEST else None


def _read(job: Job, train: Path, skips: Skips) -> Corpus:
    """The usable pairs of the training file."""
    corpus = read_corpus(train, skips)
    excluded = excluded_texts(job.exclude, skips)
    usable = []
    for n, sides in enumerate(corpus.pairs):
        if not all(FEWEST_WORDS <= len(word_spans(side)) <= MOST_WORDS for side in sides):
            skips.counts[f"with fewer than {FEWEST_WORDS} or more than {MOST_WORDS} words"] += 1
        elif excluded and not excluded.isdisjoint(map(letters_and_digits, sides)):
            skips.counts["in an excluded file"] += 1
        else:
            usable.append(n)
    if job.max_pairs and len(usable) > job.max_pairs:
        skips.counts["beyond --max-pairs"] += len(usable) - job.max_pairs
        usable = [usable[n] for n in np.linspace(0, len(usable), job.max_pairs, endpoint=False).astype(int)]
    if not usable:
        raise UserError(
            f"{train} has no usable sentence pair ({skips.summary()}): give English, then the other language"
        )
    return corpus.rows(usable)


def _write_shards(job: Job, aligner: Aligner, corpus: Corpus, frequent: Frequent, show: bool) -> dict[str, int]:
    """Make the shards that are missing; the counts of all."""
    begins = range(0, len(corpus), PAIRS_PER_SHARD)
    paths = {begin: job.folder / f"pairs-{number:05d}.arrow" for number, begin in enumerate(begins)}
    missing = [begin for begin in begins if not paths[begin].is_file()]
    links = _learnt_links(job, aligner, corpus) if aligner.learns and missing else None
    if not aligner.learns and not job.dev_file.is_file():
        dev = _dev_corpus(job)
        _write_dev(job, dev, aligner.align(dev.pairs))
    finished = len(corpus) - sum(min(PAIRS_PER_SHARD, len(corpus) - begin) for begin in missing)
    waiting: deque[Future[int]] = deque()
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of a model
    leave_interrupts = (signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process: a worker finishes its shard
    try:
        with (
            progress(len(corpus), "pairs", f"phrase pairs {job.pair}", initial=finished, show=show) as bar,
            ProcessPoolExecutor(job.workers, context, signal.signal, leave_interrupts) as pool,
        ):
            for begin in missing:
                rows = slice(begin, begin + PAIRS_PER_SHARD)
                part = corpus.rows(range(len(corpus))[rows])
                directions = [direction[rows] for direction in links] if links else aligner.directed(part.pairs)
                while len(waiting) > job.workers:
                    bar.update(waiting.popleft().result())
                settings = aligner.method, frequent, job.max_words
                waiting.append(pool.submit(write_shard, paths[begin], part, directions, *settings))
            for task in waiting:
                bar.update(task.result())
    except BrokenProcessPool:
        raise UserError(
            "a process that extracts phrase pairs was killed, maybe for want of memory: "
            "give fewer --workers; what is finished is kept"
        ) from None
    counts: Counter[str] = Counter()
    for path in paths.values():
        try:
            with pa.memory_map(str(path)) as file:
                metadata = pa.ipc.open_file(file).schema.metadata
            counts.update({key.decode(): int(value) for key, value in metadata.items()})
        except (pa.ArrowInvalid, AttributeError):
            raise UserError(f"the shard {path} is damaged: remove it and run again") from None
    return dict(counts)


def _learnt_links(job: Job, aligner: Aligner, corpus: Corpus) -> list[list[Links]]:
    """The links of the whole corpus in both directions, with the development pairs aligned along; kept in a file.

    Word numbers fit into a byte there, since longer pairs are not aligned.
    """
    path = job.folder / LINKS
    if not path.is_file():
        log.info("aligning %d sentence pairs of %s with %s", len(corpus), job.pair, aligner.name)
        dev = _dev_corpus(job)
        directed = aligner.directed(corpus.pairs + dev.pairs)
        forward, backward = (links[len(corpus) :] for links in directed)
        _write_dev(job, dev, symmetrised(forward, backward, aligner.method))
        arrays: dict[str, Any] = {}
        for name, links in zip(DIRECTIONS, directed, strict=True):
            by_pair = [pair_links.astype(np.uint8) for pair_links in links[: len(corpus)]]
            arrays[f"{name}_links"] = np.concatenate(by_pair)
            arrays[f"{name}_counts"] = np.array([len(pair_links) for pair_links in by_pair], dtype=np.int64)
        with whole_file(path) as part, part.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
    with np.load(path, allow_pickle=False) as arrays:
        return [
            np.split(arrays[f"{name}_links"].astype(np.int32), np.cumsum(arrays[f"{name}_counts"])[:-1])
            for name in DIRECTIONS
        ]


def _dev_corpus(job: Job) -> Corpus:
    """The pairs of `DIR/dev/PAIR.tsv`; none if there is no such file."""
    path = job.data / "dev" / f"{job.pair}.tsv"
    return read_corpus(path, Skips(shown=0)) if path.is_file() else Corpus()


def _write_dev(job: Job, dev: Corpus, links: Sequence[Links]) -> None:
    """Write the development pairs with their links as JSON lines, if there are any pairs."""
    if not len(dev):
        return
    with whole_file(job.dev_file) as part, part.open("w", encoding="utf-8") as file:
        for line, source, target, pair_links in zip(dev.lines, dev.sources, dev.targets, links, strict=True):
            row = {"line": line, "source": source, "target": target, "links": pair_links.tolist()}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def extract(options: argparse.Namespace) -> int:
    """Write the phrase pairs of all language pairs."""
    data, output, exclude = Path(options.data), Path(options.output), tuple(map(Path, options.exclude))
    pairs = options.pairs.split(",")
    for pair in pairs:
        if not re.fullmatch(r"[a-z]{2,3}-en", pair):
            raise UserError(f"{pair!r} is no pair of a language with English: give pairs such as de-en,cs-en")
        language(pair.removesuffix("-en"))
    aligner = _aligner(options)
    for pair in pairs:
        job = Job(data, output, pair, exclude, options.max_pairs, options.max_words, options.workers)
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
        "python -m finetune.ccpr.pairs",
        description=__doc__,
        examples=[
            "--data examples/data --pairs de-en --aligner encoder --output PAIRS",
            "--data DATA --pairs de-en,cs-en --output PAIRS",
        ],
    )
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    add("--pairs", required=True, metavar="XX-en,...", help="language pairs")
    add("--output", required=True, metavar="DIR", help="a folder per language pair is made here")
    add("--exclude", nargs="*", default=[], metavar="FILE", help=EXCLUDE_HELP)
    add("--aligner", choices=["eflomal", "encoder"], default="eflomal", help="what links the words")
    add("--symmetrisation", choices=METHODS, default=METHODS[-1], help="how both directions are joined")
    add("--length", type=float, default=1.0, help="eflomal: relative number of iterations")
    add("--encoder", default=DEFAULT_ENCODER, help="encoder: its name")
    add("--layer", type=int, default=6, help="encoder: hidden layer")
    add("--max-pairs", type=positive, metavar="N", help="sentence pairs per language, evenly spread")
    add("--max-words", type=positive, default=MAX_WORDS, help="words of a phrase")
    add("--workers", type=positive, default=os.cpu_count() or 1, help="processes (default: all cores)")
    add_model_options(parser)
    return run(extract, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
