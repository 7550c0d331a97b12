"""A language model behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, `transformers serve`, ...)."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx2
import openai

from rag_mt.base.defaults import LLM_CONCURRENCY, LLM_TIMEOUT
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Completion, Prompt, PromptQueue
from rag_mt.llm.generation import first_stop, safe_length
from rag_mt.llm.options import Options, chat_message, checked_options, fields_for
from rag_mt.llm.server_errors import ServerErrors
from rag_mt.llm.server_names import PREFIX, model_and_url, warn_of_open_key

log = logging.getLogger("rag_mt")

CONNECT_TIMEOUT = 10.0  # seconds
RETRIES = 5
DEFAULT_CONTEXT = 4096
BYTES_PER_TOKEN = 3
TEMPLATE_TOKENS = 16  # what a chat template adds, roughly
INSTRUCTION_TOKENS = 128  # what one adds that writes the instruction too
MOST_STOPS = 4  # strings that the protocol lets a request name
ASK_EVERY = 0.25  # seconds between two questions whether an answer is still wanted
TOO_LONG = re.compile(
    r"context.{0,20}(length|size|window)|maximum context|too (long|many tokens)|exceeds? the.{0,30}context",
    re.IGNORECASE,
)
CONTROL_TOKENS = frozenset(
    (
        *("<s>", "</s>", "<unk>", "<pad>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>"),  # Llama 2, Mistral
        *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),  # Llama 3
        *("<|eot_id|>", "<|eom_id|>"),
        *("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),  # Gemma
        *("<|im_start|>", "<|im_end|>", "<|endoftext|>"),  # Qwen, SmolLM
        *("<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),  # Phi, Zephyr
    )
)
"""A server does not tell its model's control tokens; these are those of the widespread families."""
NO_ANSWER = (AttributeError, IndexError, TypeError, ValueError)
"""What reading an answer that has not the protocol's fields ends in."""


