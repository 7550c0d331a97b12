"""The hints of a text as the page numbers and shows them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rag_mt.types import Hint, Span, Translation

HintKey = tuple[str, Hint]
"""What a hint is known by when the same text is translated again: its sentence's text and itself."""


@dataclass(frozen=True, slots=True)
class ShownHint:
    """One hint of a text: `span` are its characters in the whole text; `off` says that the user switched it off,
    `used` whether the translation took it up word for word (None where the model was not shown it)."""

    number: int
    span: Span
    sentence: str
    hint: Hint
    used: bool | None = None
    off: bool = False

    @property
    def key(self) -> HintKey:
        return (self.sentence, self.hint)


def shown_hints(text: str, sentences: Sequence[Translation], off: Collection[HintKey] = ()) -> tuple[ShownHint, ...]:
    """The hints that the model was shown for `sentences`, which stand in `text` in this order, and those of `off`
    that belong to one of them, numbered from 1 as they stand in the text."""
    found: list[tuple[Span, str, Hint, bool | None, bool]] = []
    at = 0
    for translation in sentences:
        own = translation.source.text
        start = text.find(own, at)
        if start < 0:
            continue
        at = start + len(own)
        pairs = [(h, u, False) for h, u in zip(translation.hints, translation.used, strict=True)]
        pairs += [(h, None, True) for sentence, h in off if sentence == own and h not in translation.hints]
        for hint, used, switched_off in pairs:
            span = Span(start + hint.source_span.start, start + hint.source_span.end)
            found.append((span, own, hint, used, switched_off))
    found.sort(key=lambda item: (item[0], item[4], item[2].phrase))
    return tuple(
        ShownHint(number, span, own, hint, used, switched_off)
        for number, (span, own, hint, used, switched_off) in enumerate(found, 1)
    )
