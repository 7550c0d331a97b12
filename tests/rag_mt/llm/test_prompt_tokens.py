"""Prompts that were counted are not tokenized again when they are answered."""

from __future__ import annotations

import pytest

from rag_mt.base.types import Prompt
from rag_mt.llm import prompt_tokens
from rag_mt.llm.prompt_tokens import CountedPrompts, EncodedPrompt


def test_what_was_counted_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def encode(prompt: Prompt) -> EncodedPrompt:
        made.append(prompt.text)
        return EncodedPrompt(tuple(map(ord, prompt.text)), prompt.shared)

    prompts = CountedPrompts()
    asked = Prompt("ab", shared=1)
    assert prompts.count(asked, encode) == prompts.count(asked, encode) == 2 and made == ["ab"]
    assert prompts.take(asked, encode) == EncodedPrompt((97, 98), 1) and made == ["ab"]
    assert prompts.take(asked, encode) == EncodedPrompt((97, 98), 1) and made == ["ab"] * 2, "it is not kept any longer"
    prompts.count(asked, encode)
    assert prompts.take(Prompt("ab", shared=2), encode).shared == 2 and len(made) == 4, "another prompt"
    monkeypatch.setattr(prompt_tokens, "REMEMBERED_PROMPTS", 1)
    prompts.count(Prompt("c"), encode)
    prompts.take(asked, encode)
    assert made[4:] == ["c", "ab"], "the oldest is forgotten where many are not answered"
