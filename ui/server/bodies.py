"""What requests and answers of the HTTP API hold, and how JSON, form and query give the same request."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, ValidationError, WithJsonSchema

from rag_mt.base.errors import UserError
from retrievers.registry import RETRIEVERS
from ui.server.tasks import State

Model = TypeVar("Model", bound=BaseModel)

FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
LLM = "The language model, of those that the server offers"
ADAPTER = "The model's adapter, of those that the server offers"
SEARCHING = "What finds hints: " + ", ".join(RETRIEVERS)
INDEXED = "The retriever that will search it: " + ", ".join(
    name for name, spec in RETRIEVERS.items() if spec.needs_index
)


def _flag(value: Any) -> Any:
    """Forms have words for truth."""
    words = {"true": True, "1": True, "on": True, "false": False, "0": False, "off": False, "": False}
    return words.get(value.lower(), value) if isinstance(value, str) else value


def _or_text(value: Any) -> Any:
    """Some clients send an empty format."""
    return "text" if value == "" else value


class HintOptions(BaseModel):
    """Which hints are shown to the model."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max: Annotated[int, Field(ge=0, le=32)] = 32
    least_score: Annotated[float, Field(ge=0, le=1)] = 0.0


INLINE = WithJsonSchema(HintOptions.model_json_schema())
"""The schema in place: the reference that pydantic would write leads nowhere in the server's OpenAPI document."""


class TranslateBody(BaseModel):
    """A request for translation, as LibreTranslate has it, with what rag_mt adds."""

    model_config = ConfigDict(extra="ignore")

    q: Annotated[str | list[str], Field(description="A text, or several", examples=["Der Zug ist pünktlich."])]
    source: Annotated[str, Field(description="Language of the text, or auto", examples=["de", "auto"])]
    target: Annotated[str, Field(description="Language of the translation", examples=["en"])]
    format: Annotated[Literal["text", "html"], BeforeValidator(_or_text), Field(description="What q is")] = "text"
    alternatives: Annotated[int, Field(description="Taken and not answered: there is one translation")] = 0
    api_key: Annotated[str, Field(description="Needed where the server has keys")] = ""
    hints: Annotated[
        Annotated[bool, Tag("bool")] | Annotated[HintOptions, Tag("options"), INLINE],
        Discriminator(lambda value: "options" if isinstance(value, dict | HintOptions) else "bool"),
        BeforeValidator(_flag),
        Field(description="Whether the answer tells its hints, and which"),
    ] = False
    retriever: Annotated[str, Field(description=SEARCHING)] = ""
    index: Annotated[str, Field(description="The id of an index of your own")] = ""
    llm: Annotated[str, Field(description=LLM)] = ""
    adapter: Annotated[str, Field(description=ADAPTER)] = ""


class DetectBody(BaseModel):
    """A request for the language of a text."""

    model_config = ConfigDict(extra="ignore")

    q: Annotated[str, Field(description="The text", examples=["Hyvää huomenta!"])]
    api_key: str = ""


class RenameBody(BaseModel):
    """A new name for an index."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[str, Field(min_length=1)]
    api_key: str = ""


class ErrorAnswer(BaseModel):
    """What went wrong, in one sentence."""

    error: str


class DetectedLanguage(BaseModel):
    confidence: Annotated[float, Field(ge=0, le=100, description="Per cent")]
    language: str


class HintAnswer(BaseModel):
    """A piece of target-language text that the model was shown for a part of the source text."""

    source: str
    source_span: Annotated[
        tuple[int, int], Field(description="Characters from and to; with format html, of the text without its markup")
    ]
    phrase: str
    context: str
    score: float
    file: str
    line: int
    used: Annotated[bool, Field(description="Whether the phrase stands in the translation")]


class TranslateAnswer(BaseModel):
    translatedText: str | list[str]  # noqa: N815 (the name that clients know)
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    hints: list[HintAnswer] | list[list[HintAnswer]] | None = None
    notes: Annotated[list[str] | list[list[str]] | None, Field(description="What went wrong, along with hints")] = None


class LanguageAnswer(BaseModel):
    code: str
    name: str
    native: str
    right_to_left: bool
    targets: list[str]


class HealthAnswer(BaseModel):
    status: Literal["ok"]
    translators: Annotated[dict[str, str], Field(description="Loaded translators and their states")]


class SettingsAnswer(BaseModel):
    """What LibreTranslate's clients ask for before they show a form."""

    charLimit: int  # noqa: N815
    frontendTimeout: int  # noqa: N815
    apiKeys: bool  # noqa: N815
    keyRequired: bool  # noqa: N815
    suggestions: bool
    filesTranslation: bool  # noqa: N815
    supportedFilesFormat: list[str]  # noqa: N815
    language: dict[str, dict[str, str]]


class DocumentAnswer(BaseModel):
    """A file that is translated. `partial` are source and translation of segments `first` and following."""

    id: str
    name: str
    state: State
    done: int
    total: int
    error: str
    notes: list[str]
    translatedFileUrl: str  # noqa: N815
    first: int
    partial: list[Annotated[list[str], Field(min_length=2, max_length=2)]]


class IndexAnswer(BaseModel):
    """An index of your own, or one that is being built; `done` and `total` are sentences."""

    id: str
    name: str
    language: str
    retriever: str
    state: State
    done: int
    total: int
    units: int
    error: str
    notes: list[str]


async def fields_of(request: Request) -> dict[str, Any]:
    """The fields of a request: query, then JSON object or form on top; several form fields of a name are a list, and
    fields that are null are left out.

    Raises UserError for a body that is none of these.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    fields: dict[str, Any] = _fields(request.query_params)
    body = b"" if kind in FORMS else await request.body()
    if kind in FORMS:
        async with request.form(max_files=0) as form:
            fields |= _fields(form)
    elif body:
        try:
            content = json.loads(body)
        except (ValueError, RecursionError):
            raise UserError('the body is no JSON: expected an object such as {"q": "..."}, or a form') from None
        if not isinstance(content, dict):
            raise UserError('the body is JSON but no object: expected one such as {"q": "..."}')
        fields |= {name: value for name, value in content.items() if value is not None}
    return fields


def checked(kind: type[Model], fields: dict[str, Any]) -> Model:
    """The request that the fields are; raises UserError for the first one that is missing or wrong."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors()[0]
        path = [str(part) for part in first["loc"] if part in kind.model_fields or part in HintOptions.model_fields]
        name = ".".join(path) or "body"
        if first["type"] == "missing":
            raise UserError(f"Invalid request: missing {name} parameter") from None
        raise UserError(f"Invalid request: {name}: {first['msg']}") from None


def described(kind: type[BaseModel], *media: str) -> dict[str, Any]:
    """OpenAPI's description of a body in one of the media types, by default those that `fields_of` reads."""
    content = {name: {"schema": kind.model_json_schema()} for name in media or ("application/json", FORMS[0])}
    return {"requestBody": {"required": True, "content": content}}


def check_unicode(*texts: str) -> None:
    """Raise UserError for halves of characters, which JSON can spell and nothing can write."""
    if any("\ud800" <= c <= "\udfff" for text in texts if not text.isascii() for c in text):
        raise UserError("Invalid request: the text holds half of a surrogate pair: send valid Unicode")


def _fields(form: Any) -> dict[str, Any]:
    names = dict.fromkeys(form.keys())
    lists = {name: [v for v in form.getlist(name) if isinstance(v, str)] for name in names}
    return {name: values[0] if len(values) == 1 else values for name, values in lists.items() if values}
