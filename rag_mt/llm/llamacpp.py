"""GGUF models by llama.cpp (the package xllamacpp): the engine of the embedded language models on CPUs."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import remembered_sha256, settings_hash
from rag_mt.base.types import Prompt, PromptQueue
from rag_mt.llm.generation import LOOK_EVERY, UNKNOWN, AnswerText, Generation
from rag_mt.llm.llamacpp_server import Ids, LlamaError, LlamaRequest, LlamaServer, LlamaServers, Slot, layout_for
from rag_mt.llm.options import Options, chat_message, checked_options
from rag_mt.llm.prompt_tokens import (
    CountedPrompts,
    EncodedPrompt,
    after_answer,
    prompt_fits,
    shared_in_chat,
    takes_language_codes,
    template_values,
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
    """A GGUF model, with an adapter or without, as a `LanguageModel`; decoding is greedy.

    A prompt's output depends on nothing else, whatever was asked before, if the model is `repeatable`: with
    `batch_size` 1, and where each answer is computed alone anyway (see `layout_for`). Otherwise it may depend on the
    prompts that happen to be computed together: llama.cpp multiplies one column by other code than several.
    """

    continues_chats = True

    def __init__(
        self,
        name: str,
        gguf: Path,
        adapter: str | None = None,
        batch_size: int = 16,
        gpu: bool = False,
        options: Options | None = None,
    ) -> None:
        """`gguf` is the file of the model `name`, `adapter` a PEFT folder. Up to `batch_size` prompts are answered at
        once. `options` may hold values for the chat template.

        Raises UserError if `batch_size` is below 1, the adapter does not fit the model, or llama.cpp cannot load it.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not possible: give 1 or more")
        self.id, self._header = name, read_header(gguf)
        self.layout = layout_for(gguf.stat().st_size, batch_size, gpu)
        self.batch_size = self.layout.servers * self.layout.slots
        self.options = checked_options(options, served=False)
        self.adapter = adapter
        self.trained_wrapper = trained_wrapper(adapter) if adapter else None
        self.context_length = min(self._header.number("context_length") or WINDOW, WINDOW)
        self.reserved = self._header.control_tokens
        together = [self.layout.slots, self.layout.threads, self.layout.gpu]
        settings = ["llama.cpp", version("xllamacpp"), ALGORITHM, remembered_sha256(gguf), *together]
        settings += [dict(self.options)] if self.options else []
        settings += [adapter_fingerprint(adapter)] if adapter else []
        self.fingerprint = settings_hash(settings)
        pool = max(self.context_length, PER_PROMPT * self.layout.slots)
        file = gguf_adapter(adapter, self._header) if adapter else None
        self.servers = LlamaServers(gguf, file, self.layout, pool)
        self.server = self.servers.first
        self.has_chat_template = _chat_tuned(self._header, self.server)
        self.takes_language_codes = takes_language_codes(self._header.metadata.get("tokenizer.chat_template"))
        self.prompts = CountedPrompts()
        self._tokens = partial(_tokens, self.server, self._header.metadata.get("tokenizer.ggml.bos_token_id"))
        self._shared_tokens = lru_cache(64)(self._tokens)

    @property
    def repeatable(self) -> bool:
        """Whether a completion depends on its prompt alone."""
        return self.layout.slots == 1

    def count_tokens(self, prompt: Prompt) -> int:
        """The number of tokens the prompt takes, begin-of-text and chat template included."""
        return self.prompts.count(prompt, self.encode_prompt)

    def encode_prompt(self, prompt: Prompt) -> EncodedPrompt:
        """The tokens of the prompt."""
        text, shared = prompt.text, prompt.shared
        if prompt.chat:
            text = self._in_template(prompt)
            shared = shared_in_chat(prompt, text)
        try:
            ids = self._tokens(text + prompt.begun)
        except LlamaError as error:
            raise UserError(f"{self.id} cannot read a prompt (llama.cpp: {error}): check the text") from error
        beginning = self._shared_tokens(text[:shared].rstrip()) if shared else ()
        same = next((n for n, (a, b) in enumerate(zip(beginning, ids, strict=False)) if a != b), len(beginning))
        return EncodedPrompt(ids, max(0, min(same, len(ids) - 1)))

    def _in_template(self, prompt: Prompt) -> str:
        try:
            return self.server.chat_text([chat_message(prompt)], template_values(prompt, self.options))
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
        except LlamaError as error:
            raise UserError(
                f"{self.id} failed (llama.cpp: {error}): try it again, with less at once or less beside it"
            ) from error
        finally:
            answers.close()


@dataclass(eq=False)
class _Answer:
    """A prompt of the queue, its number there, the generation of its answer, and the slot that computes it.

    `request` computes the tokens after the first `begun` ones; `held` are those that say no text and may be the end.
    One that is `leaving` a loop is computed a few tokens at a time, with `step` a single one."""

    number: int
    prompt: Prompt
    encoded: EncodedPrompt
    generation: Generation
    slot: Slot | None = None
    leaving: bool = False
    request: LlamaRequest | None = None
    begun: int = 0
    held: list[int] = field(default_factory=list)
    step: bool = False

    @property
    def room(self) -> int:
        """The tokens that the prompt takes with the longest answer."""
        return len(self.encoded.ids) + self.generation.max_new_tokens


