"""The client of OpenAI-compatible servers against one that misbehaves; `test_llama_server.py` has a real one."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Prompt
from rag_mt.llm.openai_llm import OpenAILLM
from rag_mt.llm.opening import open_llm
from rag_mt.llm.queue import complete
from rag_mt.llm.server_names import warn_of_open_key
from tests.rag_mt.coming import stream
from tests.rag_mt.llm_server import ANSWER, serving

KEY = "sk-secret-1234"
TEXTS = ["Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an", "ein Wort", "x", "Wir gehen."]
WHOLE = Completion(ANSWER, 5, True)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as url:
        yield url


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


def faults(url: str, *kinds: int | str) -> None:
    httpx.post(f"{url.removesuffix('/v1')}/faults", json=list(kinds)).raise_for_status()


def seen(url: str) -> dict[str, Any]:
    log: dict[str, Any] = httpx.get(f"{url.removesuffix('/v1')}/log").json()
    return log


def test_what_it_tells_about_the_model(server: str) -> None:
    llm = open_llm("tiny", base_url=server + "/")
    assert isinstance(llm, OpenAILLM)
    assert llm.id == f"openai:tiny@{server}"
    assert llm.context_length == 256
    assert llm.has_chat_template and not OpenAILLM("tiny", server, chat=False).has_chat_template
    assert llm.count_tokens(Prompt("größer")) == 3
    assert {"<|im_start|>", "<start_of_turn>"} <= llm.reserved
    assert llm.fingerprint != OpenAILLM("other", server).fingerprint
    assert OpenAILLM("other", server).context_length == 4096


def test_requests_in_flight_are_limited(server: str) -> None:
    faults(server, *["slow"] * 6)
    complete(OpenAILLM("tiny", server, concurrency=3), [Prompt(t) for t in TEXTS], 2)
    assert seen(server)["most_at_once"] == 3


def test_the_model_and_the_options_are_in_every_request(server: str) -> None:
    llm = open_llm(f"openai:plain@{server}", options={"seed": 7})
    assert llm.id == f"openai:plain@{server}" and llm.fingerprint != OpenAILLM("plain", server).fingerprint
    faults(server)
    assert complete(llm, [Prompt("Ja"), Prompt("Nein")], 5) == [WHOLE] * 2
    assert all((body["model"], body["seed"], body["temperature"]) == ("plain", 7, 0) for body in seen(server)["bodies"])
    with pytest.raises(UserError, match="has no model 'plain,tiny'"):
        complete(OpenAILLM("plain,tiny", server), [Prompt("Ja")])


def test_at_most_four_stop_strings_are_sent(server: str) -> None:
    faults(server)
    found = complete(OpenAILLM("tiny", server), [Prompt("Ja", stop=("~1", "~2", "~3", "~4", "is"))], 30)
    assert found == [Completion("The house ", 4, True, True)]
    assert seen(server)["bodies"][0]["stop"] == ["~1", "~2", "~3", "~4"]


def test_answers_that_nobody_wants_are_not_waited_for(server: str) -> None:
    faults(server, "slow", "slow", "slow")
    begin = time.monotonic()
    prompts = [Prompt(text) for text in TEXTS[:3]]
    late = complete(OpenAILLM("tiny", server), prompts, 10, lambda number, text: time.monotonic() < begin + 0.1)
    assert late == [Completion("", 0, False)] * 3


def test_passing_faults_are_tried_again(server: str) -> None:
    faults(server, 429, 503, "drop", "slow", 500, 429)
    assert complete(OpenAILLM("tiny", server), [Prompt(text) for text in TEXTS], 8) == [WHOLE] * len(TEXTS)
    assert seen(server)["requests"] == len(TEXTS) + 5


def test_faults_that_stay(server: str) -> None:
    llm = OpenAILLM("tiny", server)
    faults(server, *[503] * 20)
    with pytest.raises(UserError, match=r"still answers 503 \(fault 503\) after 6 attempts: try again later"):
        complete(llm, [Prompt("Ja")])
    faults(server, *["drop"] * 20)
    with pytest.raises(UserError, match="broke off the connection: look at the server's log"):
        complete(llm, [Prompt("Ja")])
    faults(server, 400)
    with pytest.raises(UserError, match=r"refuses the request for 'tiny' \(400: fault 400\)"):
        complete(llm, [Prompt("Ja")])
    faults(server)


def test_a_stream_cut_in_the_middle(server: str) -> None:
    faults(server, "cut")
    with pytest.raises(UserError, match="broke off in the middle of an answer"):
        list(stream(OpenAILLM("tiny", server), Prompt("Das Haus ist alt."), 30))
    faults(server, "error")
    with pytest.raises(UserError, match=r"failed in the middle of an answer \(out of blocks\)"):
        list(stream(OpenAILLM("tiny", server), Prompt("Das Haus ist alt."), 30))
    faults(server, "foreign")
    with pytest.raises(UserError, match="answers, but not as an OpenAI-compatible server does"):
        list(stream(OpenAILLM("tiny", server), Prompt("Das Haus ist alt."), 30))


def test_refusals_name_the_address_and_the_next_step(server: str) -> None:
    with pytest.raises(UserError, match=rf"{server} has no model 'big' .*curl {server}/models"):
        complete(OpenAILLM("big", server), [Prompt("Ja")])
    faults(server, 401)
    with pytest.raises(UserError, match=rf"{server} refuses access \(401: fault 401 Bearer \[key\]\): set OPENAI_"):
        complete(OpenAILLM("tiny", server, api_key=KEY), [Prompt("Ja")])
    faults(server, 404)
    with pytest.raises(UserError, match="has no /completions, which prompts without a chat template need"):
        complete(OpenAILLM("tiny", server), [Prompt("Ja")])


def test_no_server_there() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/v1"
    with pytest.raises(UserError, match=f"no server answers at {url}: start it or check the address"):
        OpenAILLM("tiny", url)


@pytest.mark.parametrize(
    ("name", "url", "said"),
    [
        ("openai:tiny", None, "openai:tiny@http://localhost:8000/v1"),
        ("openai:tiny@localhost:8000", None, "names no server"),
        ("tiny", "localhost:8000", "'localhost:8000' is no address of a server"),
        ("openai:tiny@http://me:pw@host/v1", None, "set OPENAI_API_KEY instead"),
        ("openai: @http://host/v1", None, "names no model"),
    ],
)
def test_bad_names(name: str, url: str | None, said: str) -> None:
    with pytest.raises(UserError) as raised:
        open_llm(name, base_url=url)
    assert said in str(raised.value)


def test_an_adapter_cannot_be_sent() -> None:
    with pytest.raises(UserError, match="the adapter lora cannot be sent to a server"):
        open_llm("openai:tiny@http://localhost:1/v1", adapter="lora")


def test_an_answer_that_takes_too_long_is_computed_once(server: str) -> None:
    llm = OpenAILLM("tiny", server, timeout=0.2)
    faults(server, "slow", "slow")
    said = "did not answer in 0.2 seconds: give it more with --llm-timeout, or less at once with --llm-concurrency"
    with pytest.raises(UserError, match=said):
        complete(llm, [Prompt("Ja")], 2)
    with pytest.raises(UserError, match=said):
        list(stream(llm, Prompt("Ja"), 2))
    assert seen(server)["requests"] == 2


def test_a_server_is_asked_again_when_it_says(server: str) -> None:
    faults(server, "later")
    begin = time.monotonic()
    complete(OpenAILLM("tiny", server), [Prompt("Ja")], 2)
    assert time.monotonic() - begin >= 1
    assert seen(server)["requests"] == 2


def test_without_a_key_none_is_sent(server: str) -> None:
    faults(server)
    complete(OpenAILLM("tiny", server), [Prompt("Ja")], 2)
    assert seen(server)["keys"] == [None]
    complete(OpenAILLM("tiny", server, api_key=KEY), [Prompt("Ja")], 2)
    assert seen(server)["keys"] == [None, f"Bearer {KEY}"]


@pytest.mark.parametrize(
    ("url", "warned"),
    [
        ("http://models.example/v1", True),
        ("http://192.168.1.5:8000/v1", True),
        ("https://models.example/v1", False),
        ("http://127.0.0.1:8000/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://localhost/v1", False),
    ],
)
def test_a_key_that_others_can_read_is_warned_of_once(url: str, warned: bool, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_open_key.cache_clear()
    for _ in range(2):
        warn_of_open_key(url)
    assert [url in line for line in caplog.messages] == [True] * warned
    assert all("without encryption: use https" in line for line in caplog.messages)


@pytest.mark.parametrize(
    ("options", "said"), [({"timeout": 0}, "0 is no time-out"), ({"concurrency": 0}, "0 is no num")]
)
def test_options_that_make_no_sense(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        OpenAILLM("tiny", "http://localhost:1/v1", **options)


def test_without_the_sdk_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "rag_mt.llm.openai_llm")
    with pytest.raises(UserError, match=r"pip install 'rag-mt\[openai\]'"):
        open_llm("openai:tiny@http://localhost:1/v1")
