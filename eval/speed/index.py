"""Speed and recall of the two forms of an index, the exact one and IVF, on the same vectors in one run.

    python -m eval.speed.index INDEX [--queries FILE --src LANG] [--sentences 100] [--rounds 3]
    python -m eval.speed.index --synthetic 1000000
    python -m eval.speed.index INDEX --queries FILE --src LANG --whole

Both forms are built in a temporary folder; INDEX itself is only read. The queries are the units that INDEX's encoder
sees in the lines of FILE, or else vectors of the index, each turned at random to a cosine of 0.7 with itself. A
synthetic index has vectors of 128 dimensions around 20,000 centres. A sentence is searched as one batch, as in a
translation of one sentence. Recall@1 is that of IVF against the exact form on every second sentence, first with the
`nprobe` that the build chose by itself, then tuned on the other sentences.

With --whole the index is taken as it is, and what a user waits for is timed: reading a sentence with the encoder,
searching, and judging the hits, one sentence at a time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import faiss
import numpy as np
from numpy.typing import NDArray

from eval.data.vectors import QUERIES, SEED, SyntheticUnits, milliseconds
from eval.speed.timing import add_measuring_options, by_turns, timed
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Floats, Kind, Sentence
from retrievers.index.build import build_index
from retrievers.index.manifest import SENTENCES
from retrievers.index.opening import open_index
from retrievers.index.search import Index
from retrievers.index.vectors import OWN_COSINE, tune_nprobe, turned
from retrievers.registry import encoder_for, maker_for, open_retriever


class StoredUnits:
    """The units of an index once more, its sentences given in order (a UnitMaker)."""

    block = 1024

    def __init__(self, index: Index) -> None:
        self.unit, self.dimension = index.manifest.unit, index.manifest.dimension
        self.settings = index.manifest.settings
        self._index, self._next = index, 0

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors and spans of the next len(texts) sentences."""
        first, last = self._index.units_of(self._next)[0], self._index.units_of(self._next + len(texts) - 1)[1]
        units = np.arange(first, last)
        spans = self._index.spans(units) - np.array([self._next, 0, 0], dtype=np.int32)
        self._next += len(texts)
        return self._index.reconstruct(units), spans


