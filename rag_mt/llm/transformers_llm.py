"""A language model in this process: batched greedy generation that computes shared instructions once."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch

from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Prompt, PromptQueue
from rag_mt.llm.cache import Prefix
from rag_mt.llm.decoding import Admitted, compute_prefix, decode, lay_out_states
from rag_mt.llm.generation import AnswerText, Generation
from rag_mt.llm.options import Options, checked_options
from rag_mt.llm.prompt_tokens import (
    CountedPrompts,
    EncodedPrompt,
    chat_tuned,
    control_tokens,
    encode_prompt,
    prompt_fits,
    takes_language_codes,
)
from rag_mt.llm.queue import NO_ANSWER
from rag_mt.models.adapter_files import trained_wrapper
from rag_mt.models.loading import LoadedLLM, Quantization, load_llm

log = logging.getLogger("rag_mt")

ALGORITHM = 10  # raised whenever the decoding below may give other outputs
REMEMBERED = 4  # shared instructions whose keys and values are kept between calls
SUPPORTED_LAYERS = frozenset({"full_attention", "sliding_attention"})
DEFAULT_CONTEXT, LARGEST_CONTEXT = 4096, 131_072
"""Tokens: of models that do not say how many they take, and of those that claim a fancy number."""


def open_transformers(
    name: str,
    adapter: str | None,
    device: str,
    dtype: str,
    quantization: str,
    batch_size: int,
    options: Options | None = None,
) -> TransformersLLM:
    """A model by transformers (see `rag_mt.llm.opening.open_llm`)."""
    loaded = load_llm(name, adapter, device, dtype, cast(Quantization, quantization))
    return TransformersLLM(loaded, batch_size, adapter, options)


class TransformersLLM:
    """A loaded causal language model as a `LanguageModel`; decoding is greedy.

    Equal calls give equal outputs, whatever was asked before. In float32 a prompt's output does not depend on the
    other prompts of its call; in bfloat16 and float16 it may, through rounding, which is why `batch_size`
    is part of the `fingerprint`.
    """

    continues_chats = True

    def __init__(
        self,
        loaded: LoadedLLM,
        batch_size: int = 16,
        adapter: str | None = None,
        options: Options | None = None,
    ) -> None:
        """`adapter` names what is merged into `loaded`; prompts are chosen by it. `options` may hold values for the
        chat template.

        Raises UserError if `batch_size` is below 1, the model has layers other than attention, or takes no such option.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not possible: give 1 or more")
        self.model: Any = loaded.model
        self.tokenizer: Any = loaded.tokenizer
        config = self.model.config.get_text_config(decoder=True)
        unknown = set(getattr(config, "layer_types", None) or ()) - SUPPORTED_LAYERS
        if unknown:
            raise UserError(
                f"{loaded.name} has {', '.join(sorted(unknown))} layers, which cannot be batched here: choose a model "
                "with full or sliding-window attention only, or serve it and name it openai:MODEL@URL"
            )
        self.id = loaded.name
        self.batch_size, self.adapter = batch_size, adapter
        self.options = checked_options(options, served=False)
        self.trained_wrapper = trained_wrapper(adapter) if adapter else None
        self.context_length = min(getattr(config, "max_position_embeddings", 0) or DEFAULT_CONTEXT, LARGEST_CONTEXT)
        self.reserved = control_tokens(self.tokenizer)
        self.has_chat_template = chat_tuned(self.tokenizer, config, loaded.folder)
        self.takes_language_codes = takes_language_codes(self.tokenizer.chat_template)
        settings = ["transformers", ALGORITHM, loaded.fingerprint, str(loaded.dtype), loaded.device.type, batch_size]
        self.fingerprint = settings_hash(settings + ([dict(self.options)] if self.options else []))
        ends = self.model.generation_config.eos_token_id
        self._ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._pad: int = self.tokenizer.pad_token_id or 0
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()
        self.encode_prompt = partial(encode_prompt, self.tokenizer, options=self.options)
        self.prompts = CountedPrompts()
        self._lock = threading.Lock()
        lay_out_states(self.model)

    @property
    def repeatable(self) -> bool:
        """Whether a completion depends on its prompt alone. (8-bit weights in float32 are rounded by batch.)"""
        return bool(self.model.dtype == torch.float32 and not getattr(self.model, "is_quantized", False))

    def count_tokens(self, prompt: Prompt) -> int:
        """The number of tokens the prompt takes, begin-of-text and chat template included."""
        return self.prompts.count(prompt, self.encode_prompt)

    def encode(self, prompt: Prompt, answer: str = "") -> tuple[int, ...]:
        """The tokens of the prompt as generation reads them, with an answer right behind it."""
        return self.encode_prompt(prompt, answer).ids

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        """Answer the prompts of a queue, up to `batch_size` of them together (see `LanguageModel.answer`); `tokens` of
        a completion counts the end-of-text token too.

        A prompt that fills the model's window is answered with an empty unfinished completion and a warning, and no
        answer grows beyond the window. An answer that is stuck in a loop, or ends and has one in a line, goes on once
        after the loop's first round with the likeliest other token, and says no run of five tokens again from there on.
        Where a batch does not fit into memory, the work goes on with batches of half its size. Raises UserError if not
        even one prompt fits.
        """
        requests = _Requests(self, queue, max_new_tokens)
        room = self.batch_size
        while True:
            try:
                for _ in decode(self.model, requests.admit, room, self._ends, self._pad):
                    requests.settle()
                    yield
                requests.settle()
                return
            except RuntimeError as error:
                if not _is_lack_of_memory(error):
                    raise
                if len(requests.running) == 1:
                    raise UserError(self._too_large(len(requests.running[0].prompt.ids))) from error
            room = (len(requests.running) + 1) // 2
            log.warning(
                "%d prompts at once do not fit into memory: going on with %d at once", len(requests.running), room
            )
            requests.restart()
            self._make_room()

    def text_of(self, ids: list[int]) -> str:
        """The text of some tokens, without control tokens."""
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def prefix(self, ids: tuple[int, ...]) -> Prefix | None:
        """The keys and values of shared tokens, computed once while they are remembered.

        They are always computed alone, so that remembering changes the time and not the numbers.
        """
        if not ids:
            return None
        with self._lock:
            prefix = self._prefixes.pop(ids, None) or compute_prefix(self.model, ids)
            self._prefixes[ids] = prefix
            while len(self._prefixes) > REMEMBERED:
                self._prefixes.popitem(last=False)
        return prefix

    def _make_room(self) -> None:
        with self._lock:
            self._prefixes.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _too_large(self, tokens: int) -> str:
        return (
            f"{self.id} ran out of memory on one prompt of {tokens} tokens: use dtype bfloat16, quantization 4bit "
            "(CUDA), a smaller model or device cpu"
        )


