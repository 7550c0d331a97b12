"""What every route asks of a request: the service behind it, its owner and its client; and how errors are described."""

from __future__ import annotations

import ipaddress
from typing import Any

from fastapi import Request

from ui.server.access import AccessError
from ui.server.bodies import ErrorAnswer
from ui.server.service import Service

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorAnswer, "description": "The request cannot be answered as it is"},
    401: {"model": ErrorAnswer, "description": "An API key is needed"},
    403: {"model": ErrorAnswer, "description": "The API key is not known"},
    404: {"model": ErrorAnswer, "description": "There is none of that id that is yours"},
    413: {"model": ErrorAnswer, "description": "The body is too large"},
    429: {"model": ErrorAnswer, "description": "Too much at once: try again after `Retry-After` seconds"},
    500: {"model": ErrorAnswer, "description": "A fault of the server"},
    503: {"model": ErrorAnswer, "description": "The server translates nothing until it is started again"},
}


def service_of(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


def owner_of(request: Request, key: str) -> str:
    """The owner whose key a request carries; raises AccessError for a wrong key, BusyError for too many requests."""
    keys, pace = request.app.state.keys, request.app.state.pace
    address = client_of(request)
    try:
        owner: str = keys.owner(key or bearer_of(request))
    except AccessError:
        pace.ask(address)  # nobody is to try many keys
        raise
    pace.ask(owner if keys.needed else address)
    return owner


def client_of(request: Request) -> str:
    """Where a request comes from: its address, or the network of 2^64 addresses that an IPv6 client has for itself."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a socket file, say
        return host
    if address.version == 4 or address.ipv4_mapped:
        return host
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def bearer_of(request: Request) -> str:
    """The key in the header of a request, or an empty text."""
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""
