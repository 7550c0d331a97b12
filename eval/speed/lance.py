"""An index of ours against its copy in LanceDB: build, size, latency, recall, and readers while it grows.

    python -m eval.speed.lance INDEX [--form ivf] [--bits 2] [--sentences 100] [--rounds 3]
    python -m eval.speed.lance --synthetic 500000
    python -m eval.speed.lance --synthetic 50000 --readers 4 --appends 20

Both are made in a temporary folder; INDEX itself is only read. The time of a build is without that of making vectors.
With --bits it is a copy of the index compressed to so many, re-ranked, that is compared with the one that is not.
Queries are vectors of the index, each turned at random to a cosine of 0.7 with itself, and of a sentence all (batch)
or one (single) are searched at once. Recall@1 is measured against exact search of the same vectors. Last a file of 20
sentences is added to both.

With --readers so many processes open the copy and search it, again and again, while this one appends files to it and
takes every second one out again. A reader looks for units of the copied index, and for the sentences of the files that
were there for certain before it opened the index: answers that are others are wrong, errors and missing ones are lost,
and a file of which it finds a part is torn.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.data.vectors import milliseconds
from eval.speed.growing import seconds
from eval.speed.index import built, query_vectors
from eval.speed.timing import add_measuring_options
from rag_mt.base.console import OK, PARTLY, Parser, note, positive, run
from rag_mt.base.defaults import BITS, FP16
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_whole
from rag_mt.base.sizes import bytes_below
from rag_mt.base.types import Floats, Kind, Origin, Sentence
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.lance.place import local_folder
from retrievers.index.manifest import Manifest, read_manifest
from retrievers.index.opening import open_index
from retrievers.index.places import UNITS
from retrievers.index.search import MOST_LISTS, Index

SINGLE = 100
"""Queries that are searched one by one."""
PER_FILE = 20
"""Sentences of a file that is appended."""
KNOWN = 20
"""Units of the copied index that a reader looks for."""
CLOSE = 0.999
"""Share of the score of a unit with itself that the best hit must have."""
COLUMNS = (
    ("", 8, ""),
    ("build, s", 10, ".1f"),
    ("bytes/unit", 12, ".0f"),
    ("ms/query, batch", 17, ".3f"),
    ("single", 8, ".2f"),
    ("recall@1", 10, ".4f"),
    ("append, s", 11, ".2f"),
)
"""Of the table: title, width, format."""
STATE, READY, END = "files", "ready-", "end"
"""Files by which the processes tell each other."""


class NumberedUnits:
    """Random vectors of the dimension of an index, one for each text, which ends with its number (a UnitMaker)."""

    block = 1024

    def __init__(self, manifest: Manifest) -> None:
        self.unit, self.dimension, self.settings = manifest.unit, manifest.dimension, manifest.settings

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors of length 1 and the spans of whole texts."""
        numbers = [int(text.split()[-1]) for text in texts]
        rows = [np.random.default_rng(number).standard_normal(self.dimension, dtype=np.float32) for number in numbers]
        vectors = np.array(rows, np.float32).reshape(-1, self.dimension)
        spans = [(number, 0, len(text)) for number, text in enumerate(texts)]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.array(spans, np.int32).reshape(-1, 3)


def added(number: int, language: str) -> list[Sentence]:
    """The sentences of an appended file."""
    first = number * PER_FILE
    return [Sentence(f"added {n}", language, Origin(f"{number}.txt", n + 1)) for n in range(first, first + PER_FILE)]


