"""What the page shows while a text is translated: one view after the other, from the request to the result."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import TranslatedText
from ui.page.compare import comparison
from ui.page.highlight import highlighted, hint_table, origins
from ui.page.history import Entry
from ui.page.markup import escaped
from ui.page.output import output_pane
from ui.page.sessions import Result, Session
from ui.page.shown import ShownHint, shown_hints
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


@dataclass(frozen=True, slots=True)
class View:
    """HTML for the parts of the page; None leaves a part as it is. `message` is HTML too."""

    message: str | None = None
    output: str | None = None
    source: str | None = None
    origins: str | None = None
    table: str | None = None
    prompt: str | None = None
    comparison: str | None = None
    running: bool = True


def message(text: str, wrong: bool = False) -> str:
    """A line about what is going on; what went wrong is said to be so."""
    if not wrong:
        return f'<p class="mt-message" role="status">{escaped(text)}</p>'
    return f'<p class="mt-message mt-wrong" role="alert"><strong>Not done:</strong> {escaped(sentence_case(text))}</p>'


def sentence_case(text: str) -> str:
    """An error of the program as a sentence on the page."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def empty_view(target: str) -> View:
    """The page before the first translation."""
    return View(
        output=output_pane("", target),
        source="",
        origins="",
        table=hint_table("", (), target),
        prompt=NO_PROMPT,
        comparison=NO_COMPARISON,
        running=False,
    )


def translate_views(service: Service, session: Session, asked: Asked) -> Iterator[View]:
    """Translate for a page, from the first words to the last; a translation that still runs for it is ended.

    Hints that the user switched off stay off as long as the text and the languages stay the same. Closing the iterator
    ends the translation.
    """
    session.cancel()
    job: Job | None = None
    try:
        source = source_of(service, asked)
        before = session.result
        if before is None or (before.text, before.source, before.target) != (asked.text, source, asked.target):
            session.off.clear()
        choice = choice_of(service, session, source, asked)
        job = session.job = service.engine.submit(_order(choice, asked, frozenset(session.off)))
        session.result = Result(source, asked.target, asked.text, choice.llm, choice.adapter)
        yield replace(empty_view(asked.target), output=output_pane("", asked.target, busy=True), running=True)
        yield from _follow(service, session, job)
        result = _finished(service, session, job)
        yield _last_view(result, job, asked.source == AUTO)
    except CancelledError:
        if job is not None and job is session.job:  # else another translation of the page goes on
            yield View(message("Stopped."), output_pane(job.text, asked.target), running=False)
    except UserError as error:
        # Before there is a job nothing has been cleared: the last translation stays.
        yield View(message(_said(error), wrong=True), output_pane("", asked.target) if job else None, running=False)
    except Exception:
        yield _unexpected()
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
    return service.choice(owner, source, asked.target, asked.retriever, asked.index, asked.adapter, asked.llm)


def _order(choice: Choice, asked: Asked, off: frozenset[str]) -> Order:
    return Order(choice, asked.text, asked.max_hints, asked.least_score, off)


def _said(error: UserError) -> str:
    return f"the server is busy: {error}" if isinstance(error, BusyError) else str(error)


def _unexpected() -> View:
    """What the page says to a fault of ours, which goes into the log."""
    log.exception("a translation of the demo failed")
    return View(message("something went wrong in the server; its log says what", wrong=True), running=False)


def _follow(service: Service, session: Session, job: Job) -> Iterator[View]:
    """Views of a running job: its state, its text as it grows, and its hints as soon as they are found."""
    known = -1
    target = job.order.choice.target
    for text in job.updates():
        prompted = sum(item.prompt is not None for item in job.items)
        hints = shown_hints(job.order.text, job.items, list(session.off.values())) if prompted != known else None
        view = View(message(_doing(service, job)), output_pane(text, target, busy=True))
        yield view if hints is None else _with_hints(view, session, hints, job)
        known = prompted


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


