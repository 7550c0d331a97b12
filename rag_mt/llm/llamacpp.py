"""GGUF models by llama.cpp (the package xllamacpp): the engine of the embedded language models on CPUs."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import remembered_sha256, settings_hash
from rag_mt.base.types import Prompt, PromptQueue
from rag_mt.llm.generation import UNKNOWN, AnswerText, Generation
from rag_mt.llm.llamacpp_server import LlamaError, LlamaRequest, LlamaServer
from rag_mt.llm.options import Options, chat_message, checked_options
from rag_mt.llm.prompt_tokens import (
    REMEMBERED_PROMPTS,
    EncodedPrompt,
    prompt_fits,
    takes_language_codes,
    template_values,
    token_key,
)
from rag_mt.llm.queue import NO_ANSWER
from rag_mt.models.adapter_files import adapter_fingerprint, trained_wrapper
from rag_mt.models.gguf_header import GGUFHeader, read_header
from rag_mt.models.gguf_lora import gguf_adapter

ALGORITHM = 1  # raised whenever what is below may give other outputs
WINDOW, PER_PROMPT = 4096, 512
"""Tokens: the longest prompt with its answer, and those that are made room for with each prompt that is answered
together with others. Memory is taken for all of them at once."""
ASK_EVERY = 0.25  # seconds between two questions whether an answer is still wanted, while nothing comes


class LlamaCppLLM:
    """A GGUF model with up to two adapters as a `LanguageModel`; decoding is greedy.

    With `batch_size` 1 a prompt's output depends on nothing else, whatever was asked before. With more it may depend on
    the prompts that happen to be computed together: llama.cpp multiplies one column by other code than several.
    """

    def __init__(
        self,
        name: str,
        gguf: Path,
        adapters: Sequence[str] = (),
        batch_size: int = 16,
        gpu: bool = False,
        options: Options | None = None,
    ) -> None:
        """`gguf` is the file of the model `name`. The first of `adapters` (PEFT folders) answers prompts
        with hints, the last those without. `batch_size` prompts are answered together. `options` may hold values for
        the chat template.

        Raises UserError if `batch_size` is below 1, the adapters do not fit the model or learnt from prompts of
        different shapes, or llama.cpp cannot load the model.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not possible: give 1 or more")
        self.id, self.batch_size = name, batch_size
        self.options = checked_options(options, served=False)
        self._header = read_header(gguf)
        self._adapters = tuple(adapters)
        self.adapter = self._adapters[0] if self._adapters else None
        self.trained_wrapper = _common_wrapper(self._adapters)
        self.context_length = min(self._header.number("context_length") or WINDOW, WINDOW)
        self.reserved = self._header.control_tokens
        self.fingerprint = settings_hash([*self._settings(), *map(adapter_fingerprint, self._adapters)])
        self.pool = max(self.context_length, PER_PROMPT * batch_size)
        files = [gguf_adapter(adapter, self._header) for adapter in self._adapters]
        self.server = LlamaServer(gguf, files, batch_size, self.pool, gpu)
        self.has_chat_template = _chat_tuned(self._header, self.server)
        self.takes_language_codes = takes_language_codes(self._header.metadata.get("tokenizer.chat_template"))
        self._encoded: OrderedDict[tuple[Any, ...], EncodedPrompt] = OrderedDict()
        self._lock = threading.Lock()
        self._free = list(range(batch_size))
        self._shared_tokens = lru_cache(64)(lambda text: self.server.tokens(text, special=True))

    def _settings(self) -> list[Any]:
        engine = ["llama.cpp", version("xllamacpp"), ALGORITHM, remembered_sha256(self._header.path), self.batch_size]
        return [*engine, *([dict(self.options)] if self.options else [])]

    def fingerprint_for(self, prompt: Prompt) -> str:
        """A hash of all that may change the answer to a prompt, beside the prompt."""
        number = self.adapter_for(prompt)
        return settings_hash(
            [*self._settings(), *(() if number is None else [adapter_fingerprint(self._adapters[number])])]
        )

    @property
    def repeatable(self) -> bool:
        """Whether a completion depends on its prompt alone."""
        return self.batch_size == 1

    def adapter_for(self, prompt: Prompt) -> int | None:
        """The number of the adapter that answers a prompt."""
        return (0 if prompt.hints else len(self._adapters) - 1) if self._adapters else None

    def count_tokens(self, prompt: Prompt) -> int:
        """The number of tokens the prompt takes, begin-of-text and chat template included."""
        encoded = self.encode_prompt(prompt)
        with self._lock:  # it is mostly answered next
            self._encoded[token_key(prompt)] = encoded
            while len(self._encoded) > REMEMBERED_PROMPTS:
                self._encoded.popitem(last=False)
        return len(encoded.ids)

    def encode_prompt(self, prompt: Prompt) -> EncodedPrompt:
        """The tokens of the prompt; those that were counted are taken from there."""
        with self._lock:
            counted = self._encoded.pop(token_key(prompt), None)
        if counted is not None:
            return counted
        text, shared = prompt.text, prompt.shared
        if prompt.chat:
            text = self._in_template(prompt)
            at = text.find(prompt.text)
            shared = at + shared if at >= 0 and shared else 0
        ids = self.server.tokens(text, special=True)
        beginning = self._shared_tokens(text[:shared].rstrip()) if shared else ()
        same = next((n for n, (a, b) in enumerate(zip(beginning, ids, strict=False)) if a != b), len(beginning))
        return EncodedPrompt(ids, max(0, min(same, len(ids) - 1)))

    def _in_template(self, prompt: Prompt) -> str:
        try:
            return self.server.chat_text([chat_message(prompt)], **template_values(prompt, self.options))
        except LlamaError as error:
            raise UserError(
                f"the chat template of {self.id} refuses the prompt ({error}): choose another one with --wrapper"
            ) from error

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        """Answer the prompts of a queue, up to `batch_size` of them together (see `LanguageModel.answer`); `tokens` of
        a completion counts the end-of-text token too.

        A prompt that fills the model's window is answered with an empty unfinished completion and a warning, and no
        answer grows beyond the window. An answer that is stuck in a loop, or ends and has one in a line, goes on once
        after the loop's first round with the likeliest other token, and says no run of five tokens again from there on.
        Raises UserError where llama.cpp fails.
        """
        answers = _Answers(self, queue, max_new_tokens)
        try:
            while answers.admit():
                answers.wait()
                yield
        finally:
            answers.close()

    def take_slot(self) -> int | None:
        """A slot that nobody uses, if there is one."""
        with self._lock:
            return self._free.pop() if self._free else None

    def give_slot(self, slot: int) -> None:
        """Let others use a slot."""
        with self._lock:
            self._free.append(slot)


