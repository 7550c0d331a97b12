"""How much faster more workers of a Ray cluster build an index, and whether it is the same one.

    python -m eval.speed.cluster FILE --lang LANG [--workers 1 2 4] [--ray local]

The lines of FILE are the sentences. Each index is built by so many workers of one thread, and once by this process
with one thread. The rate is that of the shards after the first round, so without the start of workers and models;
efficiency is the rate of a worker by that of this process.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from eval.speed.timing import distinct_lines
from rag_mt.base.cluster import LOCAL, Cluster
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256
from rag_mt.base.languages import language
from rag_mt.base.types import Origin, Sentence
from retrievers.index.build import build_index
from retrievers.index.far import dtype_for_all, far_writer
from retrievers.index.unfinished import blocks_of_shard
from retrievers.registry import encoder_for, maker_for, open_maker, terms_for


def report(options: argparse.Namespace) -> int:
    """Build by all numbers of workers, and print rates."""
    code = language(options.lang).code
    texts = distinct_lines(Path(options.file))
    sentences = [Sentence(text, code, Origin(options.file, n)) for n, text in enumerate(texts, 1)]
    torch.set_num_threads(1)
    encoder = encoder_for(options.retriever)
    maker, dtype = maker_for(options.retriever, encoder), dtype_for_all("auto", encoder)
    size = math.prod(blocks_of_shard(maker, options.shard_size))
    if len(texts) < 4 * max(options.workers) * size:
        raise UserError(
            f"{options.file} has {len(texts)} lines, too few for {4 * max(options.workers)} shards of {size}"
        )
    settings: dict[str, Any] = {"retriever": options.retriever, "language": code, "shard": size, "show": False}
    settings["terms"] = terms_for(options.retriever)
    rates: dict[int, float] = {}
    files: dict[int, dict[str, str]] = {}
    builds = len(texts) * (1 + len(options.workers))
    with TemporaryDirectory() as folder, progress(builds, "sentences", "building") as bar:
        for workers in (0, *options.workers):
            writer = None
            if workers:
                arguments = (options.retriever, None, "auto", dtype)
                writer = far_writer(Cluster(options.ray, workers), open_maker, arguments, maker.settings)
            arrivals: list[tuple[float, int]] = []

            def arrived(number: int, arrivals: list[tuple[float, int]] = arrivals) -> None:
                arrivals.append((time.perf_counter(), number))
                bar.update(number)

            place = Path(folder) / str(workers)
            build_index(place, sentences, maker, writer=writer, advance=arrived, **settings)
            first = max(1, workers)
            span = arrivals[-1][0] - arrivals[first - 1][0]
            rates[workers] = sum(number for _, number in arrivals[first:]) / span
            files[workers] = {path.name: file_sha256(path) for path in place.iterdir()}
    shape = f"{len(sentences)} sentences in shards of {size}, {options.retriever} in {dtype}"
    print(f"{shape}; this process, 1 thread: {rates[0]:.1f} sentences a second")
    for workers in options.workers:
        same = "the same bytes" if files[workers] == files[0] else "other bytes than this process"
        efficiency = 100 * rates[workers] / workers / rates[0]
        print(f"{workers} workers: {rates[workers]:.1f} sentences a second, efficiency {efficiency:.0f} %, {same}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.speed.cluster", description=__doc__, examples=["index.en.txt --lang en"])
    parser.add_argument("file", metavar="FILE", help="text, a sentence a line")
    parser.add_argument("--lang", required=True, metavar="LANG", help="language of the text")
    parser.add_argument("--retriever", default="memory", metavar="NAME", help="what the index is for")
    parser.add_argument("--workers", type=positive, nargs="+", default=[1, 2], metavar="N", help="numbers of workers")
    parser.add_argument("--ray", default=LOCAL, metavar="ADDRESS", help="cluster (default: this machine's cores)")
    parser.add_argument("--shard-size", type=positive, default=256, metavar="N", help="sentences of a shard")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
