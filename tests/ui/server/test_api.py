"""The HTTP API against a server that really listens: LibreTranslate's contract, hints, files, indexes, limits."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from starlette.requests import Request

from rag_mt import __version__
from rag_mt.base.languages import _known
from rag_mt.base.only import Only
from rag_mt.base.quality import Estimate
from tests.waiting import until
from ui.server.limits import ANONYMOUS, Keys
from ui.server.requests import client_of

XLIFF = """<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
<file original="a" source-language="de" target-language="en" datatype="plaintext"><body>
<trans-unit id="1"><source>Ja.</source></trans-unit>
<trans-unit id="2"><source>Das Haus.</source></trans-unit>
</body></file></xliff>
"""
PO = 'msgid ""\nmsgstr ""\n\nmsgid "Das Haus."\nmsgstr ""\n'


@pytest.fixture
def api(run_server: Any) -> Any:
    """A client of a fresh server; `api.server` is the server."""
    running = run_server()
    with httpx.Client(base_url=running.url, timeout=60) as client:
        client.server = running  # type: ignore[attr-defined]
        yield client


def test_a_client_library_of_libretranslate(run_server: Any) -> None:
    client = LibreTranslateAPI(run_server().url)
    assert client.translate("Das Haus ist alt. Ja.", "de", "en") == "DAS HAUS IST ALT. JA."
    assert client.detect("Hyvää huomenta kaikille!")[0]["language"] == "fi"
    languages = {own["code"]: own for own in client.languages()}
    assert languages["en"]["name"] == "English"
    assert languages["de"]["targets"] == ["en"]


@pytest.mark.parametrize("kind", ["json", "data", "params"])
def test_json_form_and_query(api: Any, kind: str) -> None:
    answer = api.post("/translate", **{kind: {"q": "Das Haus.", "source": "de", "target": "en", "api_key": ""}})
    assert (answer.status_code, answer.json()) == (200, {"translatedText": "DAS HAUS."})


def test_several_texts(api: Any) -> None:
    texts = ["Das Haus ist alt.", "", "Der Hund schläft."]
    answer = api.post("/translate", json={"q": texts, "source": "de", "target": "en", "alternatives": 3})
    translated = {"translatedText": ["DAS HAUS IST ALT.", "", "DER HUND SCHLÄFT."]}
    assert answer.json() == {**translated, "alternatives": [[], [], []]}, "only a memory has some"
    form = api.post("/translate", data={"q": texts, "source": "de", "target": "en"})
    assert form.json() == translated


def test_the_language_is_detected(api: Any) -> None:
    text = "Der Stadtrat hat den Bau einer neuen Brücke beschlossen."
    answer = api.post("/translate", json={"q": text, "source": "auto", "target": "en"}).json()
    assert answer["translatedText"] == text.upper()
    assert answer["detectedLanguage"]["language"] == "de"
    assert answer["detectedLanguage"]["confidence"] > 90
    both = api.post("/translate", json={"q": [text, text], "source": "auto", "target": "en"}).json()
    assert [own["language"] for own in both["detectedLanguage"]] == ["de", "de"]
    same = api.post("/translate", json={"q": "The bridge is new and very long.", "source": "auto", "target": "en"})
    assert same.json()["translatedText"] == "The bridge is new and very long."
    digits = api.post("/translate", json={"q": "123", "source": "auto", "target": "en"}).json()
    assert digits == {"translatedText": "123", "detectedLanguage": {"confidence": 0.0, "language": "en"}}


def test_a_field_that_is_null_is_not_there(api: Any) -> None:
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    for extra in ({"api_key": None, "format": None, "hints": None}, {"format": ""}):
        assert api.post("/translate", json={**body, **extra}).json() == {"translatedText": "DAS HAUS."}
    answer = api.post("/translate", json={**body, "target": None})
    assert "missing target parameter" in answer.json()["error"]


def test_a_text_that_says_nothing_is_detected_as_libretranslate_has_it(api: Any) -> None:
    assert api.post("/detect", data={"q": "12345"}).json() == [{"confidence": 0.0, "language": "en"}]


def test_html(api: Any) -> None:
    page = '<p class="x">Das <b>Haus</b>.</p><script>var a = "Haus";</script>'
    answer = api.post("/translate", json={"q": page, "source": "de", "target": "en", "format": "html"})
    assert answer.json() == {"translatedText": '<p class="x">DAS <b>HAUS.</b></p><script>var a = "Haus";</script>'}


def test_hints_are_told_when_they_are_asked_for(api: Any) -> None:
    body = {"q": "Ja. Das Haus ist alt.", "source": "de", "target": "en"}
    assert "hints" not in api.post("/translate", json=body).json()
    hints = api.post("/translate", json={**body, "hints": True}).json()["hints"]
    assert hints[1] == {
        "source": "Das",
        "source_span": [4, 7],
        "phrase": "DAS",
        "context": "[[DAS]]",
        "score": 0.9,
        "file": "rule.txt",
        "line": 7,
        "used": True,
    }
    one = api.post("/translate", json={**body, "hints": {"max": 1, "least_score": 0.5}}).json()
    assert [hint["phrase"] for hint in one["hints"]] == ["JA.", "DAS"]
    assert one["notes"] == []
    several = api.post("/translate", data={**body, "q": ["Ja.", "Das."], "hints": "true"}).json()
    assert [len(own) for own in several["hints"]] == [1, 1]


@pytest.mark.parametrize(
    ("more", "retriever"),
    [
        ({}, "none"),
        ({"hints": False}, "none"),
        ({"hints": True}, "ccpr"),
        ({"hints": {"max": 3}}, "ccpr"),
        ({"hints": True, "retriever": "none"}, "none"),
        ({"hints": True, "retriever": "sentence"}, "sentence"),
    ],
)
def test_who_asks_for_hints_and_nothing_that_finds_them_has_those_of_the_sample_index(
    more: dict[str, Any], retriever: str, api: Any
) -> None:
    answer = api.post("/translate", json={"q": "Das Haus.", "source": "de", "target": "en", **more})
    assert answer.status_code == 200
    assert [choice.retriever for choice in api.server.opener.opened] == [retriever]


def with_hints(hints: str) -> bytes:
    """A request whose `hints` are this JSON."""
    return b'{"q": "x", "source": "de", "target": "en", "hints": %b}' % hints.encode()


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"q": "x", "target": "en"}, 400, "missing source parameter"),
        ({"source": "de", "target": "en"}, 400, "missing q parameter"),
        ({"q": "", "source": "de", "target": "en"}, 400, "missing q parameter"),
        ({"q": 5, "source": "de", "target": "en"}, 400, "q is 5: expected a valid string or a valid list"),
        ({"q": "x", "source": "xx", "target": "en"}, 400, "'xx' is not offered"),
        ({"q": "x", "source": "de", "target": "fi"}, 400, "German is not translated into Finnish"),
        (
            {"q": "x", "source": "de", "target": "en", "format": "pdf"},
            400,
            "format is \"pdf\": expected 'text' or 'html'",
        ),
        ({"q": "x" * 5001, "source": "de", "target": "en"}, 400, "at most 5000"),
        ({"q": ["x"] * 51, "source": "de", "target": "en"}, 400, "at most 50"),
        ({"q": "x", "source": "de", "target": "en", "retriever": "magic"}, 400, "'magic'"),
        ({"q": "x", "source": "de", "target": "en", "index": "abc"}, 404, "no index 'abc'"),
        (
            {"q": "x", "source": "de", "target": "en", "only_files": "a*"},
            400,
            "no index is searched: name one with index",
        ),
        ({"q": "x", "source": "de", "target": "en", "only_domain": ["a\tb"]}, 400, "is no name of a domain"),
        ({"q": "x", "source": "de", "target": "en", "only_files": [""]}, 400, "at least 1 character"),
        ({"q": "x", "source": "de", "target": "en", "only_files": ["a"] * 21}, 400, "at most 20 items"),
        ({"q": "x", "source": "de", "target": "en", "since": "2024-5-32"}, 400, "'2024-5-32' is no date"),
        ({"q": "x", "source": "de", "target": "en", "llm": "gpt2"}, 400, "choose one of embedded:gemma-3-270m"),
        ({"q": "x", "source": "de", "target": "en", "adapter": "../x"}, 400, "choose one of auto, none"),
        (with_hints('{"max": -1}'), 400, "hints.max is -1: expected a whole number from 0 to 32"),
        (with_hints('{"max": 33}'), 400, "hints.max is 33: expected a whole number from 0 to 32"),
        (with_hints('{"max": 1e99}'), 400, "hints.max is 1e+99: expected a whole number from 0 to 32"),
        (with_hints('{"max": 1e999}'), 400, "hints.max is Infinity: expected a whole number from 0 to 32"),
        (with_hints('{"least_score": 2}'), 400, "hints.least_score is 2: expected a number from 0 to 1"),
        (with_hints('{"most": 2}'), 400, 'hints has no "most": expected an object with max and least_score'),
        (with_hints('"maybe"'), 400, 'hints is "maybe": expected true, false or an object with max and least_score'),
        ({"q": "x", "source": "de", "target": "e" * 36}, 400, "is not offered"),
        (b"{", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        (b"[]", 400, "no object"),
        (b"\xff", 400, "no JSON"),
        (b'{"q": "\\ud800", "source": "de", "target": "en"}', 400, "surrogate"),
        (b'{"q": "' + b"x" * 200_000, 413, "no more are allowed"),
    ],
)
def test_mistakes_are_told_in_one_sentence(api: Any, body: Any, status: int, said: str) -> None:
    answer = api.post("/translate", **({"content": body} if isinstance(body, bytes) else {"json": body}))
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert said in answer.json()["error"]


def test_the_address_alone_tells_where_to_read_on(api: Any) -> None:
    answer = api.get("/")
    assert (answer.status_code, answer.json()["version"]) == (200, __version__)
    assert api.get(answer.json()["docs"]).status_code == 200 and answer.json()["translate"] == "/translate"


def test_what_clients_call_languages_is_not_remembered(api: Any) -> None:
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    api.post("/translate", json=body)
    known = _known.cache_info().currsize
    for n in range(1, 20):
        answer = api.post("/translate", json={**body, "target": " " * n + "en\n", "source": "\tde" + " " * n})
        assert answer.json() == {"translatedText": "DAS HAUS."}
    assert _known.cache_info().currsize == known


def test_unknown_paths_and_methods(api: Any) -> None:
    assert api.get("/nowhere").json() == {"error": "Not Found"}
    answer = api.get("/translate")
    assert (answer.status_code, answer.json()) == (405, {"error": "Method Not Allowed"})


def test_health_settings_and_metrics(api: Any) -> None:
    assert api.get("/health").json() == {"status": "ok", "translators": {}, "index_away": []}
    api.post("/translate", json={"q": "Das Haus. Ja.", "source": "de", "target": "en"})
    assert api.get("/health").json()["translators"] == {"de-en none": "ready"}
    settings = api.get("/frontend/settings").json()
    assert (settings["charLimit"], settings["filesTranslation"]) == (5000, True)
    api.get("/nowhere/at/all")
    text = api.get("/metrics").text
    assert 'rag_mt_requests_total{method="POST",path="/translate",status="200"} 1.0' in text
    assert 'path="other"' in text and "nowhere" not in text
    assert "rag_mt_tokens_total 3.0" in text
    assert "rag_mt_waiting 0.0" in text


def test_a_dead_engine_is_told(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = api.server.service.engine

    def fatal(*_: Any) -> Any:
        raise SystemExit("a fault in native code")

    monkeypatch.setattr(engine, "_fail_batch", fatal)
    monkeypatch.setattr(api.server.opener.llm, "answer", fatal)
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    answer = api.post("/translate", json=body)
    assert (answer.status_code, "a fault in native code" in answer.json()["error"]) == (503, True)
    assert api.post("/translate", json=body).status_code == 503
    health = api.get("/health")
    assert (health.status_code, "a fault in native code" in health.json()["error"]) == (503, True)


def test_a_file_as_a_job(api: Any) -> None:
    begun = api.post(
        "/translate_file", files={"file": ("../../my.po", PO)}, data={"source": "de", "target": "en"}
    ).json()
    answer = api.get(begun["translatedFileUrl"])
    assert 'msgstr "DAS HAUS."' in answer.text
    assert 'filename="my.en.po"' in answer.headers["content-disposition"]
    document = api.get(f"/translate_file/{begun['id']}").json()
    assert (document["state"], document["done"], document["total"]) == ("done", 1, 1)
    assert document["partial"] == [["Das Haus.", "DAS HAUS."]]
    assert api.get(f"/translate_file/{begun['id']}", params={"first": 1}).json()["partial"] == []
    assert api.delete(f"/translate_file/{begun['id']}").status_code == 204
    assert api.get(f"/translate_file/{begun['id']}").status_code == 404
    file, data = ("a.txt", "Der Stadtrat tagt heute."), {"source": "auto", "target": "en"}
    auto = api.post("/translate_file", files={"file": file}, data=data)
    assert api.get(auto.json()["translatedFileUrl"]).text == "DER STADTRAT TAGT HEUTE."


def test_fields_that_a_form_has_twice_are_all_read(run_server: Any) -> None:
    """Of files as of texts; what is empty is not there."""
    running = run_server()
    orders: list[Any] = []
    real = running.service.documents.start
    running.service.documents.start = lambda *values: orders.append(values[3]) or real(*values)
    with httpx.Client(base_url=running.url, timeout=60) as api:
        texts = ["The old house stands on the hill.\n", "The train leaves at noon.\n"]
        files = [("files", (f"{n}.txt", text)) for n, text in enumerate(texts)]
        built = api.post("/index", files=files, data={"language": "en", "retriever": "sentence"}).json()["id"]
        until(lambda: api.get(f"/index/{built}").json()["state"] == "done")
        data = {"source": "de", "target": "en", "index": built, "only_domain": ""}
        for names in (["0.txt", "1.txt"], ["1.txt", "0.txt", ""], ["0.txt", ""]):
            form = {**data, "only_files": names}
            begun = api.post("/translate_file", files={"file": ("a.txt", "Das Haus.")}, data=form).json()
            until(lambda at=f"/translate_file/{begun['id']}": api.get(at).json()["state"] == "done")
            assert orders.pop().only == Only(filter(None, names))
        assert len(running.service.translators.states()) == 1, "one for all choices of files"
        twice = {"source": ["de", "fr"], "target": "en", "api_key": ["a", "b"]}
        for wrong in (twice, {**twice, "api_key": ""}):
            refused = api.post("/translate_file", files={"file": ("a.txt", "Das Haus.")}, data=wrong)
            assert refused.status_code == 400 and refused.json()["error"].startswith("Invalid request: ")


def test_a_file_that_gave_way_to_another_is_missing(run_server: Any) -> None:
    running = run_server()
    with httpx.Client(base_url=running.url, timeout=60) as api:
        data = {"source": "de", "target": "en"}
        begun = api.post("/translate_file", files={"file": ("a.txt", "Das Haus.")}, data=data).json()
        document = running.service.documents.get(ANONYMOUS, begun["id"])
        assert document.wait(60)
        document.result.unlink()  # as it is with a download that waits while the file gives way
        answer = api.get(begun["translatedFileUrl"])
        assert (answer.status_code, "deleted" in answer.json()["error"]) == (404, True)


def test_a_job_is_cancelled(run_server: Any, slow: Callable[[float], Any]) -> None:
    running = run_server(slow(0.02))
    with httpx.Client(base_url=running.url, timeout=60) as api:
        lines = "".join(f"Zeile {n} von vielen Zeilen.\n" for n in range(300))
        begun = api.post("/translate_file", files={"file": ("a.txt", lines)}, data={"source": "de", "target": "en"})
        address = f"/translate_file/{begun.json()['id']}"
        until(lambda: api.get(address).json()["done"] > 0)
        waited = api.get(begun.json()["translatedFileUrl"], params={"wait": 0})
        assert (waited.status_code, "running" in waited.json()["error"]) == (409, True)
        assert api.delete(address).status_code == 204
        rounds = running.opener.llm.rounds
        time.sleep(0.3)
        assert running.opener.llm.rounds <= rounds + 1


def test_deleting_what_runs_waits_for_nothing(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    indexes, load = api.server.service.indexes, threading.Event()
    encoder = indexes._encoder

    def loading(retriever: str) -> Any:
        load.wait(20)
        return encoder(retriever)

    monkeypatch.setattr(indexes, "_encoder", loading)
    form = {"language": "en", "retriever": "sentence"}
    begun = [api.post("/index", files={"files": (f"{n}.txt", "The dog.")}, data=form).json()["id"] for n in range(2)]
    until(lambda: api.get(f"/index/{begun[0]}").json()["state"] == "running")
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    with ThreadPoolExecutor(20) as pool:  # more than the server has threads
        deleted = [pool.submit(api.delete, f"/index/{begun[0]}") for _ in range(20)]
        assert sorted({answer.result().status_code for answer in deleted}) == [204, 404]
    assert api.post("/translate", json=body).json() == {"translatedText": "DAS HAUS."}
    assert api.get(f"/index/{begun[0]}").status_code == 404
    assert api.delete(f"/index/{begun[1]}").status_code == 204
    assert api.get("/index").json() == []
    assert len(list(indexes.folder.glob(".uploads-*/*"))) == 1  # of the one whose encoder is being loaded
    load.set()
    until(lambda: not list(indexes.folder.glob(".uploads-*/*")))
    assert not list(indexes.folder.glob("*/*/index"))


def test_a_named_source_language_needs_no_other_thread(api: Any) -> None:
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    held, threads = threading.Event(), []
    api.post("/translate", json=body)

    def hold() -> None:
        threads.append(1)
        held.wait(60)

    detector = api.server.service.detector
    detect = detector.detect
    detector.detect = lambda text: [hold(), *detect(text)][1:]
    with ThreadPoolExecutor(40) as pool:
        waiting = [pool.submit(api.post, "/detect", data={"q": "Guten Tag"}) for _ in range(40)]
        until(lambda: len(threads) >= min(32, (os.cpu_count() or 1) + 4))  # all threads of the server are taken
        assert api.post("/translate", json=body).json() == {"translatedText": "DAS HAUS."}
        held.set()
        assert {answer.result().status_code for answer in waiting} == {200}


@pytest.mark.parametrize(
    ("files", "data", "status", "said"),
    [
        ({}, {"source": "de", "target": "en"}, 400, "no multipart form"),
        ({"file": ("a.pdf", b"%PDF-1.7")}, {"source": "de", "target": "en"}, 400, "a.pdf looks like a PDF"),
        ({"file": ("a.txt", b"x")}, {"source": "de"}, 400, "missing target"),
        ({"other": (None, b"x")}, {"source": "de", "target": "en"}, 400, "missing file"),
        ({"file": (None, b"Das Haus.")}, {"source": "de", "target": "en"}, 400, "missing file"),
        ({"file": ("a.txt", b"x" * 2_000_001)}, {"source": "de", "target": "en"}, 413, "at most 2000000"),
        ({"file": ("a.txt", b"x" * 2_100_000)}, {"source": "de", "target": "en"}, 413, "no more are allowed"),
    ],
)
def test_files_that_are_refused(api: Any, files: Any, data: Any, status: int, said: str) -> None:
    answer = api.post("/translate_file", files=files, data=data)
    assert answer.status_code == status
    assert said in answer.json()["error"]


def test_an_own_index(api: Any) -> None:
    text = "The old house stands on the hill.\nThe dog sleeps.\n"
    begun = api.post(
        "/index",
        files=[("files", ("houses.txt", text)), ("files", ("more.txt", "The train leaves at noon.\n"))],
        data={"language": "en", "retriever": "sentence"},
    )
    assert begun.status_code == 202
    address = f"/index/{begun.json()['id']}"
    until(lambda: api.get(address).json()["state"] == "done")
    assert api.get(address).json()["done"] == 3
    assert api.patch(address, json={"name": "Häuser"}).json()["name"] == "Häuser"
    assert [own["name"] for own in api.get("/index").json()] == ["Häuser"]
    body = {"q": "The dog sleeps.", "source": "de", "target": "en", "hints": True, "index": begun.json()["id"]}
    (hint, *_) = api.post("/translate", json=body).json()["hints"]
    assert (hint["file"], hint["line"], hint["phrase"]) == ("houses.txt", 2, "The dog sleeps.")
    for names, there in (("more*", []), (["more.txt", "houses.*"], [("houses.txt", 2)]), ("", [("houses.txt", 2)])):
        hints = api.post("/translate", json={**body, "only_files": names}).json()["hints"]
        assert [(hint["file"], hint["line"]) for hint in hints] == there
    form = {"source": "de", "target": "en", "index": body["index"], "only_files": ["more.txt", "x"], "since": ""}
    file = api.post("/translate_file", files={"file": ("a.txt", "Der Hund.")}, data=form).json()
    until(lambda: api.get(f"/translate_file/{file['id']}").json()["state"] == "failed")
    otherwise = "ask for others, or leave out what is asked of files"
    said = f"the index has no file named x: {otherwise}"
    assert api.get(f"/translate_file/{file['id']}").json()["error"] == said
    assert api.get(file["translatedFileUrl"]).json()["error"] == said
    for asked, none in (
        ({"only_files": "x"}, "named x"),
        ({"only_domain": "law"}, "of the domain law"),
        ({"since": "2024-01-01"}, "dated since 2024-01-01"),
    ):
        refused = api.post("/translate", json={**body, **asked})
        assert refused.status_code == 400
        assert refused.json()["error"] == f"the index has no file {none}: {otherwise}"
    assert api.delete(address).status_code == 204
    assert api.post("/translate", json=body).status_code == 404
    assert api.get("/index").json() == []


def test_the_language_model_and_adapter_may_be_chosen(run_server: Any) -> None:
    running = run_server(llms=["first", "second"], adapters=["mine"])
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    with httpx.Client(base_url=running.url, timeout=60) as api:
        chosen = ({}, {"adapter": "none"}, {"llm": "second"}, {"llm": "second", "adapter": "mine"})
        for more in chosen:
            assert api.post("/translate", json={**body, **more}).json() == {"translatedText": "DAS HAUS."}
        form = {"source": "de", "target": "en", "llm": "second", "adapter": "none"}
        begun = api.post("/translate_file", files={"file": ("a.txt", "Das Haus.")}, data=form).json()
        assert api.get(begun["translatedFileUrl"]).text == "DAS HAUS."
        assert api.post("/translate", json={**body, "llm": "third"}).status_code == 400
        described = api.get("/openapi.json").json()["paths"]["/translate"]["post"]["requestBody"]["content"]
        fields = described["application/json"]["schema"]["properties"]
        assert fields["llm"]["enum"] == ["", "first", "second"]
        assert fields["adapter"]["enum"] == ["", "mine", "auto", "none"]
    models = [(choice.llm, choice.adapter) for choice in running.opener.opened]
    assert models == [
        ("first", "mine"),  # the default adapter is made for the default model
        ("first", "none"),
        ("second", "auto"),
        ("second", "mine"),
        ("second", "none"),
    ]


@pytest.mark.parametrize(("retriever", "said"), [("none", "'none' has no index"), ("magic", "'magic'")])
def test_an_index_for_a_retriever_that_has_none_is_refused(api: Any, retriever: str, said: str) -> None:
    form = {"language": "en", "retriever": retriever}
    answer = api.post("/index", files={"files": ("a.txt", "The dog sleeps.")}, data=form)
    assert (answer.status_code, said in answer.json()["error"]) == (400, True)


def test_a_key_in_the_header_is_checked_before_the_upload_is_read(run_server: Any) -> None:
    running = run_server(app_options={"keys": Keys(["first"])})
    host, port = running.url.removeprefix("http://").split(":")
    head = (
        f"Host: {host}\r\nAuthorization: Bearer wrong\r\nContent-Type: multipart/form-data; boundary=x\r\n"
        "Content-Length: 100000\r\n\r\n--x\r\n"
    )
    for path in ("/index", "/translate_file"):
        with socket.create_connection((host, int(port)), timeout=60) as line:
            line.sendall(f"POST {path} HTTP/1.1\r\n{head}".encode())  # the rest never comes
            assert b" 403 " in line.recv(100)
    file, data = {"file": ("a.txt", "Das Haus.")}, {"source": "de", "target": "en"}
    headers = {"Authorization": "Bearer first"}
    assert httpx.post(f"{running.url}/translate_file", files=file, data=data, headers=headers).status_code == 200


def test_keys(run_server: Any) -> None:
    running = run_server(app_options={"keys": Keys(["first", "second"])})
    body = {"q": "Das Haus.", "source": "de", "target": "en"}
    with httpx.Client(base_url=running.url) as api:
        assert api.get("/health").status_code == 200
        assert api.post("/translate", json=body).status_code == 401
        assert api.post("/translate", json={**body, "api_key": "third"}).status_code == 403
        assert api.post("/translate", json={**body, "api_key": "first"}).status_code == 200
        assert api.post("/translate", json=body, headers={"Authorization": "Bearer second"}).status_code == 200
        assert api.get("/metrics").status_code == 401
        begun = api.post(
            "/translate_file",
            files={"file": ("a.txt", "x y")},
            data={"source": "de", "target": "en", "api_key": "first"},
        ).json()
        assert api.get(f"/translate_file/{begun['id']}", params={"api_key": "second"}).status_code == 404
        assert api.get(f"/translate_file/{begun['id']}", params={"api_key": "first"}).status_code == 200
        owner = running.service.documents.get(Keys(["first"]).owner("first"), begun["id"]).owner
        assert "first" not in owner != ANONYMOUS


def test_fifty_clients_at_once(run_server: Any, slow: Callable[[float], Any]) -> None:
    running = run_server(slow(0.002))

    limits = httpx.Limits(max_connections=50)
    with httpx.Client(base_url=running.url, timeout=30, limits=limits) as api, ThreadPoolExecutor(50) as pool:

        def ask(n: int) -> str:
            body = {"q": f"Satz Nummer {n} ist da.", "source": "de", "target": "en"}
            return str(api.post("/translate", json=body).json()["translatedText"])

        answers = list(pool.map(ask, range(150)))
    assert answers == [f"SATZ NUMMER {n} IST DA." for n in range(150)]
    assert max(running.opener.llm.calls) > 4
    assert sum(running.opener.llm.calls) == 150


def test_back_pressure(run_server: Any, slow: Callable[[float], Any]) -> None:
    running = run_server(slow(0), queue=4)
    running.opener.llm.hold.clear()
    body = {"q": "Das Haus.", "source": "de", "target": "en"}

    with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=running.url, timeout=60) as api:
        waiting = [pool.submit(httpx.post, f"{running.url}/translate", json=body, timeout=60) for _ in range(4)]
        until(lambda: running.service.engine.waiting == 4)
        refused = api.post("/translate", json=body)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert "4 texts are waiting" in refused.json()["error"]
        running.opener.llm.hold.set()
        assert {answer.result().status_code for answer in waiting} == {200}


def test_too_many_requests_in_a_minute(run_server: Any) -> None:
    running = run_server(requests=3)
    answers = [httpx.post(f"{running.url}/detect", data={"q": "Guten Tag"}) for _ in range(4)]
    assert [a.status_code for a in answers] == [200, 200, 200, 429]
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 20


def test_a_translation_ends_with_its_connection(run_server: Any, slow: Callable[[float], Any]) -> None:
    running = run_server(slow(0.05))
    text = " ".join(["wort"] * 60)
    body = f'{{"q": "{text}", "source": "de", "target": "en"}}'
    host, port = running.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as line:
        head = f"POST /translate HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n"
        line.sendall((head + body).encode())
        until(lambda: running.opener.llm.rounds > 3)
    until(lambda: running.service.engine.waiting == 0, 2)
    rounds = running.opener.llm.rounds
    time.sleep(0.3)
    assert running.opener.llm.rounds <= rounds + 1 < 60
    assert "rag_mt_disconnects_total 1.0" in httpx.get(f"{running.url}/metrics").text


def test_a_stopped_server_finishes_what_it_accepted(run_server: Any, slow: Callable[[float], Any]) -> None:
    running = run_server(slow(0.02))
    body = {"q": "Eins zwei drei vier fünf sechs.", "source": "de", "target": "en"}
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(httpx.post, f"{running.url}/translate", json=body, timeout=60)
        until(lambda: running.opener.llm.rounds > 1)
        running.server.should_exit = True
        assert answer.result().json() == {"translatedText": "EINS ZWEI DREI VIER FÜNF SECHS."}
    until(lambda: not any(thread.name == "engine" and thread.is_alive() for thread in threading.enumerate()))


@pytest.mark.parametrize("path", ["/translate", "/detect", "/translate_file", "/index"])
@pytest.mark.parametrize("sent", [b"", b"--x\r\nConte"])
def test_hanging_up_before_the_body_has_come_is_no_fault(
    run_server: Any, capfd: pytest.CaptureFixture[str], path: str, sent: bytes
) -> None:
    running = run_server()
    host, port = running.url.removeprefix("http://").split(":")
    kind = "multipart/form-data; boundary=x" if path in ("/translate_file", "/index") else "application/json"
    with socket.create_connection((host, int(port)), timeout=60) as line:
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: 1000\r\n\r\n"
        line.sendall(head.encode() + sent)
    until(lambda: f'path="{path}"' in httpx.get(f"{running.url}/metrics").text)
    metrics = httpx.get(f"{running.url}/metrics").text
    assert f'rag_mt_requests_total{{method="POST",path="{path}",status="499"}} 1.0' in metrics
    assert 'status="500"' not in metrics
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.parametrize("first", [b"x" * 70_000, b"--x\r\nno header\r\n\r\n"])
@pytest.mark.parametrize("path", ["/translate_file", "/translate", "/detect"])
def test_a_body_that_is_no_use_is_not_read_to_its_end(run_server: Any, path: str, first: bytes) -> None:
    running = run_server()
    host, port = running.url.removeprefix("http://").split(":")
    whole, piece, sent = 100_000_000, b"y" * 100_000, 0
    with socket.create_connection((host, int(port)), timeout=60) as line:
        line.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        try:
            line.sendall(b"%x\r\n%s\r\n" % (len(first), first))
            while sent < whole:
                line.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                sent += len(piece)
        except OSError:  # the server has closed the connection
            pass
    assert sent < 20_000_000  # what the buffers of the system hold
    assert httpx.get(f"{running.url}/health").status_code == 200


def test_a_connection_lives_on_after_an_answer(run_server: Any) -> None:
    with httpx.Client(base_url=run_server().url) as api:
        answers = [api.get("/health"), api.post("/translate", json={}), api.post("/detect", data={"q": "Guten Tag"})]
        assert [answer.status_code for answer in answers] == [200, 400, 200]
        assert not [answer for answer in answers if answer.headers.get("connection") == "close"]


def test_methods_that_clients_make_up_are_not_counted_by_name(api: Any) -> None:
    for method in ("FROBNICATE", "PUT"):
        assert api.request(method, "/translate").status_code == 405
    metrics = api.get("/metrics").text
    assert "FROBNICATE" not in metrics
    assert 'rag_mt_requests_total{method="PUT",path="/translate",status="405"} 1.0' in metrics


@pytest.mark.parametrize(
    ("addresses", "clients"),
    [
        (["192.0.2.1", "192.0.2.2"], 2),
        (["2001:db8::1", "2001:db8::2"], 1),
        (["2001:db8::1", "2001:db8:0:1::1"], 2),
        (["::ffff:192.0.2.1", "::ffff:192.0.2.2"], 2),
        (["", "/run/socket"], 2),
    ],
)
def test_clients_are_told_apart_by_address(addresses: list[str], clients: int) -> None:
    requests = [Request({"type": "http", "client": (address, 1)}) for address in addresses]
    assert len({client_of(request) for request in requests}) == clients


def test_a_client_without_a_key_cannot_take_all_places(run_server: Any, slow: Callable[[float], Any]) -> None:
    running = run_server(slow(0), documents=1)
    running.opener.llm.hold.clear()
    form = {"data": {"source": "de", "target": "en"}, "files": {"file": ("a.txt", "Das Haus.")}}

    def send(address: str) -> int:
        with httpx.Client(transport=httpx.HTTPTransport(local_address=address)) as client:
            return client.post(f"{running.url}/translate_file", timeout=60, **form).status_code

    assert [send("127.0.0.1"), send("127.0.0.1"), send("127.0.0.2")] == [200, 429, 200]
    running.opener.llm.hold.set()


def test_foreign_names_of_a_local_server_are_refused(run_server: Any) -> None:
    running = run_server(app_options={"hosts": ["127.0.0.1"]})
    assert httpx.get(f"{running.url}/health").status_code == 200
    refused = httpx.get(f"{running.url}/health", headers={"Host": "evil.example"})
    assert refused.status_code == 400
    assert "--allowed-host" in refused.json()["error"]


def test_findings_are_told_with_hints_and_terms(api: Any) -> None:
    body = {"q": "Am 3. Mai ist %s da, %s nicht", "source": "de", "target": "en"}
    assert api.post("/translate", json=body).json().keys() == {"translatedText"}
    lost = {"rule": "placeholders", "severity": "error", "message": "placeholder lost: %s"}
    for more in ({"hints": True}, {"glossary": [{"source": "Mai", "target": "MAI"}]}):
        assert lost in api.post("/translate", json=body | more).json()["findings"]
    several = api.post("/translate", json={**body, "q": ["Ja.", body["q"]], "hints": True}).json()["findings"]
    assert several[0] == [] and lost in several[1]
    assert "findings" not in api.post("/translate", json={**body, "q": "Ja.", "hints": True}).json()
    page = {**body, "q": f"<p>{body['q']}</p>", "format": "html", "hints": True}
    assert api.post("/translate", json=page).json()["findings"].count(lost) == 1


def test_quality_is_estimated_where_it_is_asked_for(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Known:
        def estimate(self, pairs: list[tuple[str, str]], said: object) -> list[Estimate]:
            return [Estimate(40.0 if "Haus" in source else 80.0) for source, _ in pairs]

    monkeypatch.setattr("rag_mt.quality.estimator.shared_estimator", lambda device, dtype: Known())
    body = {"q": "Ja. Das Haus.", "source": "de", "target": "en"}
    poor = {"score": 40.0, "grade": "poor"}
    assert "quality" not in api.post("/translate", json=body).json()
    answer = api.post("/translate", json=body | {"min_quality": "fair"}).json()
    assert answer["quality"] == poor
    assert answer["findings"][-1]["message"] == "quality estimated as poor, 40 of 100"
    assert "findings" not in api.post("/translate", json=body | {"min_quality": 30}).json()
    several = api.post("/translate", json={**body, "q": ["Ja.", "", body["q"]], "min_quality": "poor"}).json()
    assert several["quality"] == [{"score": 80.0, "grade": "good"}, None, poor]
    for wrong in ("great", 101, -1):
        assert api.post("/translate", json=body | {"min_quality": wrong}).status_code == 400
    upload = {"files": {"file": ("a.xlf", XLIFF, "application/xml")}, "data": {"source": "de", "target": "en"}}
    upload["data"]["min_quality"] = "good"
    url = api.post("/translate_file", **upload).json()["translatedFileUrl"]
    assert re.findall(r' state="([a-z-]+)"', api.get(url).text) == ["translated", "needs-review-translation"]
