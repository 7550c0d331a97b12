"""Requests to a model server: what is tried again, after how long, and what a failure means to the user."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from rag_mt.errors import UserError

ATTEMPTS = 6
FIRST_DELAY, LONGEST_DELAY = 0.5, 60.0  # seconds
TIMEOUT = httpx.Timeout(120.0, connect=10.0)
PASSING = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Status codes that a later attempt may not meet again."""


def delay(attempt: int, headers: Mapping[str, str] | None = None) -> float:
    """Seconds to wait after failed attempt number `attempt` (0-based): what the server asks for in Retry-After, else
    doubling from half a second with up to half as much again at random, so that clients do not return together."""
    asked = _retry_after(headers.get("retry-after", "") if headers else "")
    if asked is not None:
        return min(max(asked, 0.0), LONGEST_DELAY)
    return min(FIRST_DELAY * 2.0**attempt, LONGEST_DELAY) * random.uniform(1.0, 1.5)


def _retry_after(value: str) -> float | None:
    """The seconds that a Retry-After header names, as a number or as a date (RFC 9110, section 10.2.3)."""
    try:
        return float(value)
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds()


def explanation(response: httpx.Response, key: str | None) -> str:
    """The server's own explanation, in one line of at most 200 characters, without the API key."""
    try:
        return message_in(response.json(), key)
    except ValueError:
        return message_in(response.text, key)


def message_in(body: Any, key: str | None) -> str:
    """The message in an error that a server sent, as `explanation` gives it."""
    found = body.get("error", body.get("detail", body)) if isinstance(body, dict) else body
    text = " ".join(str(found.get("message", found) if isinstance(found, dict) else found).split())
    return (text.replace(key, "[key]") if key else text).rstrip(".")[:200] or "no explanation"


def refused(response: httpx.Response, url: str, model: str, path: str, key: str | None) -> UserError:
    """The sentence for a response that no further attempt would change."""
    status = response.status_code
    reason = explanation(response, key)
    if status in (401, 403):
        return UserError(f"{url} refuses access ({status}: {reason}): set OPENAI_API_KEY to a key that it accepts")
    if status == 404 and "model" in reason.lower():
        return UserError(f"{url} has no model {model!r} ({reason}): choose one that `curl {url}/models` lists")
    if status == 404 and path == "/completions":
        return UserError(
            f"{url} has no /completions, which prompts without a chat template need: check that the address ends where "
            "the server's API begins (often /v1), or use the prompt style chat"
        )
    if status == 404:
        return UserError(
            f"{url} has no {path} for the model {model!r} ({reason}): check the model's name and that the address ends "
            "where the server's API begins (often /v1)"
        )
    if status in PASSING:
        return UserError(f"{url} still answers {status} ({reason}) after {ATTEMPTS} attempts: try again later")
    return UserError(f"{url} refuses the request for {model!r} ({status}: {reason}): check the model and its settings")


def unreachable(error: httpx.HTTPError, url: str) -> UserError:
    """The sentence for a server that gave no response."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return UserError(f"no server answers at {url}: start it or check the address with `curl {url}/models`")
    what = "did not answer in time" if isinstance(error, httpx.TimeoutException) else "broke off the connection"
    return UserError(f"{url} {what}: look at the server's log, then run the same command again")