def built(folder: Path, form: str, options: argparse.Namespace) -> tuple[Index, float]:
    """An index in that form of what the options name, and the units that were built per second, without the time of
    making them."""
    maker: SyntheticUnits | StoredUnits
    if options.synthetic:
        maker, code, count = SyntheticUnits(), "en", max(1, options.synthetic // QUERIES)
        sentences = (Sentence(f"{n:0{QUERIES}d}", code) for n in range(count))
    else:
        index = open_index(Path(options.index))
        maker, code = StoredUnits(index), index.manifest.language
        sentences = (index.sentence(n) for n in islice(range(index.manifest.sentences), options.limit))
    seconds: dict[str, float] = {}
    maker.units = timed(seconds, "units", maker.units)  # type: ignore[method-assign]
    build = timed(seconds, "all", build_index)
    build(folder / form, sentences, maker, retriever="phrases", language=code, form=form, show=False)
    index = open_index(folder / form)
    return index, len(index) / (seconds["all"] - seconds["units"])


def query_lines(options: argparse.Namespace) -> list[str]:
    """The lines of the text to search with."""
    return [line for line in Path(options.queries).read_text(encoding="utf-8").splitlines() if line.strip()]


def query_vectors(options: argparse.Namespace, index: Index) -> list[Floats]:
    """The query vectors of each sentence."""
    if not options.queries:
        rng = np.random.default_rng(SEED)
        per_sentence = QUERIES if index.manifest.unit == "phrase" else 1
        chosen = rng.integers(0, len(index), options.sentences * per_sentence)
        vectors = turned(index.reconstruct(chosen), OWN_COSINE, rng)
        return np.split(vectors, options.sentences)
    manifest = open_index(Path(options.index)).manifest
    maker = maker_for(manifest.retriever, encoder_for(manifest.retriever, manifest.encoder))
    vectors_of_lines = (maker.units([text], "query")[0] for text in query_lines(options))
    sentences = list(islice(filter(len, vectors_of_lines), options.sentences))
    if len(sentences) < 2:
        raise UserError(f"{options.queries} has {len(sentences)} sentences to search with: expected two or more")
    return sentences


def time_whole(options: argparse.Namespace) -> int:
    """Time the retriever of the index, sentence by sentence."""
    if not (options.index and options.queries and options.src):
        raise UserError("--whole times sentences in an index: give INDEX, --queries FILE and --src LANG")
    manifest = open_index(Path(options.index)).manifest
    retriever = open_retriever(
        manifest.retriever,
        Path(options.index),
        encoder_for(manifest.retriever, manifest.encoder),
        source_language=options.src,
        target_language=manifest.language,
    )
    sentences = [Sentence(text, options.src) for text in query_lines(options)[: options.sentences]]
    if not sentences:
        raise UserError(f"{options.queries} has no sentence to search with")
    retriever.retrieve(sentences[:1])
    systems = {str(n): partial(retriever.retrieve, [sentence]) for n, sentence in enumerate(sentences)}
    times = [1000 * second for seconds, _ in by_turns(systems, options.rounds).values() for second in seconds]
    words = statistics.mean(len(s.text.split()) for s in sentences)
    print(
        f"{manifest.units} units, {len(sentences)} {language(options.src).name} sentences of {words:.0f} words: "
        f"{statistics.median(times):.1f} ms a sentence for reading, search and judgement (median; 95 % of them below "
        f"{np.quantile(times, 0.95):.1f})"
    )
    return OK


def report(options: argparse.Namespace) -> int:
    """Build, time and compare the two forms."""
    if options.whole:
        return time_whole(options)
    if bool(options.index) == bool(options.synthetic):
        raise UserError("there is no index to measure, or two: give the folder of one or --synthetic NUMBER")
    if options.queries and not options.src:
        raise UserError(f"the language of {options.queries} is not known: give --src LANG")
    if options.queries and options.synthetic:
        raise UserError(f"{options.queries} cannot be compared with synthetic vectors: give an index or no --queries")
    with TemporaryDirectory() as folder:
        (exact, exact_rate), (ivf, ivf_rate) = (built(Path(folder), form, options) for form in ("exact", "ivf"))
        sentences = query_vectors(options, exact)
        tuned, tested = sentences[::2], sentences[1::2]
        queries = np.concatenate(tested)
        what = f"{language(options.src).name} sentences" if options.queries else "sentences of turned vectors"
        print(
            f"{len(exact)} vectors of {exact.manifest.dimension} dimensions, {len(tested)} {what} of "
            f"{len(queries) / len(tested):.0f} queries, {faiss.omp_get_max_threads()} threads, median of "
            f"{options.rounds} rounds"
        )
        slow = milliseconds(exact, tested, options.rounds)
        print(f"exact: built at {exact_rate:.0f} vectors/s, {_size(exact):.0f} bytes/phrase, {slow:.2f} ms/sentence")
        print(f"IVF:   built at {ivf_rate:.0f} vectors/s, {_size(ivf):.0f} bytes/phrase")
        for state in ("as built", "tuned"):
            if state == "tuned":
                tune_nprobe(ivf, np.concatenate(tuned))
            assert ivf.manifest.ivf is not None
            fast = milliseconds(ivf, tested, options.rounds)
            recall = float((exact.search(queries, 1)[1] == ivf.search(queries, 1)[1]).mean())
            print(
                f"  {state}: {ivf.manifest.ivf['nprobe']} of {ivf.manifest.ivf['nlist']} lists, "
                f"{fast:.2f} ms/sentence, ratio {slow / fast:.1f}, recall@1 {recall:.4f}"
            )
    return OK


def _size(index: Index) -> float:
    """Bytes on disk for each unit, the text left out."""
    return sum(int(f["size"]) for name, f in index.manifest.files.items() if name != SENTENCES) / len(index)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.index",
        description=__doc__,
        examples=[
            "--synthetic 1000000",
            "INDEX --queries examples/news.de.txt --src de",
            "INDEX --queries examples/news.de.txt --src de --whole",
        ],
    )
    parser.add_argument("index", nargs="?", metavar="INDEX", help="folder of an index")
    parser.add_argument("--synthetic", type=positive, default=0, help="number of synthetic vectors, instead of INDEX")
    parser.add_argument("--limit", type=positive, metavar="N", help="only the first N sentences of INDEX")
    parser.add_argument("--queries", metavar="FILE", help="text to search with, one sentence per line")
    parser.add_argument("--src", metavar="LANG", help="language of that text")
    parser.add_argument("--whole", action="store_true", help="time retrieval as a user sees it, in INDEX as it is")
    add_measuring_options(parser, sentences=100)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
