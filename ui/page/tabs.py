"""The tabs beside the translation: the session's history, documents to translate, and indexes of one's own text."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from rag_mt.base.defaults import INDEX_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from retrievers.registry import retriever_spec
from ui.page.layout import FAST, LONG, Layout, asked_from, html_part, still_chosen
from ui.page.markup import escaped, isolated, message, progress_line, table
from ui.page.menus import first_target, index_entries, retriever_entries, target_entries
from ui.page.sessions import EXPORTS, Session, Sessions, export, history_table
from ui.page.translating import AUTO, Asked, choice_of, order_of
from ui.server.documents import Document
from ui.server.service import Service
from ui.server.tasks import State, Task
from ui.server.user_indexes import Build, UserIndex

NEWEST = 8
"""Segments of a document that are shown while it is translated."""

STATE_NAMES = {
    "waiting": "Waiting to begin",
    "running": "Translating",
    "done": "Done",
    "failed": "Failed",
    "cancelled": "Stopped",
}
SAVE = """(file) => {
  if (!file) return;
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([file.text], {type: 'application/octet-stream'}));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}"""
"""Saves a file that never stood on the server's disk."""


def history_tab(sessions: Sessions, translated: Any) -> None:
    """The tab with the session's translations and their export; it is drawn again after the event `translated`."""
    with gr.Tab("History", id="history", render_children=True):
        entries_table = html_part(history_table([]), elem_id="history-table")
        with gr.Row():
            buttons = {
                name: gr.Button(f"Save as {name.upper()}", size="sm", elem_id=f"save-{name}") for name in EXPORTS
            }
            clear = gr.Button("Clear", size="sm", elem_id="clear-history")
        file = gr.JSON(visible=False)

    def draw(request: gr.Request) -> str:
        return history_table(list(sessions.of(request.session_hash).history))

    def forget(request: gr.Request) -> str:
        sessions.of(request.session_hash).history.clear()
        return history_table([])

    def exporter(name: str) -> Callable[[gr.Request], dict[str, str]]:
        def exported(request: gr.Request) -> dict[str, str]:
            entries = list(sessions.of(request.session_hash).history)
            return {"name": f"rag-mt-history.{name}", "text": export(entries, name)}

        return exported

    translated.then(draw, None, entries_table, **FAST)
    clear.click(forget, None, entries_table, **FAST)
    for name, button in buttons.items():
        button.click(exporter(name), None, file, **FAST).then(None, file, None, js=SAVE)


def _refusal(field: str, most_bytes: int) -> str:
    """Where the page says that what was chosen in a field is too large."""
    return (
        f'<p class="mt-message mt-wrong" role="alert" hidden data-refusal="{field}" data-most-bytes="{most_bytes}"></p>'
    )


def _start_and_stop(
    sessions: Sessions, label: str, name: str, tasks_of: Callable[[str], Sequence[Task]]
) -> tuple[gr.Button, gr.Button]:
    """Two buttons: one to start a task, and one that stops all tasks of the page's owner."""

    def stopped(request: gr.Request) -> Any:
        for task in tasks_of(sessions.of(request.session_hash).owner):
            task.cancel()
        return gr.update(interactive=False)

    with gr.Row():
        start = gr.Button(label, variant="primary", elem_id=f"{name}-start", min_width=120)
        stop = gr.Button("Stop", interactive=False, elem_id=f"{name}-stop", min_width=80)
    stop.click(stopped, None, stop, **FAST)
    return start, stop


