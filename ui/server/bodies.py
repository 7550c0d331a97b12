"""What requests and answers of the HTTP API hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema

from prompts.style import LONGEST_INSTRUCTION, LONGEST_TITLE
from rag_mt.base.findings import Severity
from rag_mt.base.only import Only
from rag_mt.base.quality import BEST, Grade
from rag_mt.glossary.entries import LONGEST
from retrievers.registry import RETRIEVERS
from ui.server.limits import MOST_FILES
from ui.server.tasks import State

LLM = "The language model, of those that the server offers"
ADAPTER = "The model's adapter, of those that the server offers"
SEARCHING = (
    "What finds hints; empty is that of the searched index, without one none, or ccpr in the sample index where hints "
    "are asked for: " + ", ".join(RETRIEVERS)
)
INDEXED = "The retriever that will search it: " + ", ".join(
    name for name, spec in RETRIEVERS.items() if spec.needs_index
)

FORMALITY = Annotated[Literal["more", "less", ""], Field(description="The form of address")]
INSTRUCTION = Annotated[
    str,
    Field(max_length=LONGEST_INSTRUCTION, description="What the model is told beside the text: tone, audience, rules"),
]
TITLE = Annotated[str, Field(max_length=LONGEST_TITLE, description="The title of the document that the text is from")]
"""All three need a language model that follows instructions."""

MIN_QUALITY = Annotated[
    Annotated[float, Field(ge=0, le=BEST)] | Literal["good", "fair", "poor", ""],
    Field(description="The quality is estimated, and what is below this grade or score is among the findings"),
]
MOST_CONTEXT = 16
LONGEST_NAME = 500
"""Characters of the name of a file."""


def _if_empty(default: Any) -> BeforeValidator:
    """What some clients mean by an empty field."""
    return BeforeValidator(lambda value: default if value == "" else value)


CONTEXT = Annotated[
    int,
    _if_empty(0),
    Field(ge=0, le=MOST_CONTEXT, description="How many sentences before one, and half as many after it, are shown"),
]
"""They are shown with their translations."""
CONSISTENT = Annotated[
    bool,
    _if_empty(False),
    Field(description="Whether what lacks the terms that the other sentences agree on is translated again"),
]


def _listed(value: Any) -> Any:
    """One name, or several; an empty field is none."""
    return [] if value == "" else [value] if isinstance(value, str) else value


NAMES = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]],
    Field(max_length=MOST_FILES),
    BeforeValidator(_listed),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}], "default": []}),
]
"""One or several."""
DAY = Annotated[str, Field(max_length=10, examples=["2024-05-31"])]


class KeyedBody(BaseModel):
    """A body that may hold the key of its owner."""

    api_key: Annotated[str, Field(description="Needed where the server has keys")] = ""


class SearchingBody(KeyedBody):
    """A body that may say which files of the index are looked at."""

    only_files: Annotated[
        NAMES, Field(description="Names of files of the index, * for any part: no other is looked at")
    ] = []
    only_domain: Annotated[NAMES, Field(description="Domains of files of the index: no other file is looked at")] = []
    since: Annotated[DAY, Field(description="Only files of the index from this day on are looked at")] = ""
    until: Annotated[DAY, Field(description="Only files of the index up to this day are looked at")] = ""

    @property
    def only(self) -> Only:
        """Which files are looked at; raises UserError for a domain or a date that is none."""
        return Only(tuple(self.only_files), tuple(self.only_domain), self.since, self.until)


class HintOptions(BaseModel):
    """Which hints are shown to the model."""

    model_config = ConfigDict(extra="forbid", strict=True)

    max: Annotated[int, Field(ge=0, le=32)] = 32
    least_score: Annotated[float, Field(ge=0, le=1)] = 0.0


class GlossaryTerm(BaseModel):
    """A term with the translations that are allowed, any of them, and those that are not."""

    model_config = ConfigDict(extra="forbid")

    source: Annotated[str, Field(min_length=1, max_length=LONGEST)]
    target: Annotated[str | list[str], Field(description="A translation, or several")] = ""
    forbidden: list[str] = []
    note: str = ""
    case_sensitive: bool = False


INLINE = WithJsonSchema(HintOptions.model_json_schema())
"""The schema in place: the reference that pydantic would write leads nowhere in the server's OpenAPI document."""


