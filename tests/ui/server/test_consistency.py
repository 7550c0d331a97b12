"""Consistent texts and files over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.rag_mt.translation.test_consistency import TEXTS, Wavering
from tests.ui.conftest import RuleOpener
from ui.server import documents
from ui.server.service import Service
from ui.server.translators import Choice
from ui.server.work import Order

TEXT = " ".join(TEXTS)
COLD = "The river is cold."


def test_a_request_with_consistency(run_server: Callable[..., Any]) -> None:
    url = run_server(RuleOpener(Wavering("kalt."))).url
    body = {"q": [TEXT, TEXTS[3], ""], "source": "de", "target": "en"}
    for asked, expected in ((True, COLD), (False, "The stream is cold."), ("", "The stream is cold.")):
        answer = httpx.post(f"{url}/translate", json=body | {"consistent": asked}, timeout=60).json()
        whole, alone, nothing = answer["translatedText"]
        assert whole.count(expected) == 1 and (alone, nothing) == ("The stream is cold.", "")
    refused = httpx.post(f"{url}/translate", json=body | {"consistent": "perhaps"}, timeout=60)
    assert refused.status_code == 400 and "consistent is" in refused.json()["error"]


@pytest.mark.parametrize(("fields", "expected"), [({"consistent": "true"}, COLD), ({}, "The stream is cold.")])
def test_a_file_is_one_text(
    fields: dict[str, str], expected: str, run_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "BLOCK", 5)
    url = run_server(RuleOpener(Wavering("kalt."))).url
    form = {"source": "de", "target": "en"} | fields
    text = "\n".join([f"{TEXTS[0]} {TEXTS[1]}", *TEXTS[2:], "", TEXTS[2]])
    begun = httpx.post(f"{url}/translate_file", data=form, files={"file": ("a.txt", text.encode())}, timeout=60).json()
    lines = httpx.get(begun["translatedFileUrl"], timeout=60).text.splitlines()
    assert lines[0] == "The river is deep. The river is broad." and lines[2] == expected and lines[5:] == ["", lines[1]]


def test_a_job_shows_its_first_translations_until_the_second_are_there(make_service: Callable[..., Service]) -> None:
    llm = Wavering("kalt.")
    service = make_service(RuleOpener(llm), batch=2)
    job = service.engine.submit(Order(Choice("de", "en", "phrases"), TEXT, consistent=True))
    seen = list(job.updates(every=0.0))
    assert COLD in job.result(30).text and seen[-1] == job.result().text
    lengths = [len(text) for text in seen]
    assert max(lengths) - lengths[-1] <= 1, "the text is never taken back"
    assert sorted(lengths[:-1]) == lengths[:-1]
    assert [item.translation.text for item in job.items if item.translation][3] == COLD
    assert any(usage.prompt.terms for usage in job.items if usage.prompt), "the prompt is the one that was answered"


def test_what_cannot_be_compared_fails_its_text_alone(
    make_service: Callable[..., Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no terms")

    service = make_service(RuleOpener(Wavering()))
    monkeypatch.setattr("rag_mt.translation.consistency.DocumentTerms.again", broken)
    choice = Choice("de", "en", "phrases")
    failing, other = (service.engine.submit(Order(choice, TEXT, consistent=wanted)) for wanted in (True, False))
    assert "stream" not in other.result(30).text
    with pytest.raises(RuntimeError, match="no terms"):
        failing.result(30)


def test_second_translations_have_their_context(make_service: Callable[..., Service]) -> None:
    llm = Wavering("kalt.")
    order = Order(Choice("de", "en", "phrases"), TEXT, context=2, consistent=True)
    job = make_service(RuleOpener(llm)).engine.submit(order)
    assert COLD in job.result(30).text
    again = [prompt for prompt in llm.asked if prompt.terms]
    assert again and all(prompt.context for prompt in again[1:]), "the first of them is a draft"
    assert again[-1].context[0].translation == "The river is broad."


def test_repeated_sentences_show_the_translation_that_was_taken(make_service: Callable[..., Service]) -> None:
    service = make_service(RuleOpener(Wavering("kalt.")))
    job = service.engine.submit(Order(Choice("de", "en", "phrases"), f"{TEXT} {TEXTS[3]}", consistent=True))
    assert job.result(30).text.count(COLD) == 2
    shown = [item.translation.text for item in job.items if item.translation is not None]
    assert shown == [sentence.text for sentence in job.result().sentences]
