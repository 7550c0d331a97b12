"""Prompts with hints go to one language model and those without to another; all else is as with one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rag_mt.base.errors import UserError
from rag_mt.base.types import Hint, Hit, Prompt, Sentence, Span
from rag_mt.llm.opening import fingerprint_for, open_llm
from rag_mt.llm.queue import complete
from rag_mt.llm.routed_llm import RoutedLLM
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm
from tests.rag_mt.coming import Coming, stream

HINT = Hint(Span(0, 3), Hit(Sentence("the old house", "en"), Span(4, 7), 0.9))
TEXTS = ["Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an", "ein Wort", "x", "Wir gehen.", "Nein!"]
PROMPTS = [Prompt(text, hints=(HINT,) if n % 3 else ()) for n, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def routed(tiny_llm: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> RoutedLLM:
    """A tiny model, and for prompts without hints the same one with a random adapter."""
    base = str(tiny_llm("llama"))
    torch.manual_seed(3)
    own: Any = get_peft_model(load_llm(base, device="cpu", dtype="float32").model, LoraConfig(r=4, lora_alpha=64))
    for name, weight in own.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    folder = tmp_path_factory.mktemp("adapter")
    own.save_pretrained(str(folder))
    made = open_llm(base, plain_adapter=str(folder), device="cpu", dtype="float32", batch_size=2)
    assert isinstance(made, RoutedLLM)
    for model, adapter in ((made.hinted, None), (made.plain, str(folder))):
        alone = open_llm(base, adapter=adapter, device="cpu", dtype="float32", batch_size=2)
        assert alone.fingerprint == model.fingerprint
        assert complete(alone, PROMPTS, 12) == complete(model, PROMPTS, 12), "sharing changes nothing"
    return made


@pytest.fixture(scope="module")
def expected(routed: RoutedLLM) -> list[str]:
    made = [complete((routed.hinted if p.hints else routed.plain), [p], 12)[0].text for p in PROMPTS]
    other = [complete((routed.plain if p.hints else routed.hinted), [p], 12)[0].text for p in PROMPTS]
    assert all(a != b for a, b in zip(made, other, strict=True)), "the two models say different things"
    return made


def test_each_prompt_has_its_model(routed: RoutedLLM, expected: list[str]) -> None:
    assert [c.text for c in complete(routed, PROMPTS, 12)] == expected
    assert [list(stream(routed, prompt, 12))[-1] for prompt in PROMPTS] == expected
    assert complete(routed, [], 12) == []
    assert [routed.of(p) is routed.plain for p in PROMPTS] == [not p.hints for p in PROMPTS]
    assert [fingerprint_for(routed, p) for p in PROMPTS] == [routed.of(p).fingerprint for p in PROMPTS]
    assert fingerprint_for(routed.plain, PROMPTS[1]) == routed.plain.fingerprint
    assert len({routed.fingerprint, routed.hinted.fingerprint, routed.plain.fingerprint}) == 3


def test_watchers_are_told_of_the_prompts_of_the_call(routed: RoutedLLM, expected: list[str]) -> None:
    told: dict[int, str] = {}
    complete(routed, PROMPTS, 12, lambda number, text: told.update({number: text}) or True)
    assert [told[n] for n in range(len(PROMPTS))] == expected
    unwanted = complete(routed, PROMPTS, 12, lambda number, text: number != 1)
    assert [c.text for c in unwanted[2:]] == expected[2:] and len(unwanted[1].text) < len(expected[1])


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_prompts_that_come_on_the_way(routed: RoutedLLM, expected: list[str], at_once: int) -> None:
    left, told = list(PROMPTS), dict[int, str]()

    def watch(number: int, text: str) -> bool:
        told[number] = text
        return number != 4

    found = Coming(lambda free: [left.pop(0) for _ in range(min(free, at_once, len(left)))], watch).answered_by(
        routed, 12
    )
    texts = {number: completion.text for number, completion in found}
    assert not left and len(texts.pop(4)) < len(expected[4])
    assert told | texts == told and texts == {n: text for n, text in enumerate(expected) if n != 4}
    assert list(Coming(lambda free: []).answered_by(routed)) == []


@pytest.mark.parametrize("many", [0, 1])
def test_neither_model_waits_for_the_other(routed: RoutedLLM, many: int) -> None:
    """Ever more prompts of one kind come: the one of the other kind is answered meanwhile, and holds nobody up."""
    coming = [PROMPTS[many], PROMPTS[1 - many], *[PROMPTS[many]] * 20]
    order = [
        number for number, _ in Coming(lambda free: [coming.pop(0) for _ in coming[:free]]).answered_by(routed, 12)
    ]
    assert sorted(order) == list(range(22)) and order.index(1) <= 4


def test_prompts_that_come_after_a_pause(routed: RoutedLLM, expected: list[str]) -> None:
    """`more` has nothing now and then, and is asked again while something is computed."""
    coming = [[PROMPTS[1]], [], [], [PROMPTS[0]], [], [PROMPTS[3]], [], [], [PROMPTS[2]]]
    found = dict(Coming(lambda free: coming.pop(0) if coming else []).answered_by(routed, 12))
    assert {n: c.text for n, c in found.items()} == dict(enumerate(expected[i] for i in (1, 0, 3, 2)))


def test_closing_stops_both_models(routed: RoutedLLM, monkeypatch: pytest.MonkeyPatch) -> None:
    coming, shapes = list(PROMPTS), []
    answers = Coming(lambda free: [coming.pop(0) for _ in coming[:free]]).answered_by(routed, 12)
    next(answers)
    for model in (routed.hinted.model, routed.plain.model):
        monkeypatch.setattr(model, "forward", lambda *_, **__: shapes.append(1))
    answers.close()
    assert not shapes and list(answers) == []


def test_adapters_must_have_learnt_from_prompts_of_one_shape(tiny_llm: Callable[..., Path], tmp_path: Path) -> None:
    loaded = load_llm(str(tiny_llm("llama")), device="cpu", dtype="float32")

    def tuned(name: str, wrapper: str | None) -> TransformersLLM:
        folder = tmp_path / name
        folder.mkdir()
        (folder / "training.json").write_text(json.dumps({"wrapper": wrapper}))
        return TransformersLLM(loaded, adapter=str(folder))

    foreign, compact = tuned("foreign", None), tuned("compact", "compact")
    assert RoutedLLM(foreign, compact).trained_wrapper == RoutedLLM(compact, foreign).trained_wrapper == "compact"
    with pytest.raises(UserError, match=r"different shapes \(.*compact from compact and .*other from alpaca\)"):
        RoutedLLM(compact, tuned("other", "alpaca"))


def test_equal_embeddings_are_kept_once(routed: RoutedLLM, tiny_llm: Callable[..., Path]) -> None:
    parts = [(m.model.get_input_embeddings(), m.model.get_output_embeddings()) for m in (routed.hinted, routed.plain)]
    assert parts[0][0] is parts[1][0] and parts[0][1] is parts[1][1]
    models = [TransformersLLM(load_llm(str(tiny_llm("llama")), device="cpu", dtype="float32")) for _ in range(2)]
    with torch.no_grad():
        models[1].model.get_input_embeddings().weight[0] += 1
    both = RoutedLLM(*models)
    assert both.hinted.model.get_input_embeddings() is not both.plain.model.get_input_embeddings()
