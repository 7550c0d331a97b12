"""Hints and a sentence become a prompt that fits the language model's window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from prompts.hints import chosen_hints, in_source_order
from prompts.safety import Guard
from prompts.templates import templates_hash
from prompts.wrappers import STOPS, kind_of, question, resolved_wrapper, shared_length
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.languages import language
from rag_mt.base.types import Hint, LanguageModel, Prompt, Sentence, Unit

FORMAT = 2
"""Part of a job's fingerprint: raise it when code, not wording, changes the prompts."""


class PromptBuilder:
    """Builds the prompts of one direction, wrapper and unit.

    `source` and `target` are language codes; `wrapper` is `alpaca`, `few-shot`, `chat`, `compact` or `auto`; `unit` is
    what the retriever's hits are. With `llm`, a prompt and its `max_new_tokens` fit the model's window wherever
    dropping hints can make it so, and the control tokens of the model cannot come in with the text. Raises UserError
    for an unknown language, wrapper or unit.
    """

    def __init__(
        self,
        source: str,
        target: str,
        wrapper: str,
        unit: Unit = "phrase",
        *,
        llm: LanguageModel | None = None,
        max_new_tokens: int = 256,
        max_hints: int = 32,
        context_chars: int = 100,
    ) -> None:
        if unit not in get_args(Unit):
            raise UserError(f"unknown retrieval unit {unit!r}: expected one of {', '.join(get_args(Unit))}")
        for name, value, least in (("hints", max_hints, 0), ("characters of context", context_chars, 1)):
            if value < least:
                raise UserError(f"{value} {name} cannot be shown in a prompt: expected at least {least}")
        self.source, self.target = language(source).code, language(target).code
        self.wrapper = resolved_wrapper(wrapper, self.source, self.target, llm)
        self.unit = unit
        self.max_new_tokens, self.max_hints, self.context_chars = max_new_tokens, max_hints, context_chars
        self._llm = llm
        self._guard = Guard(llm.reserved if llm is not None else ())

    @property
    def settings(self) -> dict[str, object]:
        """All that could change a prompt, JSON-able; belongs into a job's fingerprint."""
        return {
            "source": self.source,
            "target": self.target,
            "wrapper": self.wrapper,
            "unit": self.unit,
            "max_hints": self.max_hints,
            "context_chars": self.context_chars,
            "max_new_tokens": self.max_new_tokens,
            "context_length": self._llm.context_length if self._llm is not None else None,
            "reserved": settings_hash(sorted(self._guard.reserved)),
            "templates": templates_hash(),
            "format": FORMAT,
        }

    def build(self, sentence: Sentence, hints: Sequence[Hint]) -> Prompt:
        """The prompt for one sentence with the hints that are worth showing and fit, in source order.

        `notes` count the hints that were left out and why. A prompt that is too long even without hints is
        returned with a note that says so; the sentence itself is never cut.
        """
        ranked, left_out = chosen_hints(sentence.text, hints, self.unit, self.max_hints, self.context_chars)
        notes = []
        if left_out:
            reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
            notes.append(f"hints left out: {reasons}")
        prompt, tokens = self._fitting(sentence, ranked)
        if weakest := len(ranked) - len(prompt.hints):
            notes.append(f"hints left out: the {weakest} weakest of {len(ranked)}, to fit {self._window()}")
        if tokens:
            notes.append(f"the prompt of {tokens} tokens does not fit {self._window()}")
        return replace(prompt, notes=tuple(notes))

    def _prompt(self, sentence: Sentence, ranked: Sequence[Hint]) -> Prompt:
        shown = in_source_order(ranked)
        text = question(
            self.wrapper, self.unit, self.source, self.target, sentence.text, shown, self._guard, self.context_chars
        )
        kind = kind_of(self.unit, shown)
        return Prompt(
            text,
            chat=self.wrapper == "chat",
            shared=shared_length(self.wrapper, kind, self.source, self.target),
            stop=STOPS[self.wrapper],
            hints=shown,
        )

    def _fitting(self, sentence: Sentence, ranked: Sequence[Hint]) -> tuple[Prompt, int]:
        """The prompt with the most of the strongest hints that fits, and its length in tokens if it is too long without
        any."""
        llm, whole = self._llm, self._prompt(sentence, ranked)
        if llm is None:
            return whole, 0
        room = llm.context_length - self.max_new_tokens
        if (tokens := llm.count_tokens(whole)) <= room:
            return whole, 0
        if not ranked:
            return whole, tokens
        shorter = self._prompt(sentence, ())
        if (tokens := llm.count_tokens(shorter)) > room:
            return shorter, tokens
        low, high = 0, len(ranked)  # `low` hints fit and `high` are too many
        while high - low > 1:
            middle = (low + high) // 2
            prompt = self._prompt(sentence, ranked[:middle])
            if llm.count_tokens(prompt) <= room:
                low, shorter = middle, prompt
            else:
                high = middle
        return shorter, 0

    def _window(self) -> str:
        length = self._llm.context_length if self._llm is not None else 0
        return f"the model's window of {length} tokens beside {self.max_new_tokens} new ones"
