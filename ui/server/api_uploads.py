"""The part of the HTTP API with files: documents that are translated as jobs, and indexes of one's own text."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException

from rag_mt.base.defaults import INDEX_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.quality import least_score
from ui.server import requests
from ui.server.bodies import (
    ERRORS,
    BuildBody,
    DocumentAnswer,
    ErrorAnswer,
    FileBody,
    GlossaryAnswer,
    GlossaryBody,
    IndexAnswer,
    KeyedBody,
    RenameBody,
)
from ui.server.documents import Document
from ui.server.glossaries import UserGlossary
from ui.server.limits import MOST_FILES, MissingError
from ui.server.requests import MULTIPART, Body, Owner, ServiceOf
from ui.server.service import Service
from ui.server.tasks import Task
from ui.server.user_indexes import Build, UserIndex
from ui.server.work import Order

POLL = 0.2
LONGEST_WAIT = 3600.0
MOST_SEGMENTS = 1000
"""Segments of one answer about a document."""

router = APIRouter(responses=ERRORS)
Id = Annotated[str, PathParameter(min_length=1, max_length=64, description="What the request that began it gave")]


@router.post(
    "/translate_file",
    openapi_extra=requests.described(FileBody, MULTIPART),
    summary="Translate a file: text, TSV, JSONL, TMX, PO or XLIFF",
)
async def translate_file(request: Request, service: ServiceOf) -> DocumentAnswer:
    """Begins a job and answers at once. `translatedFileUrl` waits for the end and gives the file."""
    async with _form(request, FileBody) as (body, owner, [(name, path)]):
        source, documents = body.source, service.documents
        if source.lower() == "auto":
            able = service.offer.sources_of(service.offer.known(body.target))
            source = await asyncio.to_thread(documents.source_of, path, name, body.column, service.detector, able)
        names = body.retriever, body.index, body.adapter, body.llm
        choice = service.choice(owner, source, body.target, *names, only=body.only, context=body.context)
        codes = choice.source, choice.target
        glossary = service.glossaries.opened(owner, body.glossary, *codes) if body.glossary else None
        style = service.style(choice.target, body.formality, body.instruction, body.title)
        order = Order(
            choice,
            "",
            glossary=glossary,
            style=style,
            context=body.context,
            consistent=body.consistent,
            min_quality=least_score(str(body.min_quality)),
            only=body.only,
        )
        client = "" if request.app.state.keys.needed else requests.client_of(request)
        document = await asyncio.to_thread(documents.start, owner, name, path, order, body.column, client)
    return _document(request, document, 0)


@router.get("/translate_file/{id}", summary="How far a file is")
async def document(
    request: Request, service: ServiceOf, owner: Owner, id: Id, first: Annotated[int, Query(ge=0)] = 0
) -> DocumentAnswer:
    """`partial` holds what is translated, from segment number `first` on."""
    return _document(request, service.documents.get(owner, id), first)


@router.get(
    "/download_file/{id}",
    summary="The translated file",
    response_class=FileResponse,
    responses={
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        409: {"model": ErrorAnswer, "description": "It failed, was cancelled, or is not done in time"},
    },
)
async def download(
    request: Request,
    service: ServiceOf,
    owner: Owner,
    id: Id,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 600.0,
) -> FileResponse:
    """Waits up to `wait` seconds for the end."""
    document = service.documents.get(owner, id)
    end = time.monotonic() + wait
    while not document.ended and time.monotonic() < end and not await request.is_disconnected():
        await asyncio.sleep(POLL)
    if document.result is None or document.state != "done":
        raise HTTPException(409, document.error or f"the translation of {document.name} is {document.state}")
    if not document.result.is_file():  # it gave way to a newer one while this request waited
        raise MissingError(f"the translation of {document.name} has been deleted: translate it again")
    return FileResponse(document.result, media_type="application/octet-stream", filename=document.output_name)


@router.delete("/translate_file/{id}", status_code=204, summary="Cancel a job and delete its files")
async def delete_document(service: ServiceOf, owner: Owner, id: Id) -> Response:
    """The file that was sent and the translated one are deleted: those of a job that runs as soon as it has ended."""
    service.documents.delete(owner, id)
    return Response(status_code=204)


@router.get("/index", summary="Your indexes and those being built")
async def indexes(service: ServiceOf, owner: Owner) -> list[IndexAnswer]:
    """Without API keys all clients of the server share them."""
    finished = await asyncio.to_thread(service.indexes.of, owner)
    builds = [build for build in service.indexes.builds.of(owner) if build.state != "done"]
    return [*map(_index, finished), *map(_build, builds)]


@router.post(
    "/index",
    status_code=202,
    openapi_extra=requests.described(BuildBody, MULTIPART),
    summary="Index your own target-language text",
)
async def build_index(request: Request, service: ServiceOf) -> IndexAnswer:
    """Begins to build and answers at once; its id is what `/translate` takes as `index` when it is done."""
    async with _form(request, BuildBody) as (body, owner, files):
        build = await asyncio.to_thread(
            service.indexes.build,
            owner,
            body.name or (files[0][0] if files else ""),
            service.offer.known(body.language),
            files,
            body.retriever or INDEX_RETRIEVER,
            body.column,
        )
    return _build(build)


@router.get("/index/{id}", summary="An index, or how far its build is")
async def index(service: ServiceOf, owner: Owner, id: Id) -> IndexAnswer:
    """`state` is done when it can be used."""
    try:
        build = service.indexes.builds.get(owner, id)
    except MissingError:
        return _index(service.indexes.get(owner, id))
    return _index(service.indexes.get(owner, id)) if build.state == "done" else _build(build)


@router.patch("/index/{id}", openapi_extra=requests.described(RenameBody), summary="Give an index another name")
async def rename_index(request: Request, service: ServiceOf, id: Id) -> IndexAnswer:
    """JSON or form with `name`."""
    body, owner = await requests.body_of(request, RenameBody)
    requests.check_unicode(body.name)
    return _index(service.indexes.rename(owner, id, body.name))


@router.delete("/index/{id}", status_code=204, summary="Delete an index, or end its build")
async def delete_index(service: ServiceOf, owner: Owner, id: Id) -> Response:
    """Translations that use it right now go on. The files of a build that runs go as soon as it has ended."""
    await asyncio.to_thread(service.indexes.delete, owner, id)
    return Response(status_code=204)


@router.get("/glossary", summary="Your glossaries")
async def glossaries(service: ServiceOf, owner: Owner) -> list[GlossaryAnswer]:
    """Without API keys all clients of the server share them."""
    return [*map(_glossary, await asyncio.to_thread(service.glossaries.of, owner))]


@router.post(
    "/glossary",
    status_code=201,
    openapi_extra=requests.described(GlossaryBody, MULTIPART),
    summary="Keep terms and their translations (CSV, TSV, TBX, TMX)",
)
async def add_glossary(request: Request, service: ServiceOf) -> GlossaryAnswer:
    """Its id is what `/translate` takes as `glossary`."""
    return await _kept_glossary(request, service, "")


@router.put(
    "/glossary/{id}", openapi_extra=requests.described(GlossaryBody, MULTIPART), summary="Change a glossary's terms"
)
async def change_glossary(request: Request, service: ServiceOf, id: Id) -> GlossaryAnswer:
    """The terms of the files take the place of those that are there; an empty name leaves the name."""
    return await _kept_glossary(request, service, id)


@router.get(
    "/glossary/{id}",
    summary="The terms of a glossary",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
async def glossary_table(service: ServiceOf, owner: Owner, id: Id) -> Response:
    """As CSV."""
    return Response(await asyncio.to_thread(service.glossaries.table, owner, id), media_type="text/csv")


@router.delete("/glossary/{id}", status_code=204, summary="Delete a glossary")
async def delete_glossary(service: ServiceOf, owner: Owner, id: Id) -> Response:
    """Translations that use it right now go on."""
    await asyncio.to_thread(service.glossaries.delete, owner, id)
    return Response(status_code=204)


async def _kept_glossary(request: Request, service: Service, id: str) -> GlossaryAnswer:
    async with _form(request, GlossaryBody) as (body, owner, files):
        name = body.name or (files[0][0] if files and not id else "")
        codes = service.offer.known(body.source), service.offer.known(body.target)
        return _glossary(await asyncio.to_thread(service.glossaries.add, owner, name, *codes, files, id))


@asynccontextmanager
async def _form(request: Request, kind: type[Body]) -> AsyncIterator[tuple[Body, str, list[tuple[str, Path]]]]:
    """The multipart form of a request, its owner, and its files (name, copy in a temporary folder); raises UserError
    for another body. A key in the header is checked before anything is received."""
    if not request.headers.get("content-type", "").lower().startswith(MULTIPART):
        raise UserError("the body is no multipart form: send the file as curl does with -F file=@NAME")
    owner = requests.owner_of(request, "") if requests.bearer_of(request) or not request.app.state.keys.needed else ""
    async with request.form(max_files=MOST_FILES, max_fields=MOST_FILES) as form:
        texts = requests.form_fields(form, empty=False)
        owner = owner or requests.owner_of(request, requests.checked(KeyedBody, texts).api_key)
        requests.check_unicode(*(value for _, value in form.multi_items() if isinstance(value, str)))
        texts.pop("file", "")  # a text is no upload
        uploads = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        names = [upload.filename or "unnamed" for upload in uploads]
        if "file" in kind.model_fields and len(uploads) > 1:
            raise UserError("send one file at a time")
        body = requests.checked(kind, {**texts, "files": names} | ({"file": names[0]} if names else {}))
        with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
            paths = [Path(folder) / str(number) for number in range(len(uploads))]
            for upload, path in zip(uploads, paths, strict=True):
                with path.open("wb") as copy:
                    await asyncio.to_thread(shutil.copyfileobj, upload.file, copy)
            yield body, owner, list(zip(names, paths, strict=True))


def _task(task: Task) -> dict[str, Any]:
    """The fields of a `TaskAnswer`."""
    done, total = task.progress
    fields = {name: getattr(task, name) for name in ("id", "name", "state", "error")}
    return {**fields, "done": done, "total": total, "notes": list(task.notes)}


def _document(request: Request, document: Document, first: int) -> DocumentAnswer:
    url = str(request.url_for("download", id=document.id))
    pairs = [list(pair) for pair in document.partial[first : first + MOST_SEGMENTS]]
    return DocumentAnswer(**_task(document), translatedFileUrl=url, first=first, partial=pairs)


def _build(build: Build) -> IndexAnswer:
    return IndexAnswer(**_task(build), language=build.language, retriever=build.retriever, units=0)


def _index(index: UserIndex) -> IndexAnswer:
    fields = {name: getattr(index, name) for name in ("id", "name", "language", "retriever", "units")}
    return IndexAnswer(**fields, state="done", done=index.sentences, total=index.sentences, error="", notes=[])


def _glossary(glossary: UserGlossary) -> GlossaryAnswer:
    fields = {name: getattr(glossary, name) for name in ("id", "name", "source", "target")}
    return GlossaryAnswer(**fields, terms=len(glossary.terms), notes=list(glossary.notes))