class TranslateBody(SearchingBody):
    """A request for translation, as LibreTranslate has it, with what rag_mt adds."""

    q: Annotated[str | list[str], Field(description="A text, or several", examples=["Der Zug ist pünktlich."])]
    source: Annotated[str, Field(description="Language of the text, or auto", examples=["de", "auto"])]
    target: Annotated[str, Field(description="Language of the translation", examples=["en"])]
    format: Annotated[Literal["text", "html"], _if_empty("text"), Field(description="What q is")] = "text"
    alternatives: Annotated[
        int, Field(description="How many other translations of a text of one sentence to tell; only a memory has some")
    ] = 0
    hints: Annotated[
        Annotated[bool, Tag("bool")] | Annotated[HintOptions, Tag("options"), INLINE],
        Discriminator(lambda value: "options" if isinstance(value, dict | HintOptions) else "bool"),
        _if_empty(False),
        Field(description="Whether the answer tells its hints, and which"),
    ] = False
    retriever: Annotated[str, Field(description=SEARCHING)] = ""
    index: Annotated[str, Field(description="The id of an index of your own")] = ""
    glossary: Annotated[
        str | list[GlossaryTerm],
        Field(description="The id of a glossary of your own, or terms: the answer tells what became of them"),
    ] = ""
    formality: FORMALITY = ""
    instruction: INSTRUCTION = ""
    title: TITLE = ""
    context: CONTEXT = 0
    consistent: CONSISTENT = False
    min_quality: MIN_QUALITY = ""
    llm: Annotated[str, Field(description=LLM)] = ""
    adapter: Annotated[str, Field(description=ADAPTER)] = ""


class DetectBody(KeyedBody):
    """A request for the language of a text."""

    q: Annotated[str, Field(description="The text", examples=["Hyvää huomenta!"])]


class RenameBody(KeyedBody):
    """A new name for an index."""

    name: Annotated[str, Field(min_length=1)]


File = Annotated[str, Field(json_schema_extra={"type": "string", "format": "binary"})]
"""In a multipart form; here the name of the file."""


class FileBody(SearchingBody):
    """A file to translate."""

    file: File
    source: Annotated[str, Field(description="Language of the file, or auto")]
    target: Annotated[str, Field(description="Language of the translation")]
    column: Annotated[str, Field(description="Column (number from 1, or name) of a TSV, field of a JSONL file")] = ""
    retriever: str = ""
    index: str = ""
    glossary: Annotated[str, Field(description="The id of a glossary of your own")] = ""
    formality: FORMALITY = ""
    instruction: INSTRUCTION = ""
    title: TITLE = ""
    context: CONTEXT = 0
    consistent: CONSISTENT = False
    min_quality: MIN_QUALITY = ""
    llm: Annotated[str, Field(description=LLM)] = ""
    adapter: Annotated[str, Field(description=ADAPTER)] = ""


class GlossaryBody(KeyedBody):
    """Terms and their translations."""

    files: Annotated[list[File], Field(max_length=MOST_FILES, json_schema_extra={"minItems": 1})]
    source: Annotated[str, Field(description="Language of the terms")]
    target: Annotated[str, Field(description="Language of their translations")]
    name: Annotated[str, Field(description="What to call the glossary; by default the first file's name")] = ""


class BuildBody(KeyedBody):
    """Text to index."""

    files: Annotated[list[File], Field(max_length=MOST_FILES, json_schema_extra={"minItems": 1})]
    language: Annotated[str, Field(description="Language of the text")]
    name: Annotated[str, Field(description="What to call the index; by default the first file's name")] = ""
    retriever: Annotated[str, Field(description=INDEXED)] = ""
    column: str = ""


class ErrorAnswer(BaseModel):
    """What went wrong, in one sentence."""

    error: str


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorAnswer, "description": description}
    for status, description in {
        400: "The request cannot be answered as it is",
        401: "An API key is needed",
        403: "The API key is not known",
        404: "There is none of that id that is yours",
        413: "The body is too large",
        429: "Too much at once: try again after `Retry-After` seconds",
        500: "A fault of the server",
        503: "The server translates nothing until it is started again, or its index does not answer",
    }.items()
}
"""OpenAPI's description of the answers to what goes wrong."""


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