_Event = tuple[_Answer, LlamaRequest, dict[str, Any] | Exception]


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
        while True:
            self._start()
            free = self.llm.batch_size - len(self.running) - len(self.waiting)
            prompts = self.queue.take(free) if free > 0 else ()
            if not prompts:
                return bool(self.running or self.waiting)
            for prompt in prompts:
                self._accept(prompt)

    def _accept(self, prompt: Prompt) -> None:
        """Let a prompt wait, or give it no answer if it does not fit."""
        number, self._taken = self._taken, self._taken + 1
        encoded = self.llm.prompts.take(prompt, self.llm.encode_prompt)
        if prompt_fits(self.llm, number, encoded):
            limit = min(self.max_new_tokens, self.llm.context_length - len(encoded.ids))
            answer = AnswerText(str, prompt.stop)
            generation = Generation(encoded.ids, limit, answer, text=prompt.text, scored=prompt.scored)
            self.waiting.append(_Answer(number, prompt, encoded, generation))
        else:
            self.queue.finish(number, NO_ANSWER)

    def _start(self) -> None:
        """Begin the answers that wait, as far as there is room."""
        while self.waiting:
            answer = self.waiting[0]
            if not (answer.generation.max_new_tokens > 0 and self.queue.progress(answer.number, "")):
                self.queue.finish(self.waiting.popleft().number, answer.generation.completion())
                continue
            answer.slot = self.llm.servers.take_slot(answer.room)
            if answer.slot is None:
                break
            self.running.append(self.waiting.popleft())
            self._begin(answer, fresh=True)

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
            text = generation.answer.text
            if not self.queue.progress(answer.number, text if generation.done else text[: generation.answer.safe]):
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

    def _take(self, answer: _Answer, request: LlamaRequest, event: dict[str, Any] | Exception) -> None:
        generation = answer.generation
        if request is not answer.request or generation.done:  # it was given up meanwhile
            return
        if isinstance(event, Exception):
            raise LlamaError(str(event)) if isinstance(event, OSError) else event
        generation.logprobs += [token["logprob"] for token in event.get("completion_probabilities", ())]
        if answer.leaving:
            self._take_few(answer, event["tokens"], event["stop_type"] == "eos")
            return
        untold = event["tokens_predicted"] - (len(generation.new_tokens) - answer.begun)
        untold -= len(answer.held) + len(event["tokens"])
        tokens = [*answer.held, *[UNKNOWN] * untold, *event["tokens"]]
        answer.held = []
        if event["stop"]:
            answer.request = None
            if event["stop_type"] == "limit" and UNKNOWN not in tokens:  # held back as the beginning of a stop string
                generation.answer.add(self.llm.server.text(tokens) if tokens else "")
            generation.end(tokens, event["stop_type"] == "eos", event["stop_type"] == "word")
        elif event["content"]:
            generation.take(tokens, event["content"])
        else:
            answer.held = tokens

    def _take_few(self, answer: _Answer, tokens: list[int], ended: bool) -> None:
        """Take tokens of an answer that leaves a loop, up to the first that must not come."""
        generation, answer.request = answer.generation, None
        for n, token in enumerate(tokens, 1):
            if not answer.step and token in generation.forbidden_tokens:
                return
            generation.append(token, frozenset([token] if ended and n == len(tokens) else ()))
            if generation.done:
                return

    def _begin(self, answer: _Answer, fresh: bool = False) -> None:
        """Let the tokens after those that are known be computed; a fresh answer begins with the shared instruction."""
        generation, slot = answer.generation, answer.slot
        assert slot is not None
        forbidden = generation.forbidden_tokens if answer.leaving else set()
        answer.begun, answer.step = len(generation.new_tokens), bool(forbidden)
        limit = generation.max_new_tokens - answer.begun
        ids = (*answer.encoded.ids, *generation.new_tokens)
        more: dict[str, Any] = {"stop": answer.prompt.stop}
        if answer.leaving:  # not streamed, so that all tokens are told
            limit = 1 if forbidden else min(limit, LOOK_EVERY)
            more = {"stream": False, "logit_bias": [[token, False] for token in sorted(forbidden)]}
        if generation.scored:
            more["n_probs"] = 1
        request = slot.server.completion(ids, slot.number, limit, **more)
        prefix = answer.encoded.prefix if fresh else ()

        def work() -> None:
            try:
                known = slot.server.lay_prefix(prefix, slot.number, request) or not fresh
                for event in request.events(cache_prompt=known):
                    self._events.put((answer, request, event))
            except Exception as error:  # what is not told would be waited for
                self._events.put((answer, request, error))

        answer.request = request
        threading.Thread(target=work, name="llama.cpp", daemon=True).start()

    def _leave_loop(self, answer: _Answer) -> bool:
        """Let a looping answer go on from where its second round began; False if that was tried or cannot be."""
        old = answer.generation
        begun, barred = old.loop_exit() or ([], UNKNOWN)
        if answer.leaving or barred == UNKNOWN or UNKNOWN in begun:
            return False
        self._stop(answer)
        text = AnswerText(self.llm.server.text, answer.prompt.stop)
        for token in begun:
            text.push(token)
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
        if answer.slot is not None:
            answer.slot.server.give_slot(answer.slot.number, answer.room)
            answer.slot = None


def _tokens(server: LlamaServer, begin: object, text: str) -> Ids:
    """The tokens of a text as the model reads it; it has the token `begin` once, whether the text brings it or not."""
    ids = server.tokens(text, special=True)
    return ids[1:] if ids[:2] == (begin, begin) else ids


def _chat_tuned(header: GGUFHeader, server: LlamaServer) -> bool:
    """Whether the model answers chats: its file has a chat template that ends an assistant's turn with a token at which
    the model stops."""
    template = header.metadata.get("tokenizer.chat_template")
    if template is None:
        return False
    try:
        after = after_answer(template, partial(server.chat_text, values={}))
    except LlamaError:
        return False
    ends = {header.metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot", "eom")}
    return bool(after) and server.tokens(after, special=False)[0] in ends
