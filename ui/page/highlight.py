"""The source text with its hints marked, what each hint is, and the table of all: escaped HTML."""

from __future__ import annotations

from collections.abc import Sequence

from rag_mt.base.types import Context
from ui.page.markup import escaped, table
from ui.page.shown import ShownHint

CONTEXT_CHARS = 240
NONE_FOUND = (
    "No hint was trusted for this text, so the model translated it without any. Index text of your own under "
    "“Your text”; a least score in the settings hides hints too."
)
BEFORE = "Phrases that were found in target-language text will be marked here."


def highlighted(text: str, hints: Sequence[ShownHint], code: str) -> str:
    """The source text; every hint is a button that opens its origin. Of hints that overlap the first is marked."""
    parts, at = [], 0
    for shown in hints:
        if shown.span.start < at:
            continue
        parts += [escaped(text[at : shown.span.start]), _button(shown, shown.span.of(text))]
        at = shown.span.end
    parts.append(escaped(text[at:]))
    return f'<p class="mt-source" lang="{escaped(code)}" dir="auto">{"".join(parts)}</p>'


def _button(shown: ShownHint, text: str) -> str:
    return (
        f'<button type="button" class="mt-hint mt-{_state(shown)}" data-hint="{shown.number}" aria-expanded="false" '
        f'aria-controls="mt-origin-{shown.number}" title="Hint {shown.number}: {_STATES[_state(shown)]}">'
        f'{escaped(text)}<sup aria-hidden="true">{_SIGNS[_state(shown)]}{shown.number}</sup>'
        f'<span class="mt-sr"> (hint {shown.number}, {_STATES[_state(shown)]})</span></button>'
    )


_STATES = {
    "used": "used word for word",
    "unused": "not used word for word",
    "pending": "not known yet whether it is used",
    "off": "switched off",
}
_SIGNS = {"used": "✓", "unused": "", "pending": "", "off": "✕"}
_IN_TABLE = {"used": "✓ yes", "unused": "○ no", "pending": "…", "off": "✕ off"}


def _state(shown: ShownHint) -> str:
    if shown.off:
        return "off"
    return "pending" if shown.used is None else "used" if shown.used else "unused"


def origins(text: str, hints: Sequence[ShownHint], code: str) -> str:
    """One closed panel per hint: the phrase in its context, score, file, line, whether it was used, and its switch."""
    return "".join(_origin(text, shown, code) for shown in hints)


def _origin(text: str, shown: ShownHint, code: str) -> str:
    hint, origin = shown.hint, shown.hint.hit.sentence.source
    return (
        f'<section class="mt-origin" id="mt-origin-{shown.number}" data-origin="{shown.number}" hidden '
        f'aria-label="Origin of hint {shown.number}" tabindex="-1">'
        f'<header><h3>Hint {shown.number}: <q dir="auto">{escaped(_short(shown.span.of(text)))}</q> → '
        f'<q lang="{escaped(code)}" dir="auto">{escaped(_short(hint.phrase))}</q></h3>'
        f'<button type="button" class="mt-close" data-close="{shown.number}" aria-label="Close hint {shown.number}">'
        f"✕</button></header>"
        f'<blockquote lang="{escaped(code)}" dir="auto">{_marked(hint.context(CONTEXT_CHARS))}</blockquote>'
        f"<dl><div><dt>Score</dt><dd>{hint.hit.score:.3f}</dd></div>"
        f"<div><dt>File</dt><dd>{escaped(origin.file) or 'unknown'}</dd></div>"
        f"<div><dt>Line</dt><dd>{origin.line or 'unknown'}</dd></div>"
        f"{f'<div><dt>Character</dt><dd>{origin.start}</dd></div>' if origin.start else ''}"
        f"<div><dt>Used</dt><dd>{_used(shown)}</dd></div></dl>{_switch(shown)}</section>"
    )


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _marked(context: Context) -> str:
    start, end = context.phrase.start, context.phrase.end
    before, phrase, after = (
        escaped(part) for part in (context.text[:start], context.text[start:end], context.text[end:])
    )
    return f"{before}<mark>{phrase}</mark>{after}"


def _used(shown: ShownHint) -> str:
    if shown.off:
        return "✕ switched off: the model was not shown it"
    if shown.used is None:
        return "… not known yet"
    return "✓ the translation has it word for word" if shown.used else "○ shown, but not used word for word"


def _switch(shown: ShownHint) -> str:
    state, label = ("false", "off") if shown.off else ("true", "on")
    return (
        f'<button type="button" role="switch" class="mt-switch" data-switch="{shown.number}" aria-checked="{state}" '
        f'aria-label="Use hint {shown.number}"><span aria-hidden="true" class="mt-knob"></span>'
        f'<span aria-hidden="true">{label}</span></button>'
    )


def hint_table(text: str, hints: Sequence[ShownHint], code: str) -> str:
    """All hints, a row each, with a button that opens the origin and the switch; or why there is none."""
    if not hints:
        return f'<p class="mt-empty">{NONE_FOUND if text else BEFORE}</p>'
    return table(
        "Hints that were found for the source text",
        ("Hint", "Source", "Target text", "Score", "From", "Used", "Show to the model"),
        [_row(text, shown, code) for shown in hints],
        [f' data-hint-row="{shown.number}" class="mt-{_state(shown)}"' for shown in hints],
    )


def _row(text: str, shown: ShownHint, code: str) -> tuple[str, ...]:
    hint = shown.hint
    return (
        f'<button type="button" class="mt-open" data-hint="{shown.number}" aria-expanded="false" '
        f'aria-controls="mt-origin-{shown.number}" aria-label="Open hint {shown.number}">{shown.number}</button>',
        f'<span dir="auto">{escaped(_short(shown.span.of(text)))}</span>',
        f'<span lang="{escaped(code)}" dir="auto">{_marked(hint.context(100))}</span>',
        f"{hint.hit.score:.3f}",
        escaped(str(hint.hit.sentence.source)) or "unknown",
        _IN_TABLE[_state(shown)],
        _switch(shown),
    )
