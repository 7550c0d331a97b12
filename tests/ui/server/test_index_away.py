"""A server whose index does not answer: it says so, and translates without hints where it may."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from rag_mt import Index
from rag_mt.base.errors import AwayError
from rag_mt.base.types import LanguageModel, Sentence
from rag_mt.translation import away
from tests.retrievers.index.qdrant_process import Process, serving_copy
from tests.ui.conftest import RuleLLM
from tests.waiting import until
from ui.server import own_index
from ui.server.api import make_app
from ui.server.languages import offer_of
from ui.server.limits import Limits
from ui.server.service import Service
from ui.server.translators import UNREACHED, Choice, SharedModels

pytest.importorskip("qdrant_client")

GERMAN = "Das Museum ist an Feiertagen geschlossen."


class Models(SharedModels):
    """Translators with real retrievers and a language model by rule."""

    def _llm(self, choice: Choice) -> LanguageModel:
        return RuleLLM()


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setattr(away, "INDEX_PAUSE", 0.2)
    monkeypatch.setattr(own_index, "INDEX_PAUSE", 0.2)
    texts = ["The museum is closed on public holidays.", "The city council meets on Monday."]
    Index.build(tmp_path / "index", texts=texts, language="en", retriever="sentence", show=False)
    with serving_copy(tmp_path / "index", tmp_path, monkeypatch) as process:
        yield process


def client_of(place: str, index_away: str, tmp_path: Path) -> TestClient:
    models = Models("compact", index_away=index_away)
    options = {"limits": Limits(), "offer": offer_of(), "index": place, "folder": tmp_path / "users"}
    return TestClient(
        make_app(Service(models, models.default_encoder, index_away=index_away, **options)),  # type: ignore[arg-type]
        base_url="http://localhost",
    )


def asked(client: TestClient, target: str = "en") -> dict[str, object]:
    body = {"q": GERMAN, "source": "de", "target": target, "hints": True}
    answer = client.post("/translate", json=body)
    return {"status": answer.status_code, **answer.json()}


def until_hints(client: TestClient) -> None:
    def has_hints() -> bool:
        answer = asked(client)
        assert answer["status"] == 200
        return not answer.get("hints_away") and bool(answer["hints"])

    until(has_hints)
    assert client.get("/health").json()["index_away"] == []


def test_a_server_goes_on_without_hints_until_the_index_is_back(served: Process, tmp_path: Path) -> None:
    served.start()
    with client_of(served.place, "plain", tmp_path) as client:
        assert asked(client)["hints"] and client.get("/health").json()["index_away"] == []
        served.kill()
        answer = asked(client)
        assert (answer["status"], answer["hints"], answer["hints_away"]) == (200, [], True)
        assert answer["translatedText"] == GERMAN.upper()
        several = client.post("/translate", json={"q": [GERMAN, "Hallo."], "source": "de", "target": "en"}).json()
        assert several["hints_away"] == [True, True]
        assert client.get("/health").json()["index_away"] == ["de-en sentence"]
        served.start()
        until_hints(client)


def test_a_server_starts_without_its_index_and_finds_it_later(served: Process, tmp_path: Path) -> None:
    with pytest.raises(AwayError, match="does not answer"):
        client_of(served.place, "stop", tmp_path)
    with client_of(served.place, "plain", tmp_path) as client:
        assert client.get("/health").json()["index_away"] == ["index"]
        answer = asked(client)
        assert (answer["status"], answer["hints"], answer["hints_away"]) == (200, [], True)
        served.start()
        until_hints(client)


def test_a_document_that_began_before_the_index_was_reached_gets_its_hints(served: Process) -> None:
    models = Models("compact", index_away="plain")
    english, romanian = (models(Choice("de", target, UNREACHED, served.place)) for target in ("en", "ro"))
    assert english.translate(GERMAN).hints_away and romanian.translate(GERMAN).hints_away
    served.start()
    time.sleep(0.25)
    translated = english.translate_sentences([Sentence(GERMAN, "de")])[0]
    assert translated.hints and not translated.hints_away
    translated = romanian.translate_sentences([Sentence(GERMAN, "de")])[0]  # the index is of English
    assert not translated.hints and not translated.hints_away


def test_a_server_that_stops_says_that_it_is_the_index(served: Process, tmp_path: Path) -> None:
    served.start()
    with client_of(served.place, "stop", tmp_path) as client:
        assert asked(client)["hints"]
        served.kill()
        answer = asked(client)
        assert answer["status"] == 503 and "does not answer" in str(answer["error"])
        assert served.place not in str(answer) and "127.0.0.1" not in str(answer), "where it is is the operator's alone"
        assert client.get("/health").json()["index_away"] == ["de-en sentence"]
