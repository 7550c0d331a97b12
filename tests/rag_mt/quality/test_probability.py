"""What the language model says of its own translations, on its way to the estimate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.quality import Estimate, Said
from rag_mt.base.types import Completion, Neighbour, Prompt, PromptQueue, Sentence
from rag_mt.quality.probability import Probability
from rag_mt.translation.journal import pack, unpack
from rag_mt.translation.opening import chosen_adapter
from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM

PROBABILITY = Probability("ours", 50.0, -0.5, {"de-en": [70.0, 0.8]})
HALF = math.log(0.5)
OURS = chosen_adapter("auto", DEFAULT_LLM, "de", "en")


@pytest.mark.parametrize(
    ("llm", "direction", "score", "logprob", "expected"),
    [
        ("ours", "de-en", 70.0, math.log(0.8), 70.0),
        ("ours", "de-en", 70.0, HALF, 55.0),
        ("ours", "de-en", 90.0, HALF, 65.0),
        ("ours", "de-en", 3.0, -9.0, 0.0),
        ("ours", "de-en", 99.0, 0.0, 94.5),
        ("ours", "de-en", 90.0, None, 90.0),
        ("ours", "de-fr", 90.0, HALF, 90.0),
        ("theirs", "de-en", 90.0, HALF, 90.0),
    ],
)
def test_likely_translations_are_better_than_the_estimate_alone(
    llm: str, direction: str, score: float, logprob: float | None, expected: float
) -> None:
    added = PROBABILITY.added(np.array([score, 70.0]), Said(llm, direction, [logprob, None]))
    assert added[0] == pytest.approx(expected)
    assert len(added) == 2


class LikelyLLM(RuleLLM):
    """Says of each answer that it is likely by half, where that is wanted."""

    def __init__(self, id: str = DEFAULT_LLM, adapter: str | None = OURS) -> None:
        super().__init__()
        self.id, self.adapter = id, adapter

    def round(self, queue: PromptQueue, prompts: Sequence[Prompt], first: int, max_new_tokens: int) -> Iterator[None]:
        likely = Likely(queue, {first + n for n, prompt in enumerate(prompts) if prompt.scored})
        yield from super().round(likely, prompts, first, max_new_tokens)


class Likely:
    """A queue whose answers with some numbers are likely by half."""

    def __init__(self, queue: PromptQueue, scored: set[int]) -> None:
        self.take, self.progress = queue.take, queue.progress
        self._queue, self._scored = queue, scored

    def finish(self, number: int, completion: Completion) -> None:
        self._queue.finish(number, replace(completion, logprob=HALF if number in self._scored else None))


class Listening:
    """Takes down what is said, and gives all translations 80."""

    def __init__(self) -> None:
        self.said: list[Said] = []

    def estimate(self, pairs: Sequence[tuple[str, str]], said: Said) -> list[Estimate]:
        self.said.append(said)
        return [Estimate(80.0) for _ in pairs]


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> Listening:
    known = Listening()
    monkeypatch.setattr("rag_mt.quality.estimator.shared_estimator", lambda device, dtype: known)
    return known


def translator_of(min_quality: float | None, *llm: str | None) -> Translator:
    return Translator("de", retriever="none", llm=LikelyLLM(*llm), wrapper="compact", min_quality=min_quality)


def test_the_estimator_hears_what_the_model_says(listening: Listening) -> None:
    (text,) = translator_of(50.0).translate_batch(["das haus . und der see ."])
    assert [t.logprob for t in text.sentences] == [HALF] * len(text.sentences)
    assert listening.said == [Said(DEFAULT_LLM, "de-en", [HALF] * len(text.sentences))]
    kept = text.sentences[0]
    assert unpack(pack(kept), kept.source).logprob == HALF


@pytest.mark.parametrize("llm", [(None,), (50.0, "other"), (50.0, DEFAULT_LLM, None), (50.0, DEFAULT_LLM, "mine")])
def test_nothing_is_asked_where_it_would_not_count(listening: Listening, llm: tuple[Any, ...]) -> None:
    (text,) = translator_of(*llm).translate_batch(["das haus ."])
    assert text.sentences[0].logprob is None and bool(listening.said) == (len(llm) > 1)
    assert "logprob" not in pack(text.sentences[0])


def test_other_than_plain_prompts_and_failed_answers_say_nothing(listening: Listening) -> None:
    translator = translator_of(50.0)
    sentence = Sentence("das haus .", "de")
    prompt = translator.prompts.build(sentence, ())
    begun = translator.prompts.begun(prompt, "the")
    around = replace(prompt, context=(Neighbour(-1, "der see .", "the lake ."),))
    answers = [(prompt, " the house ."), (begun, " house ."), (around, " the house ."), (prompt, "")]
    read = [translator.read(sentence, asked, Completion(text, 3, True, logprob=HALF)) for asked, text in answers]
    assert [translation.logprob for translation in read] == [HALF, None, None, None]
    assert [translator.asked(asked).scored for asked in (prompt, begun)] == [True, False]
