"""Which hints a prompt shows, and the piece of a passage that it quotes."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from rag_mt.base.types import ELLIPSIS, Hint, Hit, Span, Unit

_WORD = re.compile(r"\w+")


def chosen_hints(
    text: str, hints: Sequence[Hint], unit: Unit, limit: int, chars: int
) -> tuple[list[Hint], Counter[str]]:
    """The hints worth showing for the sentence `text`, strongest first, and how many were left out for which reason.

    Of hints with the same source text and phrase the strongest stays; of phrase hints whose source spans overlap
    the strongest stays, so that the spans of the result are disjoint. Ties go to the earlier, longer span.
    A phrase longer than `chars`, the limit of its context, is left out: it cannot be cut without losing its meaning.
    Sentence and passage prompts show one hint.
    """
    left_out: Counter[str] = Counter()
    kept: list[Hint] = []
    seen: set[tuple[str, str]] = set()
    if unit != "phrase":
        limit = min(limit, 1)
    for hint in sorted(hints, key=_strength):
        pair = (_key(hint.source_span.of(text)), _key(hint.phrase))
        if not all(pair) or hint.source_span.end > len(text) or math.isnan(hint.hit.score):
            left_out["empty"] += 1
        elif unit == "phrase" and len(hint.phrase) > chars:
            left_out["longer than the context limit"] += 1
        elif pair in seen:
            left_out["repeated"] += 1
        elif unit == "phrase" and any(hint.source_span.overlaps(other.source_span) for other in kept):
            left_out["overlapping"] += 1
        else:
            seen.add(pair)
            kept.append(hint)
    if len(kept) > limit:
        left_out[f"beyond the limit of {limit}"] = len(kept) - limit
    return kept[:limit], left_out


def in_source_order(hints: Sequence[Hint]) -> tuple[Hint, ...]:
    """The hints in the order of their source spans."""
    return tuple(sorted(hints, key=lambda hint: hint.source_span))


def _strength(hint: Hint) -> tuple[float, int, int, str]:
    score = hint.hit.score
    return (math.inf if math.isnan(score) else -score, hint.source_span.start, -len(hint.source_span), hint.phrase)


def _key(text: str) -> str:
    return " ".join(text.split())


def passage_window(hint: Hint, source: str, limit: int) -> str:
    """At most `limit` characters of the hit: those that share most words (names, numbers) with `source`.

    The first of equally good windows; a hit that fits is returned with as much of its surroundings as fits too.
    """
    span, sentence = hint.hit.span, hint.hit.sentence
    if len(span) <= limit:
        return hint.context(limit).text
    room = max(1, limit - 2 * len(ELLIPSIS))
    wanted = {word.casefold() for word in _WORD.findall(source) if len(word) > 1 or word.isdigit()}
    words = [m for m in _WORD.finditer(sentence.text, span.start, span.end) if m.end() - m.start() <= room]
    best, best_shared, last, shared = Span(span.start, span.start + room), -1, 0, 0
    for first, word in enumerate(words):
        while last < len(words) and words[last].end() - word.start() <= room:
            shared += words[last][0].casefold() in wanted
            last += 1
        if shared > best_shared:
            best, best_shared = Span(word.start(), words[last - 1].end()), shared
        shared -= words[first][0].casefold() in wanted
    return Hint(hint.source_span, Hit(sentence, best, hint.hit.score)).context(limit).text
