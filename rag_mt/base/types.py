"""The types that every folder speaks: spans, sentences, hints, prompts, translations, counts of skipped lines.

All character offsets are Python string indices into the untouched original text, end exclusive.
Token offsets never leave an encoder.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rag_mt.base.findings import Finding
    from rag_mt.base.quality import Estimate
    from rag_mt.base.terms import TermMatch, Usage

Unit = Literal["phrase", "sentence", "passage", "memory"]
"""What hits are; those of a memory are whole sentences and phrases of sentences."""
Kind = Literal["query", "passage"]
Floats = NDArray[np.float32]
Piece = TypeVar("Piece")
Result = TypeVar("Result")
ELLIPSIS = "..."
NO_LETTERS = "no letters"
"""Why rules and bare numbers are skipped: a build that leaves out nothing else is complete."""

log = logging.getLogger("rag_mt")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Characters `start` to `end` (exclusive) of some text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"span {self.start}:{self.end} is not 0 <= start <= end")

    def __len__(self) -> int:
        return self.end - self.start

    def of(self, text: str) -> str:
        """The characters of `text` that the span covers."""
        return text[self.start : self.end]

    def overlaps(self, other: Span) -> bool:
        """Whether both spans share at least one character."""
        return self.start < other.end and other.start < self.end


def printable(text: str) -> str:
    """The text with what no UTF-8 can write (bytes of a file's name that are none) escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a text came from: a file (or data set) name and a line from 1 on (0: unknown). `start` is the character at
    which a passage begins in a record or cell that holds several."""

    file: str = ""
    line: int = 0
    start: int = 0

    def __str__(self) -> str:
        """The place as it is told, which can be written everywhere."""
        file = printable(self.file)
        place = f"{file}:{self.line}" if self.line else file
        return f"{place}+{self.start}" if self.start else place


NOWHERE = Origin()
"""The origin of a text that came from no file."""


@dataclass
class Skips:
    """Counts skipped lines by reason, so that nothing is dropped in silence. The first `shown` of each reason are
    logged with their place, without the path of `folder`. `remarks` are about parts that are rightly left as they are.
    """

    shown: int = 5
    folder: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    remarks: list[str] = field(default_factory=list)

    def add(self, origin: Origin, reason: str) -> None:
        """Count one line; `reason` is a short phrase such as `not valid UTF-8`."""
        self.counts[reason] += 1
        place = str(origin).removeprefix(self.folder)
        if self.counts[reason] <= self.shown:
            log.warning("%s: %s", place, reason)
        elif self.shown and self.counts[reason] == self.shown + 1:
            log.warning("%s: %s (further ones are only counted)", place, reason)

    def remark(self, file: object, text: str) -> None:
        """Remember a remark on a whole file, and log it unless `shown` is 0."""
        self.remarks.append(text)
        if self.shown:
            log.info("%s: %s", str(file).removeprefix(self.folder), text)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def summary(self) -> str:
        """One line such as `skipped 3 lines: 2 not valid UTF-8, 1 over-long line`, or an empty string."""
        parts = ", ".join(f"{n} {reason}" for reason, n in self.counts.most_common())
        return f"skipped {self.total} lines: {parts}" if parts else ""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence (or passage) in one language, with where it came from."""

    text: str
    language: str
    source: Origin = NOWHERE


@dataclass(frozen=True, slots=True)
class TranslatedSentence(Sentence):
    """A sentence of a translation memory with the text in another language that it translates."""

    original: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """A cut of a sentence with the phrase at `phrase` inside `text`."""

    text: str
    phrase: Span

    def marked(self, left: str, right: str) -> str:
        """The text with `left` and `right` set around the phrase."""
        a, b = self.phrase.start, self.phrase.end
        return f"{self.text[:a]}{left}{self.text[a:b]}{right}{self.text[b:]}"


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved unit of an index: the part `span` of `sentence`, higher `score` is better. `original` is the
    source text that `sentence` translates, where the index has it."""

    sentence: Sentence
    span: Span
    score: float
    original: str = ""

    @property
    def whole(self) -> bool:
        """Whether the unit is all of its sentence."""
        return len(self.span) == len(self.sentence.text)

    @property
    def text(self) -> str:
        return self.span.of(self.sentence.text)

    @property
    def stored_score(self) -> float:
        """The score as files have it: six decimals, so that the rounding of a batch of another size does not show."""
        return round(float(self.score), 6)


@dataclass(frozen=True, slots=True)
class Hint:
    """A span of the input sentence paired with its best hit."""

    source_span: Span
    hit: Hit

    @property
    def phrase(self) -> str:
        """The target-language text that the hint proposes."""
        return self.hit.text

    def context(self, limit: int = 100) -> Context:
        """The hit with as much of its sentence as fits into `limit` characters, ellipses included. It is cut at word
        boundaries where there are any, and the phrase is always inside (CCPR section 6.3: contexts of at most 100
        characters). A phrase that leaves no room for two ellipses is returned alone and whole."""
        text, span = self.hit.sentence.text, self.hit.span
        if len(text) <= limit:
            return Context(text, span)
        room = limit - len(span) - 2 * len(ELLIPSIS)
        if room < 0:
            return Context(self.phrase, Span(0, len(span)))
        before = min(span.start, max(room // 2, room - (len(text) - span.end)))
        start = _cut_before(text, span.start - before, span.start)
        end = _cut_after(text, min(len(text), span.end + room - before), span.end)
        left, right = ELLIPSIS * (start > 0), ELLIPSIS * (end < len(text))
        shift = len(left) - start
        return Context(f"{left}{text[start:end]}{right}", Span(span.start + shift, span.end + shift))


def _cut_before(text: str, low: int, high: int) -> int:
    """The first word start in `low`..`high`; in a run without spaces (Chinese, Thai) `low` itself."""
    for i in range(low, high + 1):
        if i == 0 or (text[i - 1].isspace() and (i == high or not text[i].isspace())):
            return i
    while low < high and unicodedata.combining(text[low]):
        low += 1
    return low


def _cut_after(text: str, high: int, low: int) -> int:
    """The last word end in `low`..`high`; in a run without spaces `high` itself."""
    for i in range(high, low - 1, -1):
        if i == len(text) or (text[i].isspace() and (i == low or not text[i - 1].isspace())):
            return i
    while low < high and unicodedata.combining(text[high]):
        high -= 1
    return high


@dataclass(frozen=True, slots=True)
class Recalled:
    """What a memory has for a sentence: `hints`, the most similar first. Where they are not `shown`, the draft is the
    translation."""

    hints: tuple[Hint, ...] = ()
    shown: bool = False


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A sentence that stands `offset` sentences behind another one of its document (before it: negative), with its
    translation so far."""

    offset: int
    source: str
    translation: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a language model is asked: the text of a completion prompt or, with `chat`, the user message that the
    model's own chat template wraps.

    The first `shared` characters of `text` are the same in all prompts of one builder, so that a model can compute them
    once. `hints` are the hints that it shows, `terms` those of the glossary, and `context` the sentences around the one
    to translate; `notes` say what was left out. Generation ends at any of `stop`. `source` and `target` are language
    codes, where it is about translation; with `coded` the chat template is given them beside the text. `begun` is how
    the answer begins: the model goes on from there, and the completion has what follows. With `scored` the completion
    shall tell how likely it is.
    """

    text: str
    chat: bool = False
    shared: int = 0
    stop: tuple[str, ...] = ()
    hints: tuple[Hint, ...] = ()
    notes: tuple[str, ...] = ()
    source: str = ""
    target: str = ""
    coded: bool = False
    terms: tuple[TermMatch, ...] = ()
    begun: str = ""
    context: tuple[Neighbour, ...] = ()
    scored: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Completion:
    """A language model's answer: its text without stop strings and its number of new tokens. `finished`: it ended
    before the token limit; `stopped`: a stop string ended it (False too where a server does not tell). `logprob`: the
    mean of the logarithms of its tokens' probabilities, if the prompt is `scored` and the engine tells it; none of an
    answer that left a loop."""

    text: str
    tokens: int
    finished: bool
    stopped: bool = False
    logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Translation:
    """What the user gets: the output with the hints that were shown and whether each was taken up. `used[i]` tells
    whether `hints[i].phrase` stands in `text`. `notes` name what went wrong or was left out; `ok` is false when no
    translation could be read from the model's answer (`text` is then the source text). Where a memory was asked,
    `draft` is the translation without hints, `recalled` what the memory had, and `alternatives` are the other
    translations that `text` was chosen from, the better supported first; the draft may be among them. Where context is
    shown, `draft` is the translation without it, which the sentences around this one were shown. `terms` are the
    glossary's terms of the sentence, with where their translations stand in `text`. `estimate` says how good the
    translation is thought to be, where that was asked for, and `logprob` how likely the model found it, where
    that was asked for too, the prompt is a plain one, and the text is its answer as it was (see `Completion`).
    `hints_away` says why the index was not asked, or not wholly, empty where it was (see `rag_mt.translation.away`)."""

    source: Sentence
    text: str
    hints: tuple[Hint, ...] = ()
    prompt: str = ""
    used: tuple[bool, ...] = ()
    notes: tuple[str, ...] = ()
    ok: bool = True
    draft: str = ""
    recalled: Recalled | None = None
    alternatives: tuple[str, ...] = ()
    terms: tuple[Usage, ...] = ()
    estimate: Estimate | None = None
    logprob: float | None = None
    hints_away: str = ""


@dataclass(frozen=True, slots=True)
class TranslatedText:
    """The translation of running text: `text` with the spacing of the original, and its sentences' translations.
    `findings` are what the rules of `rag_mt.checks` find in it, as `rag-mt check` does: numbers and placeholders that
    are lost, added or changed, terms of the glossary that it does not keep to, and so on."""

    text: str
    sentences: tuple[Translation, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def estimate(self) -> Estimate | None:
        """The lowest estimate of its sentences, None where no quality was estimated."""
        return min((t.estimate for t in self.sentences if t.estimate is not None), default=None)

    @property
    def hints_away(self) -> str:
        """Why the index was not asked for one of its sentences, empty where it was."""
        return next((t.hints_away for t in self.sentences if t.hints_away), "")

    @property
    def alternatives(self) -> list[str]:
        """The other translations of a text of one sentence, with its spacing; none of a longer text."""
        if len(self.sentences) != 1:
            return []
        before, _, after = self.text.partition(self.sentences[0].text)
        return [before + text + after for text in self.sentences[0].alternatives]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TokenStates:
    """Hidden states of one text: `states` (tokens, hidden) and `offsets` (tokens, 2), the character span of each
    token in the text; special tokens and prefixes are left out."""

    states: Floats
    offsets: NDArray[np.int32]


class Encoder(Protocol):
    """Texts to vectors. `fingerprint` changes whenever the vectors would; `dimension` is that of sentence vectors,
    `hidden` that of token states, `layers` the number of layers above the embeddings."""

    id: str
    fingerprint: str
    dimension: int
    hidden: int
    layers: int

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        """L2-normalised sentence vectors, shape (len(texts), dimension)."""
        ...

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        """The hidden states of `layer` (0 = embeddings) of each text, in order."""
        ...


class Retriever(Protocol):
    """Sentences to hints. `name` is that of the registry; `unit` is what its hits are."""

    name: str
    unit: Unit

    @property
    def settings(self) -> Mapping[str, Any]:
        """All else that could change the hints of a sentence, JSON-able."""
        ...

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """For each sentence its hints, strongest first; an empty tuple where nothing is trusted."""
        ...


class DraftRetriever(Retriever, Protocol):
    """A retriever that also looks for what is similar to a first translation without hints, the draft; `bilingual` says
    whether it has stored translations."""

    bilingual: bool

    def recall(self, sentences: Sequence[Sentence], drafts: Sequence[str]) -> list[Recalled]:
        """For each sentence and its draft what there is, and whether it is shown."""
        ...

    def known(self, sentences: Sequence[Sentence]) -> list[Hit | None]:
        """For each sentence a stored translation of just that sentence, if there is one."""
        ...


class PromptQueue(Protocol):
    """Prompts for a language model and the receiver of its answers. Prompts are numbered from 0 as they are taken."""

    def take(self, most: int) -> Sequence[Prompt]:
        """Up to `most` prompts to answer next, none if there are none now: it must not wait, since it is asked again
        after the next token as long as any prompt is being answered."""
        ...

    def progress(self, number: int, text: str) -> bool:
        """Take the beginning of an unfinished answer; return whether it is still wanted. An answer that begins anew (it
        left a loop, or memory ran out) may be shorter than before."""
        ...

    def finish(self, number: int, completion: Completion) -> None:
        """Take the whole answer; it is unfinished for a prompt that nobody wanted, or that found no room."""
        ...


class LanguageModel(Protocol):
    """Prompts to completions. `fingerprint` changes whenever its outputs may."""

    id: str
    fingerprint: str
    context_length: int
    has_chat_template: bool
    continues_chats: bool  # whether the answer to a chat prompt may have a beginning (`Prompt.begun`)
    reserved: frozenset[str]  # control tokens that must not stand in user or retrieved text

    def count_tokens(self, prompt: Prompt) -> int:
        """The number of tokens the prompt takes in the model's window."""
        ...

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        """Answer the prompts of a queue until it gives none and all are answered.

        The work is done while the iterator is advanced, which yields whenever something may have changed: after a token
        of all prompts that are answered together, say. Closing it stops the work. Raises UserError where a prompt
        cannot be answered at all: the others are then given up too.
        """
        ...


class Metric(Protocol):
    """Translations and references to scores; `signature` names all that could change them. The score of a text is a
    function of the sum of its sentences' statistics, which is what significance tests draw from: `formula` names it in
    `eval.metrics.formulas`."""

    name: str
    signature: str
    formula: str

    def statistics(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> NDArray[np.float64]:
        """The statistics of each sentence, (sentences, statistics)."""
        ...


class Returning(Generic[Piece, Result]):
    """Iterates a generator once; after the loop `value` is what the generator returned."""

    value: Result

    def __init__(self, generator: Generator[Piece, None, Result]) -> None:
        self._generator = generator

    def __iter__(self) -> Iterator[Piece]:
        self.value = yield from self._generator
