"""A language model behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, `transformers serve`, ...)."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx2
import openai

from rag_mt.base.defaults import LLM_CONCURRENCY, LLM_TIMEOUT
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Completion, Prompt, Watch
from rag_mt.llm.batching import in_rounds
from rag_mt.llm.server_names import PREFIX, model_and_url, warn_of_open_key
from rag_mt.llm.stopping import first_stop, safe_length

log = logging.getLogger("rag_mt")
T = TypeVar("T")

CONNECT_TIMEOUT = 10.0  # seconds
RETRIES = 5
DEFAULT_CONTEXT = 4096
BYTES_PER_TOKEN = 3
TEMPLATE_TOKENS = 16  # what a chat template adds, roughly
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
    ) -> None:
        """`name` is `openai:MODEL@URL`, or MODEL with `base_url`; `api_key` defaults to OPENAI_API_KEY; `chat` tells
        whether the model is tuned for chat; `timeout` is the seconds in which an answer (of a stream: its next piece)
        must come; `concurrency` is the number of requests in flight.

        Asks the server for its models. Raises UserError for a bad address, or a server that cannot be reached or
        refuses the key.
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
        self.has_chat_template = chat
        self.timeout, self.concurrency = timeout, concurrency
        self.fingerprint = settings_hash(["openai", self.url, self.model, "temperature 0"])
        self._key = api_key or os.environ.get("OPENAI_API_KEY") or None
        self._headers: Any = {} if self._key else {"Authorization": openai.omit}
        if self._key:
            warn_of_open_key(self.url)
        self.context_length = self._served_context()

    def count_tokens(self, prompt: Prompt) -> int:
        """An estimate: the prompt's UTF-8 bytes divided by three, rounded up, and some for a chat template."""
        count = math.ceil(len(prompt.text.encode()) / BYTES_PER_TOKEN)
        return count + TEMPLATE_TOKENS if prompt.chat else count

    def generate(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> list[Completion]:
        """One completion per prompt, in order. Answers arrive whole; the connection of one that `watch` gives up is
        closed soon.

        A prompt that the server finds too long is answered with an empty unfinished completion and a warning.
        Raises UserError when the server refuses a request or stays unreachable; the other requests are then cancelled.
        """
        return _run(self._generate(prompts, max_new_tokens, watch))

    def answer(
        self, more: Callable[[int], Sequence[Prompt]], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> Iterator[tuple[int, Completion]]:
        """Completions of prompts that come on the way, numbered from 0: as many at once as there may be requests."""
        yield from in_rounds(self.generate, more, self.concurrency, max_new_tokens, watch)

    def stream(self, prompt: Prompt, max_new_tokens: int = 256) -> Generator[str, None, Completion]:
        """Pieces of the completion as the server sends them; closing the generator closes the connection. The return
        value is the completion, with an estimate of its tokens."""
        text, given, reason = "", 0, None
        with openai.OpenAI(**self._settings(), http_client=_Client(timeout=self._limits())) as client:
            try:
                events = _endpoint(client, prompt).create(**self._request(prompt, max_new_tokens), stream=True)
            except openai.APIError as error:
                return self._too_long(error, prompt)
            with events:
                for piece, ended in self._pieces(events):
                    text, reason = text + piece, ended or reason
                    at = first_stop(text, prompt.stop)
                    safe = at if at >= 0 else safe_length(text, prompt.stop)
                    if safe > given:
                        yield text[given:safe]
                        given = safe
                    if at >= 0:
                        return Completion(text[:at], _estimate(text[:at]), True, True)
        if len(text) > given:
            yield text[given:]
        return Completion(text, _estimate(text), reason == "stop")

    def _limits(self) -> httpx2.Timeout:
        return httpx2.Timeout(self.timeout, connect=min(CONNECT_TIMEOUT, self.timeout))

    def _settings(self) -> dict[str, Any]:
        return {"base_url": self.url, "api_key": self._key or "none", "max_retries": RETRIES}

    def _request(self, prompt: Prompt, limit: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "temperature": 0,
            "max_tokens": limit,
            "extra_headers": self._headers,
        }
        stops = [s for s in prompt.stop if s][:MOST_STOPS]  # all of them are looked for in the answer again
        if stops:
            body["stop"] = stops
        return body | (
            {"messages": [{"role": "user", "content": prompt.text}]} if prompt.chat else {"prompt": prompt.text}
        )

    def _served_context(self) -> int:
        """The model's window as the server's list of models tells it, else a cautious guess."""
        http_client = _Client(timeout=self._limits())
        with openai.OpenAI(**self._settings() | {"max_retries": 0}, http_client=http_client) as client:
            try:
                models: Any = client.models.list(extra_headers=self._headers)
            except (openai.APIConnectionError, openai.AuthenticationError, openai.PermissionDeniedError) as error:
                raise self._sentence(error, "/models") from error
            except openai.APIError:
                return DEFAULT_CONTEXT
        try:
            own = next(model for model in models.data if model.id == self.model)
            return int(getattr(own, "max_model_len", None) or getattr(own, "context_length", None) or DEFAULT_CONTEXT)
        except (StopIteration, *NO_ANSWER):
            return DEFAULT_CONTEXT

    async def _generate(self, prompts: Sequence[Prompt], limit: int, watch: Watch | None) -> list[Completion]:
        gate = asyncio.Semaphore(self.concurrency)
        http_client = _AsyncClient(timeout=self._limits())
        async with openai.AsyncOpenAI(**self._settings(), http_client=http_client) as client:

            async def ask(number: int, prompt: Prompt) -> Completion:
                async with gate:
                    answer = self._completion(client, prompt, limit)
                    return await (_watched(answer, number, watch) if watch else answer)

            tasks = [asyncio.ensure_future(ask(number, prompt)) for number, prompt in enumerate(prompts)]
            try:
                return list(await asyncio.gather(*tasks))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _completion(self, client: openai.AsyncOpenAI, prompt: Prompt, limit: int) -> Completion:
        try:
            answer = await _endpoint(client, prompt).create(**self._request(prompt, limit))
        except openai.APIError as error:
            return self._too_long(error, prompt)
        try:
            text, reason = _text_and_reason(answer.choices[0])
            tokens = answer.usage.completion_tokens if answer.usage else None
        except NO_ANSWER as error:
            raise self._foreign() from error
        at = first_stop(text, prompt.stop)
        text = text[:at] if at >= 0 else text
        return Completion(text, _estimate(text) if tokens is None else tokens, at >= 0 or reason == "stop", at >= 0)

    def _pieces(self, events: Any) -> Iterator[tuple[str, str | None]]:
        """The texts of a stream's events, each with the finish reason if it tells one."""
        try:
            for event in events:
                if event.choices:
                    yield _text_and_reason(event.choices[0])
        except openai.APITimeoutError as error:
            raise self._sentence(error, "") from error
        except (openai.APIConnectionError, httpx2.TransportError) as error:
            raise UserError(
                f"{self.url} broke off in the middle of an answer: look at its log and try again"
            ) from error
        except openai.APIError as error:
            said = self._explanation(error)
            raise UserError(
                f"{self.url} failed in the middle of an answer ({said}): look at the server's log"
            ) from error
        except NO_ANSWER as error:
            raise self._foreign() from error

    def _too_long(self, error: openai.APIError, prompt: Prompt) -> Completion:
        """The empty answer to a prompt that the server finds too long; any other error becomes a UserError."""
        said = self._explanation(error)
        if getattr(error, "status_code", 0) in (400, 413, 422) and TOO_LONG.search(said):
            log.warning("%s gives no answer to a prompt that it finds too long: %s", self.url, said)
            return Completion("", 0, False)
        raise self._sentence(error, "/chat/completions" if prompt.chat else "/completions") from error

    def _explanation(self, error: openai.APIError) -> str:
        """The server's own explanation, in one line of at most 200 characters, without the API key."""
        body: Any = error.body
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body
        text = " ".join(str(body or "").split())
        return (text.replace(self._key, "[key]") if self._key else text).rstrip(".")[:200] or "no explanation"

    def _sentence(self, error: openai.APIError, path: str) -> UserError:
        """What an error that stays means to the user."""
        if isinstance(error, openai.APIStatusError):
            return self._refusal(error, path)
        if isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout):
            return UserError(
                f"no server answers at {self.url}: start it or check the address with `curl {self.url}/models`"
            )
        if isinstance(error, openai.APITimeoutError):
            return UserError(
                f"{self.url} did not answer in {self.timeout:g} seconds: give it more with --llm-timeout, or less at "
                "once with --llm-concurrency"
            )
        if isinstance(error, openai.APIConnectionError):
            return UserError(
                f"{self.url} broke off the connection: look at the server's log, then run the same command again"
            )
        return self._foreign()

    def _refusal(self, error: openai.APIStatusError, path: str) -> UserError:
        status, said, url = error.status_code, self._explanation(error), self.url
        if status in (401, 403):
            return UserError(f"{url} refuses access ({status}: {said}): set OPENAI_API_KEY to a key that it accepts")
        if status == 404 and "model" in said.lower():
            return UserError(f"{url} has no model {self.model!r} ({said}): choose one that `curl {url}/models` lists")
        if status == 404 and path == "/completions":
            return UserError(
                f"{url} has no /completions, which prompts without a chat template need: check that the address ends "
                "where the server's API begins (often /v1), or use the prompt style chat"
            )
        if status == 404:
            return UserError(
                f"{url} has no {path} for the model {self.model!r} ({said}): check the model's name and that the "
                "address ends where the server's API begins (often /v1)"
            )
        if status in (408, 409, 429) or status >= 500:
            attempts = int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
            return UserError(f"{url} still answers {status} ({said}) after {attempts} attempts: try again later")
        return UserError(
            f"{url} refuses the request for {self.model!r} ({status}: {said}): check the model and its settings"
        )

    def _foreign(self) -> UserError:
        return UserError(
            f"{self.url} answers, but not as an OpenAI-compatible server does: check the address (often /v1)"
        )


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


async def _watched(answer: Coroutine[Any, Any, Completion], number: int, watch: Watch) -> Completion:
    """The answer, or an empty unfinished one as soon as nobody wants it."""
    task = asyncio.ensure_future(answer)
    try:
        while watch(number, ""):
            done, _ = await asyncio.wait({task}, timeout=ASK_EVERY)
            if done:
                watch(number, task.result().text)
                return task.result()
        return Completion("", 0, False)
    finally:
        task.cancel()


def _endpoint(client: openai.OpenAI | openai.AsyncOpenAI, prompt: Prompt) -> Any:
    return client.chat.completions if prompt.chat else client.completions


def _estimate(text: str) -> int:
    return math.ceil(len(text.encode()) / BYTES_PER_TOKEN)


def _text_and_reason(choice: Any) -> tuple[str, str | None]:
    """The text and finish reason of a choice: chat answers hold the text in `message` or `delta`, others in `text`."""
    holder = getattr(choice, "message", None) or getattr(choice, "delta", None)
    text = holder.content if holder is not None else getattr(choice, "text", None)
    return text or "", choice.finish_reason


def _run(job: Coroutine[Any, Any, T]) -> T:
    """Run `job` to its end, in a thread of its own where an event loop runs already (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(job)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, job).result()
