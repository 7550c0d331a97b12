"""The simplest queue of prompts: a list of them that is answered as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rag_mt.base.types import Completion, LanguageModel, Prompt

NO_ANSWER = Completion("", 0, False)


class PromptList:
    """A list of prompts as a queue, the longest first, so that those of about the same length are answered together.

    `completions` are in the order of the list. `wanted` is asked as `PromptQueue.progress` is, with a prompt's place in
    the list.
    """

    def __init__(self, prompts: Sequence[Prompt], wanted: Callable[[int, str], bool] | None = None) -> None:
        self._prompts = prompts
        self._wanted = wanted
        self._order = sorted(range(len(prompts)), key=lambda n: (-len(prompts[n].text), n))
        self._taken = 0
        self.completions = [NO_ANSWER] * len(prompts)

    def take(self, most: int) -> list[Prompt]:
        """See `PromptQueue.take`."""
        places = self._order[self._taken : self._taken + most]
        self._taken += len(places)
        return [self._prompts[n] for n in places]

    def progress(self, number: int, text: str) -> bool:
        """See `PromptQueue.progress`."""
        return self._wanted is None or self._wanted(self._order[number], text)

    def finish(self, number: int, completion: Completion) -> None:
        """See `PromptQueue.finish`."""
        self.completions[self._order[number]] = completion


def complete(
    llm: LanguageModel,
    prompts: Sequence[Prompt],
    max_new_tokens: int = 256,
    wanted: Callable[[int, str], bool] | None = None,
) -> list[Completion]:
    """The answers to some prompts, in order (see `PromptList`)."""
    queue = PromptList(prompts, wanted)
    for _ in llm.answer(queue, max_new_tokens):
        pass
    return queue.completions
