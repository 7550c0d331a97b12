"""Work that goes on while its user looks at its progress: building an index, translating a document."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

from rag_mt.base.errors import UserError
from ui.server.limits import MissingError

log = logging.getLogger("rag_mt")

State = Literal["waiting", "running", "done", "failed", "cancelled"]
Outcome = tuple[State, str]
"""A last state, and the sentence that says why a task failed."""


class CancelledTaskError(Exception):
    """Raised inside a task whose user does not want it any more."""


@dataclass(eq=False)
class Task:
    """What can be seen of a task from any thread. `name` is what its owner calls it; `progress` is (done, all) in
    sentences; `notes` tell what was left out or went wrong; `error` is one sentence, if it failed.

    `id` cannot be guessed. Ended means done, failed or cancelled. A `forgotten` one was deleted by its owner and is
    there for nobody; its own thread cleans up after it.
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
    _news: threading.Condition = field(default_factory=threading.Condition, repr=False)
    _version: int = 0
    _unwanted: bool = False

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "cancelled")

    @property
    def unwanted(self) -> bool:
        """Whether it was cancelled; it may take a moment to end."""
        return self._unwanted

    def cancel(self) -> None:
        """Ask the task to end; nothing happens to one that has ended."""
        with self._news:
            self._unwanted = not self.ended
            if self.state == "waiting":
                self.state = "cancelled"
        self.changed()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the end; false if it has not come in time."""
        with self._news:
            return self._news.wait_for(lambda: self.ended, timeout)

    def updates(self, every: float = 0.1) -> Iterator[State]:
        """The state after each change of anything, `every` seconds apart at least, until the task has ended."""
        seen = -1
        while True:
            with self._news:
                self._news.wait_for(lambda known=seen: self._version != known)  # type: ignore[misc]
                seen, state = self._version, self.state
            yield state
            if state in ("done", "failed", "cancelled"):
                return
            time.sleep(every)

    def advance(self, number: int) -> None:
        """So many more are done. Raises CancelledTaskError if the task is not wanted any more."""
        if self._unwanted:
            raise CancelledTaskError(self.id)
        self.progress = (self.progress[0] + number, self.progress[1])
        self.changed()

    def begin(self) -> bool:
        """Go from waiting to running; false if it was cancelled before."""
        with self._news:
            if self.state != "waiting":
                return False
            self.state = "running"
        self.changed()
        return True

    def end(self, state: State, error: str = "") -> None:
        """Take the last state."""
        with self._news:
            self.state, self.error = state, error
        self.changed()

    def changed(self) -> None:
        """Wake who follows the task."""
        with self._news:
            self._version += 1
            self._news.notify_all()


def outcome(task: Task, work: Callable[[], object], path: Path, fault: str) -> Outcome | None:
    """Do the work of a task and return how it ended; None if the task was cancelled before it began. Errors name the
    task instead of the `path` that it works on; `fault` is what the owner is told of an error of the program."""
    if not task.begin():
        return None
    try:
        work()
    except (CancelledTaskError, CancelledError):
        return "cancelled", ""
    except UserError as error:
        return "failed", str(error).replace(str(path), task.name)
    except BaseException:  # a panic in Rust is no Exception: the task is to end all the same
        log.exception(fault)
        return "failed", f"{fault} (see the server's log)"
    return "done", ""


TaskT = TypeVar("TaskT", bound=Task)


class OwnedTasks(Generic[TaskT]):
    """The tasks of all owners, the oldest first; nobody sees another owner's. Whoever adds or forgets one holds `lock`.

    `kind` is what an error calls a task; `remove` deletes what a task has on disk when it is forgotten.
    """

    def __init__(self, kind: str, remove: Callable[[TaskT], object]) -> None:
        self.lock = threading.RLock()
        self._kind, self._remove = kind, remove
        self._tasks: dict[str, TaskT] = {}

    def all(self) -> list[TaskT]:
        """The tasks of all owners, the forgotten ones too that still run."""
        with self.lock:
            return list(self._tasks.values())

    def of(self, owner: str) -> list[TaskT]:
        """The tasks of an owner."""
        return [task for task in self.all() if task.owner == owner and not task.forgotten]

    def get(self, owner: str, id: str) -> TaskT:
        """A task of the owner; raises MissingError if there is none of that id."""
        task = self._tasks.get(id)
        if task is None or task.owner != owner or task.forgotten:
            raise missing(self._kind, id)
        return task

    def add(self, task: TaskT) -> None:
        self._tasks[task.id] = task

    def forget(self, task: TaskT) -> None:
        """Remove a task with what it has on disk."""
        with self.lock:
            self._tasks.pop(task.id, None)
            self._remove(task)

    def delete(self, owner: str, id: str) -> None:
        """Cancel a task and forget it; one that runs is removed by its own thread, and counts until then. Raises
        MissingError if there is none of that id."""
        with self.lock:
            task = self.get(owner, id)
            task.forgotten = True
            task.cancel()
            if task.ended:
                self.forget(task)

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self.all():
            task.cancel()

    def wait(self, timeout: float) -> None:
        """Wait for the ends of all tasks, `timeout` seconds at most in all."""
        end = time.monotonic() + timeout
        for task in self.all():
            task.wait(max(0.0, end - time.monotonic()))


def missing(kind: str, id: str) -> MissingError:
    """The error that says that an owner has nothing of that id."""
    return MissingError(f"there is no {kind} {id[:40]!r}: it may have been deleted")
