"""One text on its way through the engine: its sentences, how far they are, and its cancellation."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from prompts.style import NO_STYLE, Style
from rag_mt.base.only import EVERY, Only
from rag_mt.base.types import Hint, Sentence, Span, TranslatedText, Translation
from rag_mt.glossary.glossary import Glossary
from rag_mt.text.splitting import rejoin, split
from rag_mt.translation.consistency import DocumentTerms
from rag_mt.translation.context import translate_together
from rag_mt.translation.tasks import SentenceTask
from rag_mt.translation.translator import Translator
from ui.server.tasks import Watched
from ui.server.translators import Choice

State = Literal["loading", "waiting", "translating", "done", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Order:
    """A text to translate and how.

    Of each sentence's hints those below `least_score` and those in `switched_off` (see `hint_id`) are left out, and of
    the others the `max_hints` strongest are shown (None: all). A `background` order gets what room is left in batches.
    The translation keeps to the terms of a `glossary`, which is of the choice's languages, and to a `style`. Each
    sentence is shown with `context` sentences before it, and half as many after it. If it shall be `consistent`, what
    lacks the terms that the text's other translations agree on is translated again. With `min_quality` the quality is
    estimated. `spans` are those of the sentences, if they are known. Hints are those of `only` some files of the index,
    if not all.
    """

    choice: Choice
    text: str
    max_hints: int | None = None
    least_score: float = 0.0
    switched_off: frozenset[str] = frozenset()
    background: bool = False
    glossary: Glossary | None = None
    style: Style = NO_STYLE
    context: int = 0
    consistent: bool = False
    min_quality: float | None = None
    spans: tuple[Span, ...] | None = None
    only: Only = EVERY


def hint_id(hint: Hint) -> str:
    """A short name for a hint that stays the same from one translation of a text to the next."""
    hit = hint.hit
    parts = (hint.source_span, hit.sentence.source, hit.sentence.text, hit.span)
    return hashlib.blake2b(repr(parts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def named_fault(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@dataclass(eq=False)
class Item(SentenceTask):
    """One sentence of a job; `taken` once the engine has begun with it."""

    job: Job = field(kw_only=True)
    taken: bool = False

    @property
    def wanted(self) -> bool:
        """False once the job has ended in any way."""
        return not self.job.future.done()

    def shown(self, hints: Sequence[Hint]) -> Sequence[Hint]:
        """The hints that the order leaves in, strongest first."""
        order = self.job.order
        left = [h for h in hints if h.hit.score >= order.least_score and hint_id(h) not in order.switched_off]
        return left[: order.max_hints]

    def changed(self) -> None:
        """Wake whoever follows the job."""
        self.job.changed()


@dataclass(eq=False)
class Job(Watched):
    """An accepted order. `future` gives its translation; cancelling either ends it between two tokens.

    `last_token` and `cancelled_at` are times of `time.monotonic()`: when the last token was computed for it, and when
    it was cancelled.
    """

    order: Order
    future: Future[TranslatedText] = field(default_factory=Future)
    translator: Translator | None = None
    items: list[Item] = field(default_factory=list)
    last_token: float | None = None
    cancelled_at: float | None = None
    _spans: Sequence[Span] = ()
    _terms: DocumentTerms[Item] | None = None
    _first: list[Item] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.future.add_done_callback(self._done)

    @property
    def state(self) -> State:
        if self.future.done():
            return "cancelled" if self.future.cancelled() else "failed" if self.future.exception() else "done"
        if self.translator is None:
            return "loading"
        return "translating" if any(item.taken for item in self.items) else "waiting"

    @property
    def text(self) -> str:
        """The translation as far as it is sure, up to the first sentence that is not done."""
        if self.state == "done":
            return self.future.result().text
        pieces: list[str] = []
        for item in self._first or self.items:
            pieces.append(item.begun)
            if item.translation is None:
                break
        if not pieces:
            return ""
        spans = self._spans[: len(pieces)]
        return rejoin(self.order.text[: spans[-1].end], spans, pieces)

    @property
    def progress(self) -> tuple[int, int]:
        """Translated sentences, and all sentences (0 as long as the translator is not loaded)."""
        return sum(item.translation is not None for item in self.items), len(self.items)

    def cancel(self) -> bool:
        """End the job; false if it had ended before."""
        return self.future.cancel()

    def result(self, timeout: float | None = None) -> TranslatedText:
        """The translation, waited for; raises its error, `concurrent.futures.CancelledError` or TimeoutError."""
        return self.future.result(timeout)

    def updates(self, every: float = 0.05) -> Iterator[str]:
        """`text` after each change, `every` seconds apart at least, until the job has ended in any way."""
        for _ in self.changes(every, self.future.done):
            if self.state not in ("failed", "cancelled"):
                yield self.text

    def begin(self, translator: Translator) -> None:
        """Take the translator and cut the text into sentences; raises UserError if it cannot do what is ordered."""
        if self.order.only:
            translator = translator.with_only(self.order.only)
        if self.order.style.settings:
            translator = translator.with_style(self.order.style)
        if self.order.context:
            translator = translator.with_context(self.order.context)
        if self.order.glossary is not None:
            translator = translator.with_glossary(self.order.glossary)
        if self.order.min_quality is not None:
            translator = translator.with_min_quality(self.order.min_quality)
        text, spans = self.order.text, self.order.spans
        self._spans = split(text, translator.source) if spans is None else spans
        if self.order.consistent:
            self._terms = DocumentTerms(translator, partial(Item, job=self))
        self.translator = translator  # before the sentences: whoever sees these may ask for it
        items = [Item(translator, Sentence(span.of(text), translator.source), job=self) for span in self._spans]
        translate_together(items, self.order.context)
        self.items = items  # all at once: the engine may begin with them now
        self.changed()

    def finish_if_complete(self) -> None:
        """Give out the translation once all its sentences are there."""
        translations = [item.translation for item in self.items if item.translation is not None]
        if len(translations) < len(self.items):
            return
        try:
            if self._terms is not None:
                if not self._first and self._ask_again(self._terms, translations):
                    return
                translations = self._kept(self._terms)
            assert self.translator is not None
            translated = self._joined(self.translator, translations)
        except BaseException as error:
            self.fail(error)
            return
        with suppress(InvalidStateError):  # cancelled meanwhile
            self.future.set_result(translated)

    def _joined(self, translator: Translator, translations: Sequence[Translation]) -> TranslatedText:
        """The translation of the text; where its parts are known, their own findings are looked for elsewhere."""
        if self.order.spans is None:
            return translator.joined(self.order.text, self._spans, translations)
        whole = rejoin(self.order.text, self._spans, [translation.text for translation in translations])
        return TranslatedText(whole, tuple(translator.estimated(translations)))

    def _ask_again(self, terms: DocumentTerms[Item], translations: Sequence[Translation]) -> bool:
        """Let the sentences that differ from the rest of the text be translated again; false if there are none."""
        tasks = terms.again(translations, {})
        self._first = self.items
        self.items = [tasks.get(n, item) for n, item in enumerate(self.items)]
        self.changed()
        return bool(tasks)

    def _kept(self, terms: DocumentTerms[Item]) -> list[Translation]:
        """The translations that are kept of the first and the second ones; `items` are those that they are of."""
        first = [item.translation for item in self._first if item.translation is not None]
        again = {
            n: item.translation
            for n, (item, own) in enumerate(zip(self.items, self._first, strict=True))
            if item is not own and item.translation is not None
        }
        kept = terms.kept(first, again)
        self.items = [
            own if made is own.translation else self.items[n]
            for n, own, made in zip(terms.first_with, self._first, kept, strict=True)
        ]
        return kept

    def fail(self, error: BaseException) -> None:
        """End with an error; one that is no Exception (a panic in Rust, an exit) would end who waits: it is wrapped."""
        if not isinstance(error, Exception):
            error = RuntimeError(named_fault(error))
        with suppress(InvalidStateError):  # cancelled meanwhile
            self.future.set_exception(error)

    def _done(self, future: Future[TranslatedText]) -> None:
        if future.cancelled():
            self.cancelled_at = time.monotonic()
        self.changed()
