"""A language model and a retriever that answer at once, by rule, so that tests of the service need no weights."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
import uvicorn

from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM
from rag_mt.base.types import (
    Completion,
    Floats,
    Hint,
    Hit,
    Kind,
    Origin,
    Prompt,
    PromptQueue,
    Recalled,
    Sentence,
    Span,
    TokenStates,
    Unit,
)
from rag_mt.llm.generation import first_stop
from rag_mt.translation.translator import Translator
from ui.server.api import make_app
from ui.server.languages import offer_of
from ui.server.limits import Limits
from ui.server.metrics import Metrics
from ui.server.serve import listening
from ui.server.service import Service
from ui.server.translators import Choice


class RuleLLM:
    """Answers with the sentence's words in upper case, a token a word, one round of all answers after the other.

    `pace` is the time that a round takes; `calls` holds the number of prompts of every call; `hold` keeps rounds
    waiting while it is cleared.
    """

    id = "rule"
    fingerprint = "rule"
    context_length = 4096
    has_chat_template = False
    continues_chats = False
    reserved: frozenset[str] = frozenset()

    def __init__(self, pace: float = 0.0) -> None:
        self.pace = pace
        self.calls: list[int] = []
        self.rounds = 0
        self.hold = threading.Event()
        self.hold.set()

    def count_tokens(self, prompt: Prompt) -> int:
        return len(prompt.text.split())

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        first = 0
        while prompts := queue.take(64):
            for _ in self.round(queue, prompts, first, max_new_tokens):
                yield
            first += len(prompts)

    def round(self, queue: PromptQueue, prompts: Sequence[Prompt], first: int, max_new_tokens: int) -> Iterator[None]:
        """All answers of some prompts, which are numbered from `first`."""
        self.calls.append(len(prompts))
        words = [self._answer(prompt) for prompt in prompts]
        answers = [""] * len(prompts)
        going = [n for n in range(len(prompts)) if queue.progress(first + n, "")]
        ended = [False] * len(prompts)
        for step in range(max_new_tokens):
            if not going:
                break
            self.hold.wait()
            time.sleep(self.pace)
            self.rounds += 1
            left = []
            for n in going:
                answers[n] += words[n][step] if step < len(words[n]) else ""
                ended[n] = step + 1 >= len(words[n])
                wanted = queue.progress(first + n, answers[n])
                if wanted and not ended[n]:
                    left.append(n)
            going = left
            yield
        for n, text in enumerate(answers):
            queue.finish(first + n, Completion(text, len(text.split()), ended[n]))

    def _answer(self, prompt: Prompt) -> list[str]:
        line = prompt.text.splitlines()[-2]
        source = line.split(": ", 1)[1]
        end = first_stop(source, prompt.stop)
        words = (source if end < 0 else source[:end]).upper().split(" ")
        return [f" {word}" for word in words[len(prompt.begun.split()) :]]


class RuleRetriever:
    """Two hints for every sentence: its first word, and its last one, from a line of their own."""

    name = "phrases"
    unit: Unit = "phrase"
    settings: Mapping[str, Any] = {}

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        made = []
        for sentence in sentences:
            words = sentence.text.split()
            last = len(sentence.text) - len(words[-1])
            spans = [Span(0, len(words[0])), Span(last, len(sentence.text))]
            made.append(
                tuple(
                    Hint(span, Hit(Sentence(text.upper(), "en", Origin("rule.txt", 7)), Span(0, len(text)), score))
                    for span, score in zip(spans, (0.9, 0.4), strict=True)
                    for text in [span.of(sentence.text)]
                )
            )
        return made


class HintedLLM(RuleLLM):
    """Begins its answers to prompts with hints with an `AGAIN` more than those to prompts without."""

    def _answer(self, prompt: Prompt) -> list[str]:
        return [*([" AGAIN"] if prompt.hints else []), *super()._answer(prompt)]


class RuleMemory:
    """Recalls the draft itself, in one line of a file, for every sentence; it is worth showing where `shows` of the
    sentence's text says so. `asked` holds the sentences and drafts of every call."""

    name = "memory"
    unit: Unit = "memory"
    settings: Mapping[str, Any] = {}
    bilingual = True

    def __init__(self, shows: Callable[[str], bool] = lambda text: True) -> None:
        self.shows = shows
        self.asked: list[list[tuple[str, str]]] = []
        self.translated: dict[str, Hit] = {}

    def known(self, sentences: Sequence[Sentence]) -> list[Hit | None]:
        return [self.translated.get(sentence.text) for sentence in sentences]

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        raise AssertionError("a memory is asked with drafts")

    def recall(self, sentences: Sequence[Sentence], drafts: Sequence[str]) -> list[Recalled]:
        pairs = [(sentence.text, draft) for sentence, draft in zip(sentences, drafts, strict=True)]
        self.asked.append(pairs)
        return [self._recalled(*pair) for pair in pairs]

    def _recalled(self, text: str, draft: str) -> Recalled:
        line = f"Of old: {draft}"
        hit = Hit(Sentence(line, "en", Origin("memory.txt", 3)), Span(0, len(line)), 0.8, f"Einst: {text}")
        shown = self.shows(text)
        return Recalled((Hint(Span(0, len(text)), hit),), shown)


