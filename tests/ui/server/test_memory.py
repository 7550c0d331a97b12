"""A memory in the server: both rounds share the queue, can be cancelled, and are told in the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import pairwise

import pytest
from fastapi.testclient import TestClient

from rag_mt.base.errors import UserError
from rag_mt.base.types import Hit, Recalled, Sentence, Span
from rag_mt.translation.translator import Translator
from tests.ui.conftest import HintedLLM, RuleMemory
from tests.waiting import until
from ui.page.sessions import Session
from ui.page.translating import Asked, View, compare_views, translate_views
from ui.server.api import make_app
from ui.server.engine import Engine
from ui.server.limits import Limits
from ui.server.service import Service
from ui.server.translators import Choice, Translators
from ui.server.work import Job, Order, hint_id

DE, CS = (Choice(code, "en", "memory") for code in ("de", "cs"))
TEXT = "Der Rat tagt heute. Der Zug wartet."


class MemoryOpener:
    """Opens translators that share one model and one memory, which shows what it has for sentences with `Rat`."""

    def __init__(self) -> None:
        self.llm, self.memory = HintedLLM(), RuleMemory(lambda text: "Rat" in text)

    def __call__(self, choice: Choice) -> Translator:
        options = {"retriever": self.memory, "llm": self.llm, "wrapper": "compact", "max_new_tokens": 64}
        return Translator(choice.source, choice.target, **options)  # type: ignore[arg-type]


@pytest.fixture
def opener() -> MemoryOpener:
    return MemoryOpener()


@pytest.fixture
def engine(opener: MemoryOpener) -> Iterator[Engine]:
    made = Engine(Translators(opener), Limits(queue=8, batch=2))
    yield made
    opener.llm.hold.set()
    made.close(5)


def test_requests_share_both_rounds_and_no_batch_is_larger_than_the_limit(engine: Engine, opener: MemoryOpener) -> None:
    opener.llm.hold.clear()
    first = engine.submit(Order(DE, "Vorweg."))
    until(lambda: opener.llm.calls)
    jobs = [engine.submit(Order(choice, TEXT)) for choice in (DE, CS)]
    until(lambda: all(job.state == "waiting" for job in jobs))
    opener.llm.hold.set()
    assert [job.result(5).text for job in jobs] == ["AGAIN DER RAT TAGT HEUTE. DER ZUG WARTET."] * 2
    assert first.result(5).text == "VORWEG."
    assert sum(opener.llm.calls) == 7 and max(opener.llm.calls) == 2
    assert sorted(pair for call in opener.memory.asked for pair in call) == sorted(
        (text, text.upper()) for text in ["Vorweg.", *["Der Rat tagt heute.", "Der Zug wartet."] * 2]
    )


def test_what_is_shown_of_a_job_only_grows(engine: Engine, opener: MemoryOpener) -> None:
    opener.llm.pace = 0.01
    seen = [text for text in engine.submit(Order(DE, TEXT)).updates(0.001) if text]
    assert all(after.startswith(before) for before, after in pairwise(seen))
    assert seen[-1] == "AGAIN DER RAT TAGT HEUTE. DER ZUG WARTET."
    assert len(set(seen)) > 2


@pytest.mark.parametrize("round_", [1, 2])
def test_a_job_is_cancelled_in_either_round(engine: Engine, opener: MemoryOpener, round_: int) -> None:
    opener.llm.pace = 0.02

    def begun(job: Job) -> bool:
        return any(item.answer and (item.recalled is not None) == (round_ == 2) for item in job.items)

    job = engine.submit(Order(DE, "Der Rat " + "tagt " * 40 + "heute."))
    until(lambda: begun(job))
    job.cancel()
    rounds = opener.llm.rounds
    assert engine.submit(Order(DE, "Ja.")).result(5).text == "JA.", "the queue goes on"
    assert opener.llm.rounds - rounds < 10
    with pytest.raises(CancelledError):
        job.result(0)


def test_what_is_switched_off_leaves_the_draft(engine: Engine, opener: MemoryOpener) -> None:
    shown = engine.submit(Order(DE, TEXT)).result(5)
    off = frozenset(hint_id(hint) for sentence in shown.sentences for hint in sentence.hints)
    for more in ({"switched_off": off}, {"max_hints": 0}, {"least_score": 0.9}):
        result = engine.submit(Order(DE, TEXT, **more)).result(5)  # type: ignore[arg-type]
        assert result.text == TEXT.upper() and not any(sentence.hints for sentence in result.sentences)


def test_a_memory_that_fails_fails_its_own_jobs(engine: Engine, opener: MemoryOpener) -> None:
    def shows(text: str) -> bool:
        if "kaputt" in text:
            raise UserError("the index is damaged: build it again")
        return False

    opener.memory.shows = shows
    with pytest.raises(UserError, match="damaged"):
        engine.submit(Order(DE, "Ganz kaputt.")).result(5)
    assert engine.submit(Order(DE, "Ganz heil.")).result(5).text == "GANZ HEIL."


@pytest.fixture
def service(make_service: Callable[..., Service], opener: MemoryOpener) -> Service:
    return make_service(opener)


def test_the_answer_tells_drafts_and_decisions(service: Service) -> None:
    with TestClient(make_app(service)) as api:
        body = {"q": TEXT, "source": "de", "target": "en", "hints": True}
        answer = api.post("/translate", json=body).json()
        several = api.post("/translate", json={**body, "q": [TEXT, "Ja."]}).json()
        bare = api.post("/translate", json={**body, "hints": False}).json()
    first, second = answer["memory"]
    assert (first["draft"], first["shown"], first["changes"]) == ("DER RAT TAGT HEUTE.", True, [["", "AGAIN"]])
    assert first["hits"][0]["phrase"] == "Of old: DER RAT TAGT HEUTE." and first["hits"][0]["score"] == 0.8
    assert (second["draft"], second["shown"]) == ("DER ZUG WARTET.", False)
    assert [len(own) for own in several["memory"]] == [2, 1]
    assert "memory" not in bare


@pytest.fixture
def of_two_hits(opener: MemoryOpener, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory has a second line, so that there are answers to choose from."""
    own = opener.memory._recalled

    def twice(text: str, draft: str) -> Recalled:
        recalled = own(text, draft)
        (hint,) = recalled.hints
        other = Hit(Sentence("Of late", "en"), Span(0, 7), 0.5)
        return replace(recalled, hints=(hint, replace(hint, hit=other)))

    monkeypatch.setattr(opener.memory, "_recalled", twice)