def row_of(
    name: str, index: Index, exact: Index, build: float, size: int, sentences: Sequence[Floats], rounds: int
) -> list[float]:
    """What the table says of an index: build seconds, bytes a unit, milliseconds a query in a batch and alone, recall@1
    against search of all lists of the index `exact`."""
    note(f"searching {name}")
    queries = np.concatenate(sentences)
    singles = [row[None] for row in queries[:: max(1, len(queries) // SINGLE)]]
    batch = milliseconds(index, sentences, rounds) * len(sentences) / len(queries)
    alone = milliseconds(index, singles, rounds)
    return [build, size / len(index), batch, alone, recall(index, exact, sentences)]


def recall(index: Index, exact: Index, sentences: Sequence[Floats]) -> float:
    """The share of queries with the exact best unit."""
    pairs = [(index.search(part, 1)[1], exact.search(part, 1, probes=MOST_LISTS)[1]) for part in sentences]
    return float(np.concatenate([one == other for one, other in pairs]).mean())


def compare(folder: Path, options: argparse.Namespace) -> None:
    """Build both and print the table."""
    ours, rate = built(folder / "ours", options.form, options)
    source = folder / "ours" / options.form
    copied = Path(f"lance:{folder / 'lance'}")
    form = "exact" if ours.manifest.ivf is None else "ivf"
    if options.bits:
        compress_index(source, options.bits, True, None)
    copying = seconds(lambda: copy_index(source, copied, form=form))
    theirs = open_index(copied)
    sentences = query_vectors(options, ours)
    local = local_folder(copied)
    assert local is not None
    sizes = [sum(int(ours.manifest.files[name]["size"]) for name in ("vectors.faiss", "spans.npy"))]
    sizes.append(bytes_below(local / f"{UNITS}.lance"))
    first = row_of("FAISS", ours, ours, len(ours) / rate, sizes[0], sentences, options.rounds)
    second = row_of("LanceDB", theirs, ours, copying, sizes[1], sentences, options.rounds)
    rows = {"FAISS": [*first, append(source)], "LanceDB": [*second, append(copied)]}
    rows["ratio"] = [other / one for one, other in zip(*rows.values(), strict=True)]
    print(
        f"{len(ours)} vectors of {ours.manifest.dimension} dimensions, {form} search, batches of "
        f"{statistics.mean(map(len, sentences)):.0f}, median of {options.rounds} rounds"
    )
    print("".join(f"{title:>{width}}" for title, width, _ in COLUMNS))
    for name, values in rows.items():
        formats = [".1f" if name == "ratio" else kind for _, _, kind in COLUMNS[1:]]
        numbers = (f"{v:>{width}{kind}}" for v, (_, width, _), kind in zip(values, COLUMNS[1:], formats, strict=True))
        print(f"{name:<{COLUMNS[0][1]}}{''.join(numbers)}")
    for name, index in (("FAISS", ours), ("LanceDB", theirs)):
        if index.manifest.ivf is not None:
            print(f"{name}: {index.manifest.ivf['nprobe']} of {index.manifest.ivf['nlist']} lists")


def append(folder: Path) -> float:
    """The seconds in which a file of PER_FILE sentences is added to an index."""
    now = read_manifest(folder)
    options: dict[str, Any] = {"retriever": now.retriever, "language": now.language, "show": False}
    options |= {"form": "exact" if now.ivf is None else "ivf", "without": []}
    return seconds(lambda: build_index(folder, added(0, now.language), NumberedUnits(now), **options))


def read(source: Path, copied: Path, work: Path, seed: int) -> Counter[str]:
    """What a reader finds until the end is there: numbers of openings, answers, wrong and lost ones, and torn files."""
    ours = open_index(source)
    maker = NumberedUnits(ours.manifest)
    chosen = np.random.default_rng(seed).choice(len(ours), min(KNOWN, len(ours)), replace=False)
    known, language = ours.reconstruct(chosen), ours.manifest.language
    counts = Counter(dict.fromkeys(("openings", "answers", "wrong", "lost", "torn"), 0))
    while not (work / END).exists():
        if counts["openings"]:
            write_whole(work / f"{READY}{seed}", "")
        before = state_of(work)
        try:
            index = open_index(copied)
            scores, ids = index.search(known, 1)
            hits = [index.hit(unit, 0.0) for unit in ids[:, 0].tolist()]
            after_open = state_of(work)
            files = sorted(before.keys() | after_open.keys())
            texts = list(chain.from_iterable((s.text for s in added(number, language)) for number in files))
            vectors = maker.units(texts, "query")[0]
            best = index.search(vectors, 1)
            found = [index.hit(unit, 0.0).text for unit in best[1][:, 0].tolist()]
        except UserError as error:
            note(str(error))
            counts["lost"] += 1
            continue
        own = (known * known).sum(axis=1)
        units = ids[:, 0].tolist()
        right = [unit < len(ours) and hit == ours.hit(unit, 0.0) for unit, hit in zip(units, hits, strict=True)]
        counts["wrong"] += int((~np.array(right) | (scores[:, 0] < CLOSE * own)).sum())
        same = np.array([one == other for one, other in zip(found, texts, strict=True)]).reshape(-1, PER_FILE)
        for number, there in zip(files, same, strict=True):
            counts["torn"] += int(0 < there.sum() < PER_FILE)
            if before.get(number) == after_open.get(number):  # the same when it was opened
                counts["wrong" if before.get(number) == "out" else "lost"] += int(
                    there.any() if before.get(number) == "out" else (~there).sum() if before.get(number) == "in" else 0
                )
        counts["openings"] += 1
        counts["answers"] += len(hits) + len(found)
    return counts


def state_of(work: Path) -> Mapping[int, str]:
    """The appended files by number: `in`, `out`, or `changing` while nobody can know."""
    entries = (line.split() for line in (work / STATE).read_text(encoding="utf-8").splitlines())
    return {int(number): state for number, state in entries}


def grow_under_readers(folder: Path, options: argparse.Namespace) -> int:
    """Append and take out while readers search; print the counts and return how many answers were wrong or lost."""
    index, _ = built(folder / "ours", options.form, options)
    source, copied = folder / "ours" / options.form, Path(f"lance:{folder / 'lance'}")
    copy_index(source, copied, form="exact" if index.manifest.ivf is None else "ivf")
    state: dict[int, str] = {}

    def tell(number: int, what: str) -> None:
        state[number] = what
        write_whole(folder / STATE, "".join(f"{n} {s}\n" for n, s in state.items()))

    def change(number: int, sentences: Sequence[Sentence], without: Sequence[str], what: str) -> None:
        tell(number, "changing")
        now = read_manifest(copied)
        options_of: dict[str, Any] = {"retriever": now.retriever, "language": now.language, "show": False}
        build_index(copied, sentences, NumberedUnits(now), without=without, **options_of)
        tell(number, what)

    write_whole(folder / STATE, "")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.readers, mp_context=context) as pool:
        readers = [pool.submit(read, source, copied, folder, seed) for seed in range(options.readers)]
        changes = 0
        try:
            while len(list(folder.glob(f"{READY}*"))) < options.readers and not any(map(Future.done, readers)):
                time.sleep(0.05)
            begun = time.perf_counter()
            for number in range(options.appends):
                change(number, added(number, index.manifest.language), [], "in")
                changes += 1
                if number % 2:
                    change(number - 1, [], [f"{number - 1}.txt"], "out")
                    changes += 1
            took = time.perf_counter() - begun
            time.sleep(1)
        finally:
            write_whole(folder / END, "")
        counts = sum((reader.result() for reader in readers), Counter[str]())
    wrong = {name: counts[name] for name in ("wrong", "lost", "torn")}
    print(
        f"{options.readers} readers of {len(index)} units and {changes} changes ({1000 * took / changes:.0f} ms each): "
        f"{counts['openings']} openings, {counts['answers']} answers, "
        + ", ".join(f"{number} {name}" for name, number in wrong.items())
    )
    return sum(wrong.values())


def report(options: argparse.Namespace) -> int:
    """Measure and print."""
    if bool(options.index) == bool(options.synthetic):
        raise UserError("there is no index to measure, or two: give the folder of one or --synthetic NUMBER")
    if options.readers and options.bits:
        raise UserError("--bits is for measuring without readers: leave --bits or --readers out")
    with TemporaryDirectory() as name:
        folder = Path(name)
        if options.readers:
            return PARTLY if grow_under_readers(folder, options) else OK
        compare(folder, options)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    examples = ["--synthetic 500000", "INDEX", "INDEX --readers 4"]
    parser = Parser(prog="python -m eval.speed.lance", description=__doc__, examples=examples)
    parser.add_argument("index", nargs="?", metavar="INDEX", help="folder of an index")
    parser.add_argument("--synthetic", type=positive, default=0, help="number of synthetic vectors, instead of INDEX")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N sentences of INDEX")
    parser.add_argument("--form", choices=("auto", "exact", "ivf"), default="auto", help="how vectors are searched")
    few = [bits for bits in BITS if bits != FP16]
    parser.add_argument("--bits", type=int, choices=few, help="copy the index compressed to so many bits a number")
    add_measuring_options(parser, sentences=100)
    parser.add_argument("--readers", type=positive, default=0, metavar="N", help="processes that read while it grows")
    parser.add_argument("--appends", type=positive, default=10, metavar="N", help="files that are appended meanwhile")
    parser.set_defaults(queries=None)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