class OpenAILLM:
    """A served model as a `LanguageModel`.

    Token counts are estimated as one per three bytes of UTF-8, because a server does not show its tokenizer; that
    is more than common tokenizers make of running text. Equal weights on the server are taken on trust:
    `fingerprint` covers its address, the model's name and the settings sent.

    The API key is sent to the host in the address, whichever it is, with a warning if it goes to another machine
    without encryption; it appears in no message. Requests that get no connection, or 408, 409, 429 or 5xx as an
    answer, are sent again up to RETRIES times, after what Retry-After says; one whose answer takes longer than
    `timeout` is not, because the server may still be computing it.
    """

    reserved = CONTROL_TOKENS
    continues_chats = False

    def __init__(
        self,
        name: str,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        adapter: str | None = None,
        chat: bool = True,
        timeout: float = LLM_TIMEOUT,
        concurrency: int = LLM_CONCURRENCY,
        options: Options | None = None,
    ) -> None:
        """`name` is `openai:MODEL@URL`, or MODEL with `base_url`; `api_key` defaults to OPENAI_API_KEY; `chat` tells
        whether the model is tuned for chat; `timeout` is the seconds in which an answer (or its next piece) must come;
        `concurrency` is the number of requests in flight; `options` are further fields of the requests.

        Asks the server for its models. Raises UserError for a bad address or option, or a server that cannot be reached
        or refuses the key.
        """
        if adapter:
            raise UserError(
                f"the adapter {adapter} cannot be sent to a server: load it there and name the model it gives"
            )
        for value, what in ((timeout, "time-out"), (concurrency, "number of requests at once")):
            if not value > 0:
                raise UserError(f"{value} is no {what} for a model server: give more than 0")
        self.model, self.url = model_and_url(name, base_url)
        self.id = f"{PREFIX}{self.model}@{self.url}"
        self.options = checked_options(options, served=True)
        self.has_chat_template = chat
        self.timeout, self.concurrency = timeout, concurrency
        self.fingerprint = settings_hash(["openai", self.url, self.model, "temperature 0", dict(self.options)])
        self._key = api_key or os.environ.get("OPENAI_API_KEY") or None
        self._headers: Any = {} if self._key else {"Authorization": openai.omit}
        if self._key:
            warn_of_open_key(self.url)
        self.errors = ServerErrors(self.url, timeout, self._key)
        self.context_length = self._served_context()

    def count_tokens(self, prompt: Prompt) -> int:
        """An estimate: the prompt's UTF-8 bytes divided by three, rounded up, and some for a chat template."""
        count = math.ceil(len(prompt.text.encode()) / BYTES_PER_TOKEN)
        return count + (INSTRUCTION_TOKENS if prompt.coded else TEMPLATE_TOKENS if prompt.chat else 0)

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        """Answer the prompts of a queue, with up to `concurrency` requests in flight (see `LanguageModel.answer`).
        Answers are streamed; the connection of one that is not wanted any more is closed at once.

        A prompt that the server finds too long is answered with an empty unfinished completion and a warning.
        Raises UserError when the server refuses a request or stays unreachable; the other requests are then cancelled.
        """
        numbers = count()
        with _Requests(self, max_new_tokens) as requests:
            while True:
                free = self.concurrency - len(requests.running)
                for prompt in queue.take(free) if free else ():
                    requests.send(next(numbers), prompt)
                if not requests.running:
                    return
                requests.wait()
                for number, request in list(requests.running.items()):
                    if request.future.done():
                        completion = request.future.result()
                        queue.progress(number, completion.text)
                    elif queue.progress(number, request.text):
                        continue
                    else:
                        request.future.cancel()
                        completion = Completion(request.text, _estimate(request.text), False)
                    del requests.running[number]
                    queue.finish(number, completion)
                yield

    async def complete(self, client: openai.AsyncOpenAI, request: _Request, max_new_tokens: int) -> Completion:
        """The answer to a request, whose `text` says how it begins and whose `changed` is called when it has grown."""
        prompt, text, reason, tokens = request.prompt, "", None, None
        try:
            events = await _endpoint(client, prompt).create(**self._request(prompt, max_new_tokens))
        except openai.APIError as error:
            return self._too_long(error, prompt)
        async with events:
            async for piece, ended, used in self._pieces(events):
                text, reason, tokens = text + piece, ended or reason, used or tokens
                at = first_stop(text, prompt.stop)
                if at >= 0:
                    return Completion(text[:at], tokens or _estimate(text[:at]), True, True)
                request.text = text[: safe_length(text, prompt.stop)]
                request.changed()
        return Completion(text, tokens or _estimate(text), reason == "stop")

    def limits(self) -> httpx2.Timeout:
        """The seconds that a connection and an answer may take."""
        return httpx2.Timeout(self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout))

    def settings(self) -> dict[str, Any]:
        """How the SDK reaches the server."""
        return {"base_url": self.url, "api_key": self._key or "none", "max_retries": RETRIES}

    def _request(self, prompt: Prompt, limit: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": 0,
            "max_tokens": limit,
            "stream": True,
            "stream_options": {"include_usage": True},
            "extra_headers": self._headers,
            "extra_body": fields_for(self.options, prompt),
        }
        stops = [s for s in prompt.stop if s][:MOST_STOPS]  # all of them are looked for in the answer again
        if stops:
            body["stop"] = stops
        return body | ({"messages": [chat_message(prompt)]} if prompt.chat else {"prompt": prompt.text + prompt.begun})

    def _served_context(self) -> int:
        """The model's window as the server's list of models tells it, else a cautious guess. llama.cpp's server answers
        by another model where it has none of the name: raises UserError there."""
        http_client = _Client(timeout=self.limits())
        with openai.OpenAI(**self.settings() | {"max_retries": 0}, http_client=http_client) as client:
            try:
                models: Any = client.models.list(extra_headers=self._headers)
            except (openai.APIConnectionError, openai.AuthenticationError, openai.PermissionDeniedError) as error:
                raise self.errors.sentence(error, "/models", self.model) from error
            except openai.APIError:
                return DEFAULT_CONTEXT
        try:
            served = {name: model for model in models.data for name in (model.id, *(getattr(model, "aliases", ())))}
            if self.model not in served and any(model.owned_by == "llamacpp" for model in models.data):
                raise UserError(f"{self.url} has no model {self.model!r}: choose one of {', '.join(served)}")
            return _window(served.get(self.model))
        except NO_ANSWER:
            return DEFAULT_CONTEXT

    async def _pieces(self, events: Any) -> AsyncIterator[tuple[str, str | None, int | None]]:
        """The texts of a stream's events, each with the finish reason and the number of tokens if it tells them."""
        try:
            async for event in events:
                tokens = event.usage.completion_tokens if getattr(event, "usage", None) else None
                text, reason = _text_and_reason(event.choices[0]) if event.choices else ("", None)
                yield text, reason, tokens
        except openai.APITimeoutError as error:
            raise self.errors.sentence(error, "", "") from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            raise UserError(
                f"{self.url} broke off in the middle of an answer: look at its log and try again"
            ) from error
        except openai.APIError as error:
            said = self.errors.said(error)
            raise UserError(
                f"{self.url} failed in the middle of an answer ({said}): look at the server's log"
            ) from error
        except NO_ANSWER as error:
            raise self.errors.foreign() from error

    def _too_long(self, error: openai.APIError, prompt: Prompt) -> Completion:
        """The empty answer to a prompt that the server finds too long; any other error becomes a UserError."""
        said = self.errors.said(error)
        if getattr(error, "status_code", 0) in (400, 413, 422) and TOO_LONG.search(said):
            log.warning("%s gives no answer to a prompt that it finds too long: %s", self.url, said)
            return Completion("", 0, False)
        path = "/chat/completions" if prompt.chat else "/completions"
        raise self.errors.sentence(error, path, self.model) from error


