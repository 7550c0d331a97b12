"""The translation demo in a browser: `python -m ui.demo`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from itertools import chain

from rag_mt.base.console import OK, Parser, note, run
from rag_mt.base.defaults import DEFAULT_LLM, DEFAULT_RETRIEVER
from rag_mt.base.errors import UserError
from ui.server.serve import add_service_options, allowed_hosts, port

DESCRIPTION = "Serve a page to translate in, which shows the hints of every sentence, until it is stopped with Ctrl-C."
EXAMPLES = ("", "--languages de,en --index my-index", "--port 0 --auth USER:PASSWORD")
NEEDED = "the demo needs packages that are not installed: pip install 'rag-mt[demo]'"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=port, default=7860, help="port to listen on; 0 takes a free one")
    add(
        "--auth",
        action="append",
        default=[],
        metavar="USER:PASSWORD",
        help="ask for a login; may be given several times; `env` reads one per line from RAG_MT_AUTH",
    )
    data = "a temporary one, where they are deleted an hour after their user has left"
    add_service_options(parser, data, index="the sample index")


def logins(options: Sequence[str]) -> list[tuple[str, str]]:
    """Users and passwords of `--auth`; raises UserError for one without either."""
    lines = [(os.environ.get("RAG_MT_AUTH", "").splitlines() if text == "env" else [text]) for text in options]
    parts = [text.partition(":") for text in chain(*lines)]
    if options and (not parts or not all(user and password for user, _, password in parts)):
        raise UserError("--auth names no user with a password: expected USER:PASSWORD, or env and RAG_MT_AUTH set so")
    return [(user, password) for user, _, password in parts]


def demo(options: argparse.Namespace) -> int:
    """Serve the page until it is interrupted or terminated; returns the exit code."""
    users = logins(options.auth)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        from ui.page.layout import EXPECT
        from ui.page.page import build_page, launch
        from ui.page.sessions import Sessions
        from ui.server.service import service_with
    except ModuleNotFoundError as error:
        raise UserError(f"{NEEDED} ({error.name} is missing)") from error

    service = service_with(options, retriever=DEFAULT_RETRIEVER)  # to see hints is what the demo is for
    # In a folder of the operator's, uploads stay; otherwise they go some time after their user.
    sessions = Sessions() if options.data else Sessions(service.delete_owner)
    sessions.keep_sweeping()
    page = build_page(service, sessions, service.llms[0])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as with Ctrl+C, and uploads are deleted
    try:
        hosts = allowed_hosts(options.host, options.allowed_host)
        url = launch(page, service.limits, options.host, options.port, users, hosts)
        if DEFAULT_LLM in service.llms:
            note(f"rag-mt: {EXPECT}")
        note(f"rag-mt: the demo is at {url} (stop it with Ctrl+C)")
        page.block_thread()
    finally:
        page.close(verbose=False)
        service.close(2)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `python -m ui.demo`."""
    parser = Parser(prog="python -m ui.demo", description=DESCRIPTION, examples=EXAMPLES)
    add_options(parser)
    return run(demo, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
