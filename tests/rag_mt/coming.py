"""Queues of prompts for tests: what they give and what they hear are at hand."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from rag_mt.base.types import Completion, LanguageModel, Prompt
from rag_mt.llm.queue import NO_ANSWER


class Coming:
    """Prompts by `take`; `wanted` is asked as `PromptQueue.progress` is. `answers` holds what has ended, in order."""

    def __init__(
        self, take: Callable[[int], Sequence[Prompt]], wanted: Callable[[int, str], bool] = lambda number, text: True
    ) -> None:
        self.take, self.progress = take, wanted
        self.answers: list[tuple[int, Completion]] = []

    def finish(self, number: int, completion: Completion) -> None:
        self.answers.append((number, completion))

    def answered_by(self, llm: LanguageModel, max_new_tokens: int = 256) -> Iterator[tuple[int, Completion]]:
        """The answers with their numbers, as they end."""
        for _ in llm.answer(self, max_new_tokens):
            while self.answers:
                yield self.answers.pop(0)
        yield from self.answers


class _Streamed:
    """One prompt as a queue that remembers how its answer begins."""

    def __init__(self, prompt: Prompt) -> None:
        self.waiting = [prompt]
        self.text = ""
        self.completion = NO_ANSWER

    def take(self, most: int) -> list[Prompt]:
        taken, self.waiting = self.waiting, []
        return taken

    def progress(self, number: int, text: str) -> bool:
        self.text = text
        return True

    def finish(self, number: int, completion: Completion) -> None:
        self.text, self.completion = completion.text, completion


def stream(llm: LanguageModel, prompt: Prompt, max_new_tokens: int = 256) -> Generator[str, None, Completion]:
    """The answer to a prompt as far as it is sure, whenever it has changed; the generator returns the completion.

    Mostly a text continues the one before it; one that left a loop begins anew. Closing the generator stops the work.
    """
    queue, shown = _Streamed(prompt), ""
    for _ in llm.answer(queue, max_new_tokens):
        if queue.text != shown:
            shown = queue.text
            yield shown
    if queue.text != shown:
        yield queue.text
    return queue.completion
