"""A queue of prompts for tests: what it gives and what it hears are at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rag_mt.base.types import Completion, LanguageModel, Prompt


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
