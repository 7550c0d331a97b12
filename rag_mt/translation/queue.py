"""Tasks on their way through a language model: what is asked next, and what becomes of the answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic

from rag_mt.base.types import Completion, Prompt
from rag_mt.translation.tasks import T, prepare

if TYPE_CHECKING:
    from rag_mt.translation.translator import Translator

RECALLED_TOGETHER = 16
"""Drafts for which a memory is asked in one call, as long as other sentences keep the language model busy."""


def by_translator(tasks: Iterable[T]) -> list[list[T]]:
    """The tasks of each translator."""
    groups: dict[Translator, list[T]] = {}
    for task in tasks:
        groups.setdefault(task.translator, []).append(task)
    return list(groups.values())


class TaskQueue(Generic[T]):
    """Tasks as the prompts of a language model (a `PromptQueue`): prompts are made when they are taken, translations
    are read from the answers. `running` are those that are being answered, by the number of the prompt.

    Drafts wait until RECALLED_TOGETHER of them are there or nothing else is left to answer, and until those around them
    are there; prompts with what was recalled are the next to be answered.
    """

    def __init__(self, tasks: Iterable[T] = (), finished: Callable[[T], object] = lambda task: None) -> None:
        """`finished` is told of each task whose translation is there."""
        self._waiting = deque(tasks)
        self._drafted: list[T] = []
        self._questions: deque[tuple[T, Prompt]] = deque()
        self._finished = finished
        self._taken = 0
        self.running: dict[int, T] = {}
        self._prompts: dict[int, Prompt] = {}

    def next_tasks(self, most: int) -> Sequence[T]:
        """Up to `most` tasks to answer next."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def prepare(self, tasks: Sequence[T]) -> None:
        """See `rag_mt.translation.tasks.prepare`."""
        prepare(tasks)

    def failed(self, tasks: Sequence[T], error: BaseException) -> None:
        """Called for tasks whose prompts cannot be made or whose answers cannot be read."""
        raise error

    def take(self, most: int) -> Sequence[Prompt]:
        """See `PromptQueue.take`."""
        taken: list[Prompt] = []
        while len(taken) < most:
            ready = [task for task in self._drafted if task.wanted and task.ready]
            if len(ready) >= RECALLED_TOGETHER:
                self._recall(ready)
            if not self._questions:
                if new := self.next_tasks(most - len(taken)):
                    self._ask(new)
                elif ready and not taken:
                    self._recall(ready)
                else:
                    break
            while self._questions and len(taken) < most:
                task, prompt = self._questions.popleft()
                if task.wanted:
                    self.running[self._taken], self._prompts[self._taken] = task, prompt
                    self._taken += 1
                    taken.append(task.translator.asked(prompt))
        return taken

    @property
    def left(self) -> list[T]:
        """The wanted tasks whose drafts still wait for those of tasks that are not in the queue."""
        return [task for task in self._drafted if task.wanted]

    def _recall(self, ready: Sequence[T]) -> None:
        """Let these, of the drafts that wait, be gone on from."""
        self._drafted = [task for task in self._drafted if task.wanted and not task.ready]
        self._ask(ready)

    def _ask(self, tasks: Sequence[T]) -> None:
        """Prepare tasks, and let their questions be answered next; some fail, or their draft is the translation."""
        for group in by_translator(tasks):
            try:
                self.prepare(group)
            except BaseException as error:
                self.failed(group, error)
        for task in tasks:
            if task.translation is not None:
                self._finished(task)
            elif task.waits:
                self.drafted(task)
            self._questions.extend((task, prompt) for prompt in task.questions)

    def progress(self, number: int, text: str) -> bool:
        """See `PromptQueue.progress`."""
        task = self.running[number]
        if task.wanted:
            task.progress(text)
        return task.wanted

    def finish(self, number: int, completion: Completion) -> None:
        """See `PromptQueue.finish`."""
        task, prompt = self.running.pop(number), self._prompts.pop(number)
        if not task.wanted:
            return
        try:
            task.read(prompt, completion)
        except BaseException as error:
            self.failed([task], error)
        else:
            if task.translation is not None:
                self._finished(task)
            elif task.waits:
                self.drafted(task)

    def drafted(self, task: T) -> None:
        """Called for each task that waits for what is recalled for its draft, or for a question for what is missing."""
        self._drafted.append(task)


def longest_first(tasks: Iterable[T]) -> list[T]:
    """Prepared tasks in the order in which they are answered fastest: by the length of their prompts."""
    return sorted(tasks, key=lambda task: -len(task.prompt.text) if task.prompt else 0)


def translate_all(tasks: Sequence[T], finished: Callable[[T], object] = lambda task: None) -> Iterator[None]:
    """Translate tasks of one translator; advance the iterator to its end. `finished` hears of each as it ends."""
    if tasks:
        prepare(tasks)
        yield from tasks[0].translator.answer(TaskQueue(longest_first(tasks), finished))
