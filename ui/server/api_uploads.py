"""The part of the HTTP API with files: documents that are translated as jobs, and indexes of one's own text."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from rag_mt.base.errors import UserError
from ui.server.access import MOST_FILES
from ui.server.bodies import (
    ADAPTER,
    INDEXED,
    LLM,
    DocumentAnswer,
    ErrorAnswer,
    IndexAnswer,
    RenameBody,
    check_unicode,
    checked,
    described,
    fields_of,
)
from ui.server.document_records import Document
from ui.server.limits import MissingError
from ui.server.requests import ERRORS, bearer_of, client_of, owner_of, service_of
from ui.server.service import Service
from ui.server.tasks import State, Task
from ui.server.user_indexes import Build, UserIndex
from ui.server.work import Order

POLL = 0.2
LONGEST_WAIT = 3600.0
MOST_SEGMENTS = 1000
"""Segments of one answer about a document."""

router = APIRouter(responses=ERRORS)
Id = Annotated[str, PathParameter(min_length=1, max_length=64, description="What the request that began it gave")]
Key = Annotated[str, Query(alias="api_key", description="Needed where the server has keys")]


FILE = {"type": "string", "format": "binary"}


class FileBody(BaseModel):
    """A file to translate."""

    file: Annotated[str, Field(json_schema_extra=FILE)]
    source: Annotated[str, Field(description="Language of the file, or auto")]
    target: Annotated[str, Field(description="Language of the translation")]
    column: Annotated[str, Field(description="Column (number from 1, or name) of a TSV, field of a JSONL file")] = ""
    retriever: str = ""
    index: str = ""
    llm: Annotated[str, Field(description=LLM)] = ""
    adapter: Annotated[str, Field(description=ADAPTER)] = ""
    api_key: str = ""


class BuildBody(BaseModel):
    """Text to index."""

    files: Annotated[list[Annotated[str, Field(json_schema_extra=FILE)]], Field(min_length=1, max_length=MOST_FILES)]
    language: Annotated[str, Field(description="Language of the text")]
    name: Annotated[str, Field(description="What to call the index; by default the first file's name")] = ""
    retriever: Annotated[str, Field(description=INDEXED)] = ""
    column: str = ""
    api_key: str = ""


@router.post(
    "/translate_file",
    openapi_extra=described(FileBody, "multipart/form-data"),
    summary="Translate a file: text, TSV, JSONL, TMX, PO or XLIFF",
)
async def translate_file(request: Request) -> DocumentAnswer:
    """Begins a job and answers at once. `translatedFileUrl` waits for the end and gives the file."""
    async with _form(request) as (form, owner, files):
        if len(files) != 1:
            raise UserError("Invalid request: missing file parameter" if not files else "send one file at a time")
        service, (name, path) = service_of(request), files[0]
        source, target = _text(form, "source", needed=True), _text(form, "target", needed=True)
        column = _text(form, "column")
        if source.lower() == "auto":
            able = service.offer.sources_of(service.offer.known(target))
            source = await asyncio.to_thread(service.documents.source_of, path, name, column, service.detector, able)
        chosen = [_text(form, field) for field in ("retriever", "index", "adapter", "llm")]
        order = Order(service.choice(owner, source, target, *chosen), "")
        client = "" if request.app.state.keys.needed else client_of(request)
        document = await asyncio.to_thread(service.documents.start, owner, name, path, order, column, client)
    return _document(request, document, 0)


@router.get("/translate_file/{id}", summary="How far a file is")
async def document(request: Request, id: Id, first: Annotated[int, Query(ge=0)] = 0, key: Key = "") -> DocumentAnswer:
    """`partial` holds what is translated, from segment number `first` on."""
    return _document(request, service_of(request).documents.get(owner_of(request, key), id), first)


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
    request: Request, id: Id, wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 600.0, key: Key = ""
) -> FileResponse:
    """Waits up to `wait` seconds for the end."""
    document = service_of(request).documents.get(owner_of(request, key), id)
    await _ended(request, document, wait)
    if document.result is None or document.state != "done":
        raise HTTPException(409, document.error or f"the translation of {document.name} is {document.state}")
    if not document.result.is_file():  # it gave way to a newer one while this request waited
        raise MissingError(f"the translation of {document.name} has been deleted: translate it again")
    return FileResponse(document.result, media_type="application/octet-stream", filename=document.output_name)


@router.delete("/translate_file/{id}", status_code=204, summary="Cancel a job and delete its files")
async def delete_document(request: Request, id: Id, key: Key = "") -> Response:
    """The file that was sent and the translated one are deleted: those of a job that runs as soon as it has ended."""
    service_of(request).documents.delete(owner_of(request, key), id)
    return Response(status_code=204)


@router.get("/index", summary="Your indexes and those being built")
async def indexes(request: Request, key: Key = "") -> list[IndexAnswer]:
    """Without API keys all clients of the server share them."""
    owner, user_indexes = owner_of(request, key), service_of(request).indexes
    finished = [_finished(index) for index in await asyncio.to_thread(user_indexes.of, owner)]
    return finished + [_building(build) for build in user_indexes.builds(owner) if build.state != "done"]


@router.post(
    "/index",
    status_code=202,
    openapi_extra=described(BuildBody, "multipart/form-data"),
    summary="Index your own target-language text",
)
async def build_index(request: Request) -> IndexAnswer:
    """Begins to build and answers at once; its id is what `/translate` takes as `index` when it is done."""
    async with _form(request) as (form, owner, files):
        service = service_of(request)
        build = await asyncio.to_thread(
            service.indexes.build,
            owner,
            _text(form, "name") or (files[0][0] if files else ""),
            service.offer.known(_text(form, "language", needed=True)),
            files,
            _text(form, "retriever") or service.retrievers[0],
            _text(form, "column"),
        )
    return _building(build)


@router.get("/index/{id}", summary="An index, or how far its build is")
async def index(request: Request, id: Id, key: Key = "") -> IndexAnswer:
    """`state` is done when it can be used."""
    return _either(service_of(request), owner_of(request, key), id)


@router.patch("/index/{id}", openapi_extra=described(RenameBody), summary="Give an index another name")
async def rename_index(request: Request, id: Id) -> IndexAnswer:
    """JSON or form with `name`."""
    body = checked(RenameBody, await fields_of(request))
    check_unicode(body.name)
    return _finished(service_of(request).indexes.rename(owner_of(request, body.api_key), id, body.name))


@router.delete("/index/{id}", status_code=204, summary="Delete an index, or end its build")
async def delete_index(request: Request, id: Id, key: Key = "") -> Response:
    """Translations that use it right now go on. The files of a build that runs go as soon as it has ended."""
    await asyncio.to_thread(service_of(request).indexes.delete, owner_of(request, key), id)
    return Response(status_code=204)


@asynccontextmanager
async def _form(request: Request) -> AsyncIterator[tuple[FormData, str, list[tuple[str, Path]]]]:
    """The multipart form of a request, its owner, and its files (name, copy in a temporary folder); raises UserError
    for another body. A key in the header is checked before anything is received."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise UserError("the body is no multipart form: send the file as curl does with -F file=@NAME")
    owner = owner_of(request, "") if bearer_of(request) or not request.app.state.keys.needed else ""
    async with request.form(max_files=MOST_FILES, max_fields=MOST_FILES) as form:
        owner = owner or owner_of(request, _text(form, "api_key"))
        uploads = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
            files = [(file.filename or "unnamed", Path(folder) / str(number)) for number, file in enumerate(uploads)]
            for upload, (_, path) in zip(uploads, files, strict=True):
                await asyncio.to_thread(_save, upload, path)
            yield form, owner, files


