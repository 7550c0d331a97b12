"""What the errors of a model server mean to users, in one sentence each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from rag_mt.base.errors import UserError


@dataclass(frozen=True)
class ServerErrors:
    """The errors of the server at `url`; `key` appears in none of their sentences."""

    url: str
    timeout: float
    key: str | None

    def said(self, error: openai.APIError) -> str:
        """The server's own explanation, in one line of at most 200 characters, without the API key."""
        body: Any = error.body
        if isinstance(body, dict):
            body = body.get("message") or body.get("detail") or body
        text = " ".join(str(body or "").split())
        return (text.replace(self.key, "[key]") if self.key else text).rstrip(".")[:200] or "no explanation"

    def sentence(self, error: openai.APIError, path: str, model: str) -> UserError:
        """What an error that stays means to the user who asked `model` at a path."""
        if isinstance(error, openai.APIStatusError):
            return self._refusal(error, path, model)
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
        return self.foreign()

    def _refusal(self, error: openai.APIStatusError, path: str, model: str) -> UserError:
        status, said, url = error.status_code, self.said(error), self.url
        if status in (401, 403):
            return UserError(f"{url} refuses access ({status}: {said}): set OPENAI_API_KEY to a key that it accepts")
        if status == 404 and "model" in said.lower():
            return UserError(f"{url} has no model {model!r} ({said}): choose one that `curl {url}/models` lists")
        if status == 404 and path == "/completions":
            return UserError(
                f"{url} has no /completions, which prompts without a chat template need: check that the address ends "
                "where the server's API begins (often /v1), or use the prompt style chat"
            )
        if status == 404:
            return UserError(
                f"{url} has no {path} for the model {model!r} ({said}): check the model's name and that the "
                "address ends where the server's API begins (often /v1)"
            )
        if status in (408, 409, 429) or status >= 500:
            attempts = int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
            return UserError(f"{url} still answers {status} ({said}) after {attempts} attempts: try again later")
        return UserError(
            f"{url} refuses the request for {model!r} ({status}: {said}): check the model and its settings"
        )

    def foreign(self) -> UserError:
        """What an answer that has not the protocol's fields means."""
        return UserError(
            f"{self.url} answers, but not as an OpenAI-compatible server does: check the address (often /v1)"
        )
