"""Glossaries of users: kept, changed and deleted over HTTP, and kept to in translations and documents."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.terms import Term
from rag_mt.glossary.glossary import Glossary
from ui.server.glossaries import UserGlossaries
from ui.server.limits import LimitError, Limits, MissingError
from ui.server.service import Service
from ui.server.work import Order

TEXT = "Der Stadtrat baut."
CSV = "de,en,note\nStadtrat,ASSEMBLY,the one of the city\n"


@pytest.fixture
def client(run_server: Callable[..., Any]) -> httpx.Client:
    return httpx.Client(base_url=run_server().url, timeout=60)


def kept(client: httpx.Client, text: str = CSV, name: str = "terms.csv", id: str = "", **more: str) -> httpx.Response:
    files, data = {"files": (name, text.encode())}, {"source": "de", "target": "en", **more}
    return client.request("PUT" if id else "POST", f"/glossary/{id}" if id else "/glossary", files=files, data=data)


def test_a_glossary_from_its_upload_to_its_end(client: httpx.Client) -> None:
    answer = kept(client, CSV + ",\nno translation\n")
    assert answer.status_code == 201
    made = answer.json()
    assert (made["name"], made["source"], made["target"], made["terms"]) == ("terms.csv", "de", "en", 1)
    assert made["notes"] == ["skipped 1 lines: 1 no translation"]
    assert client.get("/glossary").json() == [made]
    table = client.get(f"/glossary/{made['id']}")
    assert table.headers["content-type"].startswith("text/csv")
    assert table.text == "de,en,forbidden,note,case\nStadtrat,ASSEMBLY,,the one of the city,\n"

    body = {"q": TEXT, "source": "de", "target": "en", "glossary": made["id"]}
    translated = client.post("/translate", json=body).json()
    assert translated["translatedText"] == "DER ASSEMBLY BAUT."
    (term,) = translated["terms"]
    assert term["ok"] and TEXT[slice(*term["source_span"])] == "Stadtrat" and term["file"] == "terms.csv"
    assert [translated["translatedText"][slice(*span)] for span in term["spans"]] == ["ASSEMBLY"]
    plain = client.post("/translate", json={**body, "glossary": ""}).json()
    assert plain["translatedText"] == "DER STADTRAT BAUT." and "terms" not in plain

    changed = kept(client, table.text.replace("ASSEMBLY", "SENATE"), id=made["id"]).json()
    assert (changed["id"], changed["name"]) == (made["id"], "terms.csv")
    assert client.post("/translate", json=body).json()["translatedText"] == "DER SENATE BAUT."
    assert client.delete(f"/glossary/{made['id']}").status_code == 204
    assert client.post("/translate", json=body).status_code == 404 and client.get("/glossary").json() == []


def test_terms_within_a_request(client: httpx.Client) -> None:
    terms = [{"source": "Stadtrat", "target": ["ASSEMBLY", "SENATE"], "forbidden": ["COUNCIL"]}]
    body = {"q": [TEXT, "Guten Tag."], "source": "de", "target": "en", "glossary": terms}
    translated = client.post("/translate", json=body).json()
    assert translated["translatedText"] == ["DER ASSEMBLY BAUT.", "GUTEN TAG."]
    assert [len(own) for own in translated["terms"]] == [1, 0]
    assert client.post("/translate", json={**body, "glossary": []}).json()["translatedText"][0] == "DER STADTRAT BAUT."
    for wrong, told in (
        ([{"source": "Stadtrat"}], "term 1 of the glossary cannot be used (no translation)"),
        ([{"source": "a\ud800", "target": "b"}], ""),
        ([{"source": "...", "target": "b"}], "no letter or digit"),
        ([{"target": "b"}], "Field required"),
    ):
        answer = client.post("/translate", content=json.dumps({**body, "glossary": wrong}))
        assert answer.status_code == 400 and told in answer.json()["error"], answer.text


def test_a_document_keeps_to_a_glossary(client: httpx.Client) -> None:
    made = kept(client).json()
    data = {"source": "de", "target": "en", "glossary": made["id"]}
    job = client.post("/translate_file", files={"file": ("a.txt", TEXT.encode())}, data=data).json()
    assert client.get(job["translatedFileUrl"]).text == "DER ASSEMBLY BAUT."
    wrong = client.post("/translate_file", files={"file": ("a.txt", b"Hei.")}, data={**data, "source": "fi"})
    assert wrong.status_code == 400
    assert wrong.json()["error"].startswith("the glossary 'terms.csv' is from de into en: leave it out")


@pytest.mark.parametrize(
    ("text", "name", "more", "told"),
    [
        ("", "terms.csv", {}, "terms.csv has no term in de with a translation into en"),
        ("de,en\na,b\n", "terms.xlsx", {}, "terms.xlsx cannot be read as a glossary"),
        ("de,en\na,b\n", "terms.csv", {"target": "de"}, "source and target are both German"),
        ("de,en\na,b\n", "terms.csv", {"source": "xx"}, "xx"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]><tbx/>", "a.tbx", {}, "a.tbx"),
    ],
)
def test_what_is_no_glossary(client: httpx.Client, text: str, name: str, more: dict[str, str], told: str) -> None:
    answer = kept(client, text, name, **more)
    assert answer.status_code == 400 and told in answer.json()["error"]
    assert "/" not in answer.json()["error"] and client.get("/glossary").json() == []


def test_a_glossary_is_as_large_as_a_file_may_be(client: httpx.Client) -> None:
    """Packed or unpacked."""
    rows = "de,en\n" + "".join(f"Wort{n},word number {n}\n" for n in range(8000))
    assert len(rows) > 150_000, "more than a request without files may have"
    made = kept(client, rows).json()
    assert made["terms"] == 8000
    assert kept(client, rows.replace("word", "WORD"), id=made["id"]).status_code == 200
    large = kept(client, rows * 20)
    assert large.status_code == 413 and "no more are allowed" in large.json()["error"]
    bomb = {"files": ("bomb.csv.gz", gzip.compress(b"de,en\n" + b"Wort,word\n" * 300_000, mtime=0))}
    answer = client.post("/glossary", files=bomb, data={"source": "de", "target": "en"})
    assert answer.status_code == 413 and "bomb.csv.gz holds more than 2000000 bytes" in answer.json()["error"]
    assert client.get("/glossary").json()[0]["id"] == made["id"]


def test_limits_names_and_owners(tmp_path: Path) -> None:
    upload = tmp_path / "x"
    upload.write_text(CSV, encoding="utf-8")
    glossaries = UserGlossaries(tmp_path / "all", Limits(indexes=2, all_indexes=3, file_bytes=100))
    first = glossaries.add("ann", "one", "de", "en", [("a.csv", upload)])
    with pytest.raises(UserError, match="you have a glossary named 'one' already"):
        glossaries.add("ann", "one", "de", "en", [("a.csv", upload)])
    second = glossaries.add("ann", "../two", "de", "en", [("../../b.csv", upload)])
    assert [g.name for g in glossaries.of("ann")] == ["one", "/two"] and second.terms[0].origin.file == "b.csv"
    with pytest.raises(LimitError, match="you have 2 glossaries and at most 2 are allowed"):
        glossaries.add("ann", "three", "de", "en", [("a.csv", upload)])
    for id in (first.id, "../x", "", "a" * 500):
        with pytest.raises(MissingError):
            glossaries.get("bob", id)
    glossaries.add("bob", "one", "de", "en", [("a.csv", upload)])
    with pytest.raises(LimitError, match="the server holds as many"):
        glossaries.add("eve", "one", "de", "en", [("a.csv", upload)])
    upload.write_text("de,en\n" + "a,b\n" * 100, encoding="utf-8")
    with pytest.raises(LimitError):
        glossaries.add("bob", "big", "de", "en", [("a.csv", upload)], id=glossaries.of("bob")[0].id)
    assert glossaries.opened("bob", glossaries.of("bob")[0].id, "de", "en").terms[0].source == "Stadtrat"
    glossaries.delete_all("ann")
    assert glossaries.of("ann") == [] and len(glossaries.of("bob")) == 1


def test_requests_with_a_glossary_and_without_share_the_model(
    make_service: Callable[..., Service],
) -> None:
    service = make_service()
    choice = service.choice("", "de", "en")
    glossary = Glossary("de", "en", (Term("Stadtrat", "de", "en", ("ASSEMBLY",)),))
    jobs = service.engine.submit_all([Order(choice, TEXT), Order(choice, TEXT, glossary=glossary)] * 3)
    begun = time.monotonic()
    texts = [job.result(30).text for job in jobs]
    assert texts == ["DER STADTRAT BAUT.", "DER ASSEMBLY BAUT."] * 3 and time.monotonic() - begun < 30
    assert len(service.translators.states()) == 1
