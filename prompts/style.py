"""What holds for all sentences of a translation: a form of address, instructions in words of the user's own, and the
title of the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prompts.safety import Guard, encodable, one_line
from prompts.wording import WITH_INSTRUCTION, filled, formality_sentence
from rag_mt.base.defaults import CHAT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.languages import base_code, language_or_none

FORMALITIES = ("more", "less")
LONGEST_INSTRUCTION, LONGEST_TITLE = 2000, 300
"""Characters."""


@dataclass(frozen=True, slots=True)
class Style:
    """`formality` is `more`, `less` or empty, `instruction` a text that goes along with every prompt, or empty, and so
    is the `title` of the document. Raises UserError for another formality, for a longer instruction than
    LONGEST_INSTRUCTION and a longer title than LONGEST_TITLE."""

    formality: str = ""
    instruction: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        if self.formality and self.formality not in FORMALITIES:
            raise UserError(f"formality is {self.formality!r:.60}: expected {' or '.join(FORMALITIES)}")
        for name, text, most in (
            ("instruction", self.instruction, LONGEST_INSTRUCTION),
            ("title", self.title, LONGEST_TITLE),
        ):
            if len(text) > most:
                raise UserError(f"the {name} has {len(text)} characters: shorten it to at most {most}")

    @property
    def settings(self) -> dict[str, Any]:
        """All that could change a prompt, JSON-able; empty where nothing is asked for."""
        settings = {"formality": self.formality}
        for name, text in (("instruction", self.instruction), ("title", self.title)):
            if text.strip():
                settings[name] = settings_hash(encodable(text))
        return {name: value for name, value in settings.items() if value}

    def check(self, wrapper: str, llm: str) -> None:
        """Raise UserError if something is asked for that the prompts of a wrapper have no place for; `llm` is the name
        of the language model."""
        if self.settings and wrapper not in WITH_INSTRUCTION:
            raise UserError(
                f"{' and '.join(self.settings)} cannot be asked of {llm}: its prompts (wrapper {wrapper}) hold no "
                f"instruction; take a model that follows instructions, such as --llm {CHAT_LLM} or "
                "--llm openai:MODEL@URL, or --wrapper chat if this one does"
            )

    def text(self, target: str, guard: Guard) -> str:
        """What stands in the prompts, paragraphs with a blank line after each. Lines of the instruction are indented,
        so that none of them reads as a label of the prompt."""
        parts = [f"{formality_sentence(target, self.formality)}\n\n"] if self.formality else []
        lines = [f"  {line}" for line in guard.neutral(encodable(self.instruction)).splitlines() if line.strip()]
        if lines:
            parts.append(filled("task.instruction", {"instruction": "\n".join(lines)}))
        if title := one_line(guard.neutral(encodable(self.title))):
            parts.append(filled("task.title", {"title": title}))
        return "".join(parts)


NO_STYLE = Style()


@dataclass(frozen=True, slots=True)
class Instructions:
    """Instructions by the code of the target language that they are for; an empty code means all languages."""

    texts: tuple[tuple[str, str], ...] = ()

    def of(self, target: str) -> str:
        """What holds for a target language: all that are for it, in order."""
        return "\n".join(text for code, text in self.texts if code in ("", target, base_code(target)))


NO_INSTRUCTIONS = Instructions()


def read_instructions(names: Sequence[str]) -> Instructions:
    """The instructions in files, each named `FILE` (for all target languages) or `LANG=FILE`. Raises UserError for a
    file that cannot be read as text, is empty or too long."""
    texts = []
    for name in names:
        before, sign, after = name.partition("=")
        known = language_or_none(before) if sign else None
        texts.append((known.code, _read(after)) if known else ("", _read(name)))
    return Instructions(tuple(texts))


def _read(name: str) -> str:
    try:
        with Path(name).open(encoding="utf-8-sig") as file:
            text = file.read(LONGEST_INSTRUCTION + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise UserError(
            f"the instruction {name} cannot be read ({reason}): give a text file, as FILE or LANG=FILE"
        ) from error
    if not 0 < len(text) <= LONGEST_INSTRUCTION:
        size = f"longer than {LONGEST_INSTRUCTION} characters" if text else "empty"
        raise UserError(f"the instruction {name} is {size}: write what holds for all translations in a few sentences")
    return text