def documents_tab(service: Service, sessions: Sessions, layout: Layout) -> list[Any]:
    """The tab where files are translated: upload, progress, download in the same format.

    Returns the function that redraws it when the page is loaded, and the parts that it redraws.
    """
    with gr.Tab("Documents", id="documents", render_children=True):
        gr.Markdown(
            "Text, TSV, JSONL, PO, XLIFF or TMX, up to "
            f"{service.limits.file_bytes / 1e6:g} MB. The languages and settings above apply; the answer is a file of "
            "the same format."
        )
        with gr.Row():
            with gr.Column(min_width=260):
                upload = gr.File(label="File to translate", elem_id="document-file", height=140)
                html_part(_refusal("document-file", service.limits.file_bytes))
                column = gr.Textbox(
                    label="Column",
                    info="Only for TSV and JSONL: a number from 1, or a name.",
                    max_length=100,
                    elem_id="document-column",
                )
                start, stop = _start_and_stop(sessions, "Translate the file", "document", service.documents.of)
            with gr.Column(min_width=260):
                progress = html_part(message("No file yet."), elem_id="document-progress")
                download = gr.DownloadButton("Download the translation", interactive=False, elem_id="document-download")
                partial = html_part("", elem_id="document-partial")
    outputs = [progress, partial, download, stop]

    def begin(request: gr.Request, file: str | None, column: str, *values: Any) -> Iterator[list[Any]]:
        session = sessions.of(request.session_hash)
        try:
            document = _started(service, session, file, column.strip(), asked_from(*values))
        except UserError as error:
            yield [message(str(error), wrong=True), "", gr.update(interactive=False), gr.update(interactive=False)]
            return
        yield from _follow(document)

    def resumed(request: gr.Request) -> Iterator[list[Any]]:
        documents = service.documents.of(sessions.of(request.session_hash).owner)
        if documents:
            yield from _follow(documents[-1])
        else:
            yield [gr.skip()] * len(outputs)

    start.click(begin, [upload, column, *layout.asked], outputs, **LONG)
    return [resumed, outputs]


def _started(service: Service, session: Session, file: str | None, column: str, asked: Asked) -> Document:
    if not file:
        raise UserError("there is no file: choose one first")
    path, source = Path(file), asked.source
    if source == AUTO:
        able = service.offer.sources_of(asked.target)
        source = service.documents.source_of(path, path.name, column, service.detector, able)
    choice = choice_of(service, session, source, asked)
    order = order_of(service, session, choice, asked)
    return service.documents.start(session.owner, path.name, path, order, column)


def _follow(document: Document) -> Iterator[list[Any]]:
    for state in document.updates(0.25):
        line = progress_line(document, state, "Progress of the document", f"{STATE_NAMES[state]},")
        rows = [[isolated(text) for text in pair] for pair in document.partial[-NEWEST:]]
        pairs = table("Newest translations", ("Source", "Translation"), rows) if rows else ""
        if state == "done" and document.result is not None:
            # The page takes its own copy, under the name that the user should get.
            with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
                file = shutil.copyfile(document.result, Path(folder) / document.output_name)
                yield [line, pairs, gr.update(value=str(file), interactive=True), gr.update(interactive=False)]
        else:
            yield [line, pairs, gr.update(value=None, interactive=False), gr.update(interactive=not document.ended)]


