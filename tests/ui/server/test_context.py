"""Context over HTTP, and jobs whose drafts wait while another model has its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx

from tests.rag_mt.translation.test_context import ContextLLM
from tests.ui.conftest import RuleOpener
from ui.server.service import Service
from ui.server.translators import Choice
from ui.server.work import Order

TEXT = "Ja eins. Nein zwei. Gut drei. Schlecht vier."
SHOWN = "JA EINS. +1 NEIN ZWEI. -1 +1 GUT DREI. -2 -1 +1 SCHLECHT VIER. -2 -1"


def test_a_request_with_context(run_server: Callable[..., Any]) -> None:
    url = run_server(RuleOpener(ContextLLM())).url
    body = {"q": [TEXT, "Ja eins. Nein zwei."], "source": "de", "target": "en", "context": 2}
    answer = httpx.post(f"{url}/translate", json=body, timeout=60).json()
    assert answer["translatedText"] == [SHOWN, "JA EINS. +1 NEIN ZWEI. -1"]
    for none in ("", 0, None):
        answer = httpx.post(f"{url}/translate", json=body | {"context": none}, timeout=60).json()
        assert answer["translatedText"][0] == TEXT.upper()
    for wrong in (-1, 17, "two"):
        refused = httpx.post(f"{url}/translate", json=body | {"context": wrong}, timeout=60)
        assert refused.status_code == 400 and "context is" in refused.json()["error"]


def test_a_translator_of_its_own_where_context_has_an_adapter(make_service: Callable[..., Service]) -> None:
    gemma = "embedded:gemma-3-270m"
    service = make_service(RuleOpener(ContextLLM()), llms=("one", gemma))
    chosen = {
        (llm, adapter, context): service.choice("", "de", "en", adapter=adapter, llm=llm, context=context).context
        for llm in ("one", gemma)
        for adapter in ("auto", "none")
        for context in (0, 2)
    }
    assert [key for key, around in chosen.items() if around] == [(gemma, "auto", 2)]


def test_drafts_wait_for_their_model_to_have_its_turn_again(make_service: Callable[..., Service]) -> None:
    """Batches of one sentence: the turn goes to the other model between a draft and those around it."""
    opener = RuleOpener(ContextLLM())
    service = make_service(opener, llms=("one", "two"), batch=1)
    for name in ("one", "two"):
        opener.others[name, "auto"] = ContextLLM()
    orders = [Order(Choice("de", "en", "phrases", llm=name), TEXT, context=2) for name in ("one", "two") * 3]
    opener.others["one", "auto"].hold.clear()
    jobs = service.engine.submit_all(orders)
    opener.others["one", "auto"].hold.set()
    assert [job.result(30).text for job in jobs] == [SHOWN] * len(jobs)
    cancelled = service.engine.submit(orders[0])
    cancelled.cancel()
    assert service.engine.submit(orders[1]).result(30).text == SHOWN
