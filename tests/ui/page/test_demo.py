"""The demo's command line, and the page it serves, asked without a browser."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from ui.page.demo import demo, logins, main
from ui.page.menus import fitting_target, shown_language, source_entries, target_entries
from ui.page.page import build_page, launch, warm_choice
from ui.page.sessions import Sessions
from ui.page.translating import AUTO
from ui.server.languages import Offer, offer_of
from ui.server.limits import Limits
from ui.server.serve import add_service_options, allowed_hosts, port
from ui.server.service import Service
from ui.server.service import service_with as service_from


def service_of(opener: Any, offer: Offer) -> Service:
    return Service(opener, lambda name: None, limits=Limits(), offer=offer)  # type: ignore[arg-type,return-value]


@pytest.fixture
def service(opener: Any) -> Iterator[Service]:
    made = service_of(opener, offer_of())
    yield made
    made.close(0)


@pytest.mark.parametrize(
    ("given", "pairs"),
    [([], []), (["anna:a:b"], [("anna", "a:b")]), (["env"], [("otto", "x"), ("eva", "y")])],
)
def test_logins(given: list[str], pairs: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_MT_AUTH", "otto:x\neva:y\n")
    assert logins(given) == pairs


@pytest.mark.parametrize("given", [["anna"], ["anna:"], [":secret"], ["env"]])
def test_a_login_without_name_or_password_is_refused(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAG_MT_AUTH", raising=False)
    with pytest.raises(UserError, match="USER:PASSWORD"):
        logins(given)


def test_ports() -> None:
    assert port("0") == 0
    with pytest.raises(argparse.ArgumentTypeError, match="from 0 to 65535"):
        port("70000")


@pytest.mark.parametrize("wrong", [["--auth", "anna"], ["--limit", "size=1"], ["--languages", "xx"]])
def test_mistakes_are_one_sentence(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(wrong) == 2
    said = capsys.readouterr().err
    assert said.startswith("rag-mt: ") and said.count("\n") == 1


def test_a_demo_that_is_told_to_stop_leaves_no_uploads(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ui.demo", "--port", "0"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        assert any("the demo is at http://127.0.0.1:" in line for line in process.stderr)
        assert list(tmp_path.glob("rag-mt-*"))
        process.terminate()
        assert process.wait(60) in (0, 130)
        assert "Traceback" not in process.stderr.read()
    assert not list(tmp_path.glob("rag-mt-*"))


def test_the_command_is_documented() -> None:
    assert demo.__doc__


def test_languages_have_their_own_names(service: Service) -> None:
    assert source_entries(service)[0] == ("Auto-detect", AUTO)
    assert source_entries(service, "de")[0] == ("Detected: German", AUTO)
    assert ("Čeština · Czech", "cs") in source_entries(service)
    assert [code for _, code in target_entries(service, "de")] == ["en"]
    assert len(target_entries(service, AUTO)) == 7
    assert shown_language(service.offer.languages[0]) == "Čeština · Czech"


def test_a_target_that_the_source_does_not_go_to_is_replaced(service: Service) -> None:
    assert fitting_target(service, "de", "cs") == "en"
    assert fitting_target(service, "en", "cs") == "cs"
    assert fitting_target(service, "en", "en") in service.offer.targets_of("en")
    assert fitting_target(service, AUTO, "tr") == "tr"


def test_the_state_is_shown_while_the_lists_name_no_direction_that_is_offered(service: Service) -> None:
    assert (warm_choice(service, "de", "en").source, warm_choice(service, AUTO, "fi").source) == ("de", "en")
    assert warm_choice(service, "fi", "cs").source == "en"  # fi was chosen, and the list of targets follows


def test_right_to_left_languages_are_offered_by_name(opener: Any) -> None:
    made = service_of(opener, offer_of(["ar", "en"]))
    assert ("العربية · Arabic", "ar") in source_entries(made)
    made.close(0)


def test_a_page_without_english(opener: Any) -> None:
    made = service_of(opener, offer_of(["de", "fi"]))
    page = build_page(made, Sessions(), DEFAULT_LLM)
    parts = {getattr(block, "elem_id", ""): block for block in page.blocks.values()}
    assert [parts[name].value for name in ("to", "index-language")] == ["de", "de"]
    made.close(0)


def test_what_to_expect_of_hints_is_said_where_the_small_model_is_offered(service: Service, opener: Any) -> None:
    other = Service(opener, lambda name: None, limits=Limits(), offer=offer_of(), llms=["large"])  # type: ignore[arg-type,return-value]
    for made, said in ((service, True), (other, False)):
        page = build_page(made, Sessions(), made.llms[0])
        parts = [str(getattr(block, "value", "")) for block in page.blocks.values()]
        assert any("do not improve its translations" in part for part in parts) is said
    other.close(0)


def test_the_settings_offer_what_the_operator_named(opener: Any) -> None:
    named: dict[str, Any] = {"llms": ["first", "second"], "adapters": ["mine"]}
    made = Service(opener, lambda name: None, limits=Limits(), offer=offer_of(), **named)  # type: ignore[arg-type,return-value]
    page = build_page(made, Sessions(), "first")
    parts = {getattr(block, "elem_id", ""): block for block in page.blocks.values()}
    assert [value for _, value in parts["llm"].choices] == ["first", "second"]
    assert [value for _, value in parts["adapter"].choices] == ["mine", "auto", "none"]
    assert [parts[name].value for name in ("llm", "adapter")] == ["first", "mine"]
    assert warm_choice(made, "de", "en", "second").llm == "second"
    made.close(0)


def test_models_and_adapters_may_be_named_several_times() -> None:
    parser = argparse.ArgumentParser()
    add_service_options(parser, "the cache")
    for given, llms, adapters in (
        ([], (DEFAULT_LLM,), ("auto", "none")),
        (["--llm", "a", "--llm", "b", "--adapter", "none"], ("a", "b"), ("none", "auto")),
    ):
        made = service_from(parser.parse_args(given))
        assert (made.llms, made.adapters) == (llms, adapters)
        made.close(0)


def test_the_page_is_served_with_a_login_and_without_anything_from_elsewhere(service: Service) -> None:
    page = build_page(service, Sessions(), DEFAULT_LLM)
    url = launch(page, service.limits, "127.0.0.1", 0, [("anna", "secret")])
    try:
        assert url.startswith("http://127.0.0.1:") and page.share_url is None
        with httpx.Client(base_url=url) as client:
            assert client.get("/config").status_code == 401
            assert client.post("/login", data={"username": "anna", "password": "wrong"}).status_code == 400
            assert client.post("/login", data={"username": "anna", "password": "secret"}).status_code == 200
            config = client.get("/config").json()
            assert config["title"] == "rag_mt"
            assert all(event["api_visibility"] == "private" for event in config["dependencies"] if event["targets"])
            assert "fonts.googleapis" not in client.get("/theme.css").text
    finally:
        page.close(verbose=False)


def test_a_page_that_does_not_know_yet_that_a_list_has_changed_is_answered(service: Service) -> None:
    page = build_page(service, Sessions(), DEFAULT_LLM)
    url = launch(page, service.limits, "127.0.0.1", 0)
    try:
        with httpx.Client(base_url=url) as client:
            config = client.get("/config").json()
            ids = {part["props"].get("elem_id") or part["type"]: part["id"] for part in config["components"]}

            def answer(part: str, event: str, *values: str) -> list[Any]:
                number = next(
                    made["id"]
                    for made in config["dependencies"]
                    if [ids[part], event] in made["targets"] and len(made["inputs"]) == len(values)
                )
                body = {"data": values, "fn_index": number, "session_hash": "page"}
                return list(client.post("/gradio_api/run/predict", json=body).raise_for_status().json()["data"])

            source, target = answer("swap", "click", "", "cs", "en")[:2]
            assert (source["value"], target["value"]) == ("en", "cs")
            assert "en" not in [code for _, code in target["choices"]]
            # These were on their way with what the page showed before, a deleted index among it.
            assert "mt-state" in answer("timer", "tick", "cs", "en", DEFAULT_LLM)[0]
            assert [drawn["value"] for drawn in answer("to", "change", "en", "deleted", "")] == ["", ""]
            assert answer("from", "input", "fi", "en")[0]["value"] == "en"
            assert "Deutsch" in answer("example-news", "click", "de", "cs")[1]
    finally:
        page.close(verbose=False)


def test_a_page_of_this_machine_is_not_reached_by_a_name_that_some_page_made_up(service: Service) -> None:
    page = build_page(service, Sessions(), DEFAULT_LLM)
    url = launch(page, service.limits, "127.0.0.1", 0, hosts=allowed_hosts("127.0.0.1", ["my.name"]))
    try:
        with httpx.Client(base_url=url) as client:
            for name, status in (("evil.example:7860", 400), ("my.name", 200), ("localhost:1", 200)):
                assert client.get("/config", headers={"Host": name}).status_code == status
            assert client.get("/config").status_code == 200
    finally:
        page.close(verbose=False)


def test_a_taken_port_is_said_to_be(service: Service) -> None:
    first, page = (build_page(service, Sessions(), DEFAULT_LLM) for _ in range(2))
    url = launch(first, service.limits, "127.0.0.1", 0)
    try:
        with pytest.raises(UserError, match="choose another --port"):
            launch(page, service.limits, "127.0.0.1", int(url.split(":")[2][:-1]))
    finally:
        first.close(verbose=False)
