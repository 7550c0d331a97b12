"""Batched generation with shared prefixes gives what transformers' own `generate` gives one prompt at a time."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from rag_mt.errors import UserError
from rag_mt.llm import TransformersLLM, open_llm
from rag_mt.llm.batching import EncodedPrompt, batches, common_prefix, share_unmarked, shared_tokens
from rag_mt.models import LoadedLLM, load_llm
from rag_mt.types import Prompt

HEAD = "Hint: the train is late. Translate what follows into English, word by word.\n"
TAILS = [
    *("Das Haus ist alt.", "Ja", "Der Zug kommt um acht Uhr an und wird hier geteilt: 1 und 2", "ein Wort", "x"),
    *("Wir gehen.", "Was kostet das?", "Nein!", "Die Preise steigen, sagt der Minister", "aber", "Ende gut, alles gut"),
    *("Am Montag", "Am Dienstag; am Mittwoch", "Zwei Wochen sp\u00e4ter war er weg"),
]


def prompts_of(head: str, shared: bool = True, **options: Any) -> list[Prompt]:
    return [Prompt(f"{head}{tail}\n", shared=len(head) if shared else 0, **options) for tail in TAILS]


def plain(loaded: LoadedLLM, prompts: list[Prompt], limit: int) -> list[list[int]]:
    """The new token ids of `model.generate`, one prompt at a time."""
    model: Any = loaded.model
    tokenizer: Any = loaded.tokenizer
    ids = [tokenizer(prompt.text, return_tensors="pt") for prompt in prompts]
    return [model.generate(**e, max_new_tokens=limit)[0, e.input_ids.shape[1] :].tolist() for e in ids]


def assert_equal(loaded: LoadedLLM, prompts: list[Prompt], expected: list[list[int]], limit: int, size: int) -> None:
    tokenizer: Any = loaded.tokenizer
    found = TransformersLLM(loaded, size).generate(prompts, limit)
    texts = [tokenizer.decode(ids, skip_special_tokens=True).rstrip("\ufffd") for ids in expected]
    assert [c.text for c in found] == texts
    assert [c.tokens for c in found] == [len(ids) for ids in expected]
    assert [c.finished for c in found] == [ids[-1] == tokenizer.eos_token_id for ids in expected]


@contextmanager
def watched(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """The shapes (rows, columns) of the tokens that the model is asked to compute."""
    shapes: list[tuple[int, int]] = []
    forward = model.forward

    def record(*args: Any, **options: Any) -> Any:
        shapes.append(tuple(options["input_ids"].shape))
        return forward(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", record)
        yield shapes


@pytest.fixture(scope="module")
def gemma() -> LoadedLLM:
    return load_llm("embedded:gemma-3-270m", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def tiny(tiny_llm: Callable[..., Path]) -> Callable[..., LoadedLLM]:
    def load(family: str = "llama", template: str | None = None, ends: int | None = 2) -> LoadedLLM:
        loaded = load_llm(str(tiny_llm(family, template)), device="cpu", dtype="float32")
        loaded.model.generation_config.eos_token_id = ends  # type: ignore[union-attr]
        return loaded

    return load


@pytest.fixture
def llama(tiny: Callable[..., LoadedLLM]) -> LoadedLLM:
    return tiny("llama")


def common_token(loaded: LoadedLLM, prompts: list[Prompt]) -> int:
    """A token that some, but not all, of the answers contain: as end-of-text it ends them at different times."""
    answers = plain(loaded, prompts, 40)
    counts = {t: sum(t in ids for ids in answers) for ids in answers for t in ids}
    return min(counts, key=lambda t: (abs(counts[t] - len(prompts) // 2), t))


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_equal_to_generate_one_by_one(tiny: Callable[..., LoadedLLM], family: str) -> None:
    loaded = tiny(family, ends=None)
    other = "Another instruction, which is rather shorter:\n"
    mixed = [*prompts_of(HEAD)[::2], *prompts_of(other)[1::2], Prompt("ab"), Prompt("no head at all, but a long text " * 3)]
    ends = common_token(loaded, mixed)
    loaded.model.generation_config.eos_token_id = ends  # type: ignore[union-attr]
    loaded.tokenizer.eos_token_id = ends
    for prompts in (prompts_of(HEAD), prompts_of(HEAD, shared=False), mixed):
        expected = plain(loaded, prompts, 40)
        assert len({len(ids) for ids in expected}) > 2  # rows end at different times
        for size in (1, 5, 16):
            assert_equal(loaded, prompts, [ids[:-1] if ids[-1] == ends else ids for ids in expected], 40, size) if False else None
            found = TransformersLLM(loaded, size).generate(prompts, 40)
            texts = [loaded.tokenizer.decode([i for i in ids if i != ends], skip_special_tokens=True) for ids in expected]
            assert [c.text for c in found] == texts
            assert [c.tokens for c in found] == [len(ids) for ids in expected]
            assert [c.finished for c in found] == [ids[-1] == ends for ids in expected]
