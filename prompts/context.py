"""The sentences around a sentence in its document, as prompts show them with their translations so far."""

from __future__ import annotations

from collections.abc import Sequence

from prompts.safety import Guard, one_line
from prompts.wording import WITH_INSTRUCTION, filled, template
from rag_mt.base.errors import UserError
from rag_mt.base.types import Neighbour

CODED = "translategemma"
ALIKE = 30
"""How alike, in per cent, `compact` prompts call the sentences around one: as alike as hits of a memory mostly are."""


def check_context(wrapper: str, llm: str) -> None:
    """Raise UserError if the prompts of a wrapper have no place for context; `llm` is the language model's name."""
    if wrapper == CODED:
        raise UserError(
            f"context cannot be shown to {llm}: its prompts (wrapper {wrapper}) hold the bare sentence; leave context "
            "out, or take another --llm"
        )


def shown_context(wrapper: str, context: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    """The neighbours that prompts of a wrapper can show: examples are pairs that come before the sentence."""
    if wrapper == "few-shot":
        return tuple(one for one in context if one.offset < 0)
    return () if wrapper == CODED else tuple(context)


def nearest(context: Sequence[Neighbour], most: int) -> tuple[Neighbour, ...]:
    """The nearest neighbours, `most` of them, in the order of the document."""
    near = sorted(context, key=lambda one: (abs(one.offset), one.offset > 0))[:most]
    return tuple(sorted(near, key=lambda one: one.offset))


def alike_line(percent: int, sides: Sequence[str], guard: Guard) -> str:
    """The line of a sentence that is so much like another one: its text, after what it translates if that is known."""
    sentence = " = ".join(guard.neutral(one_line(side)) for side in sides if side)
    return filled("similar", {"percent": str(percent), "sentence": sentence})


def context_text(wrapper: str, context: Sequence[Neighbour], guard: Guard, languages: dict[str, str]) -> str:
    """What prompts show of the neighbours: a block of the instruction, examples or, in `compact` prompts, lines like
    those of a memory of both languages, the nearest one before the sentence last; empty without any."""
    shape = "task.neighbour" if wrapper in WITH_INSTRUCTION else "few-shot.plain.example"

    def line(one: Neighbour) -> str:
        if wrapper == "compact":
            return alike_line(ALIKE, (one.source, one.translation), guard)
        source, translation = (guard.neutral(one_line(text)) for text in (one.source, one.translation))
        return filled(shape, {"source": source, "translation": translation} | languages)

    before, after = ([line(one) for one in context if (one.offset > 0) is behind] for behind in (False, True))
    if wrapper == "compact":
        return "\n".join([*after, *before])
    if wrapper not in WITH_INSTRUCTION or not context:
        return "\n\n".join(before)
    return filled("task.context", {"sentences": "\n".join([*before, template("task.here"), *after])})
