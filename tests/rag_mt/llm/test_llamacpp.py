"""llama.cpp in this process answers as transformers does in float32, keeps the contract of queues and leaks nothing."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import xllamacpp
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch.nn.init import normal_

from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Prompt, Sentence
from rag_mt.cli import translate
from rag_mt.llm import llamacpp, llamacpp_server
from rag_mt.llm.generation import NEVER_AGAIN, loop_at_end
from rag_mt.llm.llamacpp import LlamaCppLLM
from rag_mt.llm.llamacpp_server import (
    BYTES_PER_THREAD,
    Layout,
    LlamaRequest,
    LlamaServer,
    available_cores,
    layout_for,
)
from rag_mt.llm.opening import open_llm
from rag_mt.llm.queue import NO_ANSWER, PromptList, complete
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm
from rag_mt.translation.translator import Translator
from tests.rag_mt.coming import Coming, stream
from tests.rag_mt.llama_server import TEMPLATE, save_tiny
from tests.waiting import until

HEAD, OTHER = "Hint: the train is late. Translate what follows.\n", "Another instruction, a shorter one:\n"
TEXTS = [
    *("Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an", "ein größeres Wort", "x", "Wir gehen.", "Привет 😀"),
    *("Satz 3", "Satz 8", "Satz 11", "Satz 14"),
]
LONG = 4000  # tokens that are computed in some seconds


def prompts_of(head: str = "", **options: Any) -> list[Prompt]:
    return [Prompt(f"{head}{text}\n", shared=len(head), **options) for text in TEXTS]


@pytest.fixture(scope="module", autouse=True)
def float32() -> Iterator[None]:
    """Keys and values in float32, and attention in its order: what is left is the rounding of float32."""
    make = xllamacpp.CommonParams

    def precise() -> Any:
        params = make()
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        return params

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(xllamacpp, "CommonParams", precise)
        yield


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tiny"))


def many(gguf: Path, slots: int, servers: int = 1, adapter: str | None = None) -> LlamaCppLLM:
    """The model in one server with several slots, as large models are computed, or in several servers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llamacpp, "layout_for", lambda *given: Layout(servers, slots, 1))
        return LlamaCppLLM("tiny", gguf, adapter, batch_size=slots * servers)


@pytest.fixture(scope="module")
def one(gguf: Path) -> LlamaCppLLM:
    return LlamaCppLLM("tiny", gguf, batch_size=1)


@pytest.fixture(scope="module")
def four(gguf: Path) -> LlamaCppLLM:
    return many(gguf, 4)


@pytest.fixture(scope="module")
def three(gguf: Path) -> LlamaCppLLM:
    return many(gguf, 1, servers=3)


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> LlamaCppLLM:
    """Four slots whose answers go on to their limits."""
    return many(save_tiny(tmp_path_factory.mktemp("endless"), ends=0), 4)


@pytest.fixture(scope="module")
def local(gguf: Path) -> TransformersLLM:
    return loaded(gguf.parent)


def loaded(folder: Path) -> TransformersLLM:
    return TransformersLLM(load_llm(str(folder), device="cpu", dtype="float32"), 8)


def busy(llm: LlamaCppLLM) -> int:
    """The slots that compute."""
    connection: HTTPConnection = llm.server.connection()
    connection.request("GET", "/slots", headers=llm.server.headers)
    return sum(slot["is_processing"] for slot in json.loads(connection.getresponse().read()))


def idle_within(llm: LlamaCppLLM, seconds: float) -> None:
    until(lambda: not busy(llm), seconds)


def free_slots(llm: LlamaCppLLM) -> int:
    """How many slots are free, each of which is given out once."""
    taken = [slot for _ in range(2 * llm.batch_size) if (slot := llm.servers.take_slot(1))]
    for slot in taken:
        slot.server.give_slot(slot.number, 1)
    assert len({(id(slot.server), slot.number) for slot in taken}) == len(taken)
    return len(taken)


