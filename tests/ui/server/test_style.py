"""The style of requests, and the instruction that an operator gives."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from prompts.style import Instructions, Style
from rag_mt.base.types import Prompt
from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM, RuleRetriever
from ui.server.serve import add_service_options
from ui.server.service import service_with
from ui.server.translators import Choice

BODY = {"q": "Any questions?", "source": "en", "target": "de"}
HALF = "\ud800"
SIE, BRIEF = "Sie, Ihnen, Ihr.\n\n", "  Be brief.\n"


class ChatLLM(RuleLLM):
    """Answers a chat with the last line in capitals; `asked` holds the prompts."""

    has_chat_template = True

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Prompt] = []

    def _answer(self, prompt: Prompt) -> list[str]:
        self.asked.append(prompt)
        return [f" {word}" for word in prompt.text.splitlines()[-1].split(": ", 1)[1].upper().split()]


class ChatOpener:
    """Opens translators that ask a ChatLLM."""

    def __init__(self) -> None:
        self.llm = ChatLLM()

    def __call__(self, choice: Choice) -> Translator:
        return Translator(choice.source, choice.target, retriever=RuleRetriever(), llm=self.llm, max_new_tokens=64)


@pytest.fixture
def chat(run_server: Callable[..., Any]) -> tuple[Any, httpx.Client]:
    running = run_server(ChatOpener())
    return running, httpx.Client(base_url=running.url, timeout=60)


def test_the_style_of_a_request_is_its_own(chat: tuple[Any, httpx.Client]) -> None:
    running, client = chat
    styles: list[dict[str, str]] = [
        {"formality": "more"},
        {"instruction": "Be brief."},
        {"formality": "", "instruction": ""},
        {"title": "At the inn"},
    ]
    for style in styles:
        assert client.post("/translate", json=BODY | style).json() == {"translatedText": "ANY QUESTIONS?"}
    texts = [prompt.text for prompt in running.opener.llm.asked]
    assert [(SIE in text, BRIEF in text) for text in texts] == [(True, False), (False, True), *[(False, False)] * 2]
    assert ["  At the inn\n" in text for text in texts] == [False, False, False, True]
    assert len(running.service.translators.states()) == 1, "the models are shared"


def test_a_document_has_a_style(chat: tuple[Any, httpx.Client]) -> None:
    running, client = chat
    data = {"source": "en", "target": "de", "formality": "more", "instruction": "Be brief.", "title": "At the inn"}
    job = client.post("/translate_file", files={"file": ("a.txt", b"Any questions?\n")}, data=data).json()
    assert client.get(job["translatedFileUrl"]).text == "ANY QUESTIONS?\n"
    (prompt,) = running.opener.llm.asked
    assert SIE in prompt.text and BRIEF in prompt.text and "  At the inn\n" in prompt.text


@pytest.mark.parametrize(
    ("style", "told"),
    [
        ({"formality": "polite"}, "formality is \"polite\": expected 'more', 'less' or ''"),
        ({"instruction": "x" * 2001}, "instruction is"),
        ({"title": "x" * 301}, "title is"),
        ({"instruction": HALF}, "unable to parse raw data as a unicode string"),
    ],
)
def test_what_is_no_style(chat: tuple[Any, httpx.Client], style: dict[str, str], told: str) -> None:
    answer = chat[1].post("/translate", content=json.dumps(BODY | style))
    assert answer.status_code == 400 and told in answer.json()["error"], answer.text
    if style.get("instruction") != HALF:  # no form can hold it
        data = {"source": "en", "target": "de"} | style
        answer = chat[1].post("/translate_file", files={"file": ("a.txt", b"Yes.")}, data=data)
        assert answer.status_code == 400 and told in answer.json()["error"], answer.text


def test_a_model_that_follows_no_instructions_says_so(run_server: Callable[..., Any]) -> None:
    running = run_server()
    answer = httpx.post(f"{running.url}/translate", json=BODY | {"formality": "more"}, timeout=60)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("formality cannot be asked of rule: its prompts (wrapper compact)")
    assert httpx.post(f"{running.url}/translate", json=BODY, timeout=60).json() == {"translatedText": "ANY QUESTIONS?"}


def test_an_operator_gives_instructions(tmp_path: Path) -> None:
    rules = tmp_path / "rules.txt"
    rules.write_text("Sei knapp.", encoding="utf-8")
    parser = argparse.ArgumentParser()
    add_service_options(parser, "the cache")
    service = service_with(parser.parse_args(["--instruction", f"de={rules}"]), tmp_path)
    try:
        assert service.style("de", "less") == Style("less", "Sei knapp.")
        assert service.style("de", "", "Be brief.") == Style("", "Be brief.")
        assert service.style("en") == Style() and Instructions().of("de") == ""
    finally:
        service.close(0)
