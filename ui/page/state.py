"""The head of the page, and how far the models are: visible while they load."""

from __future__ import annotations

import time

from ui.page.markup import escaped
from ui.server.service import Service
from ui.server.translators import Choice

WHAT = "Translation by a language model that is shown how the target language already says it, and says where from."


def head() -> str:
    """Name and purpose."""
    return f'<div class="mt-head"><h1>rag_mt</h1><p>{WHAT}</p></div>'


def state_line(service: Service, choice: Choice) -> tuple[str, bool]:
    """The state of the models for a choice, as HTML, and whether it is a last one (ready or failed)."""
    known = service.translators.state(choice)
    seconds = int(time.time() - known.since)
    match known.state:
        case "ready":
            return _pill("ready", "✓ Models are ready"), True
        case "failed":
            return _pill("wrong", f"✕ Models could not be loaded: {known.error}"), True
        case "loading":
            return _pill("busy", f"Models are being loaded: {choice}, {seconds} s. You can type already."), False
    return _pill("busy", "Models will be loaded with the first translation."), False


def _pill(kind: str, text: str) -> str:
    return f'<span class="mt-state mt-{kind}" role="status" data-state="{kind}">{escaped(text)}</span>'