@cache
def _word_vector(word: str) -> Floats:
    return np.random.default_rng(crc32(word.encode())).standard_normal(16).astype(np.float32)


class WordEncoder:
    """Texts with the same words have near vectors."""

    id = "words"
    fingerprint = "words"
    dimension = 16
    hidden = 16
    layers = 1

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        vectors = np.array([sum(map(_word_vector, t.casefold().split()), np.full(16, 1e-3)) for t in texts], np.float32)
        rows: Floats = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return rows

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        raise NotImplementedError


class RuleOpener:
    """Opens rule translators that share one LLM per name and adapter, with `WordEncoder` over the index of a choice
    that names one; `opened` lists the choices, `pace` slows loading."""

    def __init__(self, llm: RuleLLM | None = None, pace: float = 0.0) -> None:
        self.llm = llm or RuleLLM()
        self.others: dict[tuple[str, str], RuleLLM] = {}
        self.pace = pace
        self.opened: list[Choice] = []
        self.at_once = 0
        self.most_at_once = 0

    def __call__(self, choice: Choice) -> Translator:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.pace)
        self.opened.append(choice)
        key = (choice.llm, choice.adapter)
        llm = self.llm if key == (DEFAULT_LLM, DEFAULT_ADAPTER) else self.others.setdefault(key, RuleLLM())
        self.at_once -= 1
        options: dict[str, Any] = {"wrapper": "compact", "max_new_tokens": 64, "retriever": RuleRetriever()}
        if choice.index:
            options |= {"retriever": choice.retriever, "index": choice.index, "encoders": lambda *_: WordEncoder()}
        return Translator(choice.source, choice.target, llm=llm, **options)


@pytest.fixture
def opener() -> RuleOpener:
    """A fresh opener of rule translators."""
    return RuleOpener()


@pytest.fixture
def slow() -> Callable[[float], RuleOpener]:
    """Makes openers whose model takes so many seconds for a token."""
    return lambda pace: RuleOpener(RuleLLM(pace))


@pytest.fixture
def make_service(tmp_path: Path) -> Iterator[Callable[..., Service]]:
    """Makes services of rule translators, by limits and an opener; they are closed after the test."""
    made: list[Service] = []

    def make(
        opener: RuleOpener | None = None,
        folder: Path | None = None,
        llms: Sequence[str] = (DEFAULT_LLM,),
        adapters: Sequence[str] = (),
        **limits: int,
    ) -> Service:
        service = Service(
            opener or RuleOpener(),
            lambda retriever: WordEncoder(),
            limits=Limits(**limits),
            offer=offer_of(),
            llms=llms,
            adapters=adapters,
            folder=folder or tmp_path / f"service{len(made)}",
        )
        made.append(service)
        return service

    yield make
    for service in made:
        service.close(0.1)


@dataclass(frozen=True)
class Running:
    """A server that listens, with what is behind it."""

    url: str
    service: Service
    opener: RuleOpener
    server: uvicorn.Server


@pytest.fixture
def run_server(make_service: Any) -> Iterator[Callable[..., Running]]:
    """Starts servers at free ports; they are stopped after the test."""
    made: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(opener: RuleOpener | None = None, app_options: dict[str, Any] | None = None, **more: Any) -> Running:
        opener = opener or RuleOpener()
        metrics = Metrics()
        service = make_service(opener, **more)
        service.engine.observe = metrics.observe
        app = make_app(service, metrics=metrics, patience=1, **(app_options or {}))
        place = listening("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
        thread.start()
        made.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        return Running(f"http://127.0.0.1:{place.getsockname()[1]}", service, opener, server)

    yield start
    for server, thread in made:
        server.should_exit = True
        thread.join(10)
