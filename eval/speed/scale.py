"""How long queries take that ask many parts of an index at once: simulated, and checked against real processes.

    python -m eval.speed.scale --parts 8 --check [--units 100000] [--rate 20]
    python -m eval.speed.scale --parts 100 --replicas 2 --machines 200 --slow 0.01 --factor 20 --hedge 95

A query goes to every part of an index and is answered with the best hits of all, so it waits for the slowest one. A
part stands on so many machines as there are `--replicas`; a machine searches as many parts at once as it has cores and
keeps the others waiting. How long a search takes is measured here, on parts of `--units` random vectors as one machine
has them, by one thread for each core; a share `--slow` of the searches takes `--factor` times as long. With `--hedge P`
a search that has not come back after the P-th percentile of the times is asked of another replica too, and the first
answer counts (Dean and Barroso 2013, "The tail at scale").

`--check` also runs so many real processes on this machine, asks them at the same rate, and prints both.
"""

from __future__ import annotations

import argparse
import heapq
import math
import multiprocessing
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.console import OK, Parser, positive, run, share
from rag_mt.base.errors import UserError

DIMENSION = 384
PERCENTILES = (50, 90, 95, 99)
MOST = 16
"""Parts that are made to measure searches."""
WARM_UP = 20
"""Searches that are not timed."""
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Service:
    """An index in `parts`, each on `replicas` of the `machines`, which have so many `cores`; `slow` is the share of
    searches that take `factor` times as long, `hedge` the seconds after which another replica is asked (None: never).
    """

    parts: int
    replicas: int = 1
    machines: int = 1
    cores: int = 1
    slow: float = 0.0
    factor: float = 10.0
    hedge: float | None = None


def simulated(service: Service, times: Times, rate: float, queries: int, seed: int = 1) -> Times:
    """The seconds that each of so many queries takes (queries,), which come at random, `rate` a second, where a search
    takes one of the `times`. Replicas of a part are asked in turn."""
    rng = np.random.default_rng(seed)
    clock, order = np.cumsum(rng.exponential(1 / rate, queries)), count()
    events: list[tuple[float, int, str, tuple[int, int, int]]] = []
    for query, moment in enumerate(clock.tolist()):
        events.append((moment, next(order), "query", (query, 0, 0)))
    heapq.heapify(events)
    free = [service.cores] * service.machines
    waiting = [deque[tuple[int, int]]() for _ in free]
    answered = np.zeros((queries, service.parts), dtype=bool)
    left, ended = np.full(queries, service.parts), np.zeros(queries)

    def ask(now: float, query: int, part: int, turn: int) -> None:
        machine = (part + (query + turn) % service.replicas * service.parts) % service.machines
        waiting[machine].append((query, part))
        start(now, machine)

    def start(now: float, machine: int) -> None:
        while free[machine] and waiting[machine]:
            query, part = waiting[machine].popleft()
            if not answered[query, part]:
                free[machine] -= 1
                took = times[rng.integers(len(times))] * (service.factor if rng.random() < service.slow else 1.0)
                heapq.heappush(events, (now + took, next(order), "answer", (query, part, machine)))

    while events:
        now, _, what, (query, part, machine) = heapq.heappop(events)
        if what == "query":
            for number in range(service.parts):
                ask(now, query, number, 0)
                if service.hedge is not None:
                    heapq.heappush(events, (now + service.hedge, next(order), "hedge", (query, number, 1)))
        elif what == "hedge":
            if not answered[query, part]:
                ask(now, query, part, 1)
        else:
            free[machine] += 1
            if not answered[query, part]:
                answered[query, part] = True
                left[query] -= 1
                ended[query] = now
            start(now, machine)
    return ended - clock


