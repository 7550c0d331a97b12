"""Work that is spread over the machines of a Ray cluster.

Ray only decides where a task runs. A task that was lost with its process or its machine runs again elsewhere, so it
must come to the same result each time; what it loads, it should keep for the next task of the same process.
"""

from __future__ import annotations

import argparse
import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rag_mt.base.errors import UserError

log = logging.getLogger("rag_mt")

LOCAL = "local"
"""The address of a cluster of this machine's own, for as long as the command runs."""
AHEAD = 2
"""Tasks that are given out at once for each worker of a whole cluster, so that none waits for the next; fewer workers
get one at a time, since Ray runs all that it is given."""
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
        os.environ.setdefault("RAY_task_oom_retries", str(LOSSES))
        try:
            import ray
        except ImportError:
            raise UserError("--ray needs the package ray: `pip install 'rag-mt[scale]'`") from None
        if ray.is_initialized():  # by whoever calls this
            yield ray
            return
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
            raise UserError(
                f"no Ray cluster answers at {self.address} ({_line(error)}): start one with `ray start --head` and "
                f"give its address on a machine that belongs to it, or `{LOCAL}` for the cores of this machine"
            ) from error
        try:
            yield ray
        finally:
            ray.shutdown()

    def spread(
        self, task: Callable[..., Result], jobs: Iterable[tuple[Key, tuple[Any, ...]]]
    ) -> Generator[tuple[Key, Result], None, None]:
        """The results of `task(*arguments)` for jobs, a key and the arguments each, as they come. The task is a
        function of a module that all machines have; jobs are taken as workers become free. Raises what a task raises.
        """
        with self.connected() as ray:
            machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            gpus = self.gpu and any(machine.get("GPU") for machine in machines)
            places = [int(machine.get("CPU", 0) // self.threads) for machine in machines]
            if gpus:
                places = [min(n, int(machine.get("GPU", 0))) for n, machine in zip(places, machines, strict=True)]
            able = sum(places)
            if not able:
                wanted = f"{self.threads} cores{' and a GPU' if gpus else ''}"
                raise UserError(
                    f"none of {len(machines)} machines of the Ray cluster at {self.address} has {wanted}: give fewer "
                    "--threads, or wait until its machines have come"
                )
            workers = min(self.workers or able, able)
            log.info("%s: %d tasks at once on %d machines", self.address, workers, len(machines))
            most = AHEAD * able if workers == able else workers
            remote = ray.remote(task).options(
                num_cpus=self.threads, num_gpus=int(gpus), max_retries=LOSSES, scheduling_strategy="SPREAD"
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
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise UserError(
                f"a machine of the Ray cluster failed ({_line(error.cause or error)}): give all of them the same "
                "rag_mt with its models, and room in their folder for temporary files; what is finished is kept"
            ) from error
        except ray.exceptions.RayError as error:
            raise UserError(
                f"a task of the Ray cluster was lost {LOSSES} times ({_line(error)}): is there enough memory for so "
                "many workers? What is finished is kept, and the same command goes on there"
            ) from error

    def everywhere(self, *arguments: Any) -> tuple[Any, ...]:
        """Arguments that mean the same on all machines: the GPU of a task is the only one that it sees. Raises
        UserError for a folder whose name does not begin at the root."""
        for name in arguments if self.address != LOCAL else ():
            if isinstance(name, str) and not Path(name).is_absolute() and Path(name).is_dir():
                raise UserError(
                    f"folder {name} means another one on other machines: give its full path, which all have"
                )
        return tuple("cuda" if str(name).startswith("cuda:") else name for name in arguments)


def _line(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def cluster_of(options: argparse.Namespace) -> Cluster | None:
    """The cluster that `rag_mt.base.console.add_cluster_options` asked for; None without one."""
    if not options.ray and (options.workers or options.threads != 1):
        raise UserError("--workers and --threads are those of a cluster: give --ray, or leave them out")
    return Cluster(options.ray, options.workers, options.threads, options.device != "cpu") if options.ray else None
