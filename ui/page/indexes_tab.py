"""The tab where users index their own target-language text, and rename, use and delete what they indexed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from ui.page.choices import first_target, index_entries, index_retriever_entries, own_index_entries, target_entries
from ui.page.markup import escaped, isolated, table
from ui.page.parts import FAST, LONG, Parts, html_part
from ui.page.progress import STATE_NAMES, progress_line
from ui.page.sessions import Sessions
from ui.page.translating import AUTO, message
from ui.server.service import Service
from ui.server.tasks import State
from ui.server.user_indexes import Build, UserIndex


def indexes_tab(service: Service, sessions: Sessions, parts: Parts) -> list[Any]:
    """The tab; returns the function that draws the list of an owner's indexes, and the parts that it draws."""
    retrievers = index_retriever_entries(service)
    with gr.Tab("Your text", id="indexes"):
        gr.Markdown(
            "Text in the **target** language whose wording translations should follow: up to "
            f"{service.limits.index_bytes / 1e6:g} MB in an index and {service.limits.indexes} indexes. "
            "Nobody else can see or use them."
        )
        with gr.Row():
            with gr.Column(min_width=260):
                upload = gr.File(
                    label="Files in the target language",
                    file_count="multiple",
                    elem_id="index-files",
                    height=140,
                )
                with gr.Row():
                    name = gr.Textbox(label="Name", placeholder="my text", max_length=100, elem_id="index-name")
                    code = gr.Dropdown(
                        target_entries(service, AUTO),
                        value=first_target(service),
                        label="Language",
                        elem_id="index-language",
                    )
                with gr.Row():
                    retriever = gr.Dropdown(
                        retrievers, value=retrievers[0][1], label="Built for", elem_id="index-retriever"
                    )
                    column = gr.Textbox(label="Column (TSV, JSONL)", max_length=100)
                with gr.Row():
                    start = gr.Button("Build the index", variant="primary", elem_id="index-start", min_width=120)
                    stop = gr.Button("Stop", interactive=False, elem_id="index-stop", min_width=80)
                progress = html_part("", elem_id="index-progress")
            with gr.Column(min_width=260):
                index_list = html_part(index_table([]), elem_id="index-table")
                chosen = gr.Dropdown([], value=None, label="One of your indexes", elem_id="index-chosen")
                with gr.Row():
                    use = gr.Button("Use it", size="sm", elem_id="index-use", min_width=80)
                    delete = gr.Button("Delete it", variant="stop", size="sm", elem_id="index-delete", min_width=80)
                with gr.Row():
                    new_name = gr.Textbox(label="New name", max_length=100, elem_id="index-new-name")
                    rename = gr.Button("Rename it", size="sm", elem_id="index-rename", min_width=80)
    listed = [index_list, chosen]
    used = [parts.index, parts.retriever]

    def drawn(owner: str, value: str | None = None) -> list[Any]:
        indexes = service.indexes.of(owner)
        value = value or (indexes[-1].id if indexes else None)
        return [index_table(indexes), gr.update(choices=own_index_entries(service, owner), value=value)]

    def build(
        request: gr.Request, files: list[str] | None, name: str, code: str, retriever: str, column: str, target: str
    ) -> Iterator[list[Any]]:
        """Outputs: progress, stop, the list, and what the next translation uses."""
        owner = sessions.of(request.session_hash).owner
        same = [gr.skip()] * 4
        try:
            uploads = [(Path(file).name, Path(file)) for file in files or []]
            name = name.strip() or (uploads[0][0] if uploads else "")
            task = service.indexes.build(owner, name, code, uploads, retriever, column.strip())
        except UserError as error:
            yield [message(str(error), wrong=True), gr.update(interactive=False), *same]
            return
        for state in task.updates(0.25):
            outputs = [build_line(task, state, code == target), gr.update(interactive=not task.ended), *same]
            if state == "done":
                outputs[2:] = [*drawn(owner, task.id), *_using(service, owner, task.id, target)]
            yield outputs

    def stopped(request: gr.Request) -> Any:
        for task in service.indexes.builds(sessions.of(request.session_hash).owner):
            task.cancel()
        return gr.update(interactive=False)

    def take(request: gr.Request, id: str | None, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            index = service.indexes.get(owner, id or "")
        except UserError:
            return [message("choose one of your indexes first", wrong=True), gr.skip(), gr.skip()]
        if index.language != target:
            wanted = language(index.language).native
            return [message(f"set the target language to {wanted} to use this index", wrong=True), gr.skip(), gr.skip()]
        return [message(f"The next translation searches {index.name}."), *_using(service, owner, index.id, target)]

    def changed(request: gr.Request, id: str | None, name: str, target: str) -> list[Any]:
        """Rename."""
        owner = sessions.of(request.session_hash).owner
        try:
            index = service.indexes.rename(owner, id or "", name)
        except UserError as error:
            return [message(str(error), wrong=True), *drawn(owner, id), gr.skip()]
        return [message(f"Renamed to {index.name}."), *drawn(owner, id), _entries(service, owner, target)]

    def removed(request: gr.Request, id: str | None, index: str, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            service.indexes.delete(owner, id or "")
        except UserError as error:
            return [message(str(error), wrong=True), *drawn(owner), gr.skip()]
        entries = _entries(service, owner, target, "" if index == id else index)
        return [message("Deleted."), *drawn(owner), entries]

    start.click(build, [upload, name, code, retriever, column, parts.target], [progress, stop, *listed, *used], **LONG)
    stop.click(stopped, None, stop, **FAST)
    use.click(take, [chosen, parts.target], [progress, *used], **FAST)
    rename.click(changed, [chosen, new_name, parts.target], [progress, *listed, parts.index], **FAST)
    delete.click(removed, [chosen, parts.index, parts.target], [progress, *listed, parts.index], **FAST)
    return [drawn, listed]


def _using(service: Service, owner: str, id: str, target: str) -> list[Any]:
    """The settings that make the next translation search an index; none where it is in another language."""
    index = service.indexes.get(owner, id)
    if index.language != target:
        return [gr.skip(), gr.skip()]
    return [_entries(service, owner, target, id), ""]


def _entries(service: Service, owner: str, target: str, value: str | None = None) -> Any:
    choices = index_entries(service, owner, target)
    return gr.update(choices=choices) if value is None else gr.update(choices=choices, value=value)


def build_line(build: Build, state: State, same_language: bool) -> str:
    """Name, state and progress of a build as HTML."""
    state_name = {**STATE_NAMES, "running": "Indexing"}[state]
    if state == "done":
        wanted = language(build.language).native
        after = "The next translation searches it." if same_language else f"Choose {wanted} as target to use it."
        state_name = f"Done. {after}"
    return progress_line(build, state, "Progress of the index", state_name)


def index_table(indexes: list[UserIndex]) -> str:
    """The owner's indexes as a table."""
    if not indexes:
        return '<p class="mt-empty">You have no index yet.</p>'
    rows = [
        (isolated(index.name), language(index.language).native, escaped(index.retriever), str(index.sentences))
        for index in indexes
    ]
    return table("Your indexes", ("Name", "Language", "Built for", "Sentences"), rows)
