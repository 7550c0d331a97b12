"""Two language models behind one: prompts with hints are answered by one of them, those without by the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import count
from typing import Any

import torch

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Completion, LanguageModel, Prompt, Watch
from rag_mt.llm.transformers_llm import TransformersLLM


class RoutedLLM:
    """A model that was tuned with hints, and one tuned without for the prompts that have none (a LanguageModel).

    Both are tunings of one base model; embeddings that they have in common are kept once from here on. Raises UserError
    if they learnt from prompts of different shapes.
    """

    def __init__(self, hinted: TransformersLLM, plain: TransformersLLM) -> None:
        if hinted.trained_wrapper and plain.trained_wrapper and hinted.trained_wrapper != plain.trained_wrapper:
            raise UserError(
                f"the adapter {hinted.adapter} learnt from prompts of the shape {hinted.trained_wrapper} and that for "
                f"sentences without hints, {plain.adapter}, from {plain.trained_wrapper}: name two of one shape"
            )
        self.hinted, self.plain = self.models = hinted, plain
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
        for model in self.models:
            own = [n for n, prompt in enumerate(prompts) if self.of(prompt) is model]
            if own:
                made = model.generate([prompts[n] for n in own], max_new_tokens, _as(watch, own))
                done |= zip(own, made, strict=True)
        return [done[n] for n in range(len(prompts))]

    def answer(
        self, more: Callable[[int], Sequence[Prompt]], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> Iterator[tuple[int, Completion]]:
        """See `TransformersLLM.answer`. Each model has a batch of its own; they take turns token by token."""
        numbers = count()
        lanes = {model: _Lane(model) for model in self.models}
        pair = tuple(lanes.values())

        def pull(free: int) -> bool:
            come = more(free)
            for prompt in come:
                lanes[self.of(prompt)].waiting.append((next(numbers), prompt))
            return bool(come)

        while any(lane.busy for lane in pair) or pull(self.hinted.batch_size):
            for lane, other in (pair, pair[::-1]):
                if lane.busy and (item := lane.step(other, pull, max_new_tokens, watch)) is not None:
                    yield item

    def stream(self, prompt: Prompt, max_new_tokens: int = 256) -> Generator[str, None, Completion]:
        """See `TransformersLLM.stream`."""
        return self.of(prompt).stream(prompt, max_new_tokens)


class _Lane:
    """The prompts of one of the models: those that wait, the numbers of those that it has had since it last had none,
    and its work on them."""

    def __init__(self, model: TransformersLLM) -> None:
        self.model = model
        self.waiting: deque[tuple[int, Prompt]] = deque()
        self.numbers: list[int] = []
        self.work: Iterator[tuple[int, Completion] | None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is something to answer."""
        return bool(self.waiting) or self.work is not None

    def step(
        self, other: _Lane, pull: Callable[[int], bool], max_new_tokens: int, watch: Watch | None
    ) -> tuple[int, Completion] | None:
        """Work on one token or up to the end of an answer, which is returned with the number of its prompt. New prompts
        are pulled for both models, unless as many as it takes at once wait for the `other` one already."""

        def more(free: int) -> list[Prompt]:
            if not self.waiting and len(other.waiting) < other.model.batch_size:
                pull(free)
            items = [self.waiting.popleft() for _ in range(min(free, len(self.waiting)))]
            self.numbers.extend(number for number, _ in items)
            return [prompt for _, prompt in items]

        if self.work is None:
            self.numbers.clear()
            self.work = self.model.steps(more, max_new_tokens, _as(watch, self.numbers))
        try:
            item = next(self.work)
        except StopIteration:
            self.work = None
            return None
        return None if item is None else (self.numbers[item[0]], item[1])


def answering(llm: LanguageModel, prompt: Prompt) -> LanguageModel:
    """The language model whose answer to a prompt `llm` gives: itself, unless it is two."""
    return llm.of(prompt) if isinstance(llm, RoutedLLM) else llm


def _as(watch: Watch | None, own: Sequence[int]) -> Watch | None:
    """`watch` for a model whose prompt n is the prompt `own[n]`."""
    return None if watch is None else lambda number, text: watch(own[number], text)


def _share_embeddings(one: Any, other: Any) -> None:
    """Let the second model use the first one's input and output embeddings if they are equal and no adapter's."""
    parts = [(m.get_input_embeddings(), m.get_output_embeddings()) for m in (one, other)]
    if all(_equal(a, b) for a, b in zip(*parts, strict=True)):
        other.set_input_embeddings(parts[0][0])
        other.set_output_embeddings(parts[0][1])


def _equal(one: Any, other: Any) -> bool:
    mine, theirs = one.state_dict(), other.state_dict()
    return (
        type(one) is type(other)
        and mine.keys() == theirs.keys()
        and mine.keys() <= {"weight", "bias"}  # layers of adapters that are kept beside them have more
        and all(torch.equal(mine[name], theirs[name]) for name in mine)
    )