@dataclass(eq=False)
class _Request:
    """A prompt of the queue, its number there, and the generation of its answer; `looped` is the generation whose loop
    this one leaves, if any."""

    number: int
    prompt: EncodedPrompt
    text: str
    stop: tuple[str, ...]
    scored: bool = False
    looped: Generation | None = None
    generation: Generation = field(init=False)


class _Requests:
    """The prompts that a model has taken from a queue: `running` are computed, `again` wait to be begun again."""

    def __init__(self, llm: TransformersLLM, queue: PromptQueue, max_new_tokens: int) -> None:
        self.llm, self.queue, self.max_new_tokens = llm, queue, max_new_tokens
        self.running: list[_Request] = []
        self.again: deque[_Request] = deque()
        self._taken = 0

    def admit(self, free: int) -> Admitted:
        """Generations for up to `free` prompts, with their prefixes; those that are begun again before new ones."""
        admitted: list[tuple[Generation, Prefix | None]] = []
        while not admitted:
            requests = [self.again.popleft() for _ in range(min(free, len(self.again)))]
            prompts = self.queue.take(free - len(requests)) if free > len(requests) else ()
            if not requests and not prompts:
                break
            for request in requests + self._requests(prompts):
                generation = request.generation = self._generation(request)
                wanted = self.queue.progress(request.number, generation.answer.text)
                if wanted and generation.max_new_tokens > 0:
                    self.running.append(request)
                    admitted.append((generation, self.llm.prefix(request.prompt.prefix)))
                else:
                    self.queue.finish(request.number, generation.completion())
        return admitted

    def settle(self) -> None:
        """Tell the queue what the last token of each answer has changed; forget the answers that are done."""
        for request in self.running:
            generation, answer = request.generation, request.generation.answer
            if not self.queue.progress(request.number, answer.text if generation.done else answer.text[: answer.safe]):
                generation.done = generation.unwanted = True
            if generation.looped and not generation.unwanted and request.looped is None:
                self.again.append(replace(request, looped=generation))
            elif generation.done:
                self.queue.finish(request.number, generation.completion())
        self.running = [request for request in self.running if not request.generation.done]

    def restart(self) -> None:
        """Let all that is computed be begun again, before anything else."""
        self.again.extendleft(reversed(self.running))
        self.running = []

    def _requests(self, prompts: Sequence[Prompt]) -> list[_Request]:
        """The prompts that fit into the model's window; the others are answered at once."""
        requests = []
        for prompt in prompts:
            number, self._taken = self._taken, self._taken + 1
            encoded = self.llm.prompts.take(prompt, self.llm.encode_prompt)
            if prompt_fits(self.llm, number, encoded):
                requests.append(_Request(number, encoded, prompt.text, prompt.stop, prompt.scored))
            else:
                self.queue.finish(number, NO_ANSWER)
        return requests

    def _generation(self, request: _Request) -> Generation:
        """The generation of an answer, from its beginning or from where a loop's second round began."""
        begun, barred = (request.looped.loop_exit() if request.looped else None) or ([], None)
        answer = AnswerText(self.llm.text_of, request.stop)
        for token in begun:
            answer.push(token)
        ids = request.prompt.ids
        max_new_tokens = min(self.max_new_tokens, self.llm.context_length - len(ids))
        scored = request.scored and request.looped is None
        return Generation((*ids, *begun), max_new_tokens, answer, begun, barred, request.text, scored)


def _is_lack_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
