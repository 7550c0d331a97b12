"""The tab where users write, upload, use and delete glossaries."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import Skips
from rag_mt.glossary.reading import SUFFIXES, read_glossary
from rag_mt.glossary.tables import table_of
from ui.page.layout import FAST, Layout, html_part
from ui.page.markup import message
from ui.page.menus import glossary_entries
from ui.page.sessions import Sessions
from ui.page.translating import AUTO
from ui.server.glossaries import UserGlossary
from ui.server.service import Service
from ui.server.uploads import named

LINES = 10
HELP = (
    "Terms and the translations to keep to, from the source to the target language chosen above. A line has a term, "
    "its translation (several with | between them), translations that may not be used, and a note, with commas between "
    "them. Nobody else can see or use your glossaries."
)


def glossary_tab(service: Service, sessions: Sessions, layout: Layout) -> list[Any]:
    """The tab where users write, upload, use and delete glossaries.

    Returns the function that draws an owner's list, and the parts that it draws.
    """
    with gr.Tab("Glossary", id="glossary", render_children=True):
        gr.Markdown(HELP)
        with gr.Row():
            with gr.Column(min_width=260):
                chosen = gr.Dropdown([], value=None, label="One of your glossaries", elem_id="glossary-chosen")
                with gr.Row():
                    use = gr.Button("Use it", size="sm", elem_id="glossary-use", min_width=80)
                    delete = gr.Button("Delete it", variant="stop", size="sm", elem_id="glossary-delete", min_width=80)
                upload = gr.File(label=f"Or a file ({' '.join(SUFFIXES)})", elem_id="glossary-file", height=140)
                progress = html_part("", elem_id="glossary-progress")
            with gr.Column(min_width=260):
                name = gr.Textbox(label="Name", placeholder="my terms", max_length=100, elem_id="glossary-name")
                terms = gr.Textbox(
                    label="Terms",
                    placeholder="term,translation,forbidden,note",
                    lines=LINES,
                    max_lines=2 * LINES,
                    elem_id="glossary-terms",
                )
                save = gr.Button("Save and use", variant="primary", elem_id="glossary-save", min_width=120)
    listed = [chosen, layout.glossary]

    def drawn(owner: str, target: str, value: str | None = None) -> list[Any]:
        entries = [(_title(glossary), glossary.id) for glossary in service.glossaries.of(owner)]
        used = gr.update(choices=glossary_entries(service, owner, target), value=value or "")
        return [gr.update(choices=entries, value=value), used]

    def opened(request: gr.Request, id: str | None) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            glossary = service.glossaries.get(owner, id or "")
        except UserError as error:
            return [message(str(error), wrong=True), gr.skip(), gr.skip()]
        return [message(_counted(glossary)), glossary.name, _lines(glossary)]

    def filled(file: str | None, source: str, target: str) -> list[Any]:
        """The terms of an upload, to look through and save."""
        if not file:
            return [gr.skip()] * 3
        skips = Skips(shown=0)
        try:
            _check_languages(source)
            with named(Path(file), Path(file).name):
                service.limits.check_file(Path(file).stat().st_size)
                glossary = read_glossary([file], source, target, skips)
        except UserError as error:
            return [message(str(error), wrong=True), gr.skip(), gr.skip()]
        left_out = f", {skips.summary()}" if skips.counts else ""
        line = message(f"{len(glossary)} terms{left_out}. Look through them, then save them.")
        return [line, Path(file).stem, _without_head(table_of(glossary.terms, source, target))]

    def saved(request: gr.Request, name: str, lines: str, source: str, target: str) -> list[Any]:
        """Keep the lines as the glossary of that name."""
        owner = sessions.of(request.session_hash).owner
        try:
            _check_languages(source)
            own = {glossary.name: glossary.id for glossary in service.glossaries.of(owner)}
            name = name.strip() or "my terms"
            with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
                file = Path(folder) / "terms.csv"
                file.write_text(f"{source},{target},forbidden,note,case\n{lines}\n", encoding="utf-8", newline="")
                files = [(f"{name}.csv", file)]
                glossary = service.glossaries.add(owner, name, source, target, files, own.get(name, ""))
        except (UserError, UnicodeError) as error:
            return [message(str(error), wrong=True), gr.skip(), gr.skip()]
        return [message(_counted(glossary)), *drawn(owner, target, glossary.id)]

    def taken(request: gr.Request, id: str | None, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            glossary = service.glossaries.get(owner, id or "")
        except UserError:
            return [message("choose one of your glossaries first", wrong=True), gr.skip()]
        if glossary.target != target:
            wanted = language(glossary.target).native
            return [message(f"set the target language to {wanted} to use this glossary", wrong=True), gr.skip()]
        line = message(f"The next translation keeps to {glossary.name}.")
        return [line, gr.update(choices=glossary_entries(service, owner, target), value=glossary.id)]

    def deleted(request: gr.Request, id: str | None, used: str, target: str) -> list[Any]:
        owner = sessions.of(request.session_hash).owner
        try:
            service.glossaries.delete(owner, id or "")
        except UserError as error:
            return [message(str(error), wrong=True), gr.skip(), gr.skip()]
        return [message("Deleted."), *drawn(owner, target, None if used == id else used or None)]

    pair = [layout.source, layout.target]
    chosen.input(opened, chosen, [progress, name, terms], **FAST)
    upload.upload(filled, [upload, *pair], [progress, name, terms], **{**FAST, "preprocess": True})  # a file's path
    save.click(saved, [name, terms, *pair], [progress, *listed], **FAST)
    use.click(taken, [chosen, layout.target], [progress, layout.glossary], **FAST)
    delete.click(deleted, [chosen, layout.glossary, layout.target], [progress, *listed], **FAST)
    return [drawn, listed]


def _check_languages(source: str) -> None:
    if source == AUTO:
        raise UserError("choose the source language first: a glossary is from one language into another")


def _title(glossary: UserGlossary) -> str:
    return f"{glossary.name} ({glossary.source} → {glossary.target}, {len(glossary.terms)} terms)"


def _counted(glossary: UserGlossary) -> str:
    return " ".join([f"{_title(glossary)}.", *(f"{note}." for note in glossary.notes)])


def _lines(glossary: UserGlossary) -> str:
    return _without_head(table_of(glossary.terms, glossary.source, glossary.target))


def _without_head(text: str) -> str:
    return text.partition("\n")[2]
