"""Batched generation with shared prefixes gives what transformers' own `generate` gives one prompt at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Prompt
from rag_mt.llm import decoding
from rag_mt.llm.generation import LOOK_EVERY, NEVER_AGAIN, loop_at_end
from rag_mt.llm.opening import open_llm
from rag_mt.llm.prompt_tokens import shared_tokens
from rag_mt.llm.queue import NO_ANSWER, PromptList, complete
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import LoadedLLM, load_llm
from tests.rag_mt.coming import Coming, stream

Tiny = Callable[..., LoadedLLM]

HEAD = "Hint: the train is late. Translate what follows into English, word by word.\n"
OTHER = "Another instruction, which is rather shorter:\n"
TAILS = [
    *("Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an und wird hier geteilt: 1 und 2", "ein Wort", "x"),
    *("Wir gehen.", "Was kostet das?", "Nein!", "Die Preise steigen, sagt der Minister", "aber", "Ende gut, alles gut"),
    *("Am Montag", "Am Dienstag; am Mittwoch", "Zwei Wochen später war er weg"),
]


def prompts_of(head: str, shared: bool = True, **options: Any) -> list[Prompt]:
    return [Prompt(f"{head}{tail}\n", shared=len(head) if shared else 0, **options) for tail in TAILS]


def one_by_one(loaded: LoadedLLM, prompts: list[Prompt], limit: int) -> list[Completion]:
    """What `model.generate` gives each prompt alone; its texts without the end-of-text token."""
    model: Any = loaded.model
    tokenizer: Any = loaded.tokenizer
    ends = model.generation_config.eos_token_id
    ends = ends if isinstance(ends, list) else [ends]
    completions = []
    for prompt in prompts:
        encoded = tokenizer(prompt.text, return_tensors="pt")
        ids = model.generate(**encoded, max_new_tokens=limit)[0, encoded.input_ids.shape[1] :].tolist()
        finished = ids[-1] in ends
        text = tokenizer.decode(ids[:-1] if finished else ids, skip_special_tokens=True)
        completions.append(Completion(text.rstrip("\ufffd"), len(ids), finished))
    return completions


def watch(model: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes (rows, columns) of all tokens that the model is asked to compute from now on."""
    shapes: list[tuple[int, int]] = []
    forward = model.forward

    def record(*args: Any, **options: Any) -> Any:
        shapes.append(tuple(options["input_ids"].shape))
        return forward(*args, **options)

    monkeypatch.setattr(model, "forward", record)
    return shapes


