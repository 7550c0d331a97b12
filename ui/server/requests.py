"""What every route reads of a request: the service behind it, its owner and client, and the fields of its body."""

from __future__ import annotations

import ipaddress
import json
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Query, Request
from pydantic import BaseModel, ValidationError

from rag_mt.base.errors import UserError
from ui.server.bodies import HintOptions, KeyedBody
from ui.server.limits import AccessError
from ui.server.service import Service

Body = TypeVar("Body", bound=KeyedBody)

FORM, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"


async def service_of(request: Request) -> Service:
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


async def _owner_by_query(
    request: Request, api_key: Annotated[str, Query(description="Needed where the server has keys")] = ""
) -> str:
    return owner_of(request, api_key)


ServiceOf = Annotated[Service, Depends(service_of)]
Owner = Annotated[str, Depends(_owner_by_query)]
"""The owner whose key stands in the query or the header."""


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


async def body_of(request: Request, kind: type[Body]) -> tuple[Body, str]:
    """The body of a request and its owner; raises UserError for what is wrong, and as `owner_of`."""
    body = checked(kind, await fields_of(request))
    return body, owner_of(request, body.api_key)


async def fields_of(request: Request) -> dict[str, Any]:
    """The fields of a request: query, then JSON object or form on top. Several form fields of a name are a list; fields
    that are null are left out. Raises UserError for a body that is none of these."""
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    fields = form_fields(request.query_params)
    if media in (FORM, MULTIPART):
        async with request.form(max_files=0) as form:
            return fields | form_fields(form)
    if body := await request.body():
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            raise UserError('the body is no JSON: expected an object such as {"q": "..."}, or a form') from None
        if not isinstance(content, dict):
            raise UserError('the body is JSON but no object: expected one such as {"q": "..."}')
        fields |= {name: value for name, value in content.items() if value is not None}
    return fields


def form_fields(form: Any, empty: bool = True) -> dict[str, Any]:
    """The text fields of a form or query, also those that are `empty`; several of a name are a list."""
    lists = {
        name: [value for value in form.getlist(name) if isinstance(value, str) and (value or empty)]
        for name in dict.fromkeys(form.keys())
    }
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items() if values}


def checked(kind: type[Body], fields: dict[str, Any]) -> Body:
    """The body that the fields are; raises UserError for the first one that is missing or wrong."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first, *more = error.errors(include_url=False)
        field = str(first["loc"][0])
        option = str(first["loc"][-1]) if field == "hints" and len(first["loc"]) > 2 else ""
        if first["type"] == "missing":
            raise UserError(f"Invalid request: missing {field} parameter") from None
        if first["type"] == "extra_forbidden":
            raise UserError(f"Invalid request: {field} has no {_shown(option)}: expected {HINTS}") from None
        expected = [e["msg"].removeprefix("Input should be ") for e in (first, *more) if e["loc"][0] == field]
        if field == "hints":
            expected = [_range(option) if option else f"true, false or {HINTS}"]
        name = f"{field}.{option}" if option else field
        raise UserError(
            f"Invalid request: {name} is {_shown(first['input'])}: expected {' or '.join(expected)}"
        ) from None


HINTS = "an object with " + " and ".join(HintOptions.model_fields)


def _range(option: str) -> str:
    """What an option of the hints may be, in words."""
    schema = HintOptions.model_json_schema()["properties"][option]
    number = "a whole number" if schema["type"] == "integer" else "a number"
    return f"{number} from {schema['minimum']:g} to {schema['maximum']:g}"


def _shown(value: Any) -> str:
    """The beginning of a value of a request, as JSON."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def check_unicode(*texts: str) -> None:
    """Raise UserError for halves of characters, which JSON can spell and nothing can write."""
    if any("\ud800" <= c <= "\udfff" for text in texts if not text.isascii() for c in text):
        raise UserError("Invalid request: the text holds half of a surrogate pair: send valid Unicode")


def described(kind: type[BaseModel], *media: str) -> dict[str, Any]:
    """OpenAPI's description of a body in one of the media types, by default those that `fields_of` reads."""
    content = {name: {"schema": kind.model_json_schema()} for name in media or ("application/json", FORM)}
    return {"requestBody": {"required": True, "content": content}}
