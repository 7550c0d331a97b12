"""A translation job: the segments of a file through a Translator, each sentence kept as soon as it is translated.

The sentences of a job are numbered in file order and cut into windows; a window is retrieved for as one call and
answered in an order that depends on it alone. A job that was killed goes on with the sentences that are missing. In
float32 its output has the same bytes as that of a job that was not; in bfloat16 and float16 a sentence can depend,
through rounding, on those that are answered together with it. To a terminal, sentences are streamed instead.
"""

from __future__ import annotations

import io
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rag_mt.base.quality import GRADES, Grade
from rag_mt.base.types import Origin, Returning, Sentence, Span, TranslatedText, Translation
from rag_mt.checks.rules import Pair
from rag_mt.checks.segments import Checker
from rag_mt.formats.format import Segment
from rag_mt.formats.opening import BOM
from rag_mt.text.splitting import split
from rag_mt.translation.consistency import DocumentTerms
from rag_mt.translation.context import finished_pair, translate_together
from rag_mt.translation.journal import Journal
from rag_mt.translation.queue import translate_all
from rag_mt.translation.tasks import SentenceTask

if TYPE_CHECKING:  # files are read before what loads models is imported
    from rag_mt.translation.translator import Translator


@dataclass(frozen=True, slots=True)
class SplitSegment:
    """A segment of a file with the spans of its sentences."""

    segment: Segment
    spans: tuple[Span, ...]


def split_segments(segments: Iterable[Segment], language: str) -> list[SplitSegment]:
    """The segments, cut into sentences of a language."""
    return [SplitSegment(segment, tuple(split(segment.text, language))) for segment in segments]


WINDOW = 256
"""Segments that are planned together: long enough to sort, short enough to give output early."""
MOST_NAMED = 20
"""Errors that are named by file and line; all findings are counted."""
MOST_REASONS = 3
"""Reasons why the index was away that are named."""
FAILING = frozenset({"empty", "numbers", "placeholders"})
"""The rules whose errors make a job one that did not quite succeed."""


@dataclass
class Counts:
    """What a job did, for its closing lines."""

    segments: int = 0
    sentences: int = 0
    with_hints: int = 0
    hints: int = 0
    used: int = 0
    failed: int = 0
    terms: int = 0
    kept: int = 0
    """Terms of the glossary in the sentences, and those that are translated as it has them."""
    away: Counter[str] = field(default_factory=Counter)
    """Sentences that were translated without hints because the index was away, by the reason."""
    noted: dict[str, int] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)
    """What the checks found, by rule."""
    grades: Counter[Grade] = field(default_factory=Counter)
    """The estimated quality of segments."""
    errors: list[str] = field(default_factory=list)
    """The first MOST_NAMED errors with their places (`a.po:7: error: placeholder lost: %s [placeholders]`)."""
    wrong: int = 0
    """Errors by the rules FAILING."""

    def add_text(self, translated: TranslatedText, origin: Origin) -> None:
        """Count a segment, which comes from there."""
        self.segments += 1
        for translation in translated.sentences:
            self.add(translation)
        if translated.estimate is not None:
            self.grades[translated.estimate.grade] += 1
        for finding in translated.findings:
            self.found[finding.rule] += 1
            if finding.severity == "error":
                self.wrong += finding.rule in FAILING
                if len(self.errors) < MOST_NAMED:
                    self.errors.append(finding.at(origin))

    @property
    def findings(self) -> str:
        """One line such as `findings: 3 x ends, 1 x numbers`, empty without any."""
        rules = ", ".join(f"{number} x {rule}" for rule, number in self.found.most_common())
        return f"findings: {rules}" if rules else ""

    @property
    def estimates(self) -> str:
        """One line such as `estimated quality: 3 good, 1 poor`, empty without estimates."""
        grades = ", ".join(f"{self.grades[grade]} {grade}" for grade in GRADES if self.grades[grade])
        return f"estimated quality: {grades}" if grades else ""

    @property
    def without_hints(self) -> str:
        """One line such as `3 of 9 sentences were translated without hints, for index X does not answer (...)`, empty
        where the index answered."""
        if not self.away:
            return ""
        reasons = "; ".join(reason for reason, _ in self.away.most_common(MOST_REASONS))
        return f"{self.away.total()} of {self.sentences} sentences were translated without hints, for {reasons}"

    def add(self, translation: Translation) -> None:
        self.sentences += 1
        self.away.update([translation.hints_away] if translation.hints_away else [])
        self.with_hints += bool(translation.hints)
        self.hints += len(translation.hints)
        self.used += sum(translation.used)
        self.failed += not translation.ok
        self.terms += len(translation.terms)
        self.kept += sum(usage.ok for usage in translation.terms)
        for note in translation.notes:
            reason = note.split(":")[0]
            self.noted[reason] = self.noted.get(reason, 0) + 1