@dataclass(eq=False)
class _Answer:
    """A prompt of the queue, its number there, the generation of its answer, and the slot that computes it.

    `request` computes the tokens after the first `begun` ones; with `step` it is a single one."""

    number: int
    prompt: Prompt
    encoded: EncodedPrompt
    generation: Generation
    slot: int = -1
    leaving: bool = False
    request: LlamaRequest | None = None
    begun: int = 0
    step: bool = False
    thread: threading.Thread | None = None


_Event = tuple[_Answer, LlamaRequest, dict[str, Any] | LlamaError]


class _Answers:
    """The prompts that a model has taken from a queue: some are computed, others wait for room."""

    def __init__(self, llm: LlamaCppLLM, queue: PromptQueue, max_new_tokens: int) -> None:
        self.llm, self.queue, self.max_new_tokens = llm, queue, max_new_tokens
        self.running: list[_Answer] = []
        self.waiting: deque[_Answer] = deque()
        self._events: SimpleQueue[_Event] = SimpleQueue()
        self._taken = 0

    def admit(self) -> bool:
        """Begin as many answers as there is room for; return whether any is computed or waits."""
        free = self.llm.batch_size - len(self.running) - len(self.waiting)
        for prompt in self.queue.take(free) if free > 0 else ():
            number, self._taken = self._taken, self._taken + 1
            encoded = self.llm.encode_prompt(prompt)
            if prompt_fits(self.llm, number, encoded):
                limit = min(self.max_new_tokens, self.llm.context_length - len(encoded.ids))
                generation = Generation(encoded.ids, limit, AnswerText(str, prompt.stop), text=prompt.text)
                self.waiting.append(_Answer(number, prompt, encoded, generation))
            else:
                self.queue.finish(number, NO_ANSWER)
        while self.waiting and self._has_room(self.waiting[0]):
            answer = self.waiting[0]
            if not (answer.generation.max_new_tokens > 0 and self.queue.progress(answer.number, "")):
                self.queue.finish(self.waiting.popleft().number, answer.generation.completion())
                continue
            slot = self.llm.take_slot()
            if slot is None:
                break
            answer.slot = slot
            self.running.append(self.waiting.popleft())
            self._begin(answer, fresh=True)
        return bool(self.running or self.waiting)

    def wait(self) -> None:
        """Take what has been computed, and tell the queue."""
        try:
            event = self._events.get(timeout=ASK_EVERY)
            while True:
                self._take(*event)
                event = self._events.get_nowait()
        except Empty:
            pass
        for answer in self.running:
            generation = answer.generation
            if not self.queue.progress(answer.number, generation.answer.text):
                generation.done = generation.unwanted = True
            if not generation.done:
                if answer.request is None:
                    self._begin(answer)
            elif not (generation.looped and not generation.unwanted and self._leave_loop(answer)):
                self._end(answer)
                self.queue.finish(answer.number, answer.generation.completion())
        self.running = [answer for answer in self.running if not answer.generation.done]

    def close(self) -> None:
        """Let nothing more be computed."""
        for answer in self.running:
            self._end(answer)
        self.running = []

    def _has_room(self, answer: _Answer) -> bool:
        """Whether the keys and values of one more answer find room beside the others."""
        taken = sum(_room(other) for other in self.running)
        return not self.running or taken + _room(answer) <= self.llm.pool

    def _take(self, answer: _Answer, request: LlamaRequest, event: dict[str, Any] | LlamaError) -> None:
        if request is not answer.request:  # what came after it was given up
            return
        if isinstance(event, LlamaError):
            raise UserError(
                f"{self.llm.id} failed at prompt {answer.number + 1} of the call (llama.cpp: {event}): "
                "try it again with batch size 1"
            )
        generation = answer.generation
        ended = event["stop"]
        tokens = list(event.get("tokens") or ())
        untold = event["tokens_predicted"] - (len(generation.new_tokens) - answer.begun) - len(tokens)
        if ended and event["stop_type"] in ("eos", "word"):
            untold -= 1  # the one that ended it
        tokens = [UNKNOWN] * max(0, untold) + tokens
        if answer.leaving and not answer.step and not generation.forbidden_tokens.isdisjoint(tokens[:1]):
            self._stop(answer)
            return
        generation.take(tokens, event["content"])
        if ended:
            answer.request = None
            if not (answer.step and event["stop_type"] == "limit"):
                generation.end(event["stop_type"] == "eos", event["stop_type"] == "word")

    def _begin(self, answer: _Answer, fresh: bool = False) -> None:
        """Let the tokens after those that are known be computed; a fresh answer begins with the shared instruction."""
        generation, llm = answer.generation, self.llm
        forbidden = generation.forbidden_tokens - {UNKNOWN} if answer.leaving else set()
        answer.begun, answer.step = len(generation.new_tokens), bool(forbidden)
        limit = 1 if forbidden else generation.max_new_tokens - answer.begun
        ids, adapter = (*answer.encoded.ids, *generation.new_tokens), llm.adapter_for(answer.prompt)
        more = {"logit_bias": [[token, False] for token in sorted(forbidden)]} if forbidden else {}
        request = llm.server.completion(ids, adapter, answer.slot, limit, stop=answer.prompt.stop, **more)
        prefix = answer.encoded.prefix if fresh else ()

        def work() -> None:
            try:
                known = llm.server.lay_prefix(prefix, adapter, answer.slot) or not fresh
                for event in request.events(cache_prompt=known):
                    self._events.put((answer, request, event))
            except LlamaError as error:
                self._events.put((answer, request, error))

        answer.request = request
        answer.thread = threading.Thread(target=work, name="llama.cpp", daemon=True)
        answer.thread.start()

    def _leave_loop(self, answer: _Answer) -> bool:
        """Let a looping answer go on from where its second round began; False if that was tried or cannot be."""
        old = answer.generation
        begun, barred = old.loop_exit() or ([], UNKNOWN)
        if answer.leaving or barred == UNKNOWN or UNKNOWN in begun:
            return False
        self._stop(answer)
        text = AnswerText(str, answer.prompt.stop)
        text.add(old.text_of_first(len(begun)))
        answer.generation = Generation(old.prompt_ids, old.max_new_tokens, text, begun, barred, answer.prompt.text)
        answer.leaving = True
        self._begin(answer)
        return True

    def _stop(self, answer: _Answer) -> None:
        if answer.request is not None:
            answer.request.close()
            answer.request = None

    def _end(self, answer: _Answer) -> None:
        self._stop(answer)
        self.llm.give_slot(answer.slot)


def _room(answer: _Answer) -> int:
    return len(answer.encoded.ids) + answer.generation.max_new_tokens


def _common_wrapper(adapters: Sequence[str]) -> str | None:
    """The shape of prompts that all adapters learnt from, if it is known of any."""
    wrappers = {adapter: wrapper for adapter in adapters if (wrapper := trained_wrapper(adapter))}
    if len(set(wrappers.values())) > 1:
        told = " and ".join(f"{adapter} from {wrapper}" for adapter, wrapper in wrappers.items())
        raise UserError(f"adapters learnt from prompts of different shapes ({told}): name two of one shape")
    return next(iter(wrappers.values()), None)


def _chat_tuned(header: GGUFHeader, server: LlamaServer) -> bool:
    """Whether the model answers chats: its file has a chat template that ends an assistant's turn with a token at which
    the model stops."""
    if "tokenizer.chat_template" not in header.metadata:
        return False
    marker = "answer"
    turns = [{"role": "user", "content": "question"}, {"role": "assistant", "content": marker}]
    after = server.chat_text(turns).rpartition(marker)[2].strip()
    ends = {header.metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")}
    return bool(after) and server.tokens(after, special=False)[0] in ends
