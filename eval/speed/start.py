"""What a command takes to start: seconds, memory and disk for imports, help, and one sentence, at first and afterwards.

    python -m eval.speed.start [--rounds 3] [--retriever none,ccpr] [--engines auto,transformers] [--output FILE.json]

Each is a program of its own. One sentence is translated with each of the retrievers by each of the engines, each time
with a cache folder of its own that is empty at first: the first round is that of a fresh installation (whose files the
system may have in its memory) and stands by itself, the medians are those of the further rounds, in which the programs
take turns. Seconds are those on the clock and those of the processor, user and system together; the ratio is that of
processor seconds to importing torch and transformers alone, and holds better than seconds on a busy machine. Memory
is the peak, with the pages of the files that a program read; less than this command's own (some 50 MB) cannot be told.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from eval.speed.timing import peak_bytes, resource_module
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_json
from rag_mt.base.sizes import bytes_below, size

BASELINE = "import torch, transformers"
SENTENCE = "Der Stadtrat hat den Bau einer neuen Brücke beschlossen.\n"


class Cost(NamedTuple):
    """What a program took: seconds on the clock, seconds of the processor, and bytes of memory at the peak."""

    wall: float
    cpu: float
    peak: float


def cost_of(command: Sequence[str], cache: Path) -> Cost:
    """What a program takes that has `cache` as its cache folder; raises UserError if it fails, or where the system does
    not tell."""
    resource_module()
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        environment = {**os.environ, "RAG_MT_CACHE": str(cache)}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        told = errors.read().decode(errors="replace").strip()
    if process.returncode:
        raise UserError(f"{' '.join(command)} failed: {(told.splitlines() or ['no message'])[-1]}")
    return Cost(wall, used.ru_utime + used.ru_stime, peak_bytes(used))


def commands(retrievers: Sequence[str], engines: Sequence[str], file: Path) -> dict[str, list[str]]:
    """What is measured, by name: the baseline first."""
    rag_mt = [sys.executable, "-m", "rag_mt"]
    translate = [*rag_mt, "translate", "--quiet", "--src", "de", str(file)]
    return {
        BASELINE: [sys.executable, "-c", BASELINE],
        "import rag_mt": [sys.executable, "-c", "import rag_mt"],
        "rag-mt --help": [*rag_mt, "--help"],
        **{
            f"one sentence, {retriever}, engine {engine}": [*translate, "--retriever", retriever, "--engine", engine]
            for retriever in retrievers
            for engine in engines
        },
    }


def report(options: argparse.Namespace) -> int:
    """Measure all in turn; print the first round and the medians of the others."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sentence.txt"
        file.write_text(SENTENCE, encoding="utf-8")
        programs = commands(options.retriever.split(","), options.engines.split(","), file)
        caches = {name: Path(folder) / str(n) for n, name in enumerate(programs)}
        for cache in caches.values():
            cache.mkdir()
        rounds = [
            {name: cost_of(program, caches[name]) for name, program in programs.items()}
            for _ in range(options.rounds + 1)
        ]
        disk = {name: bytes_below(cache) for name, cache in caches.items()}
    medians = {
        name: Cost(*(statistics.median(values) for values in zip(*(taken[name] for taken in rounds[1:]), strict=True)))
        for name in programs
    }
    _show(rounds[0], medians, disk)
    if options.output:
        told = {
            name: {
                "first": rounds[0][name]._asdict(),
                "median": medians[name]._asdict(),
                "rounds": [taken[name]._asdict() for taken in rounds[1:]],
                "cache_bytes": disk[name],
            }
            for name in programs
        }
        write_json(Path(options.output), {"baseline": BASELINE, "programs": told})
    return OK


def _show(first: Mapping[str, Cost], medians: Mapping[str, Cost], disk: Mapping[str, int]) -> None:
    """Print a table: seconds on the clock, seconds of the processor and memory of both, and the disk."""
    heads = f"{'clock':>9s}{'CPU':>9s}{'memory':>9s}"
    print(f"{'':40s}{'nothing cached':>27s}   {'with caches':>27s}")
    print(f"{'':40s}{heads}   {heads}{'ratio':>10s}{'cache':>9s}")
    for name, median in medians.items():
        parts = [f"{cost.wall:7.2f} s{cost.cpu:7.2f} s{size(round(cost.peak)):>9s}" for cost in (first[name], median)]
        ratio = median.cpu / medians[BASELINE].cpu
        print(f"{name:40s}{'   '.join(parts)}{ratio:8.2f} x{size(disk[name]):>9s}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.start",
        description=__doc__,
        examples=["", "--rounds 1 --retriever none,ccpr --engines auto"],
    )
    parser.add_argument("--rounds", type=positive, default=3, help="rounds with caches")
    parser.add_argument("--retriever", default="none", help="retrievers to translate with")
    parser.add_argument("--engines", default="auto,transformers", help="values of --engine to translate with")
    parser.add_argument("--output", metavar="FILE", help="write what was measured as JSON too")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
