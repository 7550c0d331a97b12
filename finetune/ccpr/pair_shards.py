"""Phrase pairs of a language pair as Arrow files; what is finished stays when the run is interrupted."""

from __future__ import annotations

import json
import logging
import multiprocessing
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eval.data.alignments import number_words
from eval.data.phrase_pairs import FREQUENT_LEAST, FREQUENT_SHARE, Frequent, all_phrase_pairs, frequent_words
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json, remembered_sha256
from rag_mt.base.paths import alone_in, whole_file
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import (
    Corpus,
    excluded_texts,
    existing_file,
    letters_and_digits,
    read_corpus,
    training_file,
)
from retrievers.encoders.alignment import Aligner, Links, Method, symmetrised
from retrievers.index.manifest import differences

log = logging.getLogger("rag_mt")

FORMAT = 1
PLAN, MANIFEST, FREQUENT, LINKS = "plan.json", "manifest.json", "frequent.json", "links.npz"
PAIRS_PER_SHARD = 20_000
FEWEST_WORDS, MOST_WORDS = 3, 60
"""Sentences with fewer or more words make no phrase pairs."""

SCHEMA = pa.schema(
    [
        ("line", pa.int32()),
        ("domain", pa.string()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("spans", pa.list_(pa.int32())),
    ]
)


@dataclass(frozen=True)
class Job:
    """What to extract: language pair `pair` (`de-en`) of folder `data`, less what stands in the `exclude` files; at
    most `max_pairs` sentence pairs; phrases of at most `max_words` words; by so many processes."""

    data: Path
    output: Path
    pair: str
    exclude: tuple[Path, ...] = ()
    max_pairs: int | None = None
    max_words: int = 6
    workers: int = 1

    @property
    def languages(self) -> tuple[str, str]:
        source, target = self.pair.split("-")
        return source, target

    @property
    def folder(self) -> Path:
        return self.output / self.pair


def write_pairs(job: Job, aligner: Aligner, show: bool = True) -> Mapping[str, Any]:
    """Write the phrase pairs of a language pair and return the contents of its manifest.

    Finished shards of an interrupted run with the same settings are kept. Raises UserError for missing files, for a
    folder that was made with other settings and for data without usable pairs.
    """
    train = training_file(job.data, job.pair)
    settings: dict[str, Any] = {
        "format": FORMAT,
        "languages": list(job.languages),
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
        if finished := _begin(job.folder, settings):
            log.info("%s is finished already: %s", job.folder, describe(finished))
            return finished
        skips = Skips(shown=3)
        corpus = _read(job, train, skips)
        counts = _write_shards(job, aligner, corpus, _frequent(job, corpus), show)
        manifest = {**settings, "counts": counts, "skips": dict(skips.counts)}
        _write_json(job.folder / MANIFEST, manifest)
        for name in (PLAN, LINKS):
            (job.folder / name).unlink(missing_ok=True)
    log.info("%s: %s", job.folder, describe(manifest))
    return manifest


def describe(manifest: Mapping[str, Any]) -> str:
    """One line for people."""
    counts = manifest["counts"]
    left = Skips(counts=Counter(manifest["skips"])).summary()
    return f"{counts['phrases']} phrase pairs in {counts['pairs']} sentence pairs{f'; {left}' if left else ''}"


def _begin(folder: Path, settings: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Compare the settings with those of what is in the folder; the manifest if all is done already."""
    if not (folder / MANIFEST).is_file() and not (folder / LINKS).is_file() and not any(folder.glob("pairs-*.arrow")):
        _write_json(folder / PLAN, settings)
        return None
    name = next((n for n in (MANIFEST, PLAN) if (folder / n).is_file()), None)
    if not name:
        raise UserError(f"{folder} has phrase pairs but no {PLAN}: give another --output or remove the folder")
    try:
        found: Mapping[str, Any] = read_json(folder / name)
    except ValueError:
        raise UserError(f"{folder / name} is damaged: remove the folder {folder} and run again") from None
    wanted = json.loads(json.dumps(settings))
    if different := differences({k: v for k, v in found.items() if k in wanted}, wanted):
        raise UserError(
            f"{folder} was made with other settings ({'; '.join(different)}): "
            "give those to go on, another --output, or remove the folder"
        )
    return found if name == MANIFEST else None


def _write_json(path: Path, contents: Any) -> None:
    with whole_file(path) as part:
        part.write_text(json.dumps(contents, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def _read(job: Job, train: Path, skips: Skips) -> Corpus:
    """The usable pairs of the training file."""
    corpus = read_corpus(train, skips)
    excluded = excluded_texts(job.exclude, skips)
    sizes = [np.array([len(row) for row in number_words(side)[0]]) for side in (corpus.sources, corpus.targets)]
    fits = np.logical_and.reduce([(s >= FEWEST_WORDS) & (s <= MOST_WORDS) for s in sizes])
    quiet = Skips(shown=0, counts=skips.counts)
    kept = []
    for n in range(len(corpus)):
        if not fits[n]:
            quiet.counts[f"with fewer than {FEWEST_WORDS} or more than {MOST_WORDS} words"] += 1
        elif excluded and (
            letters_and_digits(corpus.targets[n]) in excluded or letters_and_digits(corpus.sources[n]) in excluded
        ):
            quiet.counts["in an excluded file"] += 1
        else:
            kept.append(n)
    if job.max_pairs and len(kept) > job.max_pairs:
        quiet.counts["beyond --max-pairs"] += len(kept) - job.max_pairs
        kept = [kept[n] for n in np.linspace(0, len(kept), job.max_pairs, endpoint=False).astype(int)]
    if not kept:
        raise UserError(
            f"{train} has no usable sentence pair ({skips.summary()}): give English, then the other language"
        )
    return corpus.rows(kept)


def _frequent(job: Job, corpus: Corpus) -> Frequent:
    """The too frequent words of both sides, also written to `frequent.json`."""
    made = [frequent_words(*number_words(side), len(corpus)) for side in (corpus.sources, corpus.targets)]
    _write_json(job.folder / FREQUENT, {code: sorted(words) for code, words in zip(job.languages, made, strict=True)})
    return Frequent(*made)


def _write_shards(job: Job, aligner: Aligner, corpus: Corpus, frequent: Frequent, show: bool) -> dict[str, int]:
    """Make the shards that are missing; the counts of all."""
    begins = range(0, len(corpus), PAIRS_PER_SHARD)
    paths = {begin: job.folder / f"pairs-{number:05d}.arrow" for number, begin in enumerate(begins)}
    missing = [begin for begin in begins if not paths[begin].is_file()]
    dev = job.output / f"{job.pair}.dev.jsonl"
    links = _learnt_links(job, aligner, corpus, dev) if aligner.learns and missing else None
    if not aligner.learns and not dev.is_file():
        along = development(job)
        _write_dev(dev, along, aligner.align(along.pairs))
    done = sum(min(PAIRS_PER_SHARD, len(corpus) - begin) for begin in begins if begin not in missing)
    waiting: list[tuple[Future[None], int]] = []
    context = multiprocessing.get_context("spawn")  # a fork would copy the threads' locks of a model
    with (
        closing(progress(len(corpus), "pairs", f"phrase pairs {job.pair}", initial=done, show=show)) as bar,
        ProcessPoolExecutor(job.workers, context, _leave_interrupts) as pool,
    ):
        for begin in missing:
            own = slice(begin, begin + PAIRS_PER_SHARD)
            part = corpus.rows(range(len(corpus))[own])
            directions = (links[0][own], links[1][own]) if links else aligner.directed(part.pairs)
            while len(waiting) > job.workers:
                _finish(waiting.pop(0), bar.update)
            task = pool.submit(write_shard, paths[begin], part, directions, aligner.method, frequent, job.max_words)
            waiting.append((task, len(part)))
        for item in waiting:
            _finish(item, bar.update)
    counts: Counter[str] = Counter()
    for path in paths.values():
        counts.update(_shard_counts(path))
    return dict(counts)


def _leave_interrupts() -> None:
    """Leave Ctrl-C to the main process: a worker finishes its shard."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _finish(item: tuple[Future[None], int], update: Callable[[int], Any]) -> None:
    """Wait for a shard of so many pairs."""
    task, pairs = item
    try:
        task.result()
    except BrokenProcessPool:
        raise UserError(
            "a process that extracts phrase pairs was killed, maybe for want of memory: "
            "give fewer --workers; what is finished is kept"
        ) from None
    update(pairs)


def _shard_counts(path: Path) -> dict[str, int]:
    try:
        with pa.memory_map(str(path)) as file:
            return {k.decode(): int(v) for k, v in pa.ipc.open_file(file).schema.metadata.items()}
    except (pa.ArrowInvalid, AttributeError):
        raise UserError(f"the shard {path} is damaged: remove it and run again") from None


def write_shard(
    path: Path,
    corpus: Corpus,
    directions: tuple[Sequence[Links], Sequence[Links]],
    method: Method,
    frequent: Frequent,
    max_words: int,
) -> None:
    """Write the phrase pairs of some sentence pairs; sentence pairs without any are left out. The counts are in the
    metadata of the schema."""
    links = symmetrised(*directions, method)
    found = all_phrase_pairs(corpus.sources, corpus.targets, links, frequent, max_words)
    kept = [n for n, spans in enumerate(found) if len(spans)]
    phrases = sum(map(len, found))
    counts = {
        "sentences": len(corpus),
        "pairs": len(kept),
        "without phrase pairs": len(corpus) - len(kept),
        "links": sum(map(len, links)),
        "phrases": phrases,
    }
    values = np.concatenate([found[n].ravel() for n in kept] or [np.zeros(0, np.int32)])
    bounds = np.cumsum([0, *(4 * len(found[n]) for n in kept)]).astype(np.int32)
    part = corpus.rows(kept)
    columns = [part.lines, part.domains, part.sources, part.targets, pa.ListArray.from_arrays(bounds, values)]
    schema = SCHEMA.with_metadata({k: str(v) for k, v in counts.items()})
    arrays = [pa.array(c, f.type) if isinstance(c, list) else c for c, f in zip(columns, schema, strict=True)]
    with whole_file(path) as temporary, pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, schema) as out:
        out.write_batch(pa.record_batch(arrays, schema=schema))


def development(job: Job) -> Corpus:
    """The pairs of `DIR/dev/PAIR.tsv`; none if there is no such file."""
    path = job.data / "dev" / f"{job.pair}.tsv"
    return read_corpus(path, Skips(shown=0)) if path.is_file() else Corpus()


def _learnt_links(job: Job, aligner: Aligner, corpus: Corpus, dev: Path) -> tuple[list[Links], list[Links]]:
    """The links of the whole corpus in both directions, with the development pairs aligned along; kept in a file."""
    path = job.folder / LINKS
    if not path.is_file():
        log.info("aligning %d sentence pairs of %s with %s", len(corpus), job.pair, aligner.name)
        along = development(job)
        forward, backward = aligner.directed(corpus.pairs + along.pairs)
        _write_dev(dev, along, symmetrised(forward[len(corpus) :], backward[len(corpus) :], aligner.method))
        with whole_file(path) as part, part.open("wb") as file:
            arrays = _packed("forward", forward[: len(corpus)]) | _packed("backward", backward[: len(corpus)])
            np.savez(file, allow_pickle=False, **arrays)
    with np.load(path, allow_pickle=False) as arrays:
        return _unpacked("forward", arrays), _unpacked("backward", arrays)


def _write_dev(path: Path, dev: Corpus, links: Sequence[Links]) -> None:
    """Write the development pairs with their links as JSON lines, if there are any pairs."""
    if not len(dev):
        return
    with whole_file(path) as part, part.open("w", encoding="utf-8") as file:
        for line, source, target, own in zip(dev.lines, dev.sources, dev.targets, links, strict=True):
            row = {"line": line, "source": source, "target": target, "links": own.tolist()}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _packed(name: str, links: Sequence[Links]) -> dict[str, NDArray[Any]]:
    """Links of many pairs as two arrays; word numbers fit into a byte, since longer pairs are not aligned."""
    return {
        f"{name}_links": np.concatenate([np.zeros((0, 2), np.uint8), *(own.astype(np.uint8) for own in links)]),
        f"{name}_counts": np.array([len(own) for own in links], dtype=np.int64),
    }


def _unpacked(name: str, arrays: Mapping[str, NDArray[Any]]) -> list[Links]:
    links: Links = arrays[f"{name}_links"].astype(np.int32)
    return np.split(links, np.cumsum(arrays[f"{name}_counts"])[:-1])
