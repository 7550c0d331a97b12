"""The HTTP API: the contract of LibreTranslate on a `Service`, with hints, jobs for files, own indexes and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect

from rag_mt import __version__
from rag_mt.base.errors import AwayError, UserError
from rag_mt.base.quality import least_score
from rag_mt.base.types import Origin, Skips, TranslatedText, printable
from rag_mt.formats.html import HtmlText
from rag_mt.formats.lines import added_fields
from rag_mt.formats.registry import SUFFIXES
from rag_mt.glossary.entries import Entry, clean, terms_of, wrong_with
from rag_mt.glossary.glossary import Glossary
from ui.server import bodies
from ui.server.api_uploads import router as uploads
from ui.server.languages import Detected
from ui.server.limits import Bodies, BusyError, Hosts, Keys, Pace, StoppedError
from ui.server.metrics import Measured, Metrics
from ui.server.requests import Owner, ServiceOf, body_of, check_unicode, described
from ui.server.service import Service
from ui.server.work import Order

SHORT = 40
"""Characters: the language of a shorter text is told from all texts of its request together."""
CLIENT_GONE = 499


def make_app(
    service: Service,
    *,
    metrics: Metrics | None = None,
    keys: Keys | None = None,
    cors: Sequence[str] = (),
    hosts: Sequence[str] = ("*",),
    patience: float = 10.0,
) -> FastAPI:
    """The application on a service, which it closes when it ends, `patience` seconds after it stopped to listen.

    `metrics` are shown at `/metrics`; with `keys` all requests need one but those for the state, languages, settings
    and description of the server; `cors` are the origins whose pages may ask; `hosts` are the names that the server may
    be called by.
    """
    metrics, keys = metrics or Metrics(), keys or Keys()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(asyncio.to_thread(service.detector.warm))
        yield
        await warming
        await asyncio.to_thread(service.close, patience)

    app = FastAPI(
        title="rag_mt",
        version=__version__,
        description="Translation with retrieved hints, by the contract of LibreTranslate.",
        lifespan=lifespan,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
    )
    app.state.service, app.state.keys, app.state.metrics = service, keys, metrics
    app.state.pace = Pace(service.limits.requests)
    metrics.follow("waiting", "Texts that wait or are translated", lambda: service.engine.waiting)
    ready = "Loaded translators"
    metrics.follow("translators", ready, lambda: sum(t.state == "ready" for t in service.translators.states()))
    app.include_router(router)
    app.include_router(uploads)
    _name_choices(app, service)
    for kind in (UserError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, _error_answer)
    app.add_middleware(Bodies, limits=service.limits)
    if cors:
        app.add_middleware(CORSMiddleware, allow_origins=list(cors), allow_methods=["*"], allow_headers=["*"])
    if "*" not in hosts:
        app.add_middleware(Hosts, names=hosts)
    app.add_middleware(Measured, metrics=metrics)
    return app


router = APIRouter(responses=bodies.ERRORS)


@router.post(
    "/translate",
    response_model_exclude_none=True,
    openapi_extra=described(bodies.TranslateBody),
    summary="Translate a text, or several",
)
async def translate(request: Request, service: ServiceOf) -> bodies.TranslateAnswer:
    """JSON or form. With `source` `auto` the language is detected; with `hints` the answer says what the model was
    shown and where it came from. When the client hangs up, the translation stops."""
    body, owner = await body_of(request, bodies.TranslateBody)
    several = isinstance(body.q, list)
    texts = body.q if isinstance(body.q, list) else [body.q]
    _check_texts(service, texts)
    target = service.offer.known(body.target)
    detect = body.source.lower() == "auto"
    sources: Sequence[Detected | None]
    if detect:
        sources = await asyncio.to_thread(_detected_sources, service, texts)
    else:
        sources = [Detected(service.offer.known(body.source), 1.0)] * len(texts)
    pages = [HtmlText(text) for text in texts] if body.format == "html" else []
    plain = [page.text for page in pages] or texts
    glossary_for = cache(partial(_glossary, service, owner, body.glossary))  # texts of a pair of languages share it
    orders = [
        _order(service, owner, body, source.code if source else target, target, text, glossary_for)
        for source, text in zip(sources, plain, strict=True)
    ]
    translations = await _translations(request, service, orders, plain)
    result = [translation.text for translation in translations]
    others = [translation.alternatives[: max(0, body.alternatives)] for translation in translations]
    if pages:
        filled = zip(texts, pages, result, orders, strict=True)
        result = [page.filled(translation) if order else text for text, page, translation, order in filled]
        others = [[HtmlText(text).filled(t) for t in own] for text, own in zip(texts, others, strict=True)]
    answer = bodies.TranslateAnswer(translatedText=result if several else result[0])
    if body.alternatives > 0:
        answer.alternatives = others if several else others[0]
    if detect:
        detected = [_detected(source) for source in sources]
        answer.detectedLanguage = detected if several else detected[0]
    if any(away := [bool(translation.hints_away) for translation in translations]):
        answer.hints_away = away if several else away[0]
    told = body.glossary or body.hints is not False or body.min_quality != ""
    added = [added_fields(*pair) for pair in zip(plain, translations, strict=True)] if told else []
    if body.glossary:
        terms = [[bodies.TermAnswer(**term) for term in fields.get("terms", ())] for fields in added]
        answer.terms = terms if several else terms[0]
    findings = [[bodies.FindingAnswer(**finding) for finding in fields.get("findings", ())] for fields in added]
    if any(findings):
        answer.findings = findings if several else findings[0]
    if body.min_quality != "":
        quality = [bodies.QualityAnswer(**f["quality"]) if "quality" in f else None for f in added]
        answer.quality = quality if several else quality[0]
    if body.hints is not False:
        hints = [[bodies.HintAnswer(**hint) for hint in fields["hints"]] for fields in added]
        notes = [list(fields["notes"]) for fields in added]
        answer.hints, answer.notes = (hints, notes) if several else (hints[0], notes[0])
        memory = [[bodies.MemoryAnswer(**sentence) for sentence in fields.get("memory", ())] for fields in added]
        if any(memory):
            answer.memory = memory if several else memory[0]
    return answer


@router.get("/", include_in_schema=False)
async def home() -> dict[str, str]:
    """For whoever opens the address in a browser."""
    pages = {"docs": "/docs", "translate": "/translate", "languages": "/languages", "health": "/health"}
    return {"name": "rag_mt", "version": __version__, **pages}


@router.get("/languages", summary="The languages and what each is translated into")
async def languages(service: ServiceOf) -> list[bodies.LanguageAnswer]:
    """Native names and writing directions are additions of rag_mt."""
    fields = ("code", "name", "native", "right_to_left")
    return [
        bodies.LanguageAnswer(
            **{field: getattr(known, field) for field in fields}, targets=list(service.offer.targets_of(known.code))
        )
        for known in service.offer.languages
    ]


@router.post(
    "/detect",
    openapi_extra=described(bodies.DetectBody),
    summary="The languages that a text may be in, the likeliest first",
)
async def detect(request: Request, service: ServiceOf) -> list[bodies.DetectedLanguage]:
    """English with confidence 0 for a text that says nothing, such as digits."""
    body, _ = await body_of(request, bodies.DetectBody)
    _check_texts(service, [body.q])
    candidates = await asyncio.to_thread(service.detector.detect, body.q)
    return [_detected(d) for d in candidates] or [_detected(None)]


@router.get("/health", summary="Whether the server answers, and what is loaded")
async def health(service: ServiceOf) -> bodies.HealthAnswer:
    """Needs no key; 503 where nothing can be translated any more. Models are loaded when they are first asked for."""
    if service.engine.fault:
        raise StoppedError(service.engine.fault)
    states: dict[str, str] = {}
    for loading in service.translators.states():
        pair = f"{loading.choice.source}-{loading.choice.target} {loading.choice.retriever}"
        states[pair] = loading.state if states.get(pair) != "ready" else "ready"
    return bodies.HealthAnswer(status="ok", translators=states, index_away=service.away)


@router.get("/frontend/settings", summary="Limits and defaults that clients ask for")
async def settings(request: Request, service: ServiceOf) -> bodies.SettingsAnswer:
    """As LibreTranslate has it."""
    needed = request.app.state.keys.needed
    first = service.offer.directions[0][1]
    return bodies.SettingsAnswer(
        charLimit=service.limits.text_chars,
        frontendTimeout=500,
        apiKeys=needed,
        keyRequired=needed,
        suggestions=False,
        filesTranslation=True,
        supportedFilesFormat=sorted(SUFFIXES),
        language={
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": first, "name": next(k.name for k in service.offer.languages if k.code == first)},
        },
    )


@router.get(
    "/metrics",
    summary="Counts for Prometheus",
    response_class=Response,
    responses={200: {"content": {CONTENT_TYPE_LATEST.split(";")[0]: {"schema": {"type": "string"}}}}},
)
async def metrics_text(request: Request, owner: Owner) -> Response:
    """No text and no client is in them. Needs a key where the server has keys."""
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE_LATEST)


def _check_texts(service: Service, texts: Sequence[str]) -> None:
    if not any(texts):
        raise UserError("Invalid request: missing q parameter")
    check_unicode(*texts)
    service.limits.check_texts(texts)


def _order(
    service: Service,
    owner: str,
    body: bodies.TranslateBody,
    source: str,
    target: str,
    text: str,
    glossary_for: Callable[[str, str], Glossary | None],
) -> Order | None:
    """How to translate a text; None for one that is in the target language already."""
    if source == target:
        return None
    names = (body.retriever, body.index, body.adapter, body.llm)
    hints = body.hints is not False
    choice = service.choice(owner, source, target, *names, hints, only=body.only, context=body.context)
    style = service.style(choice.target, body.formality, body.instruction, body.title)
    order = Order(
        choice,
        text,
        glossary=glossary_for(choice.source, choice.target),
        style=style,
        context=body.context,
        consistent=body.consistent,
        min_quality=least_score(str(body.min_quality)),
        only=body.only,
    )
    if isinstance(body.hints, bodies.HintOptions):
        return replace(order, max_hints=body.hints.max, least_score=body.hints.least_score)
    return order


def _glossary(
    service: Service, owner: str, asked: str | Sequence[bodies.GlossaryTerm], source: str, target: str
) -> Glossary | None:
    """The glossary that a request names or holds, for a pair of languages; raises UserError for terms that cannot be
    used."""
    if isinstance(asked, str):
        return service.glossaries.opened(owner, asked, source, target) if asked else None
    entries = []
    for number, term in enumerate(asked, 1):
        targets = [term.target] if isinstance(term.target, str) else term.target
        check_unicode(term.source, *targets, *term.forbidden, term.note)
        sources, allowed, forbidden = (
            [clean(text) for text in texts if text.strip()] for texts in ([term.source], targets, term.forbidden)
        )
        entry = Entry(sources, allowed, forbidden, Origin("", number), clean(term.note), term.case_sensitive)
        if reason := wrong_with(entry):
            raise UserError(f"term {number} of the glossary cannot be used ({reason}): correct it or leave it out")
        entries.append(entry)
    terms = terms_of(entries, source, target, Skips(shown=0))
    return Glossary(source, target, terms) if terms else None


def _detected_sources(service: Service, texts: Sequence[str]) -> list[Detected | None]:
    """The language of each text; None where nothing tells it."""
    together = service.detector.best("\n".join(texts))
    return [service.detector.best(text) if len(text) > SHORT else together for text in texts]


async def _translations(
    request: Request, service: Service, orders: Sequence[Order | None], texts: Sequence[str]
) -> list[TranslatedText]:
    """The translations of the texts, those without an order as they are; they end when the client hangs up."""
    jobs = service.engine.submit_all([order for order in orders if order])
    results = asyncio.gather(*(asyncio.wrap_future(job.future) for job in jobs))
    gone = asyncio.create_task(_hung_up(request))
    either: set[asyncio.Future[Any]] = {results, gone}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not results.done():
            request.app.state.metrics.cancelled.inc()
            raise HTTPException(CLIENT_GONE, "the client has hung up")
        if any(job.future.cancelled() for job in jobs):
            raise BusyError("the server is shutting down: try again later", 30)
        translations = iter(await results)
    finally:
        gone.cancel()
        for job in jobs:
            job.cancel()
        if not results.done():
            results.cancel()
    return [next(translations) if order else TranslatedText(text) for order, text in zip(orders, texts, strict=True)]


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _detected(detected: Detected | None) -> bodies.DetectedLanguage:
    """As LibreTranslate answers: confidence in per cent, and English with 0 where no language was detected."""
    if detected is None:
        return bodies.DetectedLanguage(confidence=0.0, language="en")
    return bodies.DetectedLanguage(confidence=round(100 * detected.confidence, 1), language=detected.code)


def _name_choices(app: FastAPI, service: Service) -> None:
    """Tell in OpenAPI which languages, language models and adapters the requests may name."""
    codes = [known.code for known in service.offer.languages]
    named = {"source": [*codes, "auto"], "target": codes, "language": codes}
    named |= {"llm": ["", *service.llms], "adapter": ["", *service.adapters]}
    for path in app.openapi()["paths"].values():
        for operation in path.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                for name, schema in content["schema"]["properties"].items():
                    if name in named:
                        schema["enum"] = named[name]


async def _error_answer(request: Request, error: Exception) -> JSONResponse:
    """An error as its answer: a status, and one sentence."""
    headers: Mapping[str, str] = {}
    match error:
        case UserError():
            away = 503 if isinstance(error, AwayError) else 400
            status, message = getattr(error, "status", away), error.public
            if isinstance(error, BusyError):
                headers = {"Retry-After": str(error.retry_after)}
        case HTTPException():
            status, message, headers = error.status_code, str(error.detail), error.headers or {}
        case RequestValidationError():
            first = error.errors()[0]
            status, message = 400, f"Invalid request: {first['loc'][-1]}: {first['msg']}"
        case ClientDisconnect():
            status, message = CLIENT_GONE, "the client has hung up"
        case _:
            status, message = 500, "the server failed: look at its log"
    return JSONResponse({"error": printable(message)}, status, headers=headers)