def watch(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The timings of the answers that end from now on: `cache_n` tokens were taken up and `prompt_n` computed."""
    timings: list[dict[str, Any]] = []
    events = LlamaRequest.events

    def record(self: LlamaRequest, **more: Any) -> Iterator[dict[str, Any]]:
        for event in events(self, **more):
            timings.extend([event["timings"]] if event["stop"] else [])
            yield event

    monkeypatch.setattr(LlamaRequest, "events", record)
    return timings


@pytest.mark.parametrize("limit", [0, 1, 17, 18, 150])
def test_answers_are_those_of_transformers(
    one: LlamaCppLLM, four: LlamaCppLLM, three: LlamaCppLLM, local: TransformersLLM, limit: int
) -> None:
    """Texts, numbers of tokens and ends, with stop strings that begin and do not come; long answers leave loops."""
    prompts = [
        *prompts_of(),
        *prompts_of(chat=True),
        *prompts_of(HEAD)[:4],
        *prompts_of(HEAD, stop=("o:", "w=|x", ">"))[4:],
        *prompts_of(stop=("::", "w", "~E")),
    ]
    expected = complete(local, prompts, limit)
    assert [one.count_tokens(p) for p in prompts] == [local.count_tokens(p) for p in prompts]
    for llm in (one, four, three):
        assert complete(llm, prompts, limit) == expected
    if limit > 1:
        assert {(c.finished, c.stopped) for c in expected} == {(True, True), (True, False), (False, False)}


def test_answers_tell_how_likely_they_are_as_those_of_transformers(
    one: LlamaCppLLM, three: LlamaCppLLM, local: TransformersLLM
) -> None:
    prompts = [Prompt(p.text, p.chat, p.shared, p.stop, scored=True) for p in (*prompts_of(HEAD), *prompts_of()[:3])]
    expected = [completion.logprob for completion in complete(local, prompts, 17)]
    for llm in (one, three):
        assert [completion.logprob for completion in complete(llm, prompts, 17)] == pytest.approx(expected, abs=1e-3)
        assert all(completion.logprob is None for completion in complete(llm, prompts_of(), 2))


def test_answers_leave_their_loops_as_those_of_transformers(tmp_path: Path) -> None:
    """The likeliest tokens alone are a loop; the answer has its first round, and then no run of tokens again."""
    one, left = LlamaCppLLM("tiny", save_tiny(tmp_path, spread=0.15), batch_size=1), 0
    prompts = [*prompts_of(HEAD), *prompts_of(stop=("~~~~~~~", "w}w"))]
    expected = complete(loaded(tmp_path), prompts, 150)
    for llm in (one, many(tmp_path / "model.gguf", 4)):
        assert complete(llm, prompts, 150) == expected
    for prompt in prompts_of(HEAD):
        body = {
            "prompt": one.server.tokens(prompt.text, special=True),
            "n_predict": 150,
            "temperature": 0,
            "return_tokens": True,
        }
        likeliest = one.server.post("/completion", body)["tokens"]
        looped = next((found for n in range(0, len(likeliest), 8) if (found := loop_at_end(likeliest[:n]))), None)
        if looped is None:
            continue
        left += 1
        made = one.server.tokens(complete(one, [prompt], 150)[0].text, special=False)
        begun = sum(looped)
        assert list(made[:begun]) == likeliest[:begun] and made[begun] != likeliest[begun]
        runs = [made[n : n + NEVER_AGAIN] for n in range(len(made) - NEVER_AGAIN + 1)]
        assert len(set(runs[begun:])) == len(runs[begun:])
    assert left > 2


@settings(max_examples=10)
@given(st.permutations(range(len(TEXTS))), st.data())
def test_an_answer_depends_on_its_prompt_alone(one: LlamaCppLLM, order: list[int], data: st.DataObject) -> None:
    heads = data.draw(st.lists(st.sampled_from([HEAD, OTHER, ""]), min_size=len(order), max_size=len(order)))
    prompts = [Prompt(head + TEXTS[n], shared=len(head)) for n, head in zip(order, heads, strict=True)]
    together = complete(one, prompts, 12)
    assert one.repeatable
    assert together == [complete(one, [prompt], 12)[0] for prompt in prompts]


def test_an_instruction_is_computed_once(one: LlamaCppLLM, four: LlamaCppLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, alone = prompts_of(HEAD.replace("H", "G")), [Prompt(f"{HEAD.replace('H', 'G')}{text}\n") for text in TEXTS]
    head = len(HEAD.rstrip())
    for llm in (one, four):
        expected = complete(llm, alone, 12)
        with monkeypatch.context() as patch:
            timings, posted = watch(patch), list[str]()
            post = llm.server.post

            def record(path: str, body: Any, post: Any = post, posted: list[str] = posted) -> Any:
                posted.append(path)
                return post(path, body)

            patch.setattr(llm.server, "post", record)
            for _ in range(2):
                assert complete(llm, shared, 12) == expected
        assert {t["cache_n"] for t in timings} == {head}
        assert len(timings) == 2 * len(TEXTS) and all(0 < t["prompt_n"] < 2 * max(map(len, TEXTS)) for t in timings)
        assert posted.count("/completion") == 1, "that of the instruction alone"


def test_as_many_answers_as_the_batch_are_computed_together(endless: LlamaCppLLM) -> None:
    most = [0]

    def look(number: int, text: str) -> bool:
        most[0] = max(most[0], busy(endless))
        return True

    complete(endless, prompts_of(HEAD), 400, look)
    assert most == [4]


def test_prompts_that_come_on_the_way(one: LlamaCppLLM, four: LlamaCppLLM, caplog: pytest.LogCaptureFixture) -> None:
    coming = [*prompts_of(HEAD)[:3], Prompt("x" * 5000), Prompt("ab"), *prompts_of(OTHER)[3:8]]
    expected = complete(one, coming, 20)
    left, rooms = list(coming), list[int]()

    def more(free: int) -> list[Prompt]:
        rooms.append(free)
        return [left.pop(0) for _ in range(min(free, len(left), 1 + len(rooms) % 2))]

    with caplog.at_level(logging.WARNING, "rag_mt"):
        found = list(Coming(more).answered_by(four, 20))
    assert "prompt 4 of the call has 5000 tokens and gets no answer: tiny takes 1 to 4095" in caplog.text
    assert [completion for _, completion in sorted(found, key=lambda pair: pair[0])] == expected
    assert [number for number, _ in found] != sorted(number for number, _ in found), "as they end"
    assert max(rooms) == 4 and min(rooms) >= 1
    assert list(Coming(lambda free: []).answered_by(four)) == []


def test_no_answer_grows_beyond_the_window(four: LlamaCppLLM) -> None:
    near = Prompt("a" * 4090)
    found = complete(four, [Prompt("x" * 4096), near, Prompt("Ja")], 100)
    assert found[0] == NO_ANSWER and found[2] == complete(four, [Prompt("Ja")], 100)[0]
    assert not found[1].finished and found[1].tokens == 6 == four.context_length - four.count_tokens(near)


def test_answers_that_nobody_wants_are_not_computed(endless: LlamaCppLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    four, prompts, limit = endless, prompts_of(HEAD)[:4], 1500
    expected = complete(four, prompts, limit)
    told: dict[int, list[str]] = {n: [] for n in range(4)}

    def wanted(number: int, text: str) -> bool:
        told[number].append(text)
        return number != 1 and (number != 2 or len(text) < 5)

    made = complete(four, prompts, limit, wanted)
    assert [made[0], made[3]] == [expected[0], expected[3]]
    assert made[1] == NO_ANSWER and told[1] == [""]
    assert expected[2].text.startswith(made[2].text) and not made[2].finished and made[2].tokens < expected[2].tokens
    idle_within(four, 2)
    timings = watch(monkeypatch)
    assert complete(four, prompts, limit, lambda number, text: False) == [NO_ANSWER] * 4
    assert not timings and not busy(four)


def test_a_stream_grows_to_the_whole_answer(four: LlamaCppLLM) -> None:
    for prompt in prompts_of(HEAD):
        free = complete(four, [prompt], 30)[0].text
        for stop in ((), (free[5:8],), (free[5:7] + "~",)):
            asked = Prompt(prompt.text, shared=prompt.shared, stop=stop)
            texts = list(stream(four, asked, 30))
            assert texts[-1] == complete(four, [asked], 30)[0].text
            assert all(b.startswith(a) for a, b in pairwise(texts)) and not any(s in texts[-1] for s in stop)


def test_pieces_of_a_sentence_are_its_translation(four: LlamaCppLLM) -> None:
    translator = Translator("de", "en", llm=four, wrapper="chat", max_new_tokens=20)
    for text in TEXTS[:4]:
        sentence = Sentence(text, "de")
        pieces, whole = list[str](), translator.translate_sentences([sentence])[0]
        for piece in translator.stream_sentence(sentence):
            pieces.append(piece)
        assert "".join(pieces) == whole.text


def test_closing_stops_the_computation(endless: LlamaCppLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    four, expected = endless, complete(endless, prompts_of(HEAD), 20)
    answers: Any = four.answer(PromptList(prompts_of(OTHER)), LONG)
    for _ in range(9):
        next(answers)
    assert busy(four)
    timings = watch(monkeypatch)
    answers.close()
    idle_within(four, 2)
    assert not timings
    assert free_slots(four) == 4
    assert complete(four, prompts_of(HEAD), 20) == expected


def test_closing_at_any_moment_disturbs_nobody(one: LlamaCppLLM, four: LlamaCppLLM, three: LlamaCppLLM) -> None:
    """While prompts are sent, instructions are laid or computed for the first time, or right before an end."""
    for llm in (one, four, three):
        expected = complete(llm, prompts_of(HEAD), 12)
        for turn in range(16):
            head = f"{turn}{OTHER}" * (turn % 4)
            answers: Any = llm.answer(PromptList(prompts_of(head)), 12)
            for _ in range(turn // 4 + 1):
                next(answers)
            answers.close()
            assert complete(llm, prompts_of(HEAD), 12) == expected
        assert free_slots(llm) == llm.batch_size
        idle_within(llm, 2)


@pytest.mark.parametrize("fails", ["take", "progress", "finish"])
def test_a_queue_that_raises_costs_no_slot(four: LlamaCppLLM, fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = complete(four, prompts_of(HEAD), 12)
    for after in (0, 3, 5):
        queue, calls = PromptList(prompts_of(HEAD)), [0]
        real: Callable[..., Any] = getattr(queue, fails)

        def failing(*given: Any, after: int = after, calls: list[int] = calls, real: Any = real) -> Any:
            calls[0] += 1
            if calls[0] > after:
                raise OSError("disk full")
            return real(*given)

        monkeypatch.setattr(queue, fails, failing)
        with pytest.raises(OSError, match="disk full"):
            for _ in four.answer(queue, 12):
                pass
        assert free_slots(four) == 4
    assert complete(four, prompts_of(HEAD), 12) == expected


def at_once(llm: LlamaCppLLM) -> list[list[Completion]]:
    """The answers to three calls in a thread each."""
    made: list[list[Completion]] = []
    threads = [threading.Thread(target=lambda: made.append(complete(llm, prompts_of(HEAD), 20))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return made


def test_calls_of_several_threads(one: LlamaCppLLM, four: LlamaCppLLM, three: LlamaCppLLM) -> None:
    expected = complete(one, prompts_of(HEAD), 20)
    for llm in (one, four, three):
        assert at_once(llm) == [expected] * 3
        assert free_slots(llm) == llm.batch_size


def test_servers_are_opened_when_they_are_needed(gguf: Path) -> None:
    opened: list[Path] = []

    class Server(LlamaServer):
        def __init__(self, file: Path, *given: Any) -> None:
            opened.append(file)
            super().__init__(file, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llamacpp_server, "LlamaServer", Server)
        llm = many(gguf, 1, servers=3)
        complete(llm, prompts_of()[:1], 5)
        assert len(opened) == 1 and llm.repeatable and llm.batch_size == 3
        complete(llm, prompts_of(), 200)
        assert 1 < len(opened) <= 3


@pytest.mark.parametrize(
    ("size", "at_once", "cores", "gpu", "layout"),
    [
        (0.9, 16, 2, False, Layout(2, 1, 1)),
        (0.9, 1, 2, False, Layout(1, 1, 1)),
        (0.9, 3, 8, False, Layout(3, 1, 1)),
        (4.3, 16, 2, False, Layout(1, 16, 2)),
        (4.3, 16, 8, False, Layout(2, 8, 4)),
        (4.3, 1, 8, False, Layout(1, 1, 4)),
        (0.9, 16, 1, False, Layout(1, 1, 1)),
        (0.9, 16, 8, True, Layout(1, 16, 1, True)),
    ],
)
def test_the_layout_of_a_model(
    size: float, at_once: int, cores: int, gpu: bool, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llamacpp_server, "available_cores", lambda: cores)
    assert layout_for(int(size * BYTES_PER_THREAD), at_once, gpu) == layout


def test_prompts_find_room_among_what_is_left_of_others(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and values of old answers fill the pool, in slots that nobody uses; several calls share it."""
    monkeypatch.setattr(llamacpp, "WINDOW", 200)
    monkeypatch.setattr(llamacpp, "PER_PROMPT", 40)
    llm = many(gguf, 8)
    expected = complete(llm, prompts_of(HEAD), 20)
    for _ in range(3):
        complete(llm, [Prompt(text * 8) for text in TEXTS], 40)
        complete(llm, prompts_of(OTHER), 40)
        assert complete(llm, prompts_of(HEAD), 20) == expected
    assert at_once(llm) == [expected] * 3


def test_what_llama_cpp_refuses_is_one_sentence(four: LlamaCppLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """The others that wait for the same instruction end as well, and the next call is answered."""
    expected = complete(four, prompts_of(HEAD), 12)
    with monkeypatch.context() as patch:
        patch.setattr(four.server, "_body", lambda *given: {"prompt": "x", "n_predict": -9, "id_slot": 99, "lora": 1})
        with pytest.raises(UserError, match=r"tiny failed \(llama\.cpp: .*\): try it again, with less at once"):
            complete(four, prompts_of(f"{HEAD}No instruction that is there already.\n"), 12)
    for error, told in ((OSError("disk full"), UserError), (TypeError("a mistake"), TypeError)):
        with monkeypatch.context() as patch, pytest.raises(told, match=str(error)):
            patch.setattr(four.server, "lay_prefix", Mock(side_effect=error))
            complete(four, prompts_of(HEAD), 12)
    assert free_slots(four) == 4
    assert complete(four, prompts_of(HEAD), 12) == expected
    with pytest.raises(UserError, match=r"tiny cannot read a prompt \(llama\.cpp: .*surrogate"):
        complete(four, [Prompt("half a letter: \ud83d")], 12)


def test_any_bytes_make_whole_characters(tmp_path: Path) -> None:
    """A model that says bytes at random: what is no character (yet) is never shown at the end, and its tokens count."""
    gguf = save_tiny(tmp_path, readable=False)
    here, llm = loaded(tmp_path), LlamaCppLLM("tiny", gguf, batch_size=1)
    prompts = prompts_of(HEAD)
    for limit in (7, 8, 60):
        found, expected = complete(llm, prompts, limit), complete(here, prompts, limit)
        assert [c.tokens for c in found] == [c.tokens for c in expected]
        assert not any(c.text.endswith("\ufffd") for c in found)
    for prompt in prompts:
        texts = list(stream(llm, prompt, 24))
        assert all(b.startswith(a) for a, b in pairwise(texts))


def test_text_is_read_as_it_is_written(one: LlamaCppLLM, local: TransformersLLM) -> None:
    """A letter and its mark stay two characters: llama.cpp composes none, whatever the model's tokenizer does."""
    for text in ("größer", "a\0b", "ЁЖ", "👩‍🚀"):
        prompt = Prompt(text)
        assert one.server.tokens(prompt.text, special=True) == local.encode(prompt)
        assert complete(one, [prompt], 12) == complete(local, [prompt], 12)
    apart = Prompt("gro\u0308ßer")
    assert one.count_tokens(apart) == len(apart.text.encode()) == local.count_tokens(Prompt("größer")) + 1
    assert complete(one, [apart], 12)[0].tokens == 12


LORA = LoraConfig(r=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")


def adapter_of(folder: Path, gguf: Path, spread: float) -> str:
    own: Any = get_peft_model(load_llm(str(gguf.parent), device="cpu", dtype="float32").model, LORA)
    for name, weight in own.named_parameters():
        if "lora_" in name:
            normal_(weight, std=spread)
    own.save_pretrained(str(folder))
    return str(folder)


def test_an_adapter_answers_as_merged_and_keeps_the_instruction(
    gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one: LlamaCppLLM
) -> None:
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    adapter = adapter_of(tmp_path / "adapter", gguf, 0.4)
    merged = open_llm(str(gguf.parent), adapter=adapter, device="cpu", dtype="float32", batch_size=1)
    expected = complete(merged, prompts_of(HEAD), 12)
    assert expected != complete(one, prompts_of(HEAD), 12)
    llm = open_llm(str(gguf), adapter=adapter, batch_size=1)
    assert isinstance(llm, LlamaCppLLM) and llm.adapter == adapter and llm.fingerprint != one.fingerprint
    for adapted in (llm, many(gguf, 3, adapter=adapter)):
        timings = watch(monkeypatch)
        for _ in range(2):
            assert complete(adapted, prompts_of(HEAD), 12) == expected
        assert {t["cache_n"] for t in timings} == {len(HEAD.rstrip())}


def test_a_server_ends_with_its_model(gguf: Path) -> None:
    llm = LlamaCppLLM("tiny", gguf, batch_size=1)
    complete(llm, prompts_of(HEAD), 5)
    connection, folder = llm.server.connection(), Path(llm.server._folder.name)
    assert list(folder.iterdir())
    connection.connect()
    connection.close()
    del llm
    for thread in threading.enumerate():  # one that has told all may still hold the server for a moment
        if thread.name == "llama.cpp":
            thread.join(10)
    gc.collect()
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        connection.connect()


def test_templates(tmp_path: Path, gguf: Path, one: LlamaCppLLM, local: TransformersLLM) -> None:
    assert one.has_chat_template and local.has_chat_template
    assert one.reserved == local.reserved
    endless = LlamaCppLLM("tiny", save_tiny(tmp_path, TEMPLATE.replace("<|im_end|>", "\n")), batch_size=1)
    assert not endless.has_chat_template


@pytest.mark.parametrize("template", ["{% for %}{{", "{{ raise_exception('not here') }}"])
def test_a_template_that_is_broken(tmp_path: Path, template: str) -> None:
    with pytest.raises(UserError, match=r"cannot load .*model\.gguf: .* with a chat template without errors"):
        LlamaCppLLM("tiny", save_tiny(tmp_path, template), batch_size=1)


def test_a_template_that_refuses_the_prompt(tmp_path: Path) -> None:
    refuses = "{% if 'q' in messages[0].content %}{{ raise_exception('not here') }}{% endif %}"
    llm = LlamaCppLLM("tiny", save_tiny(tmp_path, refuses + TEMPLATE), batch_size=1)
    assert not llm.has_chat_template, "it refuses the question after which it could be judged"
    assert complete(llm, [Prompt("Ja", chat=True)], 5)[0].tokens == 5
    with pytest.raises(UserError, match=r"of tiny refuses the prompt \([^\n]{,50}not here\): choose another"):
        complete(llm, [Prompt("quer", chat=True)], 5)


def test_batch_sizes_below_one(gguf: Path) -> None:
    with pytest.raises(UserError, match="batch size 0 is not possible: give 1 or more"):
        LlamaCppLLM("tiny", gguf, batch_size=0)


def cut_header(file: Path, whole: bytes) -> None:
    file.write_bytes(whole[:2000])


def cut_weights(file: Path, whole: bytes) -> None:
    file.write_bytes(whole[:-9000])


def no_gguf(file: Path, whole: bytes) -> None:
    file.write_bytes(b"PK" + whole)


def unknown_architecture(file: Path, whole: bytes) -> None:
    file.write_bytes(whole.replace(b"qwen2", b"qwan2"))


def missing(file: Path, whole: bytes) -> None:
    pass


@pytest.mark.parametrize(
    ("make", "options", "told"),
    [
        (missing, (), "the GGUF file FILE cannot be read (No such file or directory): check the path"),
        (cut_header, (), "the GGUF file FILE is damaged or not whole"),
        (no_gguf, (), "FILE is no GGUF file: give one that llama.cpp can read"),
        (cut_weights, (), "llama.cpp cannot load FILE: check that the file is whole"),
        (unknown_architecture, (), "llama.cpp cannot load FILE: check that the file is whole"),
        (Path.write_bytes, ("--adapter", "GONE"), "GONE"),
    ],
)
def test_files_that_cannot_be_used_are_one_sentence(
    make: Callable[[Path, bytes], object],
    options: tuple[str, ...],
    told: str,
    gguf: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    file, gone = tmp_path / "own.gguf", str(tmp_path / "gone")
    make(file, gguf.read_bytes())
    given = [gone if option == "GONE" else option for option in options]
    arguments = ["--src", "de", "--retriever", "none", "--llm", str(file), *given, "--quiet", "Ja"]
    code = translate.main(arguments)
    out, err = capfd.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert told.replace("FILE", str(file)).replace("GONE", gone) in err


def test_a_gpu_that_llama_cpp_has_not_is_told(gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = [device for device in xllamacpp.get_device_info() if device["type"].name.endswith("CPU")]
    monkeypatch.setattr(xllamacpp, "get_device_info", lambda: cpu)
    with pytest.raises(UserError, match=r"llama\.cpp finds no GPU for .*\.gguf: choose --device cpu, or"):
        open_llm(str(gguf), device="cuda")


def test_a_value_for_the_template_may_have_any_name(gguf: Path) -> None:
    asked = [Prompt("Ja", chat=True)]
    llm = LlamaCppLLM("tiny", gguf, batch_size=1, options={"chat_template_kwargs": {"self": "x"}})
    assert complete(llm, asked, 3)[0].tokens
    llm = LlamaCppLLM("tiny", gguf, batch_size=1, options={"chat_template_kwargs": {"messages": "x"}})
    with pytest.raises(UserError, match="the chat template of tiny refuses the prompt"):
        complete(llm, asked, 3)


def test_a_slot_is_not_used_while_a_beginning_is_still_laid_into_it(one: LlamaCppLLM) -> None:
    """That of an answer which was given up; the next answer may have none."""
    server = one.servers.first
    request = server.completion((1, 2), 0, 1)
    with ThreadPoolExecutor() as pool:
        with server._lock:
            laid = pool.submit(server.lay_prefix, (), 0, request)
            assert not wait([laid], 0.2).done
        assert laid.result(5) is False


PROGRAM = """
import signal, sys
from pathlib import Path
from rag_mt.base.types import Prompt
from rag_mt.llm.llamacpp import LlamaCppLLM
from rag_mt.llm.queue import PromptList
llm = LlamaCppLLM("tiny", Path(sys.argv[1]), batch_size=2)
answers = llm.answer(PromptList([Prompt("a beginning that is shared" + str(n), shared=26) for n in range(9)]), 4000)
for _ in range(5):
    next(answers)
print(*Path(sys.argv[2]).iterdir())
if sys.argv[3] == "interrupt":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    for _ in answers:
        pass
raise SystemExit(3)
"""


@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("interrupt", -signal.SIGINT)])
def test_programs_end_while_answers_are_computed(gguf: Path, tmp_path: Path, how: str, code: int) -> None:
    """At once, without a crash and without what was laid aside."""
    arguments = [sys.executable, "-c", PROGRAM, str(gguf), str(tmp_path), how]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    assert "rag_mt.prefixes." in ended.stdout
    assert not list(tmp_path.iterdir())


LET_GO = """
import sys
from pathlib import Path
from rag_mt.llm.llamacpp_server import Layout, LlamaServer
for _ in range(100):
    LlamaServer(Path(sys.argv[1]), None, Layout(1, 1, 1, False), 256)
"""


def test_a_server_that_is_let_go_at_once_ends(gguf: Path) -> None:
    """xllamacpp waits without end for a queue that was told to end before it began, as happens on busy machines."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3 * available_cores())]
    try:
        subprocess.run([sys.executable, "-c", LET_GO, str(gguf)], capture_output=True, timeout=60, check=True)
    finally:
        for process in busy:
            process.kill()
            process.wait()


WITHOUT_TORCH = """
import sys
from rag_mt.cli import translate
code = translate.main(["--src", "de", "--retriever", "none", "--quiet", "--max-new-tokens", "12", "Guten Morgen."])
print(sorted({"torch", "transformers"} & set(sys.modules)))
raise SystemExit(code)
"""


def test_the_embedded_model_needs_no_torch(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    arguments = [sys.executable, "-c", WITHOUT_TORCH]
    ended = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "morning" in ended.stdout.casefold() and ended.stdout.splitlines()[-1] == "[]"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_gemma_answers_alike_whatever_came_before() -> None:
    """In the number formats of its file and with the keys that it really has: a sliding window, and its tokens."""
    llm = open_llm("embedded:gemma-3-270m", device="cpu", batch_size=1)
    assert isinstance(llm, LlamaCppLLM) and not llm.has_chat_template
    assert llm.count_tokens(Prompt("Ja")) == llm.count_tokens(Prompt("<bos>Ja")) == 2
    head = "".join(f"{n}. Der Zug Nummer {n * 7} kommt heute um {n % 24} Uhr an.\n" for n in range(1, 31))
    emoji = Prompt("Repeat: 😀🧑‍🚀🫠 𝔄𝔅\nRepeat: 😀🧑‍🚀🫠 𝔄𝔅\nRepeat:", stop=("\n",))
    prompts = [Prompt(f"{head}31. Der", shared=len(head)), emoji, Prompt(f"{head}Die", shared=len(head))]
    assert llm.count_tokens(Prompt(head)) > 512, "more than the window holds"
    first = complete(llm, prompts, 12)
    assert complete(llm, prompts[::-1], 12) == first[::-1]
    texts = list(stream(llm, emoji, 12))
    assert len(texts) > 1 and texts[-1] == first[1].text and not any("\ufffd" in text for text in texts)