class _Client(openai.DefaultHttpxClient):
    """A client whose read time-outs the SDK does not retry: it retries those of httpx2, but none of its own."""

    def send(self, *request: Any, **options: Any) -> httpx2.Response:
        try:
            return super().send(*request, **options)
        except httpx2.ReadTimeout as error:
            raise openai.APITimeoutError(request=request[0]) from error


class _AsyncClient(openai.DefaultAsyncHttpxClient):
    """As `_Client`."""

    async def send(self, *request: Any, **options: Any) -> httpx2.Response:
        try:
            return await super().send(*request, **options)
        except httpx2.ReadTimeout as error:
            raise openai.APITimeoutError(request=request[0]) from error


def _endpoint(client: openai.OpenAI | openai.AsyncOpenAI, prompt: Prompt) -> Any:
    return client.chat.completions if prompt.chat else client.completions


def _window(served: Any) -> int:
    """The tokens that a model takes, by its entry in a server's list: vLLM, others, llama.cpp (for each slot)."""
    meta = getattr(served, "meta", None) or {}
    tokens = getattr(served, "max_model_len", None) or getattr(served, "context_length", None) or meta.get("n_ctx")
    return int(tokens or DEFAULT_CONTEXT)


def _estimate(text: str) -> int:
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def _text_and_reason(choice: Any) -> tuple[str, str | None]:
    """The text and finish reason of a choice: chat answers hold the text in `message` or `delta`, others in `text`."""
    holder = getattr(choice, "message", None) or getattr(choice, "delta", None)
    text = holder.content if holder is not None else getattr(choice, "text", None)
    return text or "", choice.finish_reason


@dataclass(eq=False)
class _Request:
    """A prompt that the server answers, how its answer begins, and who is to hear when that has grown."""

    prompt: Prompt
    changed: Callable[[], None]
    text: str = ""
    future: Future[Completion] = field(init=False)


class _Requests:
    """The requests in flight, by the numbers of their prompts, in an event loop with a thread of its own."""

    def __init__(self, llm: OpenAILLM, max_new_tokens: int) -> None:
        self.llm, self.max_new_tokens = llm, max_new_tokens
        self.running: dict[int, _Request] = {}
        self._news = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="requests", daemon=True)
        self._client: openai.AsyncOpenAI

    def __enter__(self) -> _Requests:
        self._thread.start()
        self._client = openai.AsyncOpenAI(**self.llm.settings(), http_client=_AsyncClient(timeout=self.llm.limits()))
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        answers = asyncio.all_tasks() - {asyncio.current_task()}
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        await self._client.close()

    def send(self, number: int, prompt: Prompt) -> None:
        """Let the server answer a prompt."""
        request = self.running[number] = _Request(prompt, self._news.set)
        answer = self.llm.complete(self._client, request, self.max_new_tokens)
        request.future = asyncio.run_coroutine_threadsafe(answer, self._loop)
        request.future.add_done_callback(lambda _: self._news.set())

    def wait(self) -> None:
        """Wait until an answer has grown or ended, but not long: somebody may not want one any more."""
        self._news.wait(ASK_EVERY)
        self._news.clear()
