"""The flow, written once: a sentence becomes a prompt with hints, a language model answers, a translation is read.

All that translates (`Translator`, streams, file jobs, the server and evaluation) makes tasks and puts them into a
`TaskQueue`, which a language model empties.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from prompts.safety import encodable
from rag_mt.base.types import Completion, Hint, Prompt, Sentence, Translation

if TYPE_CHECKING:
    from rag_mt.translation.translator import Translator


@dataclass(eq=False)
class SentenceTask:
    """One sentence on its way: its prompt once hints are found, the answer as far as it is, the completion and the
    translation at the end."""

    translator: Translator
    sentence: Sentence
    prompt: Prompt | None = None
    answer: str = ""
    completion: Completion | None = None
    translation: Translation | None = None

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for the translation."""
        return True

    @property
    def begun(self) -> str:
        """How the translation begins for sure: further tokens cannot change it."""
        if self.translation is not None:
            return self.translation.text
        if self.prompt is None or not self.answer:
            return ""
        return self.translator.sure_beginning(self.sentence, self.prompt, self.answer)

    def read(self, completion: Completion) -> None:
        """Take the completion, and read the translation from it."""
        assert self.prompt is not None
        self.completion = completion
        self.translation = self.translator.read(self.sentence, self.prompt, completion)
        self.changed()

    def shown(self, hints: Sequence[Hint]) -> Sequence[Hint]:
        """Those of the retrieved hints that the prompt may show."""
        return hints

    def changed(self) -> None:
        """Called whenever something of the task has changed."""


T = TypeVar("T", bound=SentenceTask)


def by_translator(tasks: Iterable[T]) -> list[list[T]]:
    """The tasks of each translator."""
    groups: dict[Translator, list[T]] = {}
    for task in tasks:
        groups.setdefault(task.translator, []).append(task)
    return list(groups.values())


def prepare(tasks: Sequence[SentenceTask]) -> None:
    """Give tasks of one translator their prompts with hints, which are retrieved in one call."""
    waiting = [task for task in tasks if task.prompt is None]
    if waiting:
        translator = waiting[0].translator
        # An encoder takes no half surrogates: they are replaced as in the prompt.
        sentences = [replace(task.sentence, text=encodable(task.sentence.text)) for task in waiting]
        hints = translator.retriever.retrieve(sentences)
        for task, retrieved in zip(waiting, hints, strict=True):
            task.prompt = translator.prompts.build(task.sentence, task.shown(retrieved))
            task.changed()


class TaskQueue(Generic[T]):
    """Tasks as the prompts of a language model (a `PromptQueue`): prompts are made when they are taken, translations
    are read from the answers. `running` are those that are being answered, by number."""

    def __init__(self, tasks: Iterable[T] = (), finished: Callable[[T], object] = lambda task: None) -> None:
        """`finished` is told of each task whose translation is there."""
        self._waiting = deque(tasks)
        self._finished = finished
        self._taken = 0
        self.running: dict[int, T] = {}

    def next_tasks(self, most: int) -> Sequence[T]:
        """Up to `most` tasks to answer next."""
        return [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]

    def failed(self, tasks: Sequence[T], error: BaseException) -> None:
        """Called for tasks whose prompts cannot be made or whose answers cannot be read."""
        raise error

    def take(self, most: int) -> Sequence[Prompt]:
        """See `PromptQueue.take`."""
        while tasks := self.next_tasks(most):
            for group in by_translator(tasks):
                try:
                    prepare(group)
                except BaseException as error:
                    self.failed(group, error)
            ready = [(task, task.prompt) for task in tasks if task.prompt is not None]
            if ready:
                self.running.update(enumerate((task for task, _ in ready), self._taken))
                self._taken += len(ready)
                return [prompt for _, prompt in ready]
        return ()

    def progress(self, number: int, text: str) -> bool:
        """See `PromptQueue.progress`."""
        task = self.running[number]
        if task.wanted and text != task.answer:
            task.answer = text
            task.changed()
        return task.wanted

    def finish(self, number: int, completion: Completion) -> None:
        """See `PromptQueue.finish`."""
        task = self.running.pop(number)
        if not task.wanted:
            return
        try:
            task.read(completion)
        except BaseException as error:
            self.failed([task], error)
        else:
            self._finished(task)


def longest_first(tasks: Iterable[T]) -> list[T]:
    """Prepared tasks in the order in which they are answered fastest: those with hints, which another model may answer,
    before those without, and each by the length of their prompts."""

    def order(task: T) -> tuple[bool, int]:
        assert task.prompt is not None
        return not task.prompt.hints, -len(task.prompt.text)

    return sorted(tasks, key=order)


def translate_all(tasks: Sequence[T], finished: Callable[[T], object] = lambda task: None) -> Iterator[None]:
    """Translate tasks of one translator; advance the iterator to its end. `finished` hears of each as it ends."""
    if tasks:
        prepare(tasks)
        yield from tasks[0].translator.answer(TaskQueue(longest_first(tasks), finished))
