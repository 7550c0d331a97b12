"""The line and the bar that say how far a document or the build of an index is."""

from __future__ import annotations

from ui.page.markup import escaped
from ui.server.document_records import Document
from ui.server.tasks import State
from ui.server.user_indexes import Build

STATE_NAMES = {
    "waiting": "Waiting to begin",
    "running": "Translating",
    "done": "Done",
    "failed": "Failed",
    "cancelled": "Stopped",
}


def progress_line(task: Document | Build, state: State, label: str, state_name: str) -> str:
    """Name, state, progress and notes of a task as HTML; of one that failed only why."""
    done, total = task.progress
    name = f'<strong dir="auto">{escaped(task.name)}</strong>'
    if state == "failed":
        return f'<p class="mt-message mt-wrong" role="alert">{name}: {escaped(task.error)}</p>'
    notes = "".join(f"<li>{escaped(note)}</li>" for note in task.notes)
    return (
        f'<p class="mt-message" role="status">{name}: {escaped(state_name)} {done} of {total} sentences.</p>'
        f"{_progress_bar(done, total, label)}{f'<ul>{notes}</ul>' if notes else ''}"
    )


def _progress_bar(done: int, total: int, label: str) -> str:
    """A bar that screen readers can read too."""
    percent = 100 * done // total if total else 0
    return (
        f'<div class="mt-bar" role="progressbar" aria-label="{label}" aria-valuemin="0" aria-valuemax="100" '
        f'aria-valuenow="{percent}"><div style="width: {percent}%"></div></div>'
    )
