"""Two language models behind one: prompts with hints are answered by one of them, those without by the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any

import torch

from rag_mt.fingerprints import settings_hash
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.types import Completion, LanguageModel, Prompt, Watch


class RoutedLLM:
    """A model that was tuned with hints, and one tuned without for the prompts that have none (a LanguageModel).

    Both are tunings of one base model; embeddings that they have in common are kept once from here on.
    """

    def __init__(self, hinted: TransformersLLM, plain: TransformersLLM) -> None:
        self.hinted, self.plain = hinted, plain
        self.id, self.model, self.tokenizer = hinted.id, hinted.model, hinted.tokenizer
        self.adapter, self.trained_wrapper = hinted.adapter, hinted.trained_wrapper
        self.context_length = min(hinted.context_length, plain.context_length)
        self.has_chat_template, self.reserved = hinted.has_chat_template, hinted.reserved
        self.fingerprint = settings_hash(["routed", hinted.fingerprint, plain.fingerprint])
        _share_embeddings(plain.model, hinted.model)

    def of(self, prompt: Prompt) -> TransformersLLM:
        """The model that answers a prompt."""
        return self.hinted if prompt.hints else self.plain

    def count_tokens(self, prompt: Prompt) -> int:
        """See `TransformersLLM.count_tokens`."""
        return self.hinted.count_tokens(prompt)

    def generate(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> list[Completion]:
        """See `TransformersLLM.generate`; the prompts with hints are answered first."""
        done: dict[int, Completion] = {}
        for hinted in (True, False):
            own = [n for n, prompt in enumerate(prompts) if bool(prompt.hints) == hinted]
            if own:
                asked = [prompts[n] for n in own]
                done |= zip(own, self.of(asked[0]).generate(asked, max_new_tokens, _as(watch, own)), strict=True)
        return [done[n] for n in range(len(prompts))]

    def answer(
        self, more: Callable[[int], Sequence[Prompt]], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> Iterator[tuple[int, Completion]]:
        """See `TransformersLLM.answer`. The models take turns: while prompts wait for the other one, the one at work
        takes no new ones and ends those that it has."""
        waiting: dict[bool, deque[tuple[int, Prompt]]] = {True: deque(), False: deque()}
        numbers = count()

        def pull(free: int) -> bool:
            come = more(free)
            for prompt in come:
                waiting[bool(prompt.hints)].append((next(numbers), prompt))
            return bool(come)

        while any(waiting.values()) or pull(self.hinted.batch_size):
            first = min((queue[0][0], hinted) for hinted, queue in waiting.items() if queue)
            yield from self._turn(first[1], waiting, pull, max_new_tokens, watch)

    def _turn(
        self,
        hinted: bool,
        waiting: dict[bool, deque[tuple[int, Prompt]]],
        pull: Callable[[int], bool],
        max_new_tokens: int,
        watch: Watch | None,
    ) -> Iterator[tuple[int, Completion]]:
        """The answers of one model, until it has none left or the other one is waited for."""
        own: list[int] = []

        def taken(free: int) -> list[Prompt]:
            if not any(waiting.values()):
                pull(free)
            queue = waiting[hinted]
            items = [queue.popleft() for _ in range(min(free, len(queue)))]
            own.extend(number for number, _ in items)
            return [prompt for _, prompt in items]

        model = self.hinted if hinted else self.plain
        for number, completion in model.answer(taken, max_new_tokens, _as(watch, own)):
            yield own[number], completion

    def stream(self, prompt: Prompt, max_new_tokens: int = 256) -> Iterator[str]:
        """See `TransformersLLM.stream`."""
        return self.of(prompt).stream(prompt, max_new_tokens)


def answering(llm: LanguageModel, prompt: Prompt) -> LanguageModel:
    """The language model whose answer to a prompt `llm` gives: itself, unless it is two."""
    return llm.of(prompt) if isinstance(llm, RoutedLLM) else llm


def _as(watch: Watch | None, own: Sequence[int]) -> Watch | None:
    """`watch` for a model whose prompt n is the prompt `own[n]`."""
    return None if watch is None else lambda number, text: watch(own[number], text)


def _share_embeddings(one: Any, other: Any) -> None:
    """Let the second model use the first one's input and output embeddings if they are equal."""
    parts = [(m.get_input_embeddings(), m.get_output_embeddings()) for m in (one, other)]
    if all(torch.equal(a.weight, b.weight) for a, b in zip(*parts, strict=True)):
        other.set_input_embeddings(parts[0][0])
        other.set_output_embeddings(parts[0][1])
