"""The part of a passage that is worth quoting."""

from __future__ import annotations

import re

from rag_mt.base.types import ELLIPSIS, Span

WINDOW_CHARS = 100
"""Characters that a prompt quotes (CCPR section 6.3), the ellipses around them included."""

_WORD = re.compile(r"\S+")


def windows(text: str, span: Span, limit: int = WINDOW_CHARS) -> list[Span]:
    """The windows of a passage, in order: as many whole words as fit into `limit` less two ellipses, beginning at every
    word in the first third of the window before. A passage that fits is its only window; a word that does not fit is
    cut."""
    if len(span) <= limit:
        return [span]
    room = max(1, limit - 2 * len(ELLIPSIS))
    words = [match.span() for match in _WORD.finditer(text, span.start, span.end)]
    made: list[Span] = []
    next_start = span.start
    for number, (start, _) in enumerate(words):
        if start < next_start:
            continue
        end = min(start + room, words[number][1])
        for _, word_end in words[number + 1 :]:
            if word_end > start + room:
                break
            end = word_end
        made.append(Span(start, end))
        if end == words[-1][1]:
            break
        next_start = start + room // 3
    return made