@pytest.mark.usefixtures("of_two_hits")
def test_the_answer_tells_alternatives(service: Service) -> None:
    body = {"source": "de", "target": "en", "alternatives": 2, "hints": True}
    with TestClient(make_app(service)) as api:
        texts = api.post("/translate", json={**body, "q": [" Der Rat tagt.\n", TEXT, "Ja."]}).json()
        html = api.post("/translate", json={**body, "q": "<p>Der Rat tagt.</p>", "format": "html"}).json()
        fewer = [api.post("/translate", json={**body, "q": "Rat", "alternatives": n}).json() for n in (0, -1)]
    assert texts["translatedText"][0] == " AGAIN DER RAT TAGT.\n"
    assert texts["alternatives"] == [[" DER RAT TAGT.\n"], [], []], "none of several sentences, none without hints"
    assert [own["alternatives"] for own in texts["memory"][1]] == [["DER RAT TAGT HEUTE."], []]
    assert (html["translatedText"], html["alternatives"]) == ("<p>AGAIN DER RAT TAGT.</p>", ["<p>DER RAT TAGT.</p>"])
    assert all("alternatives" not in answer for answer in fewer)


@pytest.mark.usefixtures("of_two_hits")
def test_the_page_tells_alternatives(service: Service) -> None:
    *_, view = translate_views(service, Session("somebody"), Asked(TEXT, "de"))
    assert isinstance(view, View)
    cells = re.findall(r'<td data-label="Other translations">(.*?)</td>', view.comparison or "")
    assert ["DER RAT TAGT HEUTE." in cell for cell in cells] == [True, False]


def test_the_page_tells_drafts_and_decisions(service: Service) -> None:
    session = Session("somebody")
    *_, view = translate_views(service, session, Asked(TEXT, "de"))
    assert isinstance(view, View)
    assert "something to show for 1 of 2 sentences" in (view.message or "")
    assert (view.prompt or "").count("Prompt for sentence 1 of 2") == 2, "that of the draft and that with hints"
    assert (view.prompt or "").count("Prompt for sentence 2 of 2") == 1
    page = view.comparison or ""
    assert "Draft: no hints" in page and "1 place differs." in page
    assert "○ no: the draft is the translation" in page and "memory.txt:3" in page
    *_, again = compare_views(service, session)
    assert again.comparison == page, "it is there already"
