"""The demo's page on one service: its parts put together, and what happens when it is opened and closed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from socket import socket
from threading import Thread
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from rag_mt.base.errors import UserError
from ui.page.choices import first_target, index_entries
from ui.page.documents_tab import documents_tab
from ui.page.events import connect, warm_choice, watch_models
from ui.page.history_tab import history_tab
from ui.page.indexes_tab import indexes_tab
from ui.page.parts import FAST, LONG, Parts, html_part, main_parts, result_tabs
from ui.page.sessions import Sessions, new_token
from ui.page.state import head, state_line
from ui.page.translating import AUTO
from ui.server.access import Hosts
from ui.server.limits import Limits
from ui.server.service import Service

HERE = Path(__file__).parent
FONTS, MONO_FONTS = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]
"""What the machine has: no font comes from the network."""
THREADS = 100
"""Pages that can be followed at once: each one that waits for a translation keeps a thread."""


def build_page(service: Service, sessions: Sessions, llm: str) -> gr.Blocks:
    """The whole page; `llm` is the language model that is chosen at first."""
    page: gr.Blocks = gr.Blocks(title="rag_mt", analytics_enabled=False, delete_cache=(3600, 3600))
    with page:
        browser = gr.BrowserState("", storage_key="rag-mt", secret="rag-mt")  # readable after a restart too
        with gr.Row(elem_classes="mt-top"):
            html_part(head(), min_width=280)
            begin = state_line(service, warm_choice(service, AUTO, first_target(service)))[0]
            state = html_part(begin, elem_id="state", min_width=200)
        timer = gr.Timer(1.0)
        main = main_parts(service, llm)
        with gr.Tabs():
            parts = Parts(**main, **result_tabs(service))
            history_tab(sessions, connect(service, sessions, parts))
            resume_document, document_parts = documents_tab(service, sessions, parts)
            draw_indexes, index_parts = indexes_tab(service, sessions, parts)
        watch_models(service, parts, state, timer)

        def opened(request: gr.Request, token: str, target: str) -> list[Any]:
            """A page that is loaded again in the same browser finds its indexes and documents."""
            token = token or new_token()
            owner = sessions.claim(request.session_hash, token, request.username or "").owner
            service.translators.load(warm_choice(service, AUTO, target))  # behind the page that is already there
            Thread(target=service.detector.warm, daemon=True).start()
            return [token, gr.update(choices=index_entries(service, owner, target)), *draw_indexes(owner)]

        def closed(request: gr.Request) -> None:
            sessions.close(request.session_hash)

        opening = page.load(opened, [browser, parts.target], [browser, parts.index, *index_parts], **FAST)
        opening.then(resume_document, None, document_parts, **LONG)
        page.unload(closed)
    return page


def launch(
    page: gr.Blocks,
    limits: Limits,
    host: str,
    port: int,
    users: Sequence[tuple[str, str]] = (),
    hosts: Sequence[str] = ("*",),
) -> str:
    """Serve the page from a thread of its own and return its address; port 0 takes a free one. `hosts` are the names
    that the server may be called by.

    Raises UserError if the port is taken.
    """
    page.queue(max_size=4 * limits.queue, default_concurrency_limit=None, api_open=False)
    try:
        _, url, _ = page.launch(
            server_name=host,
            server_port=port or _free_port(host),
            auth=list(users) or None,
            share=False,
            prevent_thread_lock=True,
            quiet=True,
            max_threads=THREADS,
            max_file_size=max(limits.file_bytes, limits.index_bytes),
            footer_links=[],
            ssr_mode=False,
            pwa=False,
            app_kwargs={} if "*" in hosts else {"middleware": [Middleware(Hosts, names=hosts)]},
            _frontend=False,  # no request for the own page with a limit of 3 s, which a busy machine exceeds
            theme=gr.themes.Base(primary_hue="blue", neutral_hue="slate", font=FONTS, font_mono=MONO_FONTS),
            css=(HERE / "theme.css").read_text(encoding="utf-8"),
            head=f"<script>{(HERE / 'demo.js').read_text(encoding='utf-8')}</script>",
        )
    except OSError as error:
        raise UserError(f"port {port} of {host} cannot be listened on: choose another --port") from error
    return url


def _free_port(host: str) -> int:
    with socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
