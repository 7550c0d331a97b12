"""The client of OpenAI-compatible servers against a real server process, well behaved and not."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Prompt, Returning
from rag_mt.llm.openai_llm import OpenAILLM
from rag_mt.llm.opening import open_llm
from rag_mt.llm.queue import complete
from rag_mt.llm.server_names import warn_of_open_key
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm
from tests.rag_mt.coming import Coming, stream
from tests.rag_mt.server_process import serving

KEY = "sk-secret-1234"
TEXTS = ["Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an", "ein Wort", "x", "Wir gehen."]


@pytest.fixture(scope="module")
def folder(tiny_llm: Callable[..., Path], chat_template: str) -> Path:
    return tiny_llm("llama", chat_template)


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


@pytest.fixture(scope="module")
def local(folder: Path) -> TransformersLLM:
    return TransformersLLM(load_llm(str(folder), device="cpu", dtype="float32"), 1)


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


@pytest.mark.parametrize("chat", [True, False])
def test_answers_are_the_models_own_in_order(server: str, local: TransformersLLM, chat: bool) -> None:
    llm = OpenAILLM(f"openai:tiny@{server}")
    prompts = [Prompt(text, chat=chat, stop=("e",)) for text in TEXTS]
    faults(server)
    own = [replace(complete(local, [p], 20)[0], stopped=False) for p in prompts]  # which servers do not tell
    assert complete(llm, prompts, 20) == own
    assert seen(server)["requests"] == len(TEXTS)
    assert all(b["temperature"] == 0 and b["max_tokens"] == 20 and b["stop"] == ["e"] for b in seen(server)["bodies"])


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


def test_answers_that_nobody_wants_are_not_waited_for(server: str, local: TransformersLLM) -> None:
    llm = OpenAILLM("tiny", server, chat=False)
    prompts = [Prompt(text) for text in TEXTS[:3]]
    faults(server)
    told: list[tuple[int, str]] = []

    def wanted(number: int, text: str) -> bool:
        told.append((number, text))
        return number != 1

    made = complete(llm, prompts, 10, wanted)
    assert not made[1].finished and len(made[1].text) < len(complete(local, [prompts[1]], 10)[0].text)
    assert [made[0].text, made[2].text] == [complete(local, [prompts[n]], 10)[0].text for n in (0, 2)]
    assert {(0, made[0].text), (2, made[2].text)} <= set(told)
    faults(server, "slow", "slow", "slow")
    begin = time.monotonic()
    late = complete(llm, prompts, 10, lambda number, text: time.monotonic() < begin + 0.1)
    assert late == [Completion("", 0, False)] * 3


def test_prompts_that_come_on_the_way(server: str, local: TransformersLLM) -> None:
    llm = OpenAILLM("tiny", server, chat=False, concurrency=2)
    faults(server)
    left, told = [Prompt(text) for text in TEXTS], set[int]()

    def wanted(number: int, text: str) -> bool:
        told.add(number)
        return True

    found = dict(Coming(lambda room: [left.pop(0) for _ in left[:room]], wanted).answered_by(llm, 8))
    assert found == {n: complete(local, [Prompt(text)], 8)[0] for n, text in enumerate(TEXTS)}
    assert told == set(range(len(TEXTS)))


def test_passing_faults_are_tried_again(server: str, local: TransformersLLM) -> None:
    prompts = [Prompt(text) for text in TEXTS]
    faults(server, 429, 503, "drop", "slow", 500, 429)
    assert complete(OpenAILLM("tiny", server), prompts, 8) == [complete(local, [p], 8)[0] for p in prompts]
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


def test_a_prompt_too_long_for_the_server(server: str, caplog: pytest.LogCaptureFixture) -> None:
    llm = OpenAILLM("tiny", server)
    found = complete(llm, [Prompt("x" * 300), Prompt("Ja")], 5)
    assert found[0] == Completion("", 0, False)
    assert found[1].tokens > 0
    assert "maximum context length is 256 tokens" in caplog.text
    too_long = Returning(stream(llm, Prompt("x" * 300)))
    assert list(too_long) == [] and too_long.value == Completion("", 0, False)


def test_an_answer_that_the_window_cuts_did_not_end(server: str, local: TransformersLLM) -> None:
    """Estimates of its tokens say nothing: six tokens are less than a hundred."""
    prompt = Prompt("a" * 250)
    texts = Returning(stream(OpenAILLM("tiny", server, chat=False), prompt, 100))
    assert list(texts)[-1] == complete(local, [prompt], 100)[0].text
    assert not texts.value.finished


@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_grows_to_the_whole_answer(server: str, chat: bool) -> None:
    llm = OpenAILLM("tiny", server)
    free = complete(llm, [Prompt("Ja", chat=chat)], 30)[0].text
    for stop in ((), (free[5:8],)):
        prompt = Prompt("Ja", chat=chat, stop=stop)
        faults(server, 503, "drop")
        answer = Returning(stream(llm, prompt, 30))
        texts = list(answer)
        assert len(texts) > 2 or stop
        whole = complete(llm, [prompt], 30)[0]
        assert texts[-1] == answer.value.text == whole.text
        assert answer.value.finished == whole.finished
        assert answer.value.finished or not stop
    short = Returning(stream(llm, Prompt("Ja", chat=chat), 5))
    assert list(short)[-1] == short.value.text and not short.value.finished


def test_stop_strings_beyond_what_the_protocol_takes(server: str) -> None:
    llm = OpenAILLM("tiny", server)
    free = complete(llm, [Prompt("Ja")], 30)[0].text
    prompt = Prompt("Ja", stop=("~1", "~2", "~3", "~4", free[5:8]))
    expected = free[: free.index(free[5:8])]
    faults(server)
    assert complete(llm, [prompt], 30)[0].text == list(stream(llm, prompt, 30))[-1] == expected
    assert complete(llm, [prompt], 30)[0].finished
    assert seen(server)["bodies"][0]["stop"] == ["~1", "~2", "~3", "~4"]


def test_closing_a_stream_closes_the_connection(server: str) -> None:
    faults(server)
    texts = stream(OpenAILLM("tiny", server), Prompt("Das Haus ist alt."), 200)
    next(texts)
    texts.close()
    waited = time.monotonic() + 10
    while not seen(server)["cancelled"] and time.monotonic() < waited:
        time.sleep(0.05)
    assert seen(server)["cancelled"] == 1


def test_a_stream_cut_in_the_middle(server: str) -> None:
    faults(server, "cut")
    with pytest.raises(UserError, match="broke off in the middle of an answer"):
        list(stream(OpenAILLM("tiny", server), Prompt("Das Haus ist alt."), 30))
    faults(server, "error")
    with pytest.raises(UserError, match=r"failed in the middle of an answer \(out of blocks\)"):
        list(stream(OpenAILLM("tiny", server), Prompt("Das Haus ist alt."), 30))


def test_inside_a_running_event_loop(server: str) -> None:
    llm = OpenAILLM("tiny", server)

    async def notebook_cell() -> list[Completion]:
        return complete(llm, [Prompt("Ja")], 5)

    assert asyncio.run(notebook_cell()) == complete(llm, [Prompt("Ja")], 5)


def test_interrupt_cancels_what_is_in_flight(server: str, tmp_path: Path) -> None:
    faults(server, *[503] * 1000)
    code = (
        "import signal\nfrom rag_mt.llm.openai_llm import OpenAILLM\nfrom rag_mt.llm.queue import complete\n"
        "from rag_mt.base.types import Prompt\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background shell hands down `ignored`
        f"llm = OpenAILLM('tiny', {server!r})\nprint('ready', flush=True)\ncomplete(llm, [Prompt('Ja')] * 50)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout and process.stdout.readline() == "ready\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert "KeyboardInterrupt" in errors and "UserError" not in errors
    faults(server)


def test_refusals_name_the_address_and_the_next_step(
    folder: Path, server: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UserError, match=rf"{server} has no model 'big' .*curl {server}/models"):
        complete(OpenAILLM("big", server), [Prompt("Ja")])
    with pytest.raises(UserError, match=r"has no model 'big'"):
        list(stream(OpenAILLM("big", server), Prompt("Ja")))
    with serving(folder, API_KEY=KEY, CHAT_ONLY="1") as url:
        with pytest.raises(UserError, match=rf"{url} refuses access \(401: .*set OPENAI_API_KEY"):
            OpenAILLM("tiny", url)
        with pytest.raises(UserError) as raised:
            OpenAILLM("tiny", url, api_key="sk-wrong-9876")
        assert "sk-wrong-9876" not in str(raised.value) and "[key]" in str(raised.value)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        llm = OpenAILLM("tiny", url)
        with pytest.raises(UserError, match="has no /completions, which prompts without a chat template need"):
            complete(llm, [Prompt("Ja")])
        with caplog.at_level("DEBUG"):
            assert complete(llm, [Prompt("Ja", chat=True)], 3)[0].tokens
        assert KEY not in caplog.text and KEY not in repr(vars(llm).get("id")) and KEY not in llm.fingerprint


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
