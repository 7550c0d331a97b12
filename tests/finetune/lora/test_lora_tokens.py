"""Examples as tokens: the very prompts of a translation, whole answers with an end, and batches that lose nothing."""

from __future__ import annotations

from array import array

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from finetune.lora.train import ExamplePrompts, Tokens, collated, micro_batches, places, tokens_of
from rag_mt.base.errors import UserError
from rag_mt.base.types import Prompt
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import load_llm
from rag_mt.translation.tasks import SentenceTask, prepare
from rag_mt.translation.translator import Translator
from retrievers.no_hints import NoHints


class Given:
    """A retriever that finds what the examples hold."""

    name = "given"

    def __init__(self, examples):
        self.unit = examples[0].unit
        self.hints = {example.pair.source: example.hints for example in examples}

    def retrieve(self, sentences):
        return [self.hints[s.text] for s in sentences]


@pytest.fixture(scope="module")
def llm(tiny_llm):
    return TransformersLLM(load_llm(str(tiny_llm()), device="cpu", dtype="float32"), adapter="in training")


@pytest.fixture(scope="module")
def chat_llm(tiny_llm):
    return TransformersLLM(load_llm(str(tiny_llm("llama", chat=True)), device="cpu", dtype="float32"), adapter="a")


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("unit", ["phrase", "sentence", "plain"])
def test_prompts_are_word_for_word_those_of_a_translation(examples, llm, chat_llm, unit, chat):
    model = chat_llm if chat else llm
    own = examples(12, "sentence" if unit == "plain" else unit)
    retriever = NoHints() if unit == "plain" else Given(own)
    if unit == "plain":
        own = [type(e)(e.pair, e.unit) for e in own]
    translator = Translator("de", "en", retriever=retriever, llm=model)
    prompts = ExamplePrompts(model)
    tasks = [SentenceTask(translator, e.pair.sentence) for e in own]
    prepare(tasks)
    wanted = [task.prompt for task in tasks if task.prompt]
    assert [prompts.prompt(e) for e in own] == wanted
    assert sum(bool(p.hints) for p in wanted) == sum(bool(e.hints) for e in own)
    assert prompts.builder(own[0]).wrapper == ("chat" if chat else "alpaca")
    tokens, left_out = tokens_of(prompts, own, 4096, show=False)
    assert left_out == 0
    for example, prompt, made in zip(own, wanted, tokens, strict=True):
        assert tuple(made.ids[: made.response]) == model.encode(prompt)
        *answer, end = made.ids[made.response :]
        assert model.tokenizer.decode(answer) == example.pair.target
        assert end == model.tokenizer.eos_token_id


def test_a_first_word_that_joins_the_prompt_is_read_apart(llm, examples):
    """The prompt's tokens stay as they are at translation time, whatever the answer begins with."""
    asked = Prompt("The response carries it ou")
    joined = llm.encode(asked, "t.")
    assert joined[: len(llm.encode(asked))] != llm.encode(asked)

    class Fixed(ExamplePrompts):
        def prompt(self, example):
            return asked

    (first, *_), _ = tokens_of(Fixed(llm), examples(3), 4096, show=False)
    assert tuple(first.ids[: first.response]) == llm.encode(asked)


def test_control_tokens_in_a_target_are_text(llm, examples):
    (own,) = examples(1)
    pair = type(own.pair)("de", "en", "Das Zeichen </s> beendet\nden Text.", "The sign </s> ends\nthe text.")
    ((made,), _) = tokens_of(ExamplePrompts(llm), [type(own)(pair, "phrase")], 4096, show=False)
    *answer, end = made.ids[made.response :]
    assert llm.tokenizer.eos_token_id not in answer
    assert end == llm.tokenizer.eos_token_id
    assert llm.tokenizer.decode(answer) == "The sign ⟨/s⟩ ends the text."


def test_long_examples_are_left_out_and_counted(llm, examples):
    own = examples(20)
    tokens, _ = tokens_of(ExamplePrompts(llm), own, 4096, show=False)
    lengths = sorted(map(len, tokens))
    cutoff = lengths[9]
    kept, left_out = tokens_of(ExamplePrompts(llm), own, cutoff, show=False)
    assert list(kept) == [t for t in tokens if len(t) <= cutoff]
    assert left_out == len(own) - len(kept) > 0
    with pytest.raises(UserError, match=r"none of 20 examples has at most 9 tokens: give a larger training.cutoff"):
        tokens_of(ExamplePrompts(llm), own, 9, show=False)


@given(st.lists(st.integers(2, 60), min_size=1, max_size=30), st.integers(1, 6), st.integers(0, 150))
def test_micro_batches_hold_each_example_once_within_their_limit(lengths, most, budget):
    tokens = [Tokens(array("i", range(n)), 1, "de-en") for n in lengths]
    parts = micro_batches(tokens, most, budget)
    for part in parts:
        assert len(part) == 1 or (sum(map(len, part)) <= budget if budget else len(part) <= most)
    assert [len(example) for part in parts for example in part] == sorted(lengths, reverse=True)


def test_a_batch_points_to_what_predicts_each_response_token():
    tokens = [Tokens(array("i", [5, 6, 7, 8]), 2, "x"), Tokens(array("i", [5, 9]), 1, "x")]
    batch = collated(tokens, pad=0, width=0)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8], [5, 9, 0, 0]]
    assert batch.positions.tolist() == [[0, 1, 2, 3]] * 2
    assert places_of(batch) == [(0, 1, 7), (0, 2, 8), (1, 0, 9)]
    assert all(isinstance(t, torch.Tensor) for t in (batch.rows, batch.wanted))
    batch = collated(tokens[::-1], pad=0, width=8)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 5, 9]]
    assert batch.positions.tolist() == [[0, 1, 2, 3, 0, 1]]
    assert places_of(batch) == [(0, 4, 9), (0, 1, 7), (0, 2, 8)]


def places_of(batch):
    return list(zip(batch.rows.tolist(), batch.columns.tolist(), batch.wanted.tolist(), strict=True))


@given(st.lists(st.integers(2, 60), min_size=1, max_size=30), st.integers(0, 100))
def test_examples_stand_in_rows_without_overlap(lengths, width):
    found = places(lengths, width)
    taken = [(row, begin + n) for (row, begin), length in zip(found, lengths, strict=True) for n in range(length)]
    assert len(set(taken)) == len(taken) == sum(lengths)
    assert {row for row, _ in found} == set(range(1 + max(row for row, _ in found)))
    limit = max(width, *lengths)
    assert all(begin + length <= limit for (_, begin), length in zip(found, lengths, strict=True))
    assert width or all(begin == 0 for _, begin in found)
