"""The client of OpenAI-compatible servers against llama.cpp's own server, with the same tiny model in transformers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Prompt, Returning, Sentence
from rag_mt.llm.llamacpp import LlamaCppLLM
from rag_mt.llm.openai_llm import OpenAILLM
from rag_mt.llm.queue import complete
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm
from rag_mt.translation.translator import Translator
from tests.rag_mt.coming import Coming, stream
from tests.rag_mt.llama_server import CODED_TEMPLATE, llama_server, save_tiny
from tests.waiting import until

KEY = "sk-secret-1234"
TEXTS = ["Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an", "ein größeres Wort", "x", "Wir gehen."]


def loaded(folder: Path, **options: Any) -> TransformersLLM:
    return TransformersLLM(load_llm(str(folder), device="cpu", dtype="float32"), 1, options=options)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def server(gguf: Path) -> Iterator[str]:
    with llama_server(gguf) as url:
        yield url


@pytest.fixture(scope="module")
def local(gguf: Path) -> TransformersLLM:
    return loaded(gguf.parent)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


def busy(url: str) -> int:
    """The slots of a server that compute."""
    return sum(slot["is_processing"] for slot in httpx.get(f"{url.removesuffix('/v1')}/slots", timeout=60).json())


@pytest.mark.parametrize("chat", [True, False])
def test_answers_are_the_models_own_in_order(server: str, local: TransformersLLM, chat: bool) -> None:
    prompts = [Prompt(text, chat=chat) for text in TEXTS]
    answers = complete(OpenAILLM(f"openai:tiny@{server}"), prompts, 20)
    assert answers == complete(local, prompts, 20)
    assert len({answer.text for answer in answers}) > 4


def test_the_window_is_that_of_a_slot(server: str) -> None:
    llm = OpenAILLM("tiny", server)
    assert llm.context_length == 256
    assert llm.count_tokens(Prompt("größer")) == 3


def test_eight_requests_are_answered_at_once(server: str) -> None:
    """Batches change nothing: the answers are those of one request after the other."""
    prompts = [Prompt(f"{text} {n}") for n in range(4) for text in TEXTS]
    most, endless = 0, {"ignore_eos": True, "cache_prompt": False}

    def look(number: int, text: str) -> bool:
        nonlocal most
        most = max(most, busy(server))
        return True

    found = complete(OpenAILLM("tiny", server, concurrency=8, options=endless), prompts, 200, look)
    assert 4 <= most <= 8
    assert all(answer.tokens == 200 for answer in found)
    one_by_one = complete(OpenAILLM("tiny", server, concurrency=1, options=endless), prompts[:4], 200)
    assert [f.text for f in found[:4]] == [c.text for c in one_by_one]


def test_prompts_that_come_on_the_way(server: str, local: TransformersLLM) -> None:
    llm = OpenAILLM("tiny", server, chat=False, concurrency=2)
    left, told = [Prompt(text) for text in TEXTS], set[int]()

    def wanted(number: int, text: str) -> bool:
        told.add(number)
        return True

    found = dict(Coming(lambda room: [left.pop(0) for _ in left[:room]], wanted).answered_by(llm, 8))
    assert found == {n: complete(local, [Prompt(text)], 8)[0] for n, text in enumerate(TEXTS)}
    assert told == set(range(len(TEXTS)))


@pytest.mark.parametrize("chat", [True, False])
def test_a_stream_grows_to_the_whole_answer(server: str, chat: bool) -> None:
    llm = OpenAILLM("tiny", server, options={"ignore_eos": True})
    free = complete(llm, [Prompt("Ja", chat=chat)], 200)[0].text
    for stop in ((), (free[40:48],)):
        answer = Returning(stream(llm, Prompt("Ja", chat=chat, stop=stop), 200))
        texts = list(answer)
        assert len(texts) > 1 or stop
        assert all(after.startswith(before) for before, after in pairwise(texts))
        assert texts[-1] == answer.value.text == (free[: free.index(stop[0])] if stop else free)
        assert answer.value.finished == bool(stop)
    assert answer.value.tokens < 200


def test_stop_strings_beyond_what_the_protocol_takes(server: str) -> None:
    llm = OpenAILLM("tiny", server)
    free = complete(llm, [Prompt("Ja")], 20)[0].text
    found = complete(llm, [Prompt("Ja", stop=("~1", "~2", "~3", "~4", free[5:8]))], 20)[0]
    assert found.text == free[: free.index(free[5:8])] and found.finished and found.stopped


def test_a_prompt_too_long_for_the_server(server: str, caplog: pytest.LogCaptureFixture) -> None:
    llm = OpenAILLM("tiny", server)
    found = complete(llm, [Prompt("x" * 300), Prompt("Ja")], 5)
    assert found[0] == Completion("", 0, False)
    assert found[1].tokens == 5
    assert "request (300 tokens) exceeds the available context size (256 tokens)" in caplog.text


def test_an_answer_that_the_window_cuts_did_not_end(server: str) -> None:
    found = complete(OpenAILLM("tiny", server), [Prompt("a" * 250)], 100)[0]
    assert found.tokens == 6 and not found.finished


def test_the_server_stops_what_nobody_wants(gguf: Path) -> None:
    with llama_server(gguf, slots=2, window=20_000) as url:
        llm = OpenAILLM("tiny", url, concurrency=2, options={"ignore_eos": True})
        texts = stream(llm, Prompt(TEXTS[0]), 18_000)
        next(texts)
        assert busy(url) == 1
        texts.close()
        until(lambda: not busy(url), 5)
        found = complete(llm, [Prompt(TEXTS[0])] * 2, 18_000, lambda number, text: number == 1 and len(text) < 20)
        until(lambda: not busy(url), 5)
        assert all(not answer.finished and len(answer.text) < 10_000 for answer in found)


def test_an_interrupted_program_leaves_no_work_behind(gguf: Path) -> None:
    with llama_server(gguf, slots=2, window=20_000) as url:
        code = (
            "import signal\nfrom rag_mt.llm.openai_llm import OpenAILLM\nfrom rag_mt.llm.queue import complete\n"
            "from rag_mt.base.types import Prompt\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a background shell hands down `ignored`
            f"llm = OpenAILLM('tiny', {url!r}, concurrency=2, options={{'ignore_eos': True}})\n"
            "print('ready', flush=True)\ncomplete(llm, [Prompt('Ja')] * 50, 18_000)\n"
        )
        program = subprocess.Popen([sys.executable, "-c", code], stdout=-1, stderr=-1, text=True)
        assert program.stdout and program.stdout.readline() == "ready\n"
        until(lambda: busy(url), 10)
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate(timeout=30)
        assert "KeyboardInterrupt" in errors and "UserError" not in errors
        until(lambda: not busy(url), 5)


def test_inside_a_running_event_loop(server: str) -> None:
    llm = OpenAILLM("tiny", server)

    async def notebook_cell() -> list[Completion]:
        return complete(llm, [Prompt("Ja")], 5)

    assert asyncio.run(notebook_cell()) == complete(llm, [Prompt("Ja")], 5)


def test_a_model_that_is_not_there_is_told_at_once(server: str) -> None:
    """llama.cpp answers by the model that it has, whatever name a request gives."""
    with pytest.raises(UserError, match=f"{server} has no model 'big': choose one of tiny"):
        OpenAILLM("big", server)


def test_keys(gguf: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with llama_server(gguf, slots=1, key=KEY) as url:
        for key in (None, "sk-wrong-9876"):
            with pytest.raises(UserError, match=rf"{url} refuses access \(401: .*set OPENAI_API_KEY") as raised:
                OpenAILLM("tiny", url, api_key=key)
            assert "sk-wrong-9876" not in str(raised.value)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        llm = OpenAILLM("tiny", url)
        with caplog.at_level("DEBUG"):
            assert complete(llm, [Prompt("Ja", chat=True)], 3)[0].tokens
        assert KEY not in caplog.text and KEY not in llm.id and KEY not in llm.fingerprint


def test_language_codes_reach_the_template(tmp_path: Path) -> None:
    """In the content of the message and beside it: a template of TranslateGemma's kind, here and at the server."""
    gguf = save_tiny(tmp_path, CODED_TEMPLATE)
    here = loaded(tmp_path)
    assert here.has_chat_template and here.takes_language_codes
    tone = {"chat_template_kwargs": {"tone": " ({src} {tgt})"}}
    with llama_server(gguf, slots=2) as url:
        plain, asked = OpenAILLM("tiny", url), OpenAILLM("tiny", url, options=tone)
        prompts = [Prompt("Ja", chat=True, source="de", target=target, coded=True) for target in ("en", "cs")]
        own = complete(here, prompts, 12)
        assert own[0].text != own[1].text
        assert [c.text for c in complete(plain, prompts, 12)] == [c.text for c in own]
        toned = complete(loaded(tmp_path, **tone), prompts, 12)
        assert {c.text for c in toned}.isdisjoint(c.text for c in own)
        assert [c.text for c in complete(asked, prompts, 12)] == [c.text for c in toned]
        for options, expected in ((None, own), (tone, toned)):
            engine = LlamaCppLLM("tiny", gguf, batch_size=1, options=options)
            assert engine.takes_language_codes
            assert [c.text for c in complete(engine, prompts, 12)] == [c.text for c in expected]
        translator = Translator("de", "cs", llm=plain, wrapper="translategemma", max_new_tokens=12)
        sentence = translator.translate_sentences([Sentence("Ja", "de")])[0]
        assert sentence.prompt == "Ja"


def test_a_template_that_refuses_the_prompt(tmp_path: Path) -> None:
    save_tiny(tmp_path, "{{ raise_exception('no text part') if messages[0].content is string }}" + CODED_TEMPLATE)
    here = loaded(tmp_path)
    assert Translator("de", "en", llm=here).prompts.wrapper == "translategemma"
    with pytest.raises(UserError, match=r"refuses the prompt \(no text part\): try .* --wrapper translategemma"):
        Translator("de", "en", llm=here, wrapper="chat").translate("Ja")
