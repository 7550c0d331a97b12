"""What the page shows from the request to the result, with translators by rule."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from prompts.style import Instructions
from rag_mt.base.quality import Estimate
from ui.page.sessions import Session
from ui.page.translating import AUTO, Asked, View, compare_views, source_of, swapped, switched, translate_views
from ui.server.languages import offer_of
from ui.server.limits import Limits
from ui.server.service import Service

TEXT = "Der Rat tagt heute. Der Zug wartet."


@pytest.fixture
def service(opener: Any) -> Iterator[Service]:
    made = Service(opener, lambda name: None, limits=Limits(text_chars=200), offer=offer_of(), retriever="ccpr")  # type: ignore[arg-type,return-value]
    yield made
    made.close(0)


@pytest.fixture
def session() -> Session:
    return Session("somebody")


def last(views: Iterator[View]) -> View:
    *_, view = views
    return view


def test_the_last_view_has_everything(service: Service, session: Session) -> None:
    view = last(translate_views(service, session, Asked(TEXT, "de")))
    assert not view.running
    assert "4 hints shown to the model, 4 used" in (view.message or "")
    assert 'data-copy="DER RAT TAGT HEUTE. DER ZUG WARTET."' in (view.output or "")
    assert (view.source or "").count("data-hint=") == 4
    assert (view.origins or "").count("data-origin=") == 4 and "rule.txt" in (view.table or "")
    assert "sentence 2 of 2" in (view.prompt or "")
    assert [e.text for e in session.history] == [TEXT]


def test_an_instruction_of_the_operator_holds_on_the_page(opener: Any, session: Session) -> None:
    rules = Instructions((("en", "Be brief."),))
    made = Service(opener, lambda name: None, limits=Limits(), offer=offer_of(), instructions=rules)  # type: ignore[arg-type,return-value]
    view = last(translate_views(made, session, Asked(TEXT, "de")))
    assert "Instruction cannot be asked of rule: its prompts (wrapper compact)" in (view.message or "")
    made.close(0)


def test_the_detected_language_is_told_with_the_result(service: Service, session: Session) -> None:
    view = last(translate_views(service, session, Asked(TEXT, AUTO)))
    assert "Detected: German. Done: 4 hints" in (view.message or "")
    assert "Detected" not in (last(translate_views(service, session, Asked(TEXT, "de"))).message or "")


def test_the_translation_grows_and_hints_come_before_its_end(
    service: Service, session: Session, slow: Callable[[float], Any]
) -> None:
    made = Service(slow(0.1), lambda name: None, limits=Limits(), offer=offer_of())  # type: ignore[arg-type,return-value]
    views = list(translate_views(made, session, Asked(TEXT, "de")))
    made.close(0)
    hinted = next(n for n, view in enumerate(views) if "data-hint" in (view.source or ""))
    assert hinted < len(views) - 2
    assert len({view.output for view in views if view.output}) > 3
    assert all(view.running for view in views[:-1])


def test_a_hint_switched_off_is_not_shown_again_until_it_is_switched_on(service: Service, session: Session) -> None:
    last(translate_views(service, session, Asked(TEXT, "de")))
    view = switched(session, 2)
    assert view is not None and "switched off" in (view.message or "")
    assert 'aria-checked="false"' in (view.table or "")
    view = last(translate_views(service, session, Asked(TEXT, "de")))
    assert "3 hints shown" in (view.message or "")
    assert session.result is not None and [h.off for h in session.result.hints] == [False, True, False, False]
    switched(session, 2)
    assert "4 hints shown" in (last(translate_views(service, session, Asked(TEXT, "de"))).message or "")


def test_another_text_has_all_its_hints(service: Service, session: Session) -> None:
    last(translate_views(service, session, Asked(TEXT, "de")))
    switched(session, 1)
    assert "2 hints shown" in (last(translate_views(service, session, Asked("Der Zug wartet.", "de"))).message or "")
    assert not session.off


def test_switching_a_hint_that_is_not_there_does_nothing(service: Service, session: Session) -> None:
    assert switched(session, 1) is None
    last(translate_views(service, session, Asked(TEXT, "de")))
    assert switched(session, 99) is None


def test_limits_of_hints_and_score_hold(service: Service, session: Session) -> None:
    assert "2 hints shown" in (last(translate_views(service, session, Asked(TEXT, "de", max_hints=1))).message or "")
    assert "2 hints shown" in (
        last(translate_views(service, session, Asked(TEXT, "de", least_score=0.5))).message or ""
    )
    assert "0 hints shown" in (last(translate_views(service, session, Asked(TEXT, "de", max_hints=0))).message or "")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Asked("  \n", "de"), "There is no text"),
        (Asked("x" * 201, "de"), "at most 200 are allowed"),
        (Asked(TEXT, "de", "cs"), "is not translated into Czech"),
        (Asked("The council meets on Thursday evening."), "already: choose another target language"),
        (Asked("12345"), "could not be told"),
        (Asked(TEXT, "de", index="0123"), "there is no index"),
        (Asked(TEXT, "de", adapter="/etc"), "is not offered"),
    ],
)
def test_what_cannot_be_done_is_said(service: Service, session: Session, asked: Asked, said: str) -> None:
    view = last(translate_views(service, session, asked))
    assert 'role="alert"' in (view.message or "") and said.lower() in (view.message or "").lower()
    assert not view.running
    assert not session.history


def test_the_language_is_detected(service: Service) -> None:
    assert source_of(service, Asked("Der Stadtrat hat den Bau einer neuen Brücke beschlossen.")) == "de"
    assert source_of(service, Asked("Der Stadtrat", "cs")) == "cs"


def test_stopping_shows_what_there_was(session: Session, slow: Callable[[float], Any]) -> None:
    opener = slow(0.2)
    made = Service(opener, lambda name: None, limits=Limits(), offer=offer_of())  # type: ignore[arg-type,return-value]
    views = translate_views(made, session, Asked("Der Rat tagt heute lange und sehr gerne im Saal. " * 4, "de"))
    for view in views:
        if "DER RAT" in (view.output or ""):
            break
    assert session.cancel()
    rest = list(views)
    assert "Stopped." in (rest[-1].message or "") and "DER RAT" in (rest[-1].output or "")
    assert not rest[-1].running and not session.history
    made.close(0)


def test_a_page_that_goes_away_ends_its_translation(session: Session, slow: Callable[[float], Any]) -> None:
    made = Service(slow(0.5), lambda name: None, limits=Limits(), offer=offer_of())  # type: ignore[arg-type,return-value]
    views = translate_views(made, session, Asked("Der Rat tagt heute. " * 5, "de"))
    for view in views:
        if "DER" in (view.output or ""):
            break
    views.close()  # type: ignore[attr-defined]
    assert session.job is not None and session.job.state == "cancelled"
    made.close(0)


def test_two_sessions_at_once_do_not_mix(service: Service) -> None:
    sessions = [Session("a"), Session("b")]
    texts = ["Der Rat tagt.", "Der Zug wartet."]
    ends: dict[int, View] = {}

    def ask(n: int) -> None:
        ends[n] = last(translate_views(service, sessions[n], Asked(texts[n], "de")))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, text in enumerate(texts):
        assert text.upper() in (ends[n].output or "") and texts[1 - n].upper() not in (ends[n].output or "")
        assert [e.text for e in sessions[n].history] == [text]


def test_a_fault_of_ours_is_said_and_logged(
    service: Service, session: Session, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(order: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(service.engine, "submit", broken)
    view = last(translate_views(service, session, Asked(TEXT, "de")))
    assert "something went wrong" in (view.message or "").lower() and not view.running
    assert "broken" in caplog.text


def test_comparing_sets_plain_beside_augmented(service: Service, session: Session) -> None:
    view = last(compare_views(service, session))
    assert "translate a text first" in (view.message or "").lower()
    last(translate_views(service, session, Asked(TEXT, "de")))
    view = last(compare_views(service, session))
    assert (view.comparison or "").count("No difference.") == 2
    assert len(session.history) == 1


def test_comparing_leaves_the_hints_out_and_nothing_else(service: Service, session: Session, opener: Any) -> None:
    last(translate_views(service, session, Asked(TEXT, "de", adapter="none")))
    last(compare_views(service, session))
    assert {(choice.retriever, choice.adapter) for choice in opener.opened} == {("ccpr", "none"), ("none", "none")}


def test_swapping_takes_the_translation_of_this_text_only(service: Service, session: Session) -> None:
    text = "Der Rat tagt heute. Der Zug wartet am Gleis."
    assert swapped(service, session, text, AUTO, "en") == ("en", "de", text)
    last(translate_views(service, session, Asked(text, "de")))
    assert swapped(service, session, text, "de", "fi") is None
    assert swapped(service, session, text, AUTO, "en") == ("en", "de", text.upper())
    last(translate_views(service, session, Asked(text, "de")))
    assert swapped(service, session, f"{text} Ja.", "de", "en") == ("en", "de", f"{text} Ja.")
    assert session.result is None
    assert "translate a text first" in (last(compare_views(service, session)).message or "").lower()
    assert swapped(service, session, "123", AUTO, "en") is None


def test_the_language_model_is_chosen_among_those_of_the_operator(opener: Any, session: Session) -> None:
    llms = ("first", "second")
    made = Service(opener, lambda name: None, limits=Limits(), offer=offer_of(), llms=llms, retriever="ccpr")  # type: ignore[arg-type,return-value]
    last(translate_views(made, session, Asked(TEXT, "de", llm="second")))
    last(compare_views(made, session))
    assert [(c.retriever, c.llm) for c in opener.opened] == [("ccpr", "second"), ("none", "second")]
    assert [entry.system for entry in session.history] == ["ccpr, second"]
    assert "choose one of first, second" in (
        last(translate_views(made, session, Asked(TEXT, "de", llm="x"))).message or ""
    )
    made.close(0)


def test_findings_are_told_and_escaped(service: Service, session: Session) -> None:
    view = last(translate_views(service, session, Asked("Das <b>Haus</b> ist <b>alt</b>.", "de")))
    assert "The checks found" in (view.message or "") and "to look at: see Hints." in (view.message or "")
    table = view.findings or ""
    assert '<td data-label="Finding">placeholder lost: &lt;b&gt;</td>' in table and "<b>" not in table
    assert "error" in table and "placeholders" in table
    view = last(translate_views(service, session, Asked("Das Haus ist alt.", "de")))
    assert view.findings == "" and "checks" not in (view.message or "")


def test_the_quality_is_estimated_where_it_is_asked_for(
    service: Service, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Known:
        def estimate(self, pairs: list[tuple[str, str]], said: object) -> list[Estimate]:
            return [Estimate(55.0 if "Zug" in source else 90.0) for source, _ in pairs]

    monkeypatch.setattr("rag_mt.quality.estimator.shared_estimator", lambda device, dtype: Known())
    view = last(translate_views(service, session, Asked(TEXT, "de", min_quality="good")))
    assert "Estimated quality: fair, 55 of 100." in (view.message or "")
    assert "quality estimated as fair, 55 of 100" in (view.findings or "")
    assert "Estimated" not in (last(translate_views(service, session, Asked(TEXT, "de"))).message or "")
