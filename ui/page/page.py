"""The demo's page on one service: its parts put together, and what happens when they are used."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from socket import socket
from threading import Thread
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from ui.page.glossary_tab import glossary_tab
from ui.page.layout import FAST, LONG, Layout, asked_from, html_part, still_chosen, updates
from ui.page.markup import escaped, message
from ui.page.menus import (
    example,
    example_languages,
    first_target,
    fitting_target,
    glossary_entries,
    index_entries,
    source_entries,
    target_entries,
)
from ui.page.sessions import Sessions, new_token
from ui.page.tabs import documents_tab, history_tab, indexes_tab
from ui.page.translating import AUTO, compare_views, empty_view, swapped, switched, translate_views
from ui.server.limits import Hosts, Limits
from ui.server.service import Service
from ui.server.translators import Choice

HERE = Path(__file__).parent
FONTS, MONO_FONTS = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]
"""What the machine has: no font comes from the network."""
THREADS = 100
"""Pages that can be followed at once: each one that waits for a translation keeps a thread."""
LEAST_TO_DETECT = 12
"""Characters below which no language is shown as detected."""
HEAD = (
    '<div class="mt-head"><h1>rag_mt</h1><p>Translation by a language model that is shown how the target language '
    "already says it, and says where from.</p></div>"
)


def build_page(service: Service, sessions: Sessions, llm: str) -> gr.Blocks:
    """The whole page; `llm` is the language model that is chosen at first."""
    page: gr.Blocks = gr.Blocks(title="rag_mt", analytics_enabled=False, delete_cache=(3600, 3600))
    with page:
        browser = gr.BrowserState("", storage_key="rag-mt", secret="rag-mt")  # readable after a restart too
        with gr.Row(elem_classes="mt-top"):
            html_part(HEAD, min_width=280)
            begin = state_line(service, warm_choice(service, AUTO, first_target(service)))[0]
            state = html_part(begin, elem_id="state", min_width=200)
        timer = gr.Timer(1.0)
        layout = Layout(service, llm)
        _connect_languages(service, sessions, layout)
        _connect_examples(service, layout)
        translated = _connect_translation(service, sessions, layout)
        with layout.tabs:
            history_tab(sessions, translated)
            resume_document, document_parts = documents_tab(service, sessions, layout)
            draw_indexes, index_parts = indexes_tab(service, sessions, layout)
            draw_glossaries, glossary_parts = glossary_tab(service, sessions, layout)
        _watch_models(service, layout, state, timer)

        def opened(request: gr.Request, token: str, target: str) -> list[Any]:
            """A page that is loaded again in the same browser finds its indexes and documents."""
            token = token or new_token()
            owner = sessions.claim(request.session_hash, token, request.username or "").owner
            service.translators.load(warm_choice(service, AUTO, target))  # behind the page that is already there
            Thread(target=service.detector.warm, daemon=True).start()
            indexes = [gr.update(choices=index_entries(service, owner, target)), *draw_indexes(owner)]
            return [token, *indexes, *draw_glossaries(owner, target)]

        def closed(request: gr.Request) -> None:
            sessions.close(request.session_hash)

        drawn = [browser, layout.index, *index_parts, *glossary_parts]
        opening = page.load(opened, [browser, layout.target], drawn, **FAST)
        opening.then(resume_document, None, document_parts, **LONG)
        page.unload(closed)
    return page


def _connect_translation(service: Service, sessions: Sessions, layout: Layout) -> Any:
    """Connect the buttons and switches; returns the event of a finished translation."""

    def translate(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        yield from map(updates, translate_views(service, sessions.of(request.session_hash), asked_from(*values)))

    def compare(request: gr.Request) -> Iterator[list[Any]]:
        yield from map(updates, compare_views(service, sessions.of(request.session_hash)))

    def stop(request: gr.Request) -> Any:
        sessions.of(request.session_hash).cancel()
        return gr.update(interactive=False)

    def toggle(event: gr.EventData, request: gr.Request) -> list[Any]:
        number = event._data.get("hint") if isinstance(event._data, dict) else None
        view = switched(sessions.of(request.session_hash), number) if isinstance(number, int) else None
        return updates(view) if view else [gr.skip()] * len(layout.views)

    translated = layout.translate.click(translate, layout.asked, layout.views, **LONG)
    layout.compare.click(compare, None, layout.views, **LONG)
    layout.stop.click(stop, None, layout.stop, **FAST)
    layout.origins.toggle(toggle, None, layout.views, **FAST)
    layout.table.toggle(toggle, None, layout.views, **FAST)
    return translated


def _connect_languages(service: Service, sessions: Sessions, layout: Layout) -> None:
    def source_changed(source: str, target: str) -> Any:
        return gr.update(choices=target_entries(service, source), value=fitting_target(service, source, target))

    def target_changed(request: gr.Request, target: str, index: str, glossary: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        lists = index_entries(service, owner, target), glossary_entries(service, owner, target)
        return list(map(still_chosen, lists, (index, glossary)))

    def detected(text: str) -> Any:
        """The list of source languages, whose first entry names the language of the text as long as it is there."""
        guess = service.detector.best(text) if len(text) >= LEAST_TO_DETECT else None
        return gr.update(choices=source_entries(service, guess.code if guess else ""))

    def swap(request: gr.Request, text: str, source: str, target: str) -> list[Any]:
        new = swapped(service, sessions.of(request.session_hash), text, source, target)
        if new is None:
            wrong = message("choose the source language first: the text does not tell it", wrong=True)
            return [*[gr.skip()] * 3, wrong, *[gr.skip()] * (len(layout.views) - 1)]
        source, target, text = new
        lists = [gr.update(value=source), gr.update(choices=target_entries(service, source), value=target)]
        return [*lists, text, *updates(empty_view(target))]

    source, target, text, index = layout.source, layout.target, layout.text, layout.index
    # The last of several quick choices counts, also while the first one is being answered.
    source.input(source_changed, [source, target], target, trigger_mode="always_last", **FAST)
    target.change(target_changed, [target, index, layout.glossary], [index, layout.glossary], **FAST)
    layout.llm.input(service.default_adapter, layout.llm, layout.adapter, **FAST)
    index.input(lambda: "", None, layout.retriever, **FAST)  # the one that the index was built for
    text.change(detected, text, source, trigger_mode="always_last", **FAST)
    layout.swap.click(swap, [text, source, target], [source, target, text, *layout.views], **FAST)


def _connect_examples(service: Service, layout: Layout) -> None:
    known = example_languages()

    def fill(subject: str, source: str, target: str) -> list[Any]:
        able = service.offer.sources_of(target) if source == AUTO else (source,)
        code = next((code for code in ("de", "en", *able) if code in able and code in known), "")
        if not code:
            name = f" in {language(source).name}" if source != AUTO else ""
            return [gr.skip(), message(f"there is no example{name} yet", wrong=True)]
        return [example(subject, code), message(f"An example in {language(code).native}.")]

    for subject, button in layout.examples.items():
        button.click(partial(fill, subject), [layout.source, layout.target], [layout.text, layout.message], **FAST)


def _watch_models(service: Service, layout: Layout, state: Any, timer: Any) -> None:
    """Show how far the models of the chosen direction are, every second until they are there."""

    def look(source: str, target: str, llm: str) -> list[Any]:
        line, last = state_line(service, warm_choice(service, source, target, llm))
        return [line, gr.Timer(active=not last)]

    timer.tick(look, [layout.source, layout.target, layout.llm], [state, timer], **FAST)
    gr.on(
        [layout.source.change, layout.target.change, layout.llm.change, layout.translate.click],
        lambda: gr.Timer(active=True),
        None,
        timer,
        **FAST,
    )


def warm_choice(service: Service, source: str, target: str, llm: str = "") -> Choice:
    """The translator that will probably be asked for, also while one list has changed and the other follows."""
    sources = service.offer.sources_of(target)
    if source not in sources:
        source = next(code for code in ("de", *sources) if code in sources)
    return service.choice("", source, target, llm=llm)


def state_line(service: Service, choice: Choice) -> tuple[str, bool]:
    """The state of the models for a choice, as HTML, and whether it is a last one (ready or failed)."""
    loading = service.translators.state(choice)
    seconds = int(time.time() - loading.since)
    css, text, last = {
        "ready": ("ready", "✓ Models are ready", True),
        "failed": ("wrong", f"✕ Models could not be loaded: {loading.error}", True),
        "loading": ("busy", f"Models are being loaded: {choice}, {seconds} s. You can type already.", False),
        "not loaded": ("busy", "Models will be loaded with the first translation.", False),
    }[loading.state]
    return f'<span class="mt-state mt-{css}" role="status" data-state="{css}">{escaped(text)}</span>', last


def launch(
    page: gr.Blocks,
    limits: Limits,
    host: str,
    port: int,
    users: Sequence[tuple[str, str]] = (),
    hosts: Sequence[str] = ("*",),
) -> str:
    """Serve the page from a thread of its own and return its address; port 0 takes a free one. `hosts` are the names
    that the server may be called by. Raises UserError if the port is taken."""
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
