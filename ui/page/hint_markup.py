"""The hints of a text as HTML: marked in the source text and in the translation, where each came from, and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rag_mt.base.types import Context, Hint, Span
from rag_mt.text.answers import phrase_places
from ui.page.markup import escaped, table
from ui.server.work import Item, hint_id

CONTEXT_CHARS = 240
NO_HINTS = (
    "No hint was trusted for this text, so the model translated it without any. Index text of your own under "
    "“Your text”; a least score in the settings hides hints too."
)
NO_TEXT = "Phrases that were found in target-language text will be marked here."
NO_TRANSLATION = "The translation will stand here."


class Use(NamedTuple):
    """What became of a hint, in CSS, as a sign, and in the words of the marked text, the table and the panel."""

    css: str
    sign: str
    label: str
    in_table: str
    in_panel: str


USED = Use("used", "✓", "used word for word", "✓ yes", "✓ the translation has it word for word")
UNUSED = Use("unused", "", "not used word for word", "○ no", "○ shown, but not used word for word")
PENDING = Use("pending", "", "not known yet whether it is used", "…", "… not known yet")
OFF = Use("off", "✕", "switched off", "✕ off", "✕ switched off: the model was not shown it")


@dataclass(frozen=True, slots=True)
class ShownHint:
    """One hint of a text: `span` are its characters in the whole text; `off` says that the user switched it off,
    `used` whether the translation took it up word for word (None where it is not known, or was not shown)."""

    number: int
    span: Span
    sentence: str
    hint: Hint
    used: bool | None = None
    off: bool = False

    @property
    def id(self) -> str:
        """What the hint is known by when the same text is translated again."""
        return hint_id(self.hint)

    @property
    def use(self) -> Use:
        if self.off:
            return OFF
        return PENDING if self.used is None else USED if self.used else UNUSED


def shown_hints(text: str, items: Sequence[Item], off: Sequence[ShownHint] = ()) -> tuple[ShownHint, ...]:
    """The hints of a job's sentences known so far and those switched `off`, numbered from 1 as in the text."""
    hints_in_text: list[tuple[Span, str, Hint, bool | None, bool]] = []
    at = 0
    for item in items:
        sentence = item.sentence.text
        start = text.find(sentence, at)
        if start < 0:
            continue
        at = start + len(sentence)
        translation = item.translation  # read once: the engine's thread may set it meanwhile
        answered = translation or item.prompt  # where a draft stands, the hints of the last prompt have no part in it
        prompted = answered.hints if answered else ()
        used = translation.used if translation else (None,) * len(prompted)
        hints = [(hint, use, False) for hint, use in zip(prompted, used, strict=True)]
        hints += [(o.hint, None, True) for o in off if o.sentence == sentence and o.hint not in prompted]
        for hint, use, switched_off in hints:
            span = Span(start + hint.source_span.start, start + hint.source_span.end)
            hints_in_text.append((span, sentence, hint, use, switched_off))
    hints_in_text.sort(key=lambda hint: (hint[0], hint[4], hint[2].phrase))
    return tuple(ShownHint(number, *hint) for number, hint in enumerate(hints_in_text, 1))


def highlighted(text: str, hints: Sequence[ShownHint], code: str) -> str:
    """The source text; every hint is a button that opens its origin. Of hints that overlap the first is marked."""
    buttons: list[tuple[Span, str]] = []
    for shown in hints:
        if not buttons or shown.span.start >= buttons[-1][0].end:
            number, use = shown.number, shown.use
            title = f' title="Hint {number}: {use.label}"'
            label = f"hint {number}, {use.label}"
            buttons.append(
                (shown.span, _button(shown.span.of(text), number, use.css, f"{use.sign}{number}", label, title))
            )
    return f'<p class="mt-source" lang="{escaped(code)}" dir="auto">{_with_buttons(text, buttons)}</p>'


def output_pane(text: str, code: str, hints: Sequence[ShownHint] = (), busy: bool = False) -> str:
    """The translation in language `code` with the phrases of used hints marked; `busy` makes screen readers wait."""
    content, copy = f'<span class="mt-empty">{"…" if busy else NO_TRANSLATION}</span>', ""
    if text:
        content = _with_buttons(
            text,
            [
                (span, _button(span.of(text), shown.number, "used", str(shown.number), f"from hint {shown.number}"))
                for span, shown in sorted(used_places(text, hints), key=lambda use: use[0])
            ],
        )
        copy = (
            f'<button type="button" class="mt-copy" data-copy="{escaped(text)}" aria-label="Copy the translation">'
            "Copy</button>"
        )
    return (
        f'<div class="mt-pane"><div class="mt-pane-head"><span id="mt-output-label">Translation</span>{copy}</div>'
        f'<div class="mt-output" role="region" aria-labelledby="mt-output-label" aria-live="polite" tabindex="0" '
        f'aria-busy="{str(busy).lower()}" lang="{escaped(code)}" dir="auto">{content}</div></div>'
    )


def used_places(text: str, hints: Sequence[ShownHint]) -> list[tuple[Span, ShownHint]]:
    """Where the used hints' phrases stand in the translation: for each the first place that no other has taken.
    Longer phrases choose first; a hint that is a whole sentence is not looked for."""
    places: list[tuple[Span, ShownHint]] = []
    for shown in sorted(hints, key=lambda hint: -len(hint.hint.phrase)):
        if not shown.used or len(shown.hint.source_span) == len(shown.sentence):
            continue
        for span in phrase_places(shown.hint.phrase, text):
            if not any(span.overlaps(taken) for taken, _ in places):
                places.append((span, shown))
                break
    return places


def _button(phrase: str, number: int, css: str, sign: str, label: str, title: str = "") -> str:
    """A marked phrase that opens the origin of its hint; the label is for screen readers."""
    return (
        f'<button type="button" class="mt-hint mt-{css}" data-hint="{number}" aria-expanded="false" '
        f'aria-controls="mt-origin-{number}"{title}>{escaped(phrase)}<sup aria-hidden="true">{sign}</sup>'
        f'<span class="mt-sr"> ({label})</span></button>'
    )


def _with_buttons(text: str, buttons: Sequence[tuple[Span, str]]) -> str:
    parts, at = [], 0
    for span, button in buttons:
        parts += [escaped(text[at : span.start]), button]
        at = span.end
    return "".join([*parts, escaped(text[at:])])


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
        f"<div><dt>Used</dt><dd>{shown.use.in_panel}</dd></div></dl>{_switch(shown)}</section>"
    )


def _short(text: str, limit: int = 80) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def _marked(context: Context) -> str:
    start, end = context.phrase.start, context.phrase.end
    text = context.text
    return f"{escaped(text[:start])}<mark>{escaped(text[start:end])}</mark>{escaped(text[end:])}"


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
        return f'<p class="mt-empty">{NO_HINTS if text else NO_TEXT}</p>'
    return table(
        "Hints that were found for the source text",
        ("Hint", "Source", "Target text", "Score", "From", "Used", "Show to the model"),
        [_row(text, shown, code) for shown in hints],
        [f' data-hint-row="{shown.number}" class="mt-{shown.use.css}"' for shown in hints],
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
        shown.use.in_table,
        _switch(shown),
    )
