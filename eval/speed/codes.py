"""Compressed vectors of an index against those in fp16: bytes, recall, and the time of a search.

    python -m eval.speed.codes INDEX [--queries FILE --src LANG] [--sentences 50] [--rounds 3] [--bits 8 4 2]

INDEX is only read: each form is made in a temporary folder beside it, and removed again. The queries are the units that
INDEX's encoder sees in the lines of FILE, or else vectors of the index, each turned at random to a cosine of 0.7 with
itself; those of a sentence are searched at once. Bytes are those of all files of the index (with text and where it came
from) for each unit. Recall@1 is the share of queries for which the best unit of all by whole vectors is found, in the
lists that the index searches (4 and 2 bits are always in lists); `lost` is how much less the product of the whole
vectors is for the unit that is found, on average, and `score` how far the score that search gives is from it. `ratio`
is the time that whole vectors take, measured beside each form, by that of the form.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import faiss
import numpy as np

from eval.data.vectors import milliseconds
from eval.speed.index import query_vectors
from eval.speed.timing import add_measuring_options, table_row
from rag_mt.base.console import OK, Parser, note, run
from rag_mt.base.defaults import BITS, FP16
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from rag_mt.translation.index import Index as Corpus
from retrievers.index.opening import open_index
from retrievers.index.places import kind_of
from retrievers.index.search import MOST_LISTS, Index

HEADINGS = ("vectors", "bytes/unit", "ms/sentence", "ratio", "recall@1", "lost", "score")
WIDTHS = (20, 12, 13, 8, 10, 9, 9)


def linked(source: Path, target: Path) -> Path:
    """A copy of an index that links to its files, which nothing changes in their place."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            (target / path.name).symlink_to(path.absolute())
    return target


def row(name: str, index: Index, whole: Index, sentences: Sequence[Floats], best: Sequence[Floats], rounds: int) -> str:
    """What the table says of an index; `best` are the products of whole vectors for the best units."""
    found = [index.search(queries, 1) for queries in sentences]
    scores, ids = (np.concatenate(part)[:, 0] for part in zip(*found, strict=True))
    queries = np.concatenate(sentences)
    products = np.einsum("qd,qd->q", whole.reconstruct(ids), queries)
    wanted = np.concatenate(best)
    size = sum(int(file["size"]) for file in index.manifest.files.values()) / len(index)
    ours, theirs = (milliseconds(i, sentences, rounds) for i in (index, whole))
    values = (
        f"{size:.0f}",
        f"{ours:.2f}",
        f"{theirs / ours:.1f}",
        f"{(products >= wanted - 1e-5).mean():.4f}",
        f"{(wanted - products).mean():.4f}",
        f"{np.abs(scores - products).mean():.4f}",
    )
    return table_row((name, *values), WIDTHS)


def report(options: argparse.Namespace) -> int:
    """Compress, measure and print."""
    if options.queries and not options.src:
        raise UserError(f"the language of {options.queries} is not known: give --src LANG")
    folder = Path(options.index)
    if kind := kind_of(folder):
        raise UserError(f"{folder} is in {kind.title}: give the folder of an index")
    whole = open_index(folder)
    if whole.manifest.codes is not None or not whole.manifest.dimension:
        raise UserError(f"index {folder} has no vectors in fp16 alone: give one that has")
    sentences = query_vectors(options, whole)
    note(f"searching all of {len(whole)} units")
    best = [whole.search(queries, 1, probes=MOST_LISTS)[0][:, 0] for queries in sentences]
    lists = whole.manifest.ivf and f"{whole.manifest.ivf['nprobe']} of {whole.manifest.ivf['nlist']} lists"
    print(
        f"{len(whole)} vectors of {whole.manifest.dimension} dimensions, {lists or 'all'} searched, {len(sentences)} "
        f"sentences of {np.mean([len(s) for s in sentences]):.0f} queries, {faiss.omp_get_max_threads()} threads, "
        f"median of {options.rounds} rounds"
    )
    print(table_row(HEADINGS, WIDTHS))
    print(row("16 bits", whole, whole, sentences, best, options.rounds), flush=True)
    with TemporaryDirectory(dir=folder.absolute().parent) as work:
        for rerank in (False, True):
            for bits in options.bits:
                name = f"{bits} bits{', re-ranked' if rerank else ''}"
                note(f"compressing to {name}")
                place = linked(folder, Path(work) / f"{bits}-{rerank}")
                Corpus.open(place).compress(bits, rerank=rerank)
                print(row(name, open_index(place), whole, sentences, best, options.rounds), flush=True)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    examples = ["INDEX --queries examples/news.de.txt --src de", "INDEX --bits 4"]
    parser = Parser(prog="python -m eval.speed.codes", description=__doc__, examples=examples)
    parser.add_argument("index", metavar="INDEX", help="folder of an index")
    parser.add_argument("--queries", metavar="FILE", help="text to search with, one sentence per line")
    parser.add_argument("--src", metavar="LANG", help="language of that text")
    add_measuring_options(parser, sentences=50)
    few = [bits for bits in BITS if bits != FP16]
    parser.add_argument("--bits", type=int, nargs="+", choices=few, default=few, help="bits of each number")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
