"""Which model and server the name `openai:MODEL@URL` means, and whether a key may go there."""

from __future__ import annotations

import ipaddress
import logging
import re
from functools import lru_cache
from urllib.parse import urlsplit

from rag_mt.base.errors import UserError

log = logging.getLogger("rag_mt")

PREFIX = "openai:"


def model_and_url(name: str, base_url: str | None) -> tuple[str, str]:
    """The model and the address of its server, without a slash at the end; raises UserError for a name without a model
    or an address, or an address that is none or holds a password."""
    model, url = name.removeprefix(PREFIX), base_url
    if url is None:
        parts = re.fullmatch(r"(.+?)@(https?://.+)", model)
        if parts is None:
            example = f"{PREFIX}{model or 'MODEL'}@http://localhost:8000/v1"
            raise UserError(f"{name!r} names no server: write {PREFIX}MODEL@URL, such as {example}")
        model, url = parts[1], parts[2]
    if not re.match(r"https?://[^/\s]", url):
        raise UserError(f"{url!r} is no address of a server: give one such as http://localhost:8000/v1")
    if "@" in url.split("://", 1)[1].split("/", 1)[0]:
        raise UserError(
            "the server's address holds a user name or password: leave it out and set OPENAI_API_KEY instead"
        )
    if not model.strip():
        raise UserError(f"{name!r} names no model: write {PREFIX}MODEL@URL")
    return model.strip(), url.rstrip("/")


@lru_cache(256)
def warn_of_open_key(url: str) -> None:
    """Warn, once for each address, that a key sent there can be read on its way: plain http to another machine."""
    if url.startswith("http://") and not _is_this_machine(urlsplit(url).hostname or ""):
        log.warning("the API key is sent to %s without encryption: use https, or unset OPENAI_API_KEY", url)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
