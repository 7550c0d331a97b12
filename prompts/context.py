"""The sentences around a sentence in its document, as prompts show them with their translations so far."""

from __future__ import annotations

from collections.abc import Sequence

from prompts.safety import Guard, one_line
from prompts.wording import WITH_INSTRUCTION, filled, template
from rag_mt.base.errors import UserError
from rag_mt.base.types import Neighbour

CODED = "translategemma"


def check_context(wrapper: str, llm: str) -> None:
    """Raise UserError if the prompts of a wrapper have no place for context; `llm` is the language model's name."""
    if wrapper == CODED:
        raise UserError(
            f"context cannot be shown to {llm}: its prompts (wrapper {wrapper}) hold the bare sentence; leave context "
            "out, or take another --llm"
        )


def shown_context(wrapper: str, context: Sequence[Neighbour]) -> tuple[Neighbour, ...]:
    """The neighbours that prompts of a wrapper can show: examples are pairs that come before the sentence."""
    if wrapper in WITH_INSTRUCTION:
        return tuple(context)
    return tuple(one for one in context if one.offset < 0 and wrapper != CODED)


def nearest(context: Sequence[Neighbour], most: int) -> tuple[Neighbour, ...]:
    """The nearest neighbours, `most` of them, in the order of the document."""
    near = sorted(context, key=lambda one: (abs(one.offset), one.offset > 0))[:most]
    return tuple(sorted(near, key=lambda one: one.offset))


def context_text(wrapper: str, context: Sequence[Neighbour], guard: Guard, languages: dict[str, str]) -> str:
    """What prompts show of the neighbours: a block of the instruction, or examples; empty without any."""
    block = wrapper in WITH_INSTRUCTION
    name = "task.neighbour" if block else "few-shot.plain.example"

    def line(one: Neighbour) -> str:
        source, translation = (guard.neutral(one_line(text)) for text in (one.source, one.translation))
        return filled(name, {"source": source, "translation": translation} | languages)

    before, after = ([line(one) for one in context if (one.offset > 0) is behind] for behind in (False, True))
    if not block or not context:
        return "\n\n".join(before)
    return filled("task.context", {"sentences": "\n".join([*before, template("task.here"), *after])})
