"""Who may ask a server that many share, how often and how much, and the errors that say so."""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError

ANONYMOUS = "anonymous"
KNOWN_CLIENTS = 10_000
SLACK = 65_536
"""Bytes of a body beside its texts or files."""
BYTES_PER_CHARACTER = 12
"""The most that JSON or a form needs for one character."""
MOST_FILES = 20


class LimitError(UserError):
    """More was asked for than is allowed: less of it may work."""


class TooLargeError(LimitError):
    """An upload has more bytes than are allowed."""

    status = 413


class MissingError(UserError):
    """There is nothing of that id that belongs to the one who asks."""

    status = 404


class BusyError(UserError):
    """The server has enough to do: the same may work `retry_after` seconds later."""

    status = 429

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class StoppedError(UserError):
    """The server cannot translate any more until it is started again."""

    status = 503


class AccessError(UserError):
    """A key is missing (status 401) or wrong (403)."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Limits:
    """Numbers that the operator can change.

    Characters of all texts of a request (`text_chars`) and their number (`texts`); bytes of a file to translate and of
    the files of one glossary (`file_bytes`), and of the files of one index (`index_bytes`); `requests` of one client in
    a minute; `indexes` and `documents`, running or finished, of one owner (for clients of the API without a key: from
    one address), `all_indexes` and `all_documents` of all; texts that wait (`queue`); sentences that a model reads at
    once (`batch`); `translators` and `llms` that stay in memory.
    """

    text_chars: int = 5000
    texts: int = 50
    file_bytes: int = 2_000_000
    index_bytes: int = 20_000_000
    requests: int = 3000
    indexes: int = 5
    all_indexes: int = 100
    documents: int = 5
    all_documents: int = 50
    queue: int = 64
    batch: int = 16
    translators: int = 24
    llms: int = 6

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 1:
                raise UserError(f"limit {name} is {value}: expected a whole number of at least 1")

    def check_texts(self, texts: Sequence[str]) -> None:
        """Raise LimitError if a request has too many or too long texts."""
        if len(texts) > self.texts:
            raise LimitError(
                f"the request has {len(texts)} texts and at most {self.texts} are allowed: send fewer at once"
            )
        chars = sum(map(len, texts))
        if chars > self.text_chars:
            raise LimitError(
                f"the text has {chars} characters and at most {self.text_chars} are allowed: "
                "shorten it or send it as a file"
            )

    def check_file(self, size: int, most: int | None = None) -> None:
        """Raise LimitError if a file (or the files of an index, with `index_bytes`) has too many bytes."""
        most = self.file_bytes if most is None else most
        if size > most:
            raise TooLargeError(f"the upload has {size} bytes and at most {most} are allowed: split it")


def limits_of(texts: Sequence[str]) -> Limits:
    """The limits with changes such as `text_chars=2000`; raises UserError for another name or value."""
    names = [f.name for f in fields(Limits)]
    changes: dict[str, int] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in names or not value.isdecimal():
            raise UserError(f"--limit {text!r} changes nothing: expected NAME=NUMBER with one of {', '.join(names)}")
        changes[name] = int(value)
    return Limits(**changes)


class Keys:
    """API keys, kept as hashes; without any everybody may ask and is the same owner."""

    def __init__(self, keys: Sequence[str] = ()) -> None:
        self._owners = {_digest(key): f"key {_digest(key)[:16]}" for key in keys}

    @property
    def needed(self) -> bool:
        """Whether requests need a key."""
        return bool(self._owners)

    def owner(self, key: str) -> str:
        """The owner that a key stands for; raises AccessError if a key is needed and it is none of them."""
        if not self._owners:
            return ANONYMOUS
        if not key:
            raise AccessError("an API key is needed: send it as api_key or as `Authorization: Bearer KEY`", 401)
        owner = self._owners.get(_digest(key))  # hashes: how long it takes says nothing about the keys
        if owner is None:
            raise AccessError("the API key is not known: check it", 403)
        return owner


def read_keys(path: Path) -> list[str]:
    """The keys of a file, one a line; `#` begins a comment. Raises UserError if there is none."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise UserError(f"the file of API keys {path} cannot be read ({error}): give a text file") from error
    keys = [line.partition("#")[0].strip() for line in lines]
    if not any(keys):
        raise UserError(f"the file of API keys {path} holds no key: write one a line")
    return [key for key in keys if key]


class Pace:
    """At most so many requests of each client in a minute, evenly filled up."""

    def __init__(self, per_minute: int) -> None:
        self._most = per_minute
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests that are left, and when

    def ask(self, client: str) -> None:
        """Count a request; raises BusyError if it is one too many."""
        now = time.monotonic()
        left, then = self._clients.pop(client, (float(self._most), now))
        left = min(self._most, left + (now - then) * self._most / 60)
        self._clients[client] = (left - 1 if left >= 1 else left, now)
        if len(self._clients) > KNOWN_CLIENTS:
            self._clients.popitem(last=False)
        if left < 1:
            seconds = math.ceil((1 - left) * 60 / self._most)
            raise BusyError(f"more than {self._most} requests in a minute: try again in {seconds} seconds", seconds)


class Bodies:
    """ASGI middleware that answers 413 as soon as a body proves to be larger than its route can use. Whoever is
    answered before all of the body has come is cut off: what is still coming would be read to its end."""

    def __init__(self, app: Any, limits: Limits) -> None:
        self._app = app
        self._text = BYTES_PER_CHARACTER * limits.text_chars + SLACK
        sizes = {"/translate_file": limits.file_bytes, "/glossary": limits.file_bytes, "/index": limits.index_bytes}
        self._uploads = {route: size + SLACK for route, size in sizes.items()}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        route = scope["path"].rstrip("/")
        most = self._uploads.get("/glossary" if route.startswith("/glossary/") else route, self._text)
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        size, refused, begun = 0, False, False
        coming = length.strip(b"0") != b"" or b"transfer-encoding" in headers

        async def counted() -> Any:
            nonlocal size, refused, coming
            message = await receive()
            size += len(message.get("body", b""))
            coming = coming and message.get("more_body", False)
            if size > most:
                refused = True
                return {"type": "http.disconnect"}  # whoever reads the body stops
            return message

        async def answered(message: Any) -> None:
            nonlocal begun
            if not refused:
                begun = True
                if coming and message["type"] == "http.response.start":
                    message = {**message, "headers": [*message.get("headers", []), (b"connection", b"close")]}
                await send(message)

        if length.isdigit() and int(length) > most:
            refused = True
        else:
            try:
                await self._app(scope, counted, answered)
            except Exception:
                if not refused:
                    raise
        if refused and not begun:
            await _refuse(send, 413, f"the request has more than {most} bytes and no more are allowed: split it")


class Hosts:
    """ASGI middleware that answers 400 to calls by a name that is not in `names` (`*.x.org`: all below x.org)."""

    def __init__(self, app: Any, names: Sequence[str]) -> None:
        self._app, self._names = app, [name.lower() for name in names]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            called = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
            host = re.sub(r":\d*$", "", called)
            if not any(host == name or (name.startswith("*.") and host.endswith(name[1:])) for name in self._names):
                reason = "the server is not known by this name: use another one, or start it with --allowed-host NAME"
                await _refuse(send, 400, reason)
                return
        await self._app(scope, receive, send)


async def _refuse(send: Any, status: int, message: str) -> None:
    body = json.dumps({"error": message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [*headers, (b"connection", b"close")]})
    await send({"type": "http.response.body", "body": body})


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()
