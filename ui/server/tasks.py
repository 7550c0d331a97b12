"""Work that goes on while its user looks at its progress: building an index, translating a document."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

State = Literal["waiting", "running", "done", "failed", "cancelled"]


class CancelledTaskError(Exception):
    """Raised inside a task whose user does not want it any more."""


@dataclass(eq=False)
class Task:
    """What can be seen of a task from any thread. `progress` is (done, all); `error` is one sentence, if it failed.

    `id` cannot be guessed. Ended means done, failed or cancelled. A `forgotten` one was deleted by its owner and is
    there for nobody; its own thread cleans up after it.
    """

    owner: str
    id: str = field(default_factory=lambda: secrets.token_hex(16))
    created: float = field(default_factory=time.time)
    state: State = "waiting"
    progress: tuple[int, int] = (0, 0)
    error: str = ""
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


def wait_for_all(tasks: Iterable[Task], timeout: float) -> None:
    """Wait for the ends of all tasks, so many seconds at most in all."""
    end = time.monotonic() + timeout
    for task in tasks:
        task.wait(max(0.0, end - time.monotonic()))
