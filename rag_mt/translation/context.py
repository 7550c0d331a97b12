"""Which sentences stand around each one of a document."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from rag_mt.base.errors import UserError
from rag_mt.base.types import Translation
from rag_mt.translation.tasks import Pair, SentenceTask

log = logging.getLogger("rag_mt")


def checked_size(size: int) -> int:
    """How many sentences before one are shown; raises UserError for what is no such number."""
    if not isinstance(size, int) or size < 0:
        raise UserError(f"context is {size!r}: expected the number of sentences before, from 0 on")
    return size


def tell_not_learnt(llm: str) -> None:
    """Log what context brings with the adapter of a language model that has not learnt to use it
    (`reports/context-dev.md`)."""
    log.info(
        "%s with the adapter for single sentences has not learnt to use context and gains nothing by it (on documents "
        "that were measured -0.3 chrF, from English -1.0): say context as soon as the translator is made",
        llm,
    )


def surround(document: Sequence[SentenceTask | Pair], size: int) -> None:
    """Tell each task of a document, in order, which `size` parts stand before it and which half as many behind it."""
    for at, part in enumerate(document):
        if isinstance(part, SentenceTask):
            places = range(max(0, at - size), min(len(document), at + 1 + size // 2))
            part.neighbours = tuple((place - at, document[place]) for place in places if place != at)


def translate_together(document: Sequence[SentenceTask | Pair], size: int) -> None:
    """As `surround`, for tasks that are put into one queue: they are drafted first, and shown each other's drafts."""
    surround(document, size)
    for part in document:
        if isinstance(part, SentenceTask):
            part.together = size > 0


def finished_pair(translation: Translation) -> Pair:
    """A finished translation as those after it are shown it."""
    return translation.source.text, translation.text if translation.ok else ""