def _text(form: FormData, name: str, needed: bool = False) -> str:
    value = form.get(name) or ""
    if not isinstance(value, str):
        raise UserError(f"Invalid request: {name} is a file and should be text")
    if needed and not value:
        raise UserError(f"Invalid request: missing {name} parameter")
    check_unicode(value)
    return value


def _save(file: UploadFile, path: Path) -> None:
    with path.open("wb") as out:
        shutil.copyfileobj(file.file, out)


async def _ended(request: Request, task: Task, seconds: float) -> None:
    """Wait for the end of a task, for so long at most, and as long as somebody waits for the answer."""
    end = time.monotonic() + seconds
    while not task.ended and time.monotonic() < end and not await request.is_disconnected():
        await asyncio.sleep(POLL)


def _document(request: Request, document: Document, first: int) -> DocumentAnswer:
    return DocumentAnswer(
        id=document.id,
        name=document.name,
        state=document.state,
        done=document.progress[0],
        total=document.progress[1],
        error=document.error,
        notes=list(document.notes),
        translatedFileUrl=str(request.url_for("download", id=document.id)),
        first=first,
        partial=[[source, target] for source, target in document.partial[first : first + MOST_SEGMENTS]],
    )


def _either(service: Service, owner: str, id: str) -> IndexAnswer:
    try:
        build = service.indexes.get_build(owner, id)
    except MissingError:
        return _finished(service.indexes.get(owner, id))
    return _building(build) if build.state != "done" else _finished(service.indexes.get(owner, id))


def _building(build: Build) -> IndexAnswer:
    return _index(build, build.state, build.progress, error=build.error, notes=build.notes)


def _finished(index: UserIndex) -> IndexAnswer:
    return _index(index, "done", (index.sentences, index.sentences), index.units)


def _index(
    index: Build | UserIndex,
    state: State,
    progress: tuple[int, int],
    units: int = 0,
    error: str = "",
    notes: tuple[str, ...] = (),
) -> IndexAnswer:
    names = {name: getattr(index, name) for name in ("id", "name", "language", "retriever")}
    done, total = progress
    return IndexAnswer(**names, state=state, done=done, total=total, units=units, error=error, notes=list(notes))
