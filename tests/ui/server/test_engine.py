"""The queue of the models: batches, turns, cancellation, back-pressure, shutdown."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any
from weakref import ref

import pytest

from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.only import Only
from rag_mt.base.types import Completion, Prompt, Sentence, Translation
from rag_mt.translation.translator import Translator
from tests.waiting import until
from ui.server.engine import BatchReport, Engine
from ui.server.limits import BusyError, LimitError, Limits, StoppedError
from ui.server.translators import Choice, Translators
from ui.server.work import Order, hint_id

DE = Choice("de", "en", "phrases")


@pytest.fixture
def engine(opener: Any) -> Iterator[Engine]:
    made = Engine(Translators(opener), Limits(queue=8, batch=4))
    yield made
    opener.llm.hold.set()
    made.close(5)


def order(text: str, **more: Any) -> Order:
    return Order(more.pop("choice", DE), text, **more)


def test_a_choice_of_files_is_opened_where_it_keeps_nobody_waiting(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.submit(order("Ein Satz.")).result(5)
    asked, go_on = threading.Event(), threading.Event()

    def with_only(translator: Translator, only: Only) -> Translator:
        asked.set()
        assert go_on.wait(5)
        if only == Only("none"):
            raise UserError("there are none")
        return translator

    monkeypatch.setattr(Translator, "with_only", with_only)
    jobs = [engine.submit(order("Zwei Sätze.", only=Only(name))) for name in ("some", "none")]
    assert asked.wait(5) and [job.state for job in jobs] == ["loading", "loading"]
    assert engine.submit(order("Drei Sätze.")).result(5).text == "DREI SÄTZE."
    go_on.set()
    assert jobs[0].result(5).text == "ZWEI SÄTZE."
    with pytest.raises(UserError, match="there are none"):
        jobs[1].result(5)


def test_a_text_keeps_its_spacing(engine: Engine) -> None:
    result = engine.submit(order("  Das Haus ist alt. Der Hund schläft.\n\nEnde hier.\n")).result(5)
    assert result.text == "  DAS HAUS IST ALT. DER HUND SCHLÄFT.\n\nENDE HIER.\n"
    assert [len(t.hints) for t in result.sentences] == [2, 2, 2]


@pytest.mark.parametrize("text", ["", "  \n", "***\n"])
def test_a_text_without_words_is_its_own_translation(engine: Engine, opener: Any, text: str) -> None:
    assert engine.submit(order(text)).result(5).text == text
    assert opener.llm.calls == []


def test_requests_that_wait_share_a_batch(engine: Engine, opener: Any) -> None:
    opener.llm.hold.clear()
    first = engine.submit(order("Eins zwei."))
    until(lambda: opener.llm.calls)
    others = [engine.submit(order(f"Satz {n} hier.")) for n in range(4)]
    opener.llm.hold.set()
    assert [job.result(5).text for job in [first, *others]] == ["EINS ZWEI.", *(f"SATZ {n} HIER." for n in range(4))]
    assert opener.llm.calls == [1, 4]


def test_a_long_text_takes_turns_with_short_ones(engine: Engine, opener: Any) -> None:
    opener.llm.hold.clear()
    engine.submit(order("Vorweg."))
    until(lambda: opener.llm.calls)
    long = engine.submit(order(" ".join(f"Satz {n} ist hier." for n in range(12))))
    short = engine.submit(order("Kurz."))
    until(lambda: long.state == "waiting" and short.state == "waiting")
    finished: list[int] = []  # sentences of the long text, at the end of the short one
    short.future.add_done_callback(lambda _: finished.append(long.progress[0]))
    opener.llm.hold.set()
    short.result(5)
    until(lambda: finished)
    assert finished[0] <= 4
    assert len(long.result(5).sentences) == 12


def test_background_work_gets_what_is_left(engine: Engine, opener: Any) -> None:
    opener.llm.hold.clear()
    engine.submit(order("Vorweg."))
    until(lambda: opener.llm.calls)
    behind = engine.submit(order("Eins. Zwei. Drei. Vier.", background=True))
    ahead = engine.submit(order("Fünf. Sechs. Sieben."))
    until(lambda: behind.state == "waiting" and ahead.state == "waiting")
    opener.llm.hold.set()
    behind.result(5)
    assert opener.llm.calls == [1, 4, 3]
    assert ahead.future.done()


def test_languages_with_one_model_share_a_batch_and_models_do_not_mix(engine: Engine, opener: Any) -> None:
    opener.llm.hold.clear()
    engine.submit(order("Vorweg."))
    until(lambda: opener.llm.calls)
    jobs = [engine.submit(order("Ein Satz.", choice=Choice(code, "en", "phrases"))) for code in ("de", "cs")]
    plain = engine.submit(order("Ein Satz.", choice=Choice("de", "en", "phrases", adapter="none")))
    until(lambda: all(job.state == "waiting" for job in [*jobs, plain]) or plain.future.done())
    opener.llm.hold.set()
    for job in [*jobs, plain]:
        job.result(5)
    assert opener.llm.calls == [1, 2]
    assert opener.others[DEFAULT_LLM, "none"].calls == [1]


def test_cancel_stops_generation_between_tokens(slow: Callable[[float], Any]) -> None:
    opener = slow(0.05)
    engine = Engine(Translators(opener), Limits(batch=4))
    long = engine.submit(order(" ".join(["wort"] * 60) + "."))
    other = engine.submit(order("Auch das bleibt."))
    until(lambda: opener.llm.rounds > 3)
    assert long.cancel()
    with pytest.raises(CancelledError):
        long.result(1)
    assert other.result(5).text == "AUCH DAS BLEIBT."
    until(lambda: engine.waiting == 0)
    rounds = opener.llm.rounds
    time.sleep(0.2)
    assert opener.llm.rounds == rounds < 60
    assert long.last_token is not None and long.cancelled_at is not None
    assert long.last_token - long.cancelled_at < 1
    assert long.state == "cancelled"
    engine.close()


def test_a_waiting_request_that_is_cancelled_is_never_generated(engine: Engine, opener: Any) -> None:
    opener.llm.hold.clear()
    engine.submit(order("Vorweg."))
    until(lambda: opener.llm.calls)
    job = engine.submit(order("Nie gefragt."))
    assert job.cancel()
    last = engine.submit(order("Doch gefragt."))
    opener.llm.hold.set()
    last.result(5)
    assert opener.llm.calls == [1, 1]
    assert job.last_token is None


def test_updates_grow_to_the_translation(slow: Callable[[float], Any]) -> None:
    engine = Engine(Translators(slow(0.1)), Limits())
    job = engine.submit(order("Eins zwei drei vier fünf sechs sieben. Acht neun zehn elf zwölf."))
    seen = list(job.updates(every=0))
    assert seen[-1] == job.result(1).text
    assert len({text for text in seen if text and text != seen[-1]}) >= 2
    assert all(seen[-1].startswith(text) for text in seen)
    engine.close()


def test_hints_can_be_limited_and_switched_off(engine: Engine) -> None:
    text = "Das Haus ist alt."
    both = engine.submit(order(text)).result(5).sentences[0].hints
    assert {h.phrase for h in both} == {"DAS", "ALT."}
    strong = engine.submit(order(text, max_hints=1)).result(5).sentences[0].hints
    assert [h.phrase for h in strong] == ["DAS"]
    sure = engine.submit(order(text, least_score=0.95)).result(5).sentences[0].hints
    assert sure == ()
    off = frozenset(hint_id(h) for h in both if h.phrase == "DAS")
    left = engine.submit(order(text, switched_off=off)).result(5).sentences[0].hints
    assert [h.phrase for h in left] == ["ALT."]
    assert engine.submit(order(text, max_hints=0)).result(5).sentences[0].hints == ()


def test_a_full_queue_and_long_texts_are_refused(engine: Engine, opener: Any) -> None:
    opener.llm.hold.clear()
    jobs = [engine.submit(order(f"Satz {n}.")) for n in range(8)]
    with pytest.raises(BusyError, match="8 texts are waiting") as refused:
        engine.submit(order("Zu viel."))
    assert refused.value.retry_after >= 1
    with pytest.raises(LimitError, match="queue holds 8"):
        engine.submit_all([order("x.")] * 9)
    engine.submit(order("Im Hintergrund.", background=True))
    with pytest.raises(LimitError, match="5001 characters and at most 5000"):
        engine.submit(order("a" * 5001))
    opener.llm.hold.set()
    for job in jobs:
        job.result(5)
    assert engine.submit(order("Wieder frei.")).result(5).text == "WIEDER FREI."


def test_errors_reach_the_one_who_asked(opener: Any) -> None:
    def failing(choice: Choice) -> Any:
        if choice.source == "fi":
            raise UserError("there is no such index")
        return opener(choice)

    engine = Engine(Translators(failing))
    with pytest.raises(UserError, match="no such index"):
        engine.submit(order("Hei.", choice=Choice("fi", "en"))).result(5)
    assert engine.translators.state(Choice("fi", "en")).error == "there is no such index"
    working = opener.llm.answer
    opener.llm.answer = lambda *_: 1 / 0
    with pytest.raises(ZeroDivisionError):
        engine.submit(order("Hallo.")).result(5)
    opener.llm.answer = working
    assert engine.submit(order("Hallo.")).result(5).text == "HALLO."
    engine.close()


def test_an_answer_that_cannot_be_read_fails_its_own_request_only(
    engine: Engine, opener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Translator.read

    def reads(own: Translator, sentence: Sentence, prompt: Prompt, completion: Completion) -> Translation:
        return read(own, sentence, prompt, completion) if "schlecht" not in sentence.text else 1 / 0  # type: ignore[return-value]

    monkeypatch.setattr(Translator, "read", reads)
    opener.llm.hold.clear()
    engine.submit(order("Vorweg."))
    until(lambda: opener.llm.calls)
    bad, good = engine.submit(order("Das ist schlecht.")), engine.submit(order("Das ist gut."))
    opener.llm.hold.set()
    with pytest.raises(ZeroDivisionError):
        bad.result(5)
    assert good.result(5).text == "DAS IST GUT."
    until(lambda: engine.waiting == 0)


class Panic(BaseException):
    """What a panic in Rust arrives as: no Exception."""


def panic(*_: Any) -> Any:
    raise Panic("index out of bounds")


@pytest.mark.parametrize("place", ["answer", "retrieve", "read", "split"])
def test_a_panic_fails_its_request_and_the_next_is_translated(
    engine: Engine, opener: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, place: str
) -> None:
    engine.submit(order("Vorweg.")).result(5)
    with monkeypatch.context() as broken:
        target = {
            "answer": (opener.llm, "answer"),
            "retrieve": (engine.translators.load(DE).result().retriever, "retrieve"),
            "read": (Translator, "read"),
            "split": ("ui.server.work.split",),
        }[place]
        broken.setattr(*target, panic)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="Panic: index out of bounds"):
            engine.submit(order("Hallo.")).result(5)
    assert "Traceback" in caplog.text
    assert engine.submit(order("Danach.")).result(5).text == "DANACH."
    assert engine.fault == ""


def test_a_panic_while_a_text_is_split_leaves_the_loading_thread_alive(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr("ui.server.work.split", panic)
        with pytest.raises(RuntimeError, match="Panic"):  # the translator is loaded for it: it is split there
            engine.submit(order("Hallo.")).result(5)
    assert engine.submit(order("Hei.", choice=Choice("fi", "en", "phrases"))).result(5).text == "HEI."


def test_a_model_that_leaves_an_answer_out_fails_the_request(engine: Engine, opener: Any) -> None:
    opener.llm.answer = lambda queue, *_: iter(queue.take(4)[:0])
    with pytest.raises(RuntimeError, match="without an answer"):
        engine.submit(order("Hallo.")).result(5)


def test_all_who_wait_hear_of_it_when_the_engine_ends(
    opener: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = Engine(Translators(opener))
    opener.llm.hold.clear()
    first = engine.submit(order("Vorweg."))
    until(lambda: opener.llm.calls)
    waiting = engine.submit(order("Hei.", choice=Choice("fi", "en", "phrases", adapter="none")))
    until(lambda: waiting.state == "waiting")
    monkeypatch.setattr(engine, "_fail_batch", panic)  # what must not fail fails as well
    monkeypatch.setattr(type(opener.llm), "round", panic)
    opener.llm.hold.set()
    assert first.result(5).text == "VORWEG."
    with pytest.raises(StoppedError, match="no more translations"):
        waiting.result(5)
    with pytest.raises(StoppedError, match="Panic: index out of bounds"):
        engine.submit(order("Zu spät."))
    assert "Panic" in engine.fault and "Traceback" in caplog.text
    engine.close(1)


def test_requests_that_have_ended_are_not_kept_while_others_go_on(engine: Engine, opener: Any) -> None:
    engine.submit(order("Vorweg.")).result(5)
    rounds, kept = opener.llm.round, []
    opener.llm.hold.clear()
    engine.submit(order("Zuerst."))
    until(lambda: len(opener.llm.calls) == 2)

    def looking(*given: Any) -> Any:
        gc.collect()
        kept.append(early() is not None)
        return rounds(*given)

    opener.llm.round = looking
    early = ref(engine.submit(order("Früh.")))
    later = [engine.submit(order(f"Satz {n}.")) for n in range(5)]
    opener.llm.hold.set()
    later[-1].result(5)
    assert kept == [True, False]


def test_close_finishes_what_waits_and_cancels_the_rest(slow: Callable[[float], Any]) -> None:
    engine = Engine(Translators(slow(0.01)), Limits())
    job = engine.submit(order("Noch schnell fertig."))
    engine.close(5)
    assert job.result(0).text == "NOCH SCHNELL FERTIG."
    with pytest.raises(BusyError, match="shutting down"):
        engine.submit(order("Zu spät."))
    slower = Engine(Translators(slow(0.1)), Limits())
    left = slower.submit(order(" ".join(["wort"] * 60)))
    slower.close(0.1)
    assert left.future.cancelled()


def test_answers_are_reported(opener: Any) -> None:
    reports: list[BatchReport] = []
    engine = Engine(Translators(opener), Limits(), reports.append)
    engine.submit(order("Eins zwei. Drei vier.")).result(5)
    until(lambda: len(reports) == 2)
    assert [(r.sentences, r.requests, r.tokens) for r in reports] == [(2, 1, 2), (1, 1, 2)]
    engine.close()