def indexes_tab(service: Service, sessions: Sessions, layout: Layout) -> list[Any]:
    """The tab where users index their own target-language text, and rename, use and delete what they indexed.

    Returns the function that draws the list of an owner's indexes, and the parts that it draws.
    """
    retrievers = [entry for entry in retriever_entries() if retriever_spec(entry[1]).needs_index]
    with gr.Tab("Your text", id="indexes", render_children=True):
        gr.Markdown(
            "Text in the **target** language whose wording translations should follow: up to "
            f"{service.limits.index_bytes / 1e6:g} MB in an index and {service.limits.indexes} indexes. "
            "Nobody else can see or use them."
        )
        with gr.Row():
            with gr.Column(min_width=260):
                upload = gr.File(
                    label="Files in the target language", file_count="multiple", elem_id="index-files", height=140
                )
                html_part(_refusal("index-files", service.limits.index_bytes))
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
                        retrievers, value=INDEX_RETRIEVER, label="Built for", elem_id="index-retriever"
                    )
                    column = gr.Textbox(label="Column (TSV, JSONL)", max_length=100)
                start, stop = _start_and_stop(sessions, "Build the index", "index", service.indexes.builds.of)
                progress = html_part("", elem_id="index-progress")
            with gr.Column(min_width=260):
                index_list = html_part(_index_table([]), elem_id="index-table")
                chosen = gr.Dropdown([], value=None, label="One of your indexes", elem_id="index-chosen")
                with gr.Row():
                    use = gr.Button("Use it", size="sm", elem_id="index-use", min_width=80)
                    delete = gr.Button("Delete it", variant="stop", size="sm", elem_id="index-delete", min_width=80)
                with gr.Row():
                    new_name = gr.Textbox(label="New name", max_length=100, elem_id="index-new-name")
                    rename = gr.Button("Rename it", size="sm", elem_id="index-rename", min_width=80)
    listed = [index_list, chosen]
    used = [layout.index, layout.retriever]

    def drawn(owner: str, value: str | None = None) -> list[Any]:
        indexes = service.indexes.of(owner)
        value = value or (indexes[-1].id if indexes else None)
        entries = [(f"{index.name} ({language(index.language).native})", index.id) for index in indexes]
        return [_index_table(indexes), gr.update(choices=entries, value=value)]

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
            outputs = [_build_line(task, state, code == target), gr.update(interactive=not task.ended), *same]
            if state == "done":
                index = service.indexes.get(owner, task.id)
                outputs[2:] = [*drawn(owner, task.id), *using(owner, index, target)]
            yield outputs

    def using(owner: str, index: UserIndex, target: str) -> list[Any]:
        """The settings that make the next translation search an index; none where it is in another language."""
        if index.language != target:
            return [gr.skip(), gr.skip()]
        return [gr.update(choices=index_entries(service, owner, target), value=index.id), ""]

    def take(request: gr.Request, id: str | None, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            index = service.indexes.get(owner, id or "")
        except UserError:
            return [message("choose one of your indexes first", wrong=True), gr.skip(), gr.skip()]
        line = message(f"The next translation searches {index.name}.")
        if index.language != target:
            wanted = language(index.language).native
            line = message(f"set the target language to {wanted} to use this index", wrong=True)
        return [line, *using(owner, index, target)]

    def renamed(request: gr.Request, id: str | None, name: str, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            index = service.indexes.rename(owner, id or "", name)
        except UserError as error:
            return [message(str(error), wrong=True), *drawn(owner, id), gr.skip()]
        entries = gr.update(choices=index_entries(service, owner, target))
        return [message(f"Renamed to {index.name}."), *drawn(owner, id), entries]

    def deleted(request: gr.Request, id: str | None, index: str, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            service.indexes.delete(owner, id or "")
        except UserError as error:
            return [message(str(error), wrong=True), *drawn(owner), gr.skip()]
        return [message("Deleted."), *drawn(owner), still_chosen(index_entries(service, owner, target), index)]

    start.click(build, [upload, name, code, retriever, column, layout.target], [progress, stop, *listed, *used], **LONG)
    use.click(take, [chosen, layout.target], [progress, *used], **FAST)
    rename.click(renamed, [chosen, new_name, layout.target], [progress, *listed, layout.index], **FAST)
    delete.click(deleted, [chosen, layout.index, layout.target], [progress, *listed, layout.index], **FAST)
    return [drawn, listed]


def _build_line(build: Build, state: State, same_language: bool) -> str:
    """Name, state and progress of a build as HTML."""
    state_name = {**STATE_NAMES, "running": "Indexing"}[state]
    if state == "done":
        wanted = language(build.language).native
        after = "The next translation searches it." if same_language else f"Choose {wanted} as target to use it."
        state_name = f"Done. {after}"
    return progress_line(build, state, "Progress of the index", state_name)


def _index_table(indexes: list[UserIndex]) -> str:
    if not indexes:
        return '<p class="mt-empty">You have no index yet.</p>'
    rows = [
        (isolated(index.name), language(index.language).native, escaped(index.retriever), str(index.sentences))
        for index in indexes
    ]
    return table("Your indexes", ("Name", "Language", "Built for", "Sentences"), rows)
