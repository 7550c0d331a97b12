"""A language model behind an OpenAI-compatible server (vLLM, llama.cpp, Ollama, `transformers serve`, ...)."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import re
import time
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

from rag_mt.errors import UserError
from rag_mt.fingerprints import settings_hash
from rag_mt.llm.batching import in_rounds
from rag_mt.llm.retries import ATTEMPTS, PASSING, TIMEOUT, delay, explanation, message_in, refused, unreachable
from rag_mt.llm.stopping import first_stop, safe_length
from rag_mt.types import Completion, Prompt, Watch

log = logging.getLogger("rag_mt")
T = TypeVar("T")

PREFIX = "openai:"
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


class OpenAILLM:
    """A served model as a `LanguageModel`.

    Token counts are estimated as one per three bytes of UTF-8, because a server does not show its tokenizer; that
    is more than common tokenizers make of running text. Equal weights on the server are taken on trust:
    `fingerprint` covers its address, the model's name and the settings sent. The API key appears in no message.
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
        concurrency: int = 8,
    ) -> None:
        """`name` is `openai:MODEL@URL`, or MODEL with `base_url`; `api_key` defaults to OPENAI_API_KEY; `chat` tells
        whether the model is tuned for chat; `concurrency` is the number of requests in flight.

        Asks the server for its models. Raises UserError for a bad address, or a server that cannot be reached or
        refuses the key.
        """
        if adapter:
            raise UserError(
                f"the adapter {adapter} cannot be sent to a server: load it there and name the model it gives"
            )
        self.model, self.url = _model_and_url(name, base_url)
        self.id = f"{PREFIX}{self.model}@{self.url}"
        self.has_chat_template = chat
        self.concurrency = concurrency
        self.fingerprint = settings_hash(["openai", self.url, self.model, "temperature 0"])
        self._key = api_key or os.environ.get("OPENAI_API_KEY") or None
        self._headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
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
        path, body = self._request(prompt, max_new_tokens)
        text, given, ended = "", 0, None
        with httpx.Client(headers=self._headers, timeout=TIMEOUT) as client:
            for piece, reason in self._pieces(client, path, {**body, "stream": True}):
                text += piece
                ended = reason or ended
                at = first_stop(text, prompt.stop)
                safe = at if at >= 0 else safe_length(text, prompt.stop)
                if safe > given:
                    yield text[given:safe]
                    given = safe
                if at >= 0:
                    return Completion(text[:at], self.count_tokens(Prompt(text[:at])), True, True)
        if len(text) > given:
            yield text[given:]
        return Completion(text, self.count_tokens(Prompt(text)), ended == "stop")

    def _served_context(self) -> int:
        """The model's window as the server's list of models tells it, else a cautious guess."""
        with httpx.Client(headers=self._headers, timeout=TIMEOUT) as client:
            try:
                response = client.get(f"{self.url}/models")
            except httpx.InvalidURL as error:
                raise UserError(
                    f"{self.url!r} is no address of a server: give one such as http://localhost:8000/v1"
                ) from error
            except httpx.HTTPError as error:
                raise unreachable(error, self.url) from error
        if response.status_code in (401, 403):
            raise refused(response, self.url, self.model, "/models", self._key)
        try:
            entries = response.json()["data"]
            own = next(entry for entry in entries if entry["id"] == self.model)
            return int(own.get("max_model_len") or own.get("context_length") or DEFAULT_CONTEXT)
        except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
            return DEFAULT_CONTEXT

    def _request(self, prompt: Prompt, limit: int) -> tuple[str, dict[str, Any]]:
        body: dict[str, Any] = {"model": self.model, "temperature": 0, "max_tokens": limit}
        stops = [s for s in prompt.stop if s][:MOST_STOPS]  # all of them are looked for in the answer again
        if stops:
            body["stop"] = stops
        if prompt.chat:
            return "/chat/completions", {**body, "messages": [{"role": "user", "content": prompt.text}]}
        return "/completions", {**body, "prompt": prompt.text}

    async def _generate(self, prompts: Sequence[Prompt], limit: int, watch: Watch | None) -> list[Completion]:
        gate = asyncio.Semaphore(self.concurrency)
        connections = httpx.Limits(max_connections=self.concurrency)
        async with httpx.AsyncClient(headers=self._headers, timeout=TIMEOUT, limits=connections) as client:

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

    async def _completion(self, client: httpx.AsyncClient, prompt: Prompt, limit: int) -> Completion:
        path, body = self._request(prompt, limit)
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            headers = None
            try:
                response = await client.post(self.url + path, json=body)
            except httpx.TransportError as error:
                if last:
                    raise unreachable(error, self.url) from error
            else:
                if response.is_success:
                    return self._read(response, prompt)
                if self._finds_too_long(response):
                    return Completion("", 0, False)
                if last or response.status_code not in PASSING:
                    raise refused(response, self.url, self.model, path, self._key)
                headers = response.headers
            await asyncio.sleep(delay(attempt, headers))
        raise AssertionError("the last attempt returns or raises")

    def _read(self, response: httpx.Response, prompt: Prompt) -> Completion:
        try:
            body = response.json()
            text, reason = _text_and_reason(body["choices"][0], "message")
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise self._foreign() from error
        at = first_stop(text, prompt.stop)
        text = text[:at] if at >= 0 else text
        estimate = math.ceil(len(text.encode()) / BYTES_PER_TOKEN)
        tokens = (body.get("usage") or {}).get("completion_tokens")
        return Completion(text, estimate if tokens is None else int(tokens), at >= 0 or reason == "stop", at >= 0)

    def _pieces(self, client: httpx.Client, path: str, body: dict[str, Any]) -> Iterator[tuple[str, str | None]]:
        """The texts of a streamed response, its finish reason at last; asked again only before its first line."""
        for attempt in range(ATTEMPTS):
            last = attempt == ATTEMPTS - 1
            headers = None
            try:
                with client.stream("POST", self.url + path, json=body) as response:
                    if response.is_success:
                        yield from self._events(response)
                        return
                    response.read()
                    if self._finds_too_long(response):
                        return
                    if last or response.status_code not in PASSING:
                        raise refused(response, self.url, self.model, path, self._key)
                    headers = response.headers
            except httpx.TransportError as error:
                if last:
                    raise unreachable(error, self.url) from error
            time.sleep(delay(attempt, headers))

    def _events(self, response: httpx.Response) -> Iterator[tuple[str, str | None]]:
        """The texts of server-sent events up to `[DONE]`."""
        try:
            for line in response.iter_lines():
                data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
                if data == "[DONE]":
                    return
                event = json.loads(data) if data else {}
                if event.get("error"):
                    said = message_in(event, self._key)
                    raise UserError(f"{self.url} failed in the middle of an answer ({said}): look at the server's log")
                if event.get("choices"):
                    yield _text_and_reason(event["choices"][0], "delta")
        except httpx.TransportError as error:
            raise UserError(
                f"{self.url} broke off in the middle of an answer: look at its log and try again"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._foreign() from error

    def _finds_too_long(self, response: httpx.Response) -> bool:
        said = explanation(response, self._key)
        long = response.status_code in (400, 413, 422) and bool(TOO_LONG.search(said))
        if long:
            log.warning("%s gives no answer to a prompt that it finds too long: %s", self.url, said)
        return long

    def _foreign(self) -> UserError:
        return UserError(
            f"{self.url} answers, but not as an OpenAI-compatible server does: check the address (often /v1)"
        )


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


def _model_and_url(name: str, base_url: str | None) -> tuple[str, str]:
    model, url = name.removeprefix(PREFIX), base_url
    if url is None:
        found = re.fullmatch(r"(.+?)@(https?://.+)", model)
        if found is None:
            example = f"{PREFIX}{model or 'MODEL'}@http://localhost:8000/v1"
            raise UserError(f"{name!r} names no server: write {PREFIX}MODEL@URL, such as {example}")
        model, url = found[1], found[2]
    if not re.match(r"https?://[^/\s]", url):
        raise UserError(f"{url!r} is no address of a server: give one such as http://localhost:8000/v1")
    if "@" in url.split("://", 1)[1].split("/", 1)[0]:
        raise UserError(
            "the server's address holds a user name or password: leave it out and set OPENAI_API_KEY instead"
        )
    return model, url.rstrip("/")


def _text_and_reason(choice: dict[str, Any], holder: str) -> tuple[str, str | None]:
    """The text and finish reason of a choice: chat answers hold the text in `message` or `delta`, others in `text`."""
    held = choice.get(holder)
    text = held.get("content") if isinstance(held, dict) else choice.get("text")
    return text or "", choice.get("finish_reason")


def _run(job: Coroutine[Any, Any, T]) -> T:
    """Run `job` to its end, in a thread of its own where an event loop runs already (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(job)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, job).result()