@pytest.fixture(scope="module")
def gemma() -> LoadedLLM:
    return load_llm("embedded:gemma-3-270m", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def ends_of() -> dict[str, int]:
    """For each tiny model an end-of-text token that its answers contain here and there."""
    return {}


@pytest.fixture
def tiny(tiny_llm: Callable[..., Path], ends_of: dict[str, int]) -> Tiny:
    """Loads a tiny model, some of whose answers end by themselves within 20 tokens."""

    def load(family: str = "llama", template: str | None = None, dtype: str = "float32") -> LoadedLLM:
        loaded = load_llm(str(tiny_llm(family, template)), device="cpu", dtype=dtype)
        settings: Any = loaded.model.generation_config
        settings.eos_token_id = []
        if family not in ends_of:
            answers = [c.text for c in one_by_one(loaded, prompts_of(HEAD), 20)]
            counts = {letter: sum(letter in text for text in answers) for text in answers for letter in text}
            chosen = min(counts, key=lambda letter: (abs(counts[letter] - len(answers) // 2), letter))
            ends_of[family] = loaded.tokenizer.convert_tokens_to_ids(chosen)
        settings.eos_token_id = [ends_of[family]]
        return loaded

    return load


@pytest.fixture
def llama(tiny: Tiny) -> LoadedLLM:
    return tiny("llama")


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_equal_to_generate_one_by_one(tiny: Tiny, family: str) -> None:
    loaded = tiny(family)
    mixed = [*prompts_of(HEAD)[::2], *prompts_of(OTHER)[1::2], Prompt("ab"), Prompt("no head but a long text " * 4)]
    for prompts in (prompts_of(HEAD)[1::2], prompts_of(HEAD, shared=False)[::2], mixed):
        expected = one_by_one(loaded, prompts, 20)
        assert {c.finished for c in expected} == {True, False}
        for size in (1, 5):
            assert complete(TransformersLLM(loaded, size), prompts, 20) == expected


def test_answers_tell_how_likely_they_are(llama: LoadedLLM) -> None:
    """The mean of the tokens' log-probabilities by a forward pass, the end of the text among them; others tell none."""
    prompts = [replace(prompt, scored=number % 3 > 0) for number, prompt in enumerate(prompts_of(HEAD))]
    answers = complete(TransformersLLM(llama, 4), prompts, 20)
    assert [a.logprob is None for a in answers] == [not prompt.scored for prompt in prompts]
    assert [replace(a, logprob=None) for a in answers] == one_by_one(llama, prompts, 20)
    model: Any = llama.model
    for prompt, answer in zip(prompts, answers, strict=True):
        if answer.logprob is not None:
            ids = llama.tokenizer(prompt.text, return_tensors="pt").input_ids
            whole = model.generate(ids, max_new_tokens=20)
            with torch.no_grad():
                likely = model(whole).logits[0, ids.shape[1] - 1 : -1].log_softmax(-1)
            told = likely.gather(1, whole[0, ids.shape[1] :, None]).mean()
            assert answer.logprob == pytest.approx(float(told), abs=1e-4)


@pytest.mark.slow
def test_gemma_equals_generate_one_by_one(gemma: LoadedLLM) -> None:
    head = "German: Der Zug ist da.\nEnglish: The train is here.\n\nGerman: Es regnet.\nEnglish: It rains.\n\n"
    prompts = [Prompt(f"{head}German: {tail}\nEnglish:", shared=len(head)) for tail in TAILS[:6]]
    expected = one_by_one(gemma, prompts, 4)
    for size in (1, 4):
        assert complete(TransformersLLM(gemma, size), prompts, 4) == expected


def test_gemma_beyond_its_sliding_window(gemma: LoadedLLM) -> None:
    head = "".join(f"{i}. Der Zug Nummer {i * 7} kommt heute um {i % 24} Uhr an.\n" for i in range(1, 31))
    prompts = [Prompt(head + tail, shared=len(head)) for tail in ("31. Der", "31. Der Zug Nummer 217 kommt")]
    assert TransformersLLM(gemma).count_tokens(prompts[0]) > 512
    assert complete(TransformersLLM(gemma), prompts, 6) == one_by_one(gemma, prompts, 6)


def test_smollm2_equals_generate_one_by_one() -> None:
    loaded = load_llm("embedded:smollm2-135m", device="cpu", dtype="float32")
    head = "The following sentences are about travel by train, by bus and by ship, in every season.\n"
    prompts = [
        Prompt(head + text, shared=len(head)) for text in ("The train", "In winter the ship is", "A bus", "I go")
    ]
    llm = TransformersLLM(loaded, 3)
    assert complete(llm, prompts, 6) == one_by_one(loaded, prompts, 6)
    assert llm.has_chat_template and "<|im_start|>" in llm.reserved


def test_prefix_is_computed_once(llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = TransformersLLM(llama, 4)
    shapes = watch(llama.model, monkeypatch)
    complete(llm, prompts_of(HEAD), 1)
    head = len(llm.tokenizer(HEAD.rstrip()).input_ids)
    assert shapes[0] == (1, head)
    assert sum(columns >= head for _, columns in shapes) == 1
    first = len(shapes)
    complete(llm, prompts_of(HEAD)[:3], 1)
    assert all(columns < head for _, columns in shapes[first:])


def test_prompts_of_unlike_lengths_are_computed_apart(llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = watch(llama.model, monkeypatch)
    complete(TransformersLLM(llama, 16), [Prompt("x" * n) for n in (200, 9, 11, 190, 10, 90)], 1)
    assert shapes == [(2, 201), (1, 91), (3, 12)]


def test_finished_rows_leave_the_batch(llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = watch(llama.model, monkeypatch)
    found = complete(TransformersLLM(llama, 16), prompts_of(HEAD), 30)
    rows = [rows for rows, columns in shapes if columns == 1]
    assert rows == sorted(rows, reverse=True)
    assert rows[0] == len(TAILS) and rows[-1] < len(TAILS)
    assert max(c.tokens for c in found) == 1 + len(rows)


def test_places_in_the_batch_are_filled_again(llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = complete(TransformersLLM(llama, 1), prompts_of(HEAD), 30)
    shapes = watch(llama.model, monkeypatch)
    assert complete(TransformersLLM(llama, 4), prompts_of(HEAD), 30) == expected
    steps = [rows for rows, columns in shapes if columns == 1]
    assert max(steps) == 4
    assert steps.count(4) > len(steps) // 2
    assert sum(steps) + len(TAILS) == sum(c.tokens for c in expected)  # and no row is computed that has ended


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_many_prompts_go_through_few_places(tiny: Tiny, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Places are taken over and the cache is moved again and again; prompts wait until several places are free."""
    loaded = tiny(family)
    asked = [Prompt(f"{'word ' * (n * 7 % 23)}{tail}") for n in range(6) for tail in TAILS]
    expected = complete(TransformersLLM(loaded, 1), asked, 30)
    shapes = watch(loaded.model, monkeypatch)
    assert complete(TransformersLLM(loaded, 16), asked, 30) == expected
    begun = [rows for rows, columns in shapes if columns > 1]
    steps = [rows for rows, columns in shapes if columns == 1]
    assert sum(begun) == len(asked) and len(steps) > 70, "the room for later tokens is used up"
    assert sum(steps) < 1.1 * sum(completion.tokens for completion in expected)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_prompts_that_come_on_the_way(tiny: Tiny, family: str, caplog: pytest.LogCaptureFixture) -> None:
    """Short ones after long ones and long ones after short ones, one that does not fit among them."""
    loaded = tiny(family)
    coming = [
        *prompts_of(HEAD)[:3],
        Prompt("x" * 300),
        Prompt("ab"),
        *prompts_of(OTHER)[3:8],
        Prompt("a long text " * 9),
    ]
    expected = complete(TransformersLLM(loaded, 1), coming, 20)
    left, rooms = list(coming), list[int]()

    def more(free: int) -> list[Prompt]:
        rooms.append(free)
        return [left.pop(0) for _ in range(min(free, len(left), 1 + len(rooms) % 2))]

    with caplog.at_level(logging.WARNING, "rag_mt"):
        found = list(Coming(more).answered_by(TransformersLLM(loaded, 4), 20))
    assert "prompt 4 of the call has 301 tokens" in caplog.text
    assert sorted(number for number, _ in found) == list(range(len(coming)))
    assert [completion for _, completion in sorted(found, key=lambda pair: pair[0])] == expected
    assert max(rooms) == 4 and min(rooms) >= 1
    assert list(Coming(lambda free: []).answered_by(TransformersLLM(loaded, 4))) == []


def test_answers_are_given_as_they_end(llama: LoadedLLM) -> None:
    """A short answer does not wait for long ones, and what comes meanwhile is asked for."""
    settings: Any = llama.model.generation_config
    settings.eos_token_id = []
    free = complete(TransformersLLM(llama), prompts_of(HEAD)[:2], 40)
    asked = [prompts_of(HEAD)[0], Prompt(prompts_of(HEAD)[1].text, shared=len(HEAD), stop=(free[1].text[2:4],))]
    lengths: dict[int, int] = {}

    def wanted(number: int, text: str) -> bool:
        lengths[number] = len(text)
        return True

    answers = Coming(lambda room: [asked.pop(0) for _ in asked[:room]], wanted).answered_by(
        TransformersLLM(llama, 2), 40
    )
    number, completion = next(answers)
    assert (number, completion.text) == (1, free[1].text[:2])
    assert lengths[0] < len(free[0].text)
    assert list(answers) == [(0, free[0])]


def test_an_answer_that_nobody_wants_leaves_the_batch_at_once(
    llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Any = llama.model.generation_config
    settings.eos_token_id = []
    shapes = watch(llama.model, monkeypatch)
    complete(TransformersLLM(llama, 16), prompts_of(HEAD), 9, lambda number, text: number != 3 or len(text) < 4)
    steps = [rows for rows, columns in shapes if columns == 1]
    assert len(steps) == 8 and set(steps) == {len(TAILS), len(TAILS) - 1}
    assert steps.count(len(TAILS)) <= 4


def test_same_call_same_bytes_whatever_came_before(tiny: Tiny) -> None:
    loaded = tiny("gemma3", dtype="bfloat16")
    llm = TransformersLLM(loaded, 5)
    fresh = complete(llm, prompts_of(HEAD), 20)
    complete(llm, prompts_of(OTHER)[:3], 5)
    complete(llm, prompts_of(HEAD, shared=False), 5)
    assert complete(llm, prompts_of(HEAD), 20) == fresh
    assert complete(TransformersLLM(loaded, 5), prompts_of(HEAD), 20) == fresh


def test_stop_strings_end_each_row(llama: LoadedLLM) -> None:
    free = complete(TransformersLLM(llama), prompts_of(HEAD), 30)
    stops = [(c.text[4:6],) if len(c.text) > 6 else () for c in free]
    prompts = [Prompt(p.text, shared=p.shared, stop=s) for p, s in zip(prompts_of(HEAD), stops, strict=True)]
    for size in (1, 16):
        found = complete(TransformersLLM(llama, size), prompts, 30)
        for completion, before, stop in zip(found, free, stops, strict=True):
            assert completion.text == (before.text[: before.text.index(stop[0])] if stop else before.text)
            assert completion.finished == (bool(stop) or before.finished)
            assert completion.tokens <= before.tokens


def leaving_loops(loaded: LoadedLLM, prompt: Prompt, limit: int) -> tuple[list[int], bool]:
    """Greedy tokens without an end, each from a computation of all before it, and whether they left a loop."""
    model: Any = loaded.model
    tokenizer: Any = loaded.tokenizer
    start: list[int] = tokenizer(prompt.text).input_ids
    made: list[int] = []
    banned: set[int] = set()
    left = False
    while len(made) < limit:
        with torch.no_grad():
            scores = model(torch.tensor([start + made])).logits[0, -1].float()
        scores[list(banned)] = -torch.inf
        made.append(int(scores.argmax()))
        if left:
            runs = {tuple(made[n : n + NEVER_AGAIN]) for n in range(len(made) - NEVER_AGAIN + 1)}
            banned = {run[-1] for run in runs if list(run[:-1]) == made[1 - NEVER_AGAIN :]}
        elif len(made) < limit and len(made) % LOOK_EVERY == 0 and (found := loop_at_end(made)):
            made, banned, left = made[: sum(found)], {made[sum(found)]}, True
    return made, left


def test_stuck_answers_go_on_differently(tiny: Tiny) -> None:
    loaded, prompts, limit = tiny("gemma3"), prompts_of(HEAD)[:4], 110
    model: Any = loaded.model
    tokenizer: Any = loaded.tokenizer
    model.generation_config.eos_token_id = []
    expected = [leaving_loops(loaded, prompt, limit) for prompt in prompts]
    assert {left for _, left in expected} == {False, True}, "some never loop, some leave a loop"
    for size in (1, 3):
        found = complete(TransformersLLM(loaded, batch_size=size), prompts, limit)
        for own, (made, _) in zip(found, expected, strict=True):
            assert (own.tokens, own.finished) == (len(made), False)
            assert own.text == tokenizer.decode(made, skip_special_tokens=True).rstrip("\ufffd")


def test_an_answer_that_ends_with_a_loop_in_its_text_goes_on_differently(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The likeliest tokens say a text with a loop, and where they must not, another one; all else is the real thing."""
    loaded = tiny("gemma3")
    tokenizer: Any = loaded.tokenizer
    model: Any = loaded.model
    end = model.generation_config.eos_token_id = tokenizer.eos_token_id
    llm = TransformersLLM(loaded, 2)
    texts = ["Go on, go on, go on, go on, now", "Go on, go on, now"]
    likely, short, other = (tokenizer(text, add_special_tokens=False).input_ids for text in (*texts, "! There"))
    script = {"a": [*likely, end], "b": [*short, end]}

    def likeliest(*given: Any) -> torch.Tensor:
        rows = given[5] if len(given) > 5 else []
        real = next_tokens(*given).clone()
        for n, row in enumerate(rows):
            if not row.done:
                left = row.barred is not None
                own = [*row.new_tokens[: row._begun], *other, end] if left else script[row.text.strip()[-1]]
                real[n] = own[len(row.new_tokens)]
                assert int(real[n]) not in row.forbidden_tokens or not left
        return real

    next_tokens = decoding._next_tokens
    monkeypatch.setattr(decoding, "_next_tokens", likeliest)
    first, second = complete(llm, [Prompt("say a"), Prompt("say b")], 90)
    begun = len(tokenizer("Go on,", add_special_tokens=False).input_ids)
    assert first == Completion("Go on,! There", begun + len(other) + 1, True)
    assert second == Completion(texts[1], len(short) + 1, True)
    assert first.tokens < len(likely)
    assert list(stream(llm, Prompt("say a"), 90))[-1] == first.text
    told = count()  # first of the empty text, at last of the end
    given_up = complete(llm, [Prompt("say a")], 90, wanted=lambda number, text: next(told) <= len(likely))
    assert given_up == [Completion(texts[0], len(likely) + 1, True)]


def test_a_stream_grows_to_the_whole_answer(llama: LoadedLLM) -> None:
    llm = TransformersLLM(llama)
    for prompt in prompts_of(HEAD):
        free = complete(llm, [prompt], 30)[0].text
        for stop in ((), (free[5:8],), ("~",)):
            asked = Prompt(prompt.text, shared=prompt.shared, stop=stop)
            texts = list(stream(llm, asked, 30))
            assert texts[-1:] == list(filter(None, [complete(llm, [asked], 30)[0].text]))
            assert all(b.startswith(a) for a, b in pairwise(texts)) and not any(s and s in texts[-1] for s in stop)


def test_gemma_streams_whole_characters(gemma: LoadedLLM) -> None:
    llm = TransformersLLM(gemma)
    prompt = Prompt("Repeat: 😀🧑‍🚀🫠 𝔄𝔅\nRepeat: 😀🧑‍🚀🫠 𝔄𝔅\nRepeat:", stop=("\n",))
    texts = list(stream(llm, prompt, 24))
    assert len(texts) > 1
    assert not any("\ufffd" in text for text in texts)
    assert texts[-1] == complete(llm, [prompt], 24)[0].text


def test_closing_a_stream_stops_the_computation(llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = llama.model.generation_config
    settings.eos_token_id = []
    llm = TransformersLLM(llama)
    shapes = watch(llama.model, monkeypatch)
    texts = stream(llm, prompts_of(HEAD)[0], 100)
    next(texts)
    next(texts)
    texts.close()
    assert len(shapes) <= 4  # the prefix, the prompt, and a token or two


def test_answers_that_nobody_wants_are_not_computed(llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    settings: Any = llama.model.generation_config
    settings.eos_token_id = []
    llm = TransformersLLM(llama)
    prompts = prompts_of(HEAD)[:4]
    expected = complete(llm, prompts, 20)
    told: dict[int, list[str]] = {n: [] for n in range(4)}

    def wanted(number: int, text: str) -> bool:
        told[number].append(text)
        return not (number == 1 or (number == 2 and len(told[2]) > 5))

    shapes = watch(llama.model, monkeypatch)
    made = complete(llm, prompts, 20, wanted)
    assert [made[0], made[3]] == [expected[0], expected[3]]
    assert [c.tokens for c in made] == [20, 0, 5, 20]
    assert expected[2].text.startswith(made[2].text) and not made[2].finished
    assert told[1] == [""]
    assert all(a == b[: len(a)] for n in (0, 2, 3) for a, b in pairwise(told[n]))
    assert told[0][-1] == expected[0].text
    shapes.clear()
    assert complete(llm, prompts, 20, lambda number, text: False) == [Completion("", 0, False)] * 4
    assert shapes == []


def test_prompt_that_fills_the_window(llama: LoadedLLM, caplog: pytest.LogCaptureFixture) -> None:
    llm = TransformersLLM(llama)
    long, near = Prompt("x" * 300), Prompt("a" * 250)
    with caplog.at_level(logging.WARNING, "rag_mt"):
        found = complete(llm, [long, Prompt("Ja"), near], 100)
    assert found[0] == Completion("", 0, False)
    assert "301 tokens" in caplog.text and "prompt 1" in caplog.text
    assert found[1] == complete(llm, [Prompt("Ja")], 100)[0]
    assert llm.count_tokens(near) + found[2].tokens <= llm.context_length == 256
    assert list(stream(llm, long)) == []
    assert list(stream(llm, near, 100))[-1:] == list(filter(None, [found[2].text])) and not found[2].finished


def test_little_and_nothing_to_do(llama: LoadedLLM) -> None:
    llm = TransformersLLM(llama)
    assert complete(llm, []) == []
    assert complete(llm, [Prompt("Ja")], 0) == [Completion("", 0, False)]
    assert complete(llm, [Prompt("Ja")], 1)[0].tokens == 1


def test_no_text_begins_twice(llama: LoadedLLM) -> None:
    llm = TransformersLLM(llama)
    assert llm.count_tokens(Prompt("Ja")) == llm.count_tokens(Prompt("<s>Ja")) == 3


def test_chat_prompts_stand_in_the_template(tiny: Tiny, chat_template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = tiny("llama", chat_template)
    llm = TransformersLLM(loaded)
    assert llm.has_chat_template
    assert llm.reserved == {"<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>"}
    prompts = prompts_of("  " + HEAD, chat=True)
    assert llm.count_tokens(prompts[0]) == len(prompts[0].text.strip()) + 3
    wrapped = [Prompt(f"<|user|>{p.text.strip()}</s><|assistant|>") for p in prompts]
    expected = []
    for prompt in wrapped:
        encoded = llm.tokenizer(prompt.text, add_special_tokens=False, return_tensors="pt")
        ids = llm.model.generate(**encoded, max_new_tokens=1)[0, -1:]
        expected.append(llm.tokenizer.decode(ids, skip_special_tokens=True))
    shapes = watch(llm.model, monkeypatch)
    found = complete(llm, prompts, 1)
    assert [c.text for c in found if not c.finished] == [
        text for text, c in zip(expected, found, strict=True) if not c.finished
    ]
    assert shapes[0] == (1, 1 + len(HEAD.rstrip()))


def test_a_template_alone_makes_no_chat_model(tiny: Tiny, chat_template: str) -> None:
    assert not TransformersLLM(tiny("llama", chat_template.replace("</s>", "\n"))).has_chat_template
    assert not TransformersLLM(tiny("llama")).has_chat_template


def test_gemma_reserves_control_tokens_and_not_text(gemma: LoadedLLM) -> None:
    llm = TransformersLLM(gemma)
    assert {"<bos>", "<eos>", "<unused0>"} <= llm.reserved
    assert not {"\n\n", "<table>"} & llm.reserved
    assert not llm.has_chat_template
    assert llm.context_length == 32768


def test_lack_of_memory_halves_the_batch(
    llama: LoadedLLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = complete(TransformersLLM(llama, 16), prompts_of(HEAD), 10)
    limit = 4
    forward = llama.model.forward

    def cramped(*args: Any, **options: Any) -> Any:
        if len(options["input_ids"]) > limit:
            raise torch.OutOfMemoryError("out of memory")
        return forward(*args, **options)

    monkeypatch.setattr(llama.model, "forward", cramped)
    llm = TransformersLLM(llama, 16)
    with caplog.at_level(logging.WARNING, "rag_mt"):
        assert complete(llm, prompts_of(HEAD), 10) == expected
    assert "14 prompts at once" in caplog.text and "4 at once" in caplog.text
    limit = 0
    with pytest.raises(UserError, match=r"ran out of memory on one prompt of \d+ tokens: use dtype"):
        complete(llm, prompts_of(HEAD), 10)
    with pytest.raises(UserError, match="ran out of memory"):
        list(stream(llm, prompts_of(HEAD)[0]))


def test_fingerprint_names_what_may_change_outputs(llama: LoadedLLM, tiny: Tiny) -> None:
    prints = [
        TransformersLLM(llama, 16).fingerprint,
        TransformersLLM(llama, 1).fingerprint,
        TransformersLLM(tiny("gemma3"), 16).fingerprint,
        TransformersLLM(tiny("llama", dtype="bfloat16"), 16).fingerprint,
    ]
    assert len(set(prints)) == len(prints)
    assert TransformersLLM(tiny("llama"), 16).fingerprint == prints[0]


def test_open_llm(tiny_llm: Callable[..., Path]) -> None:
    llm = open_llm(str(tiny_llm("llama")), device="cpu", dtype="float32", batch_size=2)
    assert isinstance(llm, TransformersLLM) and llm.batch_size == 2
    with pytest.raises(UserError, match="batch size 0 is not possible: give 1 or more"):
        open_llm(str(tiny_llm("llama")), device="cpu", batch_size=0)


def test_shared_tokens_end_before_white_space() -> None:
    text = "German: Das"
    offsets = [(0, 0), (0, 6), (6, 7), (7, 11)]
    assert shared_tokens(offsets, text, 8) == 3
    assert shared_tokens([*offsets[:3], (7, 8), (8, 11)], text, 8) == 3
    assert shared_tokens(offsets, text, len(text)) == 3
    assert shared_tokens([], "", 0) == 0


def test_prompts_of_like_lengths_are_taken_together() -> None:
    queue = PromptList([Prompt("x" * n) for n in (5, 30, 7, 40, 6)])
    assert [[len(p.text) for p in queue.take(most)] for most in (2, 1, 9, 9)] == [[40, 30], [7], [6, 5], []]
    queue.finish(0, Completion("longest", 1, True))
    assert queue.completions[3].text == "longest" and queue.completions[0] == NO_ANSWER
