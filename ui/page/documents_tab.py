"""The tab where files are translated: upload, progress, download in the same format."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from rag_mt.base.errors import UserError
from ui.page.markup import isolated, table
from ui.page.parts import FAST, LONG, Parts, asked_from, html_part
from ui.page.progress import STATE_NAMES, progress_line
from ui.page.sessions import Session, Sessions
from ui.page.translating import AUTO, Asked, choice_of, message
from ui.server.document_records import Document
from ui.server.service import Service
from ui.server.work import Order

SHOWN = 8
"""Segments of a document that are shown while it is translated: the newest."""


def documents_tab(service: Service, sessions: Sessions, parts: Parts) -> list[Any]:
    """The tab; returns the parts that `resumed` redraws when the page is loaded."""
    with gr.Tab("Documents", id="documents"):
        gr.Markdown(
            "Text, TSV, JSONL, PO, XLIFF or TMX, up to "
            f"{service.limits.file_bytes / 1e6:g} MB. The languages and settings above apply; the answer is a file of "
            "the same format."
        )
        with gr.Row():
            with gr.Column(min_width=260):
                upload = gr.File(label="File to translate", elem_id="document-file", height=140)
                column = gr.Textbox(
                    label="Column",
                    info="Only for TSV and JSONL: a number from 1, or a name.",
                    max_length=100,
                    elem_id="document-column",
                )
                with gr.Row():
                    start = gr.Button("Translate the file", variant="primary", elem_id="document-start", min_width=120)
                    stop = gr.Button("Stop", interactive=False, elem_id="document-stop", min_width=80)
            with gr.Column(min_width=260):
                progress = html_part(message("No file yet."), elem_id="document-progress")
                download = gr.DownloadButton("Download the translation", interactive=False, elem_id="document-download")
                partial = html_part("", elem_id="document-partial")
    shown = [progress, partial, download, stop]

    def begin(request: gr.Request, file: str | None, column: str, *values: Any) -> Iterator[list[Any]]:
        session = sessions.of(request.session_hash)
        try:
            document = _started(service, session, file, column, asked_from(*values))
        except UserError as error:
            yield [message(str(error), wrong=True), "", gr.update(interactive=False), gr.update(interactive=False)]
            return
        yield from _follow(document)

    def resumed(request: gr.Request) -> Iterator[list[Any]]:
        documents = service.documents.of(sessions.of(request.session_hash).owner)
        if documents:
            yield from _follow(documents[-1])
        else:
            yield [gr.skip()] * len(shown)

    def stopped(request: gr.Request) -> Any:
        for document in service.documents.of(sessions.of(request.session_hash).owner):
            document.cancel()
        return gr.update(interactive=False)

    start.click(begin, [upload, column, *parts.asked], shown, **LONG)
    stop.click(stopped, None, stop, **FAST)
    return [resumed, shown]


def _started(service: Service, session: Session, file: str | None, column: str, asked: Asked) -> Document:
    if not file:
        raise UserError("there is no file: choose one first")
    path = Path(file)
    source, column = asked.source, column.strip()
    if source == AUTO:
        able = service.offer.sources_of(asked.target)
        source = service.documents.source_of(path, path.name, column, service.detector, able)
    choice = choice_of(service, session, source, asked)
    order = Order(choice, "", asked.max_hints, asked.least_score)
    return service.documents.start(session.owner, path.name, path, order, column)


def _follow(document: Document) -> Iterator[list[Any]]:
    for state in document.updates(0.25):
        line = progress_line(document, state, "Progress of the document", f"{STATE_NAMES[state]},")
        pairs = _pairs(document)
        if state == "done" and document.result is not None:
            # The page takes its own copy, under the name that the user should get.
            with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
                file = shutil.copyfile(document.result, Path(folder) / document.output_name)
                yield [line, pairs, gr.update(value=str(file), interactive=True), gr.update(interactive=False)]
        else:
            yield [line, pairs, gr.update(value=None, interactive=False), gr.update(interactive=not document.ended)]


def _pairs(document: Document) -> str:
    rows = [[isolated(text) for text in pair] for pair in document.partial[-SHOWN:]]
    return table("Newest translations", ("Source", "Translation"), rows) if rows else ""
