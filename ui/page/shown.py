"""The hints of a text as the page numbers and shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rag_mt.base.types import Hint, Span
from ui.server.work import Item, hint_id


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


def shown_hints(text: str, items: Sequence[Item], off: Sequence[ShownHint] = ()) -> tuple[ShownHint, ...]:
    """The hints of a job's sentences as far as they are known, and those switched `off` for sentences among them,
    numbered from 1 as they stand in the text."""
    hints_in_text: list[tuple[Span, str, Hint, bool | None, bool]] = []
    at = 0
    for item in items:
        sentence = item.sentence.text
        start = text.find(sentence, at)
        if start < 0:
            continue
        at = start + len(sentence)
        hints = item.prompt.hints if item.prompt else ()
        used = item.translation.used if item.translation else (None,) * len(hints)
        taken = [(h, u, False) for h, u in zip(hints, used, strict=True)]
        taken += [(o.hint, None, True) for o in off if o.sentence == sentence and o.hint not in hints]
        for hint, was_used, switched_off in taken:
            span = Span(start + hint.source_span.start, start + hint.source_span.end)
            hints_in_text.append((span, sentence, hint, was_used, switched_off))
    hints_in_text.sort(key=lambda hint: (hint[0], hint[4], hint[2].phrase))
    return tuple(ShownHint(number, *hint) for number, hint in enumerate(hints_in_text, 1))
