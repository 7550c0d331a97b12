"""Work in the background whose owner follows its progress: translating a document, building an index.

A task is added and its upload read at once; then it waits for a thread, runs, and ends as done, failed or cancelled.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from rag_mt.base.errors import UserError
from ui.server.limits import MissingError
from ui.server.uploads import OwnFolder

log = logging.getLogger("rag_mt")

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Outcome = tuple[State, str]
"""A last state, and the sentence that says why a task failed."""


class CancelledTaskError(Exception):
    """Raised inside a task that was cancelled."""


@dataclass(eq=False)
class Watched:
    """Something that changes while other threads follow it."""

    _condition: threading.Condition = field(default_factory=threading.Condition, init=False, repr=False)
    _version: int = field(default=0, init=False, repr=False)

    def changed(self) -> None:
        """Wake whoever follows."""
        with self._condition:
            self._version += 1
            self._condition.notify_all()

    def changes(self, every: float, ended: Callable[[], bool]) -> Iterator[None]:
        """Yields at once and after each change, `every` seconds apart at least, the last time after the end."""
        seen = -1
        while True:
            with self._condition:
                self._condition.wait_for(lambda known=seen: self._version != known)  # type: ignore[misc]
                seen, last = self._version, ended()
            yield
            if last:
                return
            time.sleep(every)


@dataclass(eq=False)
class Task(Watched):
    """What any thread can see of a task. `name` is the owner's name for it; `progress` is (done, all) in sentences;
    `notes` tell what was left out or went wrong; `error` is one sentence, if it failed.

    `id` cannot be guessed. A task that is `forgotten` was deleted by its owner: nobody sees it any more, and its own
    thread cleans up after it.
    """

    owner: str
    name: str = ""
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    created: float = field(default_factory=time.time)
    state: State = "waiting"
    progress: tuple[int, int] = (0, 0)
    error: str = ""
    notes: tuple[str, ...] = ()
    forgotten: bool = False
    _cancelled: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    def cancel(self) -> None:
        """Ask the task to end, which may take a moment; nothing happens to one that has ended."""
        with self._condition:
            self._cancelled = not self.ended
            if self.state == "waiting":
                self.state = "cancelled"
        self.changed()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; false if it has not come in time."""
        with self._condition:
            return self._condition.wait_for(lambda: self.ended, timeout)

    def updates(self, every: float = 0.1) -> Iterator[State]:
        """The state after each change of anything, `every` seconds apart at least, until the task has ended."""
        for _ in self.changes(every, lambda: self.ended):
            yield self.state

    def advance(self, number: int) -> None:
        """So many more are done. Raises CancelledTaskError once the task was cancelled."""
        if self._cancelled:
            raise CancelledTaskError(self.id)
        self.progress = (self.progress[0] + number, self.progress[1])
        self.changed()

    def end(self, state: State, error: str = "") -> None:
        with self._condition:
            self.state, self.error = state, error
        self.changed()

    def run(self, work: Callable[[], object], fault: str) -> Outcome | None:
        """Do the work and return how it ended; None if the task was cancelled before it began. `fault` is what the
        owner is told of an error of the program."""
        with self._condition:
            if self.state != "waiting":
                return None
            self.state = "running"
        self.changed()
        try:
            work()
        except (CancelledTaskError, CancelledError):
            return "cancelled", ""
        except UserError as error:
            return "failed", error.public
        except BaseException:  # a panic in Rust is no Exception: the task is to end all the same
            log.exception(fault)
            return "failed", f"{fault} (see the server's log)"
        return "done", ""


TaskT = TypeVar("TaskT", bound=Task)


class OwnedTasks(Generic[TaskT]):
    """The tasks of all owners, the oldest first; nobody sees another owner's. Each has a folder `folder/ID` while it
    is there. Whoever looks for room and adds a task holds `lock`.

    `kind` is what an error calls a task, `fault` what is said of an error of the program. `settle` is told, under the
    lock, how a task ended (None: it was cancelled before it began) and gives it its last state.
    """

    def __init__(
        self,
        kind: str,
        fault: str,
        folder: OwnFolder,
        at_once: int,
        settle: Callable[[TaskT, Outcome | None], object],
    ) -> None:
        self.lock = threading.RLock()
        self.folder = folder.path
        self._kind, self._fault, self._settle = kind, fault, settle
        self._tasks: dict[str, TaskT] = {}
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix=kind)

    def all(self) -> list[TaskT]:
        """The tasks of all owners, the forgotten ones too that still run."""
        with self.lock:
            return list(self._tasks.values())

    def of(self, owner: str) -> list[TaskT]:
        return [task for task in self.all() if task.owner == owner and not task.forgotten]

    def get(self, owner: str, id: str) -> TaskT:
        """A task of the owner; raises MissingError if there is none of that id."""
        task = self._tasks.get(id)
        if task is None or task.owner != owner or task.forgotten:
            raise missing(self._kind, id)
        return task

    def add(self, task: TaskT) -> None:
        """Take in a task whose folder is there or will be."""
        self._tasks[task.id] = task

    def launch(
        self, task: TaskT, check_room: Callable[[], object], prepare: Callable[[Path], Callable[[], object]]
    ) -> TaskT:
        """Add a task, and do in a thread the work that `prepare` returns when it has read the upload into the task's
        folder. What `check_room` and `prepare` raise is raised here, and nothing is left of the task."""
        with self.lock:
            check_room()
            self.add(task)
        try:
            folder = self.folder / task.id
            folder.mkdir()
            work = prepare(folder)
        except BaseException:
            self.forget(task)
            raise
        self._threads.submit(self._run, task, work)
        return task

    def _run(self, task: TaskT, work: Callable[[], object]) -> None:
        outcome = task.run(work, self._fault)
        with self.lock:
            self._settle(task, outcome)

    def forget(self, task: TaskT) -> None:
        """Remove a task with what it has on disk."""
        with self.lock:
            self._tasks.pop(task.id, None)
            shutil.rmtree(self.folder / task.id, ignore_errors=True)

    def delete(self, owner: str, id: str) -> None:
        """Cancel and forget a task; its thread removes one that runs, which counts until then. Raises MissingError."""
        with self.lock:
            task = self.get(owner, id)
            task.forgotten = True
            task.cancel()
            if task.ended:
                self.forget(task)

    def delete_all(self, owner: str) -> None:
        for task in self.of(owner):
            with suppress(MissingError):  # a build that has ended meanwhile is forgotten
                self.delete(owner, task.id)

    def cancel(self) -> None:
        for task in self.all():
            task.cancel()

    def stop(self, timeout: float) -> None:
        """Begin no more tasks, cancel all, and wait for their ends, `timeout` seconds at most in all."""
        end = time.monotonic() + timeout
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.cancel()
        for task in self.all():
            task.wait(max(0.0, end - time.monotonic()))


def missing(kind: str, id: str) -> MissingError:
    """The error that says that an owner has nothing of that id."""
    return MissingError(f"there is no {kind} {id[:40]!r}: it may have been deleted")
