"""Two tunings of a model behind one: prompts with hints are answered by the first, those without by the second."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch

from rag_mt.base.files import settings_hash
from rag_mt.base.types import Completion, Prompt, PromptQueue
from rag_mt.llm.options import Options
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.adapter_files import common_wrapper
from rag_mt.models.loading import Quantization, load_llm

_ENDED = object()


def open_transformers(
    name: str,
    adapter: str | None,
    plain_adapter: str | None,
    device: str,
    dtype: str,
    quantization: str,
    batch_size: int,
    options: Options | None = None,
) -> TransformersLLM | RoutedLLM:
    """A model by transformers, or two (see `rag_mt.llm.opening.open_llm`)."""

    def opened(adapter: str | None) -> TransformersLLM:
        loaded = load_llm(name, adapter, device, dtype, cast(Quantization, quantization))
        return TransformersLLM(loaded, batch_size, adapter, options)

    return opened(adapter) if plain_adapter is None else RoutedLLM(opened(adapter), opened(plain_adapter))


class RoutedLLM:
    """A model that was tuned with hints, and one tuned without for the prompts that have none (a LanguageModel).

    Both are tunings of one base model; embeddings that they have in common are kept once from here on. Raises UserError
    if they learnt from prompts of different shapes.
    """

    def __init__(self, hinted: TransformersLLM, plain: TransformersLLM) -> None:
        self.hinted, self.plain = hinted, plain
        self.models = (hinted, plain)
        self.trained_wrapper = common_wrapper([model.adapter for model in self.models if model.adapter])
        self.id, self.model, self.tokenizer = hinted.id, hinted.model, hinted.tokenizer
        self.adapter = hinted.adapter
        self.context_length = hinted.context_length  # the base's, and so that of both
        self.has_chat_template, self.reserved = hinted.has_chat_template, hinted.reserved
        self.takes_language_codes = hinted.takes_language_codes
        self.fingerprint = settings_hash(["routed", hinted.fingerprint, plain.fingerprint])
        _share_embeddings(plain.model, hinted.model)

    @property
    def repeatable(self) -> bool:
        """See `TransformersLLM.repeatable`."""
        return self.hinted.repeatable

    def of(self, prompt: Prompt) -> TransformersLLM:
        """The model that answers a prompt."""
        return self.hinted if prompt.hints else self.plain

    def fingerprint_for(self, prompt: Prompt) -> str:
        """That of the model that answers a prompt."""
        return self.of(prompt).fingerprint

    def count_tokens(self, prompt: Prompt) -> int:
        """See `TransformersLLM.count_tokens`."""
        return self.hinted.count_tokens(prompt)

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        """See `LanguageModel.answer`. Each model has a batch of its own; they take turns token by token."""
        lanes = [_Lane(model) for model in self.models]
        source = _Divided(queue, lanes)
        while any(lane.busy for lane in lanes) or source.pull(self.hinted.batch_size):
            for lane in lanes:
                if lane.busy:
                    lane.step(source, max_new_tokens)
            yield


class _Divided:
    """Gives each prompt of a queue to the lane (the own queue) of the model that answers it: to the first of `lanes` if
    it has hints, else to the second."""

    def __init__(self, queue: PromptQueue, lanes: Sequence[_Lane]) -> None:
        self.queue, self.lanes = queue, lanes
        self._taken = 0

    def pull(self, most: int) -> bool:
        """Give out up to `most` prompts of the queue; return whether there were any."""
        prompts = self.queue.take(most)
        for prompt in prompts:
            self.lanes[0 if prompt.hints else 1].waiting.append((self._taken, prompt))
            self._taken += 1
        return bool(prompts)

    def pull_for(self, lane: _Lane, most: int) -> None:
        """The same for a lane that has nothing to take, unless as many prompts wait for the other one as it takes at
        once."""
        if all(len(other.waiting) < other.model.batch_size for other in self.lanes if other is not lane):
            self.pull(most)


class _Lane:
    """The prompts of one of the models as its queue: those that wait, with their numbers in the divided queue, and the
    numbers of those that it has taken since it last had none."""

    def __init__(self, model: TransformersLLM) -> None:
        self.model = model
        self.waiting: deque[tuple[int, Prompt]] = deque()
        self._numbers: list[int] = []
        self._source: _Divided
        self._work: Iterator[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether there is something to answer."""
        return bool(self.waiting) or self._work is not None

    def step(self, source: _Divided, max_new_tokens: int) -> None:
        """Compute one token of each prompt that the model answers."""
        if self._work is None:
            self._source, self._numbers = source, []
            self._work = self.model.answer(self, max_new_tokens)
        if next(self._work, _ENDED) is _ENDED:
            self._work = None

    def take(self, most: int) -> list[Prompt]:
        """See `PromptQueue.take`."""
        if not self.waiting:
            self._source.pull_for(self, most)
        items = [self.waiting.popleft() for _ in range(min(most, len(self.waiting)))]
        self._numbers.extend(number for number, _ in items)
        return [prompt for _, prompt in items]

    def progress(self, number: int, text: str) -> bool:
        """See `PromptQueue.progress`."""
        return self._source.queue.progress(self._numbers[number], text)

    def finish(self, number: int, completion: Completion) -> None:
        """See `PromptQueue.finish`."""
        self._source.queue.finish(self._numbers[number], completion)


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
