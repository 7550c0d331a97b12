"""The tab with the session's translations and their export."""

from __future__ import annotations

from typing import Any

import gradio as gr

from ui.page.history import EXPORTS, export, history_table
from ui.page.parts import FAST, html_part
from ui.page.sessions import Sessions

SAVE = """(file) => {
  if (!file) return;
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([file.text], {type: 'application/octet-stream'}));
  link.download = file.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}"""
"""Saves a file that never stood on the server's disk."""


def history_tab(sessions: Sessions, ended: list[Any]) -> None:
    """The tab; it is drawn again after each of the events `ended`."""
    with gr.Tab("History", id="history"):
        table = html_part(history_table([]), elem_id="history-table")
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

    for event in ended:
        event.then(draw, None, table, **FAST)
    clear.click(forget, None, table, **FAST)
    for name, button in buttons.items():
        button.click(_exporter(sessions, name), None, file, **FAST).then(None, file, None, js=SAVE)


def _exporter(sessions: Sessions, name: str) -> Any:
    def exported(request: gr.Request) -> dict[str, str]:
        entries = list(sessions.of(request.session_hash).history)
        return {"name": f"rag-mt-history.{name}", "text": export(entries, name)}

    return exported