def _with_hints(view: View, session: Session, hints: tuple[ShownHint, ...], job: Job) -> View:
    choice, text = job.order.choice, job.order.text
    if session.result is not None:
        session.result = replace(session.result, hints=hints)
    return replace(
        view,
        source=highlighted(text, hints, choice.source),
        origins=origins(text, hints, choice.target),
        table=hint_table(text, hints, choice.target),
        prompt=prompts(job.items),
    )


def _finished(service: Service, session: Session, job: Job) -> Result:
    """The result of a job that has ended; it becomes the session's and goes into the history."""
    translated, choice = job.result(), job.order.choice
    hints = shown_hints(job.order.text, job.items, list(session.off.values()))
    result = Result(choice.source, choice.target, job.order.text, choice.llm, choice.adapter, hints, translated)
    if job is session.job:
        session.result = result
        llm = f", {choice.llm}" if choice.llm != service.llms[0] else ""
        adapter = f", adapter {choice.adapter}" if choice.adapter != DEFAULT_ADAPTER else ""
        system = f"{choice.retriever}{llm}{adapter}"
        session.history.append(
            Entry(datetime.now(UTC), choice.source, choice.target, job.order.text, translated, system)
        )
    return result


def _last_view(result: Result, job: Job, detected: bool) -> View:
    translated = result.translated or TranslatedText("")
    used = sum(bool(hint.used) for hint in result.hints)
    shown = sum(not hint.off for hint in result.hints)
    notes = [note for sentence in translated.sentences for note in sentence.notes]
    name = f"Detected: {language(result.source).name}. " if detected else ""
    summary = f"{name}Done: {shown} hint{'s' * (shown != 1)} shown to the model, {used} used word for word."
    return replace(
        hints_view(result),
        message=message(" ".join([summary, *map(sentence_case, dict.fromkeys(notes))])),
        output=output_pane(translated.text, result.target, result.hints),
        prompt=prompts(job.items),
    )


def hints_view(result: Result) -> View:
    """The parts of the page that show the hints of a result."""
    return View(
        source=highlighted(result.text, result.hints, result.source),
        origins=origins(result.text, result.hints, result.target),
        table=hint_table(result.text, result.hints, result.target),
        running=False,
    )


def switched(session: Session, number: int) -> View | None:
    """Switch a hint of the shown result off, or on again, for the next translation of the text; None if there is no
    hint of that number any more."""
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

    The translation becomes the source text, if it is one of the text as it stands there. The page forgets the result.
    """
    result = session.result
    if result and ((result.text, result.target) != (text, target) or source not in (AUTO, result.source)):
        result = None
    if source == AUTO:
        detected = service.detector.best(text) if text.strip() and not result else None
        source = result.source if result else detected.code if detected else AUTO
    if source not in service.offer.targets_of(target):
        return None
    session.cancel()
    session.job = session.result = None
    return target, source, result.translated.text if result and result.translated else text


def prompts(items: list[Item]) -> str:
    """Exactly what the model was shown, sentence by sentence."""
    ready = [item.prompt for item in items if item.prompt is not None]
    if not ready:
        return NO_PROMPT
    parts = []
    for number, prompt in enumerate(ready, 1):
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
    session.cancel()
    job: Job | None = None
    titles = ("Plain: no hints", "With retrieved hints")
    try:
        choice = service.choice(
            session.owner, result.source, result.target, "none", adapter=result.adapter, llm=result.llm
        )
        job = session.job = service.engine.submit(Order(choice, result.text))
        for text in job.updates():
            yield View(
                message(_doing(service, job)),
                comparison=comparison(text, result.translated.text, titles, result.target, busy=True),
            )
        plain = job.result().text
        yield View(
            message("Done."),
            comparison=comparison(plain, result.translated.text, titles, result.target),
            running=False,
        )
    except CancelledError:
        if job is session.job:
            yield View(message("Stopped."), running=False)
    except UserError as error:
        yield View(message(_said(error), wrong=True), running=False)
    except Exception:
        yield _unexpected()
    finally:
        if job:
            job.cancel()
