"""The translation as it is shown: with its language, the phrases that hints brought marked, and a copy button."""

from __future__ import annotations

from collections.abc import Sequence

from rag_mt.base.types import Span
from rag_mt.text.answers import phrase_places
from ui.page.markup import escaped
from ui.page.shown import ShownHint

EMPTY = "The translation will stand here."


def output_pane(text: str, code: str, hints: Sequence[ShownHint] = (), busy: bool = False) -> str:
    """The translation in the language `code`; `busy` while it grows, so that screen readers wait for its end."""
    shown = _marked(text, hints) if text else f'<span class="mt-empty">{"…" if busy else EMPTY}</span>'
    copy = (
        ""
        if not text
        else f'<button type="button" class="mt-copy" data-copy="{escaped(text)}" aria-label="Copy the translation">'
        "Copy</button>"
    )
    return (
        f'<div class="mt-pane"><div class="mt-pane-head"><span id="mt-output-label">Translation</span>{copy}</div>'
        f'<div class="mt-output" role="region" aria-labelledby="mt-output-label" aria-live="polite" tabindex="0" '
        f'aria-busy="{str(busy).lower()}" lang="{escaped(code)}" dir="auto">{shown}</div></div>'
    )


def _marked(text: str, hints: Sequence[ShownHint]) -> str:
    """The text with the used phrases as buttons that open the origin of their hint."""
    parts, at = [], 0
    for span, shown in sorted(used_places(text, hints), key=lambda place: place[0]):
        parts += [escaped(text[at : span.start]), _button(span.of(text), shown.number)]
        at = span.end
    return "".join([*parts, escaped(text[at:])])


def _button(phrase: str, number: int) -> str:
    return (
        f'<button type="button" class="mt-hint mt-used" data-hint="{number}" aria-expanded="false" '
        f'aria-controls="mt-origin-{number}">{escaped(phrase)}<sup aria-hidden="true">{number}</sup>'
        f'<span class="mt-sr"> (from hint {number})</span></button>'
    )


def used_places(text: str, hints: Sequence[ShownHint]) -> list[tuple[Span, ShownHint]]:
    """Where the used hints' phrases stand in the translation: for each the first place that no other has taken.

    Longer phrases choose first. A hint that is a whole sentence is not looked for.
    """
    places: list[tuple[Span, ShownHint]] = []
    for shown in sorted(hints, key=lambda hint: -len(hint.hint.phrase)):
        if not shown.used or len(shown.hint.source_span) == len(shown.sentence):
            continue
        for span in phrase_places(shown.hint.phrase, text):
            if not any(span.overlaps(taken) for taken, _ in places):
                places.append((span, shown))
                break
    return places