def part_of_index(units: int, seed: int) -> object:
    """A FAISS index of so many random vectors of length 1, as ours store them."""
    import faiss

    vectors = np.random.default_rng(seed).normal(size=(units, DIMENSION)).astype(np.float32)
    index = faiss.IndexScalarQuantizer(DIMENSION, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    return index


def serve(pipe: Connection, units: int, seed: int) -> None:
    """A process that searches its part for each query vector that it is sent, until it is sent None."""
    import faiss

    faiss.omp_set_num_threads(1)
    index = part_of_index(units, seed)
    pipe.send(None)
    while (asked := pipe.recv()) is not None:
        query, vector = asked
        begin = time.perf_counter()
        index.search(vector, 1)  # type: ignore[attr-defined]
        pipe.send((query, time.perf_counter() - begin))


class Parts:
    """Processes that search a part each."""

    def __init__(self, parts: int, units: int) -> None:
        context = multiprocessing.get_context("spawn")
        pairs = [context.Pipe() for _ in range(parts)]
        self.pipes = [near for near, _ in pairs]
        self.processes = [
            context.Process(target=serve, args=(far, units, seed), daemon=True) for seed, (_, far) in enumerate(pairs)
        ]
        for process in self.processes:
            process.start()
        for pipe in self.pipes:
            pipe.recv()

    def busy(self, searches: int, cores: int) -> Times:
        """The seconds of searches (searches,), all parts in turn and so many at once: what they have in common, the
        caches and the way to the memory, makes them slower than those of one part alone."""
        vectors, took = queries_of(searches + WARM_UP), list[float]()
        turns, idle = iter(range(len(vectors))), deque(self.pipes)
        running: list[Connection] = []
        while len(took) < len(vectors):
            while len(running) < cores and idle and (number := next(turns, -1)) >= 0:
                running.append(idle.popleft())
                running[-1].send((number, vectors[number : number + 1]))
            for ready in wait(running):
                assert isinstance(ready, Connection)
                took.append(ready.recv()[1])
                running.remove(ready)
                idle.append(ready)
        return np.array(took[WARM_UP:])

    def asked(self, rate: float, queries: int, seed: int = 1) -> Times:
        """The seconds of queries to all parts, which come at random, `rate` a second (queries,)."""
        vectors, clock = queries_of(queries), np.cumsum(np.random.default_rng(seed).exponential(1 / rate, queries))
        left, ended = np.full(queries, len(self.pipes)), np.zeros(queries)
        begin, sent = time.perf_counter(), 0
        while left.any():
            now = time.perf_counter() - begin
            while sent < queries and clock[sent] <= now:
                for pipe in self.pipes:
                    pipe.send((sent, vectors[sent : sent + 1]))
                sent += 1
            pause = max(0.0, clock[sent] - (time.perf_counter() - begin)) if sent < queries else None
            for ready in wait(self.pipes, pause):
                assert isinstance(ready, Connection)
                query, _ = ready.recv()
                left[query] -= 1
                ended[query] = time.perf_counter() - begin
        return ended - clock

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            pipe.send(None)
            process.join()


def queries_of(number: int) -> NDArray[np.float32]:
    """Random query vectors (number, DIMENSION)."""
    return np.random.default_rng(7).normal(size=(number, DIMENSION)).astype(np.float32)


def told(name: str, seconds: Times) -> str:
    """A line of percentiles, in milliseconds."""
    values = " ".join(f"{1000 * value:8.2f}" for value in np.percentile(seconds, PERCENTILES))
    return f"{name:28s}{values}"


def report(options: argparse.Namespace) -> int:
    """Measure, simulate, check and print."""
    if options.hedge is not None and options.replicas < 2:
        raise UserError("--hedge asks another replica: give --replicas 2 or more")
    if options.check and (options.machines, options.replicas, options.slow) != (1, 1, 0.0):
        raise UserError("--check runs one machine with one replica and nothing slow: leave the other options out")
    of_machine = math.ceil(options.parts * options.replicas / options.machines)
    number = options.parts if options.check else min(of_machine, MOST)
    with closing(Parts(max(number, options.cores), options.units)) as parts:
        times = parts.busy(options.queries, options.cores)
        hedge = None if options.hedge is None else float(np.percentile(times, options.hedge))
        shape = options.parts, options.replicas, options.machines, options.cores
        service = Service(*shape, options.slow, options.factor, hedge)
        load = options.rate * options.parts * times.mean() / (options.machines * options.cores)
        load *= 1 + options.slow * (options.factor - 1)
        if load >= 1:
            raise UserError(
                f"{options.rate:g} queries a second ask for {load:.2f} of what {options.machines} machines of "
                f"{options.cores} cores can do: give a lower --rate, or more --machines"
            )
        print(f"{options.parts} parts of {options.units} vectors, {options.rate:g} queries a second, load {load:.2f}")
        print(f"{'milliseconds':28s}" + " ".join(f"{f'p{percentile}':>8s}" for percentile in PERCENTILES))
        print(told("search, all cores busy", times))
        print(told("query, simulated", simulated(service, times, options.rate, options.queries)))
        if options.check:
            print(told("query, real processes", parts.asked(options.rate, options.queries)))
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.speed.scale", description=__doc__, examples=["--parts 8 --check"])
    add = parser.add_argument
    add("--parts", type=positive, default=8, metavar="N", help="parts of the index, each asked by every query")
    add("--replicas", type=positive, default=1, metavar="N", help="machines that have the same part")
    add("--machines", type=positive, default=1, metavar="N", help="machines in all")
    add("--cores", type=positive, default=2, metavar="N", help="searches at once of a machine")
    add("--units", type=positive, default=100_000, metavar="N", help="vectors of a part")
    add("--rate", type=float, default=20.0, metavar="X", help="queries a second")
    add("--queries", type=positive, default=2000, metavar="N", help="queries in all")
    add("--slow", type=share, default=0.0, metavar="SHARE", help="share of searches that are slow")
    add("--factor", type=float, default=10.0, metavar="X", help="how many times as long they take")
    add("--hedge", type=float, metavar="P", help="percentile of the times after which another replica is asked")
    add("--check", action="store_true", help="run real processes too")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
