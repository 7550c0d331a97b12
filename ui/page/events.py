"""What happens when the parts of the translation are used."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import gradio as gr

from rag_mt.base.languages import language
from ui.page.choices import fitting_target, index_entries, target_entries
from ui.page.example_texts import example, example_languages
from ui.page.parts import FAST, LONG, Parts, asked_from, updates
from ui.page.sessions import Sessions
from ui.page.state import state_line
from ui.page.translating import AUTO, compare_views, empty_view, message, swapped, switched, translate_views
from ui.server.service import Service
from ui.server.translators import Choice

LEAST_TO_DETECT = 12
"""Characters below which a language is not guessed while the user types."""


def connect(service: Service, sessions: Sessions, parts: Parts) -> list[Any]:
    """Connect the parts of the translation with the service; returns the events that make history."""
    _connect_languages(service, sessions, parts)
    _connect_examples(service, parts)
    return _connect_translation(service, sessions, parts)


def _connect_translation(service: Service, sessions: Sessions, parts: Parts) -> list[Any]:
    def translate(request: gr.Request, *values: Any) -> Iterator[list[Any]]:
        session = sessions.of(request.session_hash)
        for view in translate_views(service, session, asked_from(*values)):
            yield updates(view)

    def compare(request: gr.Request) -> Iterator[list[Any]]:
        for view in compare_views(service, sessions.of(request.session_hash)):
            yield updates(view)

    def stop(request: gr.Request) -> Any:
        sessions.of(request.session_hash).cancel()
        return gr.update(interactive=False)

    def toggle(event: gr.EventData, request: gr.Request) -> list[Any]:
        number = event._data.get("hint") if isinstance(event._data, dict) else None
        view = switched(sessions.of(request.session_hash), number) if isinstance(number, int) else None
        return updates(view) if view else [gr.skip()] * len(parts.views)

    translated = parts.translate.click(translate, parts.asked, parts.views, **LONG)
    parts.compare.click(compare, None, parts.views, **LONG)
    parts.stop.click(stop, None, parts.stop, **FAST)
    parts.origins.toggle(toggle, None, parts.views, **FAST)
    parts.table.toggle(toggle, None, parts.views, **FAST)
    return [translated]


def _connect_languages(service: Service, sessions: Sessions, parts: Parts) -> None:
    def source_changed(source: str, target: str) -> Any:
        return gr.update(choices=target_entries(service, source), value=fitting_target(service, source, target))

    def target_changed(request: gr.Request, target: str, index: str) -> Any:
        entries = index_entries(service, sessions.of(request.session_hash).owner, target)
        return gr.update(choices=entries, value=index if index in [id for _, id in entries] else "")

    def typed(text: str, source: str) -> Any:
        if source != AUTO or len(text) < LEAST_TO_DETECT:
            return gr.skip()
        detected = service.detector.best(text)
        if detected is None:
            return gr.skip()
        known = language(detected.code)
        return message(f"This looks like {known.native} ({known.name}).")

    def swap(request: gr.Request, text: str, source: str, target: str) -> list[Any]:
        new = swapped(service, sessions.of(request.session_hash), text, source, target)
        if new is None:
            wrong = message("choose the source language first: the text does not tell it", wrong=True)
            return [*[gr.skip()] * 3, wrong, *[gr.skip()] * (len(parts.views) - 1)]
        source, target, text = new
        lists = [gr.update(value=source), gr.update(choices=target_entries(service, source), value=target)]
        return [*lists, text, *updates(empty_view(target))]

    parts.source.input(source_changed, [parts.source, parts.target], parts.target, **FAST)
    parts.target.change(target_changed, [parts.target, parts.index], parts.index, **FAST)
    parts.llm.input(service.default_adapter, parts.llm, parts.adapter, **FAST)
    parts.index.input(lambda: "", None, parts.retriever, **FAST)  # the one that the index was built for
    parts.text.input(typed, [parts.text, parts.source], parts.message, trigger_mode="always_last", **FAST)
    parts.swap.click(
        swap, [parts.text, parts.source, parts.target], [parts.source, parts.target, parts.text, *parts.views], **FAST
    )


def _connect_examples(service: Service, parts: Parts) -> None:
    known = example_languages()

    def fill(subject: str, source: str, target: str) -> list[Any]:
        able = service.offer.sources_of(target) if source == AUTO else (source,)
        code = next((code for code in ("de", "en", *able) if code in able and code in known), "")
        if not code:
            name = f" in {language(source).name}" if source != AUTO else ""
            return [gr.skip(), message(f"there is no example{name} yet", wrong=True)]
        return [example(subject, code), message(f"An example in {language(code).native}.")]

    for subject, button in parts.examples.items():
        button.click(partial(fill, subject), [parts.source, parts.target], [parts.text, parts.message], **FAST)


def watch_models(service: Service, parts: Parts, state: Any, timer: Any) -> None:
    """Show how far the models of the chosen direction are, every second until they are there."""

    def look(source: str, target: str, llm: str) -> list[Any]:
        shown, last = state_line(service, warm_choice(service, source, target, llm))
        return [shown, gr.Timer(active=not last)]

    timer.tick(look, [parts.source, parts.target, parts.llm], [state, timer], **FAST)
    gr.on(
        [parts.source.change, parts.target.change, parts.llm.change, parts.translate.click],
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
