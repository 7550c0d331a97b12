"""What the page shows while a text is translated: one view after the other, from the request to the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.quality import least_score
from rag_mt.base.types import Prompt
from rag_mt.glossary.glossary import Glossary
from ui.page.finding_markup import findings_table
from ui.page.hint_markup import highlighted, hint_table, origins, output_pane, shown_hints
from ui.page.markup import comparison, escaped, message, sentence_case
from ui.page.memory_markup import memory_part, recalls
from ui.page.sessions import Entry, Result, Session
from ui.page.term_markup import terms_table
from ui.server.limits import BusyError
from ui.server.service import Service
from ui.server.translators import Choice
from ui.server.work import Item, Job, Order

log = logging.getLogger("rag_mt")

AUTO = "auto"
"""The source language that asks for detection."""

NO_PROMPT = '<p class="mt-empty">What the model is shown will stand here.</p>'
NO_COMPARISON = (
    '<p class="mt-empty">Translate a text, then press the button to see it beside the plain translation.</p>'
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user wants translated and how; empty names are the defaults, `max_hints` None means all."""

    text: str
    source: str = AUTO
    target: str = "en"
    retriever: str = ""
    index: str = ""
    llm: str = ""
    adapter: str = ""
    max_hints: int | None = None
    least_score: float = 0.0
    glossary: str = ""
    min_quality: str = ""
    formality: str = ""
    instruction: str = ""
    title: str = ""
    context: int = 0
    consistent: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """HTML for the parts of the page; None leaves a part as it is."""

    message: str | None = None
    output: str | None = None
    source: str | None = None
    origins: str | None = None
    table: str | None = None
    prompt: str | None = None
    comparison: str | None = None
    terms: str | None = None
    findings: str | None = None
    running: bool = True


def empty_view(target: str) -> View:
    """The page before the first translation."""
    return View(
        output=output_pane("", target),
        source="",
        origins="",
        table=hint_table("", (), target),
        prompt=NO_PROMPT,
        comparison=NO_COMPARISON,
        terms="",
        findings="",
        running=False,
    )


def order_of(service: Service, session: Session, choice: Choice, asked: Asked) -> Order:
    """What is asked for, but for the text."""
    return Order(
        choice,
        "",
        asked.max_hints,
        asked.least_score,
        glossary=glossary_of(service, session, choice, asked),
        style=service.style(choice.target, asked.formality, asked.instruction, asked.title),
        context=asked.context,
        consistent=asked.consistent,
        min_quality=least_score(asked.min_quality),
    )


def translate_views(service: Service, session: Session, asked: Asked) -> Iterator[View]:
    """Translate for a page, from the first words to the last; a translation that still runs for it is ended.

    Hints that the user switched off stay off as long as the text and the languages stay the same. Closing the iterator
    ends the translation.
    """

    def order() -> Order:
        source, last = source_of(service, asked), session.result
        if last is None or (last.text, last.choice.source, last.choice.target) != (asked.text, source, asked.target):
            session.off.clear()
        choice = choice_of(service, session, source, asked)
        order = order_of(service, session, choice, asked)
        return replace(order, text=asked.text, switched_off=frozenset(session.off))

    def follow(job: Job) -> Iterator[View]:
        result = session.result = Result(job.order)
        yield replace(empty_view(asked.target), output=output_pane("", asked.target, busy=True), running=True)
        prompted: list[list[Prompt]] | None = None
        for text in job.updates():
            view = View(message(_doing(service, job)), output_pane(text, asked.target, busy=True))
            asked_now = [item.prompts for item in job.items]
            if asked_now != prompted:
                result = _with_hints(result, session, job)
                if session.result is not None:
                    session.result = result
                hints = hints_view(result)
                view = replace(hints, message=view.message, output=view.output, prompt=prompts(job.items), running=True)
            yield view
            prompted = asked_now
        result = replace(_with_hints(result, session, job), translated=job.result())
        if job is session.job:
            session.result = result
            session.history.append(_entry(service, result))
        yield _last_view(result, job, asked.source == AUTO)

    yield from _job_views(service, session, order, follow, lambda text: output_pane(text, asked.target))


