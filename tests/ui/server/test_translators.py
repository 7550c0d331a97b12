"""Translators that are shared: loaded once, one at a time, and forgotten in good time."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.errors import UserError
from rag_mt.translation.translator import Translator
from ui.server.translators import Choice, SharedModels, Translators


def test_what_many_ask_for_at_once_is_loaded_once_and_in_turn(opener: Any) -> None:
    opener.pace = 0.02
    translators = Translators(opener)
    choices = [Choice(code, "en", "phrases") for code in ("de", "cs", "fi")]
    with ThreadPoolExecutor(12) as pool:
        loaded = list(pool.map(lambda n: translators.load(choices[n % 3]).result(5), range(24)))
    assert len({id(translator) for translator in loaded}) == 3
    assert sorted(c.source for c in opener.opened) == ["cs", "de", "fi"]
    assert opener.most_at_once == 1
    assert {one.state for one in translators.states()} == {"ready"}
    translators.close()


def test_states_and_failures(opener: Any) -> None:
    def failing(choice: Choice) -> Any:
        if not opener.opened:
            opener.opened.append(choice)
            raise UserError("the index is gone")
        return opener(choice)

    translators = Translators(failing)
    choice = Choice("de", "en", "phrases")
    assert translators.state(choice).state == "not loaded"
    with pytest.raises(UserError, match="gone"):
        translators.load(choice).result(5)
    assert (translators.state(choice).state, translators.state(choice).error) == ("failed", "the index is gone")
    assert translators.load(choice).result(5).source == "de"
    assert translators.state(choice).state == "ready"
    translators.forget(lambda known: known.source == "de")
    assert translators.states() == []
    translators.close()


def test_the_least_recently_used_goes_first(opener: Any) -> None:
    translators = Translators(opener, most=2)
    de, cs, fi = (Choice(code, "en", "phrases") for code in ("de", "cs", "fi"))
    for choice in (de, cs, de, fi):
        translators.load(choice).result(5)
    assert {one.choice for one in translators.states()} == {de, fi}
    translators.close()


def test_language_models_are_limited_too(opener: Any) -> None:
    translators = Translators(opener, most=10, most_llms=2)
    for adapter in ("auto", "one", "two"):
        translators.load(Choice("de", "en", "phrases", adapter=adapter)).result(5)
    assert {one.choice.adapter for one in translators.states()} == {"one", "two"}
    for llm in ("a", "b"):
        translators.load(Choice("de", "en", "phrases", llm=llm)).result(5)
    assert {one.choice.llm for one in translators.states()} == {"a", "b"}
    translators.close()


def test_models_are_shared_as_long_as_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def __init__(self, name: str, *_: Any, **options: Any) -> None:
            self.name, self.options = name, options

    monkeypatch.setattr("ui.server.translators.open_llm", Model)
    monkeypatch.setattr("ui.server.translators.Translator", lambda *languages, **options: type("T", (), options)())
    monkeypatch.setattr("ui.server.translators.encoder_for", Model)
    models = SharedModels(dtype="float32")
    first: Any = models(Choice("de", "en", "sentence", llm="some/model"))
    second: Any = models(Choice("cs", "en", "sentence", llm="some/model"))
    other: Any = models(Choice("cs", "en", "sentence", adapter="my-adapter", llm="some/model"))
    third: Any = models(Choice("de", "en", "sentence", llm="other/model"))
    assert first.llm is second.llm is not other.llm
    assert other.llm.options["adapter"] == "my-adapter"
    assert (first.llm.name, third.llm.name) == ("some/model", "other/model")
    ours: list[Any] = [models(Choice("de", "en", "phrases")), models(Choice("en", "cs", "none"))]
    assert ours[0].llm is ours[1].llm and Path(ours[0].llm.options["adapter"]).name == "gemma-3-270m"
    around: Any = models(Choice("de", "en", "none", context=True))
    assert Path(around.llm.options["adapter"]).name == "gemma-3-270m-context"
    assert models.encoder("sentence", None, "cpu", "float32") is models.encoder("sentence", None, "cpu", "float32")
    gone = weakref.ref(first.llm)
    del first, second
    gc.collect()
    assert gone() is None


def test_failures_are_not_remembered_for_ever() -> None:
    def failing(choice: Choice) -> Translator:
        raise UserError("there is no such index")

    translators = Translators(failing, most=3)
    for n in range(5):
        assert translators.load(Choice("de", "en", index=str(n))).exception(10)
    assert [one.choice.index for one in translators.states()] == ["2", "3", "4"]
    translators.close()


def test_what_is_forgotten_while_it_is_loaded_goes_when_it_is_loaded(opener: Any) -> None:
    goes_on, begun = threading.Event(), threading.Event()

    def slow(choice: Choice) -> Any:
        begun.set()
        return goes_on.wait(20) and opener(choice)

    translators = Translators(slow)
    loads = [translators.load(Choice(code, "en", "phrases")) for code in ("de", "cs")]
    assert begun.wait(20)
    translators.forget(lambda choice: choice.source == "de")
    goes_on.set()
    assert [load.result(20).source for load in loads] == ["de", "cs"], "who asked for it before gets it"
    assert [one.choice.source for one in translators.states()] == ["cs"]
    translators.close()


def test_closing_waits_for_the_load_that_runs_and_for_no_other(opener: Any) -> None:
    goes_on = threading.Event()
    translators = Translators(lambda choice: goes_on.wait(20) and opener(choice))
    first, second = [translators.load(Choice(code, "en", "phrases")) for code in ("de", "cs")]
    threading.Timer(0.2, goes_on.set).start()
    begin = time.monotonic()
    translators.close(20)
    assert time.monotonic() - begin < 10
    assert first.done() and second.cancelled()