def translate_segments(
    translator: Translator,
    segments: Iterable[SplitSegment],
    counts: Counts,
    journal: Journal | None = None,
    advance: Callable[[int], object] = lambda n: None,
    window: int | None = None,
) -> Iterator[TranslatedText]:
    """One TranslatedText per segment, in order; `advance` is told of every finished source sentence. `window` segments
    (WINDOW, if it is not given) are planned together: many keep a language model busier, few give output earlier."""
    stream, checker = iter(segments), Checker(rules=())
    first, before = 0, deque[Translation](maxlen=translator.context)
    terms = DocumentTerms(translator, SentenceTask) if translator.consistent else None
    while parts := list(islice(stream, window or WINDOW)):
        sentences = [
            Sentence(span.of(part.segment.text), translator.source, part.segment.origin)
            for part in parts
            for span in part.spans
        ]
        translations = _translate_window(translator, sentences, first, before, journal, advance)
        if terms is not None:
            translations = _translate_again(terms, translations, first, journal)
        first += len(sentences)
        before.extend(translations)
        remaining = iter(translator.estimated(translations))
        for part in parts:
            made = list(islice(remaining, len(part.spans)))
            translated = translator.joined(part.segment.text, part.spans, made)
            yield compared(translated, part.segment.text, part.segment.origin, checker, counts)


def compared(
    translated: TranslatedText, source: str, origin: Origin, checker: Checker, counts: Counts
) -> TranslatedText:
    """The translation of a segment with what a Checker without rules finds in comparison with earlier ones; it is
    counted."""
    place = replace(origin, file=Path(origin.file).name)  # what is found may be written into the file
    further = checker.check(Pair(source, translated.text, "", ""), place).findings
    translated = replace(translated, findings=(*translated.findings, *further))
    counts.add_text(translated, origin)
    return translated


def _translate_window(
    translator: Translator,
    sentences: Sequence[Sentence],
    first: int,
    before: Iterable[Translation],
    journal: Journal | None,
    advance: Callable[[int], object],
) -> list[Translation]:
    """The window's translations: those in the journal, and the others as they are finished.

    Equal sentences of a window are translated once, unless there is context: `before` are the translations before the
    window that it may show. A sentence that the journal has is shown with its draft, as in the run that was cut off.
    """
    places = range(first, first + len(sentences))
    firsts = {sentence.text: n for n, sentence in reversed(list(zip(places, sentences, strict=True)))}
    keys = places if translator.context else [firsts[sentence.text] for sentence in sentences]
    done: dict[int, Translation] = {}
    if journal:
        for number in dict.fromkeys(keys):
            if earlier := journal.take(number, sentences[number - first]):
                done[number] = earlier
    missing = {n: SentenceTask(translator, sentences[n - first]) for n in dict.fromkeys(keys) if n not in done}
    advance(len(sentences) - len(missing))
    parts = [missing.get(n) or (done[n].source.text, done[n].draft) for n in keys]
    translate_together([*map(finished_pair, before), *parts], translator.context)
    done |= _answered(missing, lambda number: number, journal, advance)
    return [replace(done[number], source=sentence) for number, sentence in zip(keys, sentences, strict=True)]


def _translate_again(
    terms: DocumentTerms[SentenceTask], translations: Sequence[Translation], first: int, journal: Journal | None
) -> list[Translation]:
    """The window's translations, those that differ from the rest of the document translated again; the journal has
    second translations under negative numbers, the complements of those of the first."""
    again: dict[int, Translation] = {}
    if journal:
        for number, made in enumerate(translations):
            if earlier := journal.take(~(first + number), made.source):
                again[number] = earlier
    tasks = terms.again(translations, again)
    return terms.kept(translations, again | _answered(tasks, lambda number: ~(first + number), journal))


def _answered(
    tasks: Mapping[int, SentenceTask],
    journal_number: Callable[[int], int],
    journal: Journal | None,
    advance: Callable[[int], object] = lambda n: None,
) -> dict[int, Translation]:
    """The translations of tasks by their numbers, each in the journal as soon as it is finished."""
    number_of, done = {id(task): number for number, task in tasks.items()}, {}

    def finished(task: SentenceTask) -> None:
        number, translation = number_of[id(task)], task.translation
        assert translation is not None
        done[number] = translation
        if journal:
            journal.add([journal_number(number)], [translation])
        advance(1)

    for _ in translate_all(list(tasks.values()), finished):
        pass
    return done


class Echo(io.RawIOBase):
    """A stream that shows text early and swallows those bytes when they are written in their turn."""

    def __init__(self, out: BinaryIO) -> None:
        self.out = out
        self.early = b""

    def show(self, text: str) -> None:
        """Write and flush at once."""
        data = text.encode("utf-8", "replace")
        self.early += data
        self.out.write(data)
        self.out.flush()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        rest = data.removeprefix(BOM) if self.early else data
        if rest.startswith(self.early):
            self.out.write(rest[len(self.early) :])
        else:  # the finished answer is another one than what was shown
            self.out.write(b"\n" + rest)
        self.early = b""
        return len(data)


def stream_segments(
    translator: Translator,
    segments: Iterable[SplitSegment],
    echo: Echo,
    counts: Counts,
) -> Iterator[TranslatedText]:
    """One TranslatedText per segment, in order, each shown through `echo` while it is generated."""
    checker, before = Checker(rules=()), deque[Translation](maxlen=translator.context)
    for part in segments:
        pieces = Returning(translator.stream(part.segment.text, part.segment.origin, part.spans, tuple(before)))
        for piece in pieces:
            echo.show(piece)
        before.extend(pieces.value.sentences)
        yield compared(pieces.value, part.segment.text, part.segment.origin, checker, counts)