class HitAnswer(BaseModel):
    """What a memory has for a part of a sentence, in the target language; `score` is a similarity."""

    source: str
    phrase: str
    original: Annotated[str, Field(description="The text that the phrase translates; empty where that is not known")]
    score: float
    file: str
    line: int


class MemoryAnswer(BaseModel):
    """A sentence that a memory was asked about."""

    source: str
    draft: Annotated[str, Field(description="The translation without hints")]
    hits: list[HitAnswer]
    shown: Annotated[bool, Field(description="Whether the model was shown hints; else the draft is the translation")]
    changes: Annotated[list[tuple[str, str]], Field(description="Words of the draft and what stands in their place")]
    alternatives: Annotated[list[str], Field(description="The other translations that there were to choose from")]


class TermAnswer(BaseModel):
    """A term of the glossary that stands in the text, and what became of it."""

    source: str
    source_span: Annotated[tuple[int, int], Field(description="Characters from and to of the text")]
    term: Annotated[str, Field(description="As the glossary has it")]
    allowed: list[str]
    spans: Annotated[list[tuple[int, int]], Field(description="Where an allowed translation stands in the output")]
    forbidden: list[str]
    forbidden_spans: list[tuple[int, int]]
    note: str
    file: str
    line: int
    ok: Annotated[bool, Field(description="Whether an allowed translation is there, and no forbidden one")]


class FindingAnswer(BaseModel):
    """What a rule found in a translation."""

    rule: str
    severity: Severity
    message: str


class QualityAnswer(BaseModel):
    """What people are expected to give a translation, from 0 to 100, the worst sentence of the text."""

    score: float
    grade: Grade


class TranslateAnswer(BaseModel):
    translatedText: str | list[str]  # noqa: N815 (the name that clients know)
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815
    hints: list[HintAnswer] | list[list[HintAnswer]] | None = None
    notes: Annotated[list[str] | list[list[str]] | None, Field(description="What went wrong, along with hints")] = None
    memory: Annotated[
        list[MemoryAnswer] | list[list[MemoryAnswer]] | None,
        Field(description="Drafts and what was recalled for them, along with hints, where the retriever is a memory"),
    ] = None
    terms: Annotated[
        list[TermAnswer] | list[list[TermAnswer]] | None,
        Field(description="What became of the terms of the glossary, with format html in the text without its markup"),
    ] = None
    findings: Annotated[
        list[FindingAnswer] | list[list[FindingAnswer]] | None,
        Field(description="What the checks found, along with hints and terms, where they found something"),
    ] = None
    hints_away: Annotated[
        bool | list[bool] | None,
        Field(description="Whether the index did not answer, so that there are no hints; told where that is so"),
    ] = None
    quality: Annotated[
        QualityAnswer | list[QualityAnswer | None] | None,
        Field(description="With min_quality: how good the translation is thought to be"),
    ] = None


class LanguageAnswer(BaseModel):
    code: str
    name: str
    native: str
    right_to_left: bool
    targets: list[str]


class HealthAnswer(BaseModel):
    status: Literal["ok"]
    translators: Annotated[dict[str, str], Field(description="Loaded translators and their states")]
    index_away: Annotated[
        list[str],
        Field(
            description="Translators whose index did not answer when it was asked last; `index` is one never reached"
        ),
    ] = []


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


class TaskAnswer(BaseModel):
    """Work in the background; `done` and `total` are sentences."""

    id: str
    name: str
    state: State
    done: int
    total: int
    error: str
    notes: list[str]


class DocumentAnswer(TaskAnswer):
    """A file that is translated. `partial` are source and translation of segments `first` and following."""

    translatedFileUrl: str  # noqa: N815
    first: int
    partial: list[Annotated[list[str], Field(min_length=2, max_length=2)]]


class IndexAnswer(TaskAnswer):
    """An index of your own, or one that is being built; `done` and `total` are sentences."""

    language: str
    retriever: str
    units: int


class GlossaryAnswer(BaseModel):
    """A glossary of your own; `terms` is their number."""

    id: str
    name: str
    source: str
    target: str
    terms: int
    notes: list[str]
