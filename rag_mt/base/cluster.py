"""Work that is spread over the machines of a Ray cluster.

Ray only decides where a task runs. A task that was lost with its process or its machine runs again elsewhere, so it
must come to the same result each time; what it loads, it should keep for the next task of the same process.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from rag_mt.base.errors import UserError

log = logging.getLogger("rag_mt")

LOCAL, RUNNING = "local", "auto"
"""Addresses: a cluster of this machine's own, for as long as the command runs, and the one that it belongs to."""
AHEAD = 2
"""Tasks for each worker that are given out at once where all work, so that none waits for the next."""
LOSSES = 20
"""Of one task with its process or machine: more are no accident."""
SECONDS = 10.0
"""In which the cluster must answer."""
Key = TypeVar("Key")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster by its address; `workers` is the most tasks that run at once (0: as many as there are cores or
    GPUs), `threads` the cores of each. Where the cluster has GPUs and `gpu` is true each task has one."""

    address: str
    workers: int = 0
    threads: int = 1
    gpu: bool = True

    @contextmanager
    def connected(self) -> Iterator[Any]:
        """The library, connected; raises UserError without it and where no cluster answers."""
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise UserError("--ray needs the package ray: `pip install 'rag-mt[scale]'`") from None
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        try:
            if self.address == LOCAL:
                ray.init(address=LOCAL, include_dashboard=False, num_cpus=self.workers * self.threads or None, **quiet)
            else:
                host, _, port = self.address.rpartition(":")
                if host and port.isdecimal():  # Ray itself would ask for minutes
                    socket.create_connection((host.rpartition("/")[2], int(port)), SECONDS).close()
                ray.init(address=self.address, **quiet)
        except (OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(
                f"no Ray cluster answers at {self.address} ({reason}): start one with `ray start --head`, give its "
                f"address, or `{LOCAL}` for the cores of this machine"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()

    def spread(
        self, task: Callable[..., Result], jobs: Iterable[tuple[Key, tuple[Any, ...]]]
    ) -> Iterator[tuple[Key, Result]]:
        """The results of `task(*arguments)` for jobs, a key and the arguments each, as they come. The task is a
        function of a module that all machines have; jobs are taken as workers become free. Raises what a task raises.
        """
        with self.connected() as ray:
            total = ray.cluster_resources()
            gpus = int(total.get("GPU", 0)) if self.gpu else 0
            able = gpus or int(total.get("CPU", 0) // self.threads)
            if not able:
                raise UserError(f"the Ray cluster at {self.address} has no {self.threads} cores: give fewer --threads")
            workers = min(self.workers or able, able)
            machines = sum(node["Alive"] for node in ray.nodes())
            log.info("%s: %d tasks at once on %d machines", self.address, workers, machines)
            most = AHEAD * able if workers == able else workers
            remote = ray.remote(task).options(
                num_cpus=self.threads, num_gpus=min(1, gpus), max_retries=LOSSES, scheduling_strategy="SPREAD"
            )
            stream, running = iter(jobs), dict[Any, Key]()
            while True:
                while len(running) < most and (job := next(stream, None)) is not None:
                    running[remote.remote(*job[1])] = job[0]
                if not running:
                    return
                done, _ = ray.wait(list(running), fetch_local=True)
                for reference in done:
                    yield running.pop(reference), self._result(ray, reference)

    @staticmethod
    def _result(ray: Any, reference: Any) -> Any:
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            raise error.cause or error from None
        except ray.exceptions.RayError as error:
            raise UserError(
                f"a task of the Ray cluster was lost {LOSSES} times ({str(error).splitlines()[0]}): is there enough "
                "memory for so many workers? What is finished is kept, and the same command goes on there"
            ) from error


def cluster_of(options: argparse.Namespace) -> Cluster | None:
    """The cluster that `rag_mt.base.console.add_cluster_options` asked for; None without one."""
    return Cluster(options.ray, options.workers, options.threads, options.device != "cpu") if options.ray else None