def _job_views(
    service: Service,
    session: Session,
    order: Callable[[], Order],
    follow: Callable[[Job], Iterator[View]],
    output: Callable[[str], str | None] = lambda text: None,
) -> Iterator[View]:
    """The views that `follow` a job of the page, whose job before it is ended; closing the iterator ends this one.
    `output` draws the translation of a job that was stopped."""
    session.cancel()
    job: Job | None = None
    try:
        job = session.job = service.engine.submit(order())
        yield from follow(job)
    except CancelledError:
        if job is not None and job is session.job:  # else another translation of the page goes on
            yield View(message("Stopped."), output(job.text), running=False)
    except UserError as error:
        text = f"the server is busy: {error}" if isinstance(error, BusyError) else str(error)
        # Before there is a job nothing has been cleared: the last translation stays.
        yield View(message(text, wrong=True), output("") if job else None, running=False)
    except Exception:
        log.exception("a translation of the demo failed")
        yield View(message("something went wrong in the server; its log says what", wrong=True), running=False)
    finally:
        if job:
            job.cancel()


def source_of(service: Service, asked: Asked) -> str:
    """The source language that was named or is detected; raises UserError where there is none to translate from."""
    if not asked.text.strip():
        raise UserError("there is no text: type or paste some, or choose an example")
    if asked.source != AUTO:
        return asked.source
    detected = service.detector.best(asked.text)
    if detected is None:
        raise UserError("the language of the text could not be told: choose it in the list on the left")
    if detected.code == asked.target:
        name = language(detected.code).name
        raise UserError(f"the text seems to be {name} already: choose another target language, or name the source")
    return detected.code


def choice_of(service: Service, session: Session, source: str, asked: Asked) -> Choice:
    """The translator that was asked for; raises UserError for what is not offered."""
    owner = session.owner
    names = asked.retriever, asked.index, asked.adapter, asked.llm
    return service.choice(owner, source, asked.target, *names, context=asked.context)


def glossary_of(service: Service, session: Session, choice: Choice, asked: Asked) -> Glossary | None:
    """The glossary that was asked for; raises UserError for one that is not there or of other languages."""
    known = service.glossaries
    return known.opened(session.owner, asked.glossary, choice.source, choice.target) if asked.glossary else None


def _doing(service: Service, job: Job) -> str:
    done, total = job.progress
    match job.state:
        case "loading":
            return "The models are being loaded. The translation starts by itself."
        case "waiting":
            others = service.engine.waiting - 1
            return "Waiting for the model." + (f" {others} other texts are in the queue." if others > 0 else "")
    names = f"{language(job.order.choice.source).name} to {language(job.order.choice.target).name}"
    return f"Translating {names}: sentence {min(done + 1, total)} of {total}."


def _with_hints(result: Result, session: Session, job: Job) -> Result:
    return replace(result, hints=shown_hints(result.text, job.items, list(session.off.values())))


def _entry(service: Service, result: Result) -> Entry:
    choice = result.choice
    llm = f", {choice.llm}" if choice.llm != service.llms[0] else ""
    adapter = f", adapter {choice.adapter}" if choice.adapter != DEFAULT_ADAPTER else ""
    assert result.translated is not None
    system = f"{choice.retriever}{llm}{adapter}"
    return Entry(datetime.now(UTC), choice.source, choice.target, result.text, result.translated, system)


def _last_view(result: Result, job: Job, detected: bool) -> View:
    assert result.translated is not None
    used = sum(bool(hint.used) for hint in result.hints)
    shown = sum(not hint.off for hint in result.hints)
    notes = [note for sentence in result.translated.sentences for note in sentence.notes]
    name = f"Detected: {language(result.choice.source).name}. " if detected else ""
    summary = f"{name}Done: {shown} hint{'s' * (shown != 1)} shown to the model, {used} used word for word."
    if asked := recalls(result.translated):
        helped = sum(recalled.shown for _, recalled in asked)
        summary += (
            f" The memory had something to show for {helped} of {len(asked)} sentences; Compare tells what changed."
        )
    if result.translated.estimate is not None:
        summary += f" Estimated quality: {result.translated.estimate}."
    if result.translated.hints_away:
        summary += " The index did not answer, so that there are sentences without hints."
    if number := len(result.translated.findings):
        summary += f" The checks found {number} thing{'s' * (number > 1)} to look at: see Hints."
    return replace(
        hints_view(result),
        message=message(" ".join([summary, *map(sentence_case, dict.fromkeys(notes))])),
        output=output_pane(result.translated.text, result.choice.target, result.hints),
        prompt=prompts(job.items),
        comparison=memory_part(result.translated, result.choice.source, result.choice.target) or None,
        terms=terms_table(result.translated, result.choice.source, result.choice.target),
        findings=findings_table(result.translated),
    )


