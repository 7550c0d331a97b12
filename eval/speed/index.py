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
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import faiss
import numpy as np
from numpy.typing import NDArray

from eval.data.vectors import QUERIES, SEED, SyntheticUnits, milliseconds
from rag_mt.base.console import Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Floats, Kind, Sentence
from retrievers.index.build import build_index
from retrievers.index.files import SENTENCES
from retrievers.index.opening import open_index
from retrievers.index.probing import OWN_COSINE, tune_nprobe, turned
from retrievers.index.search import Index
from retrievers.registry import encoder_for, maker_for, open_retriever
from retrievers.units.unit import UnitMaker


class StoredUnits:
    """The units of an index once more, its sentences given in order (a UnitMaker)."""

    block = 1024

    def __init__(self, index: Index) -> None:
        self.unit, self.dimension = index.manifest.unit, index.manifest.dimension
        self.settings = index.manifest.settings
        self.seconds = 0.0
        self._index, self._next = index, 0

    def units(self, texts: Sequence[str], kind: Kind) -> tuple[Floats, NDArray[np.int32]]:
        """Vectors and spans of the next len(texts) sentences."""
        begin = time.perf_counter()
        first, last = self._index.units_of(self._next)[0], self._index.units_of(self._next + len(texts) - 1)[1]
        units = np.arange(first, last)
        spans = self._index.spans(units) - np.array([self._next, 0, 0], dtype=np.int32)
        self._next += len(texts)
        vectors = self._index.reconstruct(units)
        self.seconds += time.perf_counter() - begin
        return vectors, spans


def build_form(
    folder: Path, form: str, sentences: Iterable[Sentence], maker: SyntheticUnits | StoredUnits, code: str
) -> tuple[Index, float]:
    """An index in that form, and the units that were built per second, without the time of making them."""
    begin = time.perf_counter()
    build_index(folder, sentences, maker, retriever="phrases", language=code, form=form, show=False)
    seconds = time.perf_counter() - begin - maker.seconds
    index = open_index(folder)
    return index, len(index) / seconds


