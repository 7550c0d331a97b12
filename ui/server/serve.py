"""`rag-mt serve`: the HTTP API on this machine."""

from __future__ import annotations

import argparse
import ipaddress
import socket
from pathlib import Path

from rag_mt.base.console import (
    OK,
    add_away_option,
    add_engine_option,
    add_model_options,
    add_server_options,
    note,
    positive,
)
from rag_mt.base.errors import UserError
from ui.server.limits import Limits

DESCRIPTION = """Answer translation requests over HTTP, by LibreTranslate's contract, until it is stopped with Ctrl-C.

`GET /docs` of the server describes its requests; models are loaded at the first one that needs them."""
EXAMPLES = (
    "--languages de,en",
    "--host 0.0.0.0 --api-keys keys.txt --limit text_chars=5000",
    "--index my-index --port 5001",
)
NEEDED = "the server needs packages that are not installed: pip install 'rag-mt[serve]'"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine only)")
    add("--port", type=port, default=5000, help="port to listen at")
    add("--api-keys", metavar="FILE", help="keys, one a line; requests must carry one of them (default: none needed)")
    add("--cors", action="append", default=[], metavar="ORIGIN", help="origin whose pages may ask; may be repeated")
    add("--patience", type=positive, default=10, metavar="S", help="seconds to finish in when it is stopped")
    add_service_options(parser, "the cache")


def add_service_options(
    parser: argparse.ArgumentParser, data: str, index: str = "none; the sample index where hints are asked for"
) -> None:
    """The options of models, languages and limits, shared with the demo; `data` says where users' indexes are kept,
    `index` which one is searched by default."""
    add = parser.add_argument
    add("--languages", default="", metavar="LIST", help="languages to offer, such as de,en (default: en and WMT16's)")
    add("--index", default="", metavar="DIR", help=f"index to search for its language (default: {index})")
    add_away_option(parser)
    llm_help = "language model, as for rag-mt translate; of several, users choose: the first is the default"
    add("--llm", action="append", default=[], metavar="ID", help=llm_help)
    adapter_help = "PEFT adapter, auto (ours) or none; of several, users choose: the first is the default"
    add("--adapter", action="append", default=[], metavar="DIR", help=adapter_help)
    instruction_help = "text that goes along with every prompt, for a target language if LANG=FILE; may be repeated"
    add("--instruction", action="append", default=[], metavar="FILE", help=instruction_help)
    add_server_options(parser)
    add("--wrapper", default="auto", help="prompt family")
    add("--quantization", default="none", help="none, 8bit or 4bit (needs CUDA and bitsandbytes)")
    add("--allowed-host", action="append", default=[], metavar="NAME", help="further name that the server is called by")
    add("--data", metavar="DIR", help=f"folder for the indexes that users build (default: {data})")
    add("--limit", action="append", default=[], metavar="NAME=N", help=f"change a limit: {', '.join(vars(Limits()))}")
    add_model_options(parser)
    add_engine_option(parser)


def port(text: str) -> int:
    """An argparse type: a port number."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: expected a number from 0 to 65535")
    return int(text)


def serve(options: argparse.Namespace) -> int:
    """Answer translation requests over HTTP, by LibreTranslate's contract, until it is interrupted."""
    try:
        import uvicorn

        from ui.server.api import make_app
        from ui.server.limits import Keys, read_keys
        from ui.server.metrics import Metrics
        from ui.server.service import service_with
    except ModuleNotFoundError as error:
        raise UserError(f"{NEEDED} ({error.name} is missing)") from error
    from rag_mt.base.files import cache_dir

    keys = Keys(read_keys(Path(options.api_keys)) if options.api_keys else ())
    metrics = Metrics()
    service = service_with(options, cache_dir() / "server", metrics.observe)
    app = make_app(
        service,
        metrics=metrics,
        keys=keys,
        cors=options.cors,
        hosts=allowed_hosts(options.host, options.allowed_host),
        patience=options.patience,
    )
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=options.patience, server_header=False, access_log=False
    )
    try:
        with listening(options.host, options.port) as server_socket:
            host = f"[{options.host}]" if ":" in options.host else options.host
            at = server_socket.getsockname()[1]
            note(f"rag-mt: listening at http://{host}:{at} (docs at /docs); stop with Ctrl-C")
            uvicorn.Server(config).run(sockets=[server_socket])
    finally:
        service.close(0)  # where the application has not done so
    return OK


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens at an address; raises UserError if it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise UserError(
            f"cannot listen at {host} port {port} ({error.strerror or error}): give another --host or --port"
        ) from error


def allowed_hosts(host: str, more: list[str]) -> list[str]:
    """The names that requests may call the server by: a server of this machine only is not to be reached through a
    name that some page on the web gave it."""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    return ["localhost", "127.0.0.1", "[::1]", "::1", host, *more] if local else ["*"]