def hints_view(result: Result) -> View:
    """The parts of the page that show the hints of a result."""
    return View(
        source=highlighted(result.text, result.hints, result.choice.source),
        origins=origins(result.text, result.hints, result.choice.target),
        table=hint_table(result.text, result.hints, result.choice.target),
        running=False,
    )


def switched(session: Session, number: int) -> View | None:
    """Switch a hint off, or on again, for the next translation of the text; None if there is no hint of that number."""
    result = session.result
    hint = next((h for h in result.hints if h.number == number), None) if result else None
    if result is None or hint is None:
        return None
    if hint.off:
        session.off.pop(hint.id, None)
    else:
        session.off[hint.id] = hint
    hints = tuple(replace(h, off=h.id in session.off, used=None) if h.id == hint.id else h for h in result.hints)
    session.result = replace(result, hints=hints)
    notice = f"Hint {number} is switched {'on' if hint.off else 'off'}. Press Translate to see what changes."
    return replace(hints_view(session.result), message=message(notice))


def swapped(service: Service, session: Session, text: str, source: str, target: str) -> tuple[str, str, str] | None:
    """Source, target and text after the languages were swapped, or None where there is no language to swap with.
    The text's translation, if there is one, becomes the source text; the page forgets the result."""
    result = session.result
    if result and ((result.text, result.choice.target) != (text, target) or source not in (AUTO, result.choice.source)):
        result = None
    if source == AUTO:
        detected = service.detector.best(text) if text.strip() and not result else None
        source = result.choice.source if result else detected.code if detected else AUTO
    if source not in service.offer.targets_of(target):
        return None
    session.cancel()
    session.job = session.result = None
    return target, source, result.translated.text if result and result.translated else text


def prompts(items: list[Item]) -> str:
    """Exactly what the model was shown, sentence by sentence; with a memory it may be asked twice."""
    ready = [(number, prompt) for number, item in enumerate(items, 1) for prompt in item.prompts]
    if not ready:
        return NO_PROMPT
    parts = []
    for number, prompt in ready:
        kind = "User message, which the model's own chat template wraps" if prompt.chat else "Prompt"
        title = f"{kind} for sentence {number} of {len(items)}"
        parts.append(f'<h3>{title}</h3><pre class="mt-prompt" dir="auto" tabindex="0">{escaped(prompt.text)}</pre>')
    return "".join(parts)


def compare_views(service: Service, session: Session) -> Iterator[View]:
    """Translate the shown text again, without any hint, and set both translations side by side."""
    result = session.result
    if result is None or result.translated is None:
        yield View(message("translate a text first, then compare", wrong=True), running=False)
        return
    shown, with_hints = result.choice, result.translated.text
    if drafts := memory_part(result.translated, shown.source, shown.target):
        yield View(message("Done."), comparison=drafts, running=False)
        return

    def order() -> Order:
        source, target = shown.source, shown.target
        choice = service.choice(session.owner, source, target, "none", adapter=shown.adapter, llm=shown.llm)
        return replace(result.order, choice=choice)

    def side_by_side(plain: str, busy: bool) -> str:
        return comparison(plain, with_hints, ("Plain: no hints", "With retrieved hints"), shown.target, busy)

    def follow(job: Job) -> Iterator[View]:
        for text in job.updates():
            yield View(message(_doing(service, job)), comparison=side_by_side(text, busy=True))
        yield View(message("Done."), comparison=side_by_side(job.result().text, busy=False), running=False)

    yield from _job_views(service, session, order, follow)