def both_forms(folder: Path, options: argparse.Namespace) -> Iterator[tuple[Index, float]]:
    """The exact and the IVF index of what the options name, each with the units built per second."""
    for form in ("exact", "ivf"):
        if options.synthetic:
            count = max(1, options.synthetic // QUERIES)
            texts = (Sentence(f"{n:0{QUERIES}d}", "en") for n in range(count))
            yield build_form(folder / form, form, texts, SyntheticUnits(), "en")
        else:
            index = open_index(Path(options.index))
            texts = (index.sentence(n) for n in range(index.manifest.sentences))
            yield build_form(folder / form, form, texts, StoredUnits(index), index.manifest.language)


def queries_of(options: argparse.Namespace, index: Index) -> list[Floats]:
    """The query vectors of each sentence."""
    if not options.queries:
        rng = np.random.default_rng(SEED)
        per_sentence = QUERIES if index.manifest.unit == "phrase" else 1
        chosen = rng.integers(0, len(index), options.sentences * per_sentence)
        vectors = turned(index.reconstruct(chosen), OWN_COSINE, rng)
        return np.split(vectors, options.sentences)
    texts = Path(options.queries).read_text(encoding="utf-8").splitlines()
    maker = _maker(options)
    made = (maker.units([text], "query")[0] for text in texts if text.strip())
    found = [vectors for _, vectors in zip(range(options.sentences), filter(len, made), strict=False)]
    if len(found) < 2:
        raise UserError(f"{options.queries} has {len(found)} sentences to search with: expected two or more")
    return found


def _maker(options: argparse.Namespace) -> UnitMaker:
    manifest = open_index(Path(options.index)).manifest
    return maker_for(manifest.retriever, encoder_for(manifest.retriever, manifest.encoder))


def recall(exact: Index, ivf: Index, sentences: Sequence[Floats]) -> float:
    """The share of queries for which IVF finds the exact best unit."""
    vectors = np.concatenate(sentences)
    return float((exact.search(vectors, 1)[1] == ivf.search(vectors, 1)[1]).mean())


def whole(options: argparse.Namespace) -> int:
    """Time the retriever of the index, sentence by sentence."""
    if not (options.index and options.queries and options.src):
        raise UserError("--whole times sentences in an index: give INDEX, --queries FILE and --src LANG")
    manifest = open_index(Path(options.index)).manifest
    encoder = encoder_for(manifest.retriever, manifest.encoder)
    retriever = open_retriever(
        manifest.retriever,
        Path(options.index),
        encoder,
        source_language=options.src,
        target_language=manifest.language,
    )
    lines = Path(options.queries).read_text(encoding="utf-8").splitlines()
    sentences = [Sentence(text, options.src) for text in lines if text.strip()][: options.sentences]
    if not sentences:
        raise UserError(f"{options.queries} has no sentence to search with")
    retriever.retrieve(sentences[:1])
    times: list[float] = []
    for sentence in sentences * options.rounds:
        begin = time.perf_counter()
        retriever.retrieve([sentence])
        times.append(1000 * (time.perf_counter() - begin))
    words = statistics.mean(len(s.text.split()) for s in sentences)
    print(
        f"{manifest.units} units, {len(sentences)} {language(options.src).name} sentences of {words:.0f} words: "
        f"{statistics.median(times):.1f} ms a sentence for reading, search and judgement (median; 95 % of them below "
        f"{np.quantile(times, 0.95):.1f})"
    )
    return 0


def report(options: argparse.Namespace) -> int:
    """Build, time and compare the two forms."""
    if options.whole:
        return whole(options)
    if bool(options.index) == bool(options.synthetic):
        raise UserError("there is no index to measure, or two: give the folder of one or --synthetic NUMBER")
    if options.queries and not options.src:
        raise UserError(f"the language of {options.queries} is not known: give --src LANG")
    if options.queries and options.synthetic:
        raise UserError(f"{options.queries} cannot be compared with synthetic vectors: give an index or no --queries")
    with TemporaryDirectory() as folder:
        (exact, exact_rate), (ivf, ivf_rate) = both_forms(Path(folder), options)
        sentences = queries_of(options, exact)
        tuned, tested = sentences[::2], sentences[1::2]
        number = statistics.mean(map(len, tested))
        what = f"{language(options.src).name} sentences" if options.queries else "sentences of turned vectors"
        print(
            f"{len(exact)} vectors of {exact.manifest.dimension} dimensions, {len(tested)} {what} of {number:.0f} "
            f"queries, {faiss.omp_get_max_threads()} threads, median of {options.rounds} rounds"
        )
        slow = milliseconds(exact, tested, options.rounds)
        print(f"exact: built at {exact_rate:.0f} vectors/s, {_size(exact):.0f} bytes/phrase, {slow:.2f} ms/sentence")
        print(f"IVF:   built at {ivf_rate:.0f} vectors/s, {_size(ivf):.0f} bytes/phrase")
        for state in ("as built", "tuned"):
            if state == "tuned":
                tune_nprobe(ivf, np.concatenate(tuned))
            assert ivf.manifest.ivf is not None
            fast = milliseconds(ivf, tested, options.rounds)
            print(
                f"  {state}: {ivf.manifest.ivf['nprobe']} of {ivf.manifest.ivf['nlist']} lists, "
                f"{fast:.2f} ms/sentence, ratio {slow / fast:.1f}, recall@1 {recall(exact, ivf, tested):.4f}"
            )
    return 0


def _size(index: Index) -> float:
    """Bytes on disk for each unit, the text left out."""
    return sum(int(f["size"]) for name, f in index.manifest.files.items() if name != SENTENCES) / len(index)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.speed.index", description=__doc__)
    parser.add_argument("index", nargs="?", metavar="INDEX", help="folder of an index")
    parser.add_argument("--synthetic", type=positive, default=0, help="number of synthetic vectors, instead of INDEX")
    parser.add_argument("--queries", metavar="FILE", help="text to search with, one sentence per line")
    parser.add_argument("--src", metavar="LANG", help="language of that text")
    parser.add_argument("--whole", action="store_true", help="time retrieval as a user sees it, in INDEX as it is")
    parser.add_argument("--sentences", type=positive, default=100)
    parser.add_argument("--rounds", type=positive, default=3)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
