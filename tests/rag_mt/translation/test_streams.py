"""Streams of a translator whose language model ends an answer after its last token."""

from __future__ import annotations

from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM, RuleRetriever


def test_a_stream_is_whole_where_the_answer_ends_after_the_last_token() -> None:
    translator = Translator("de", "en", retriever=RuleRetriever(), llm=RuleLLM(), wrapper="compact", max_new_tokens=64)
    text = "Das Haus ist sehr alt. Der Garten liegt dahinter.\n"
    assert "".join(translator.stream(text)) == translator.translate(text).text == text.upper()
