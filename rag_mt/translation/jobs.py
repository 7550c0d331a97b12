"""A translation job: the segments of a file through a Translator, each sentence kept as soon as it is translated.

The sentences of a job are numbered in file order and cut into windows; a window is retrieved for as one call and
answered in an order that depends on it alone. A job that was killed goes on with the sentences that are missing. In
float32 its output has the same bytes as that of a job that was not; in bfloat16 and float16 a sentence can depend,
through rounding, on those that are answered together with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rag_mt.base.types import Sentence, Span, TranslatedText, Translation
from rag_mt.formats.format import Segment
from rag_mt.text.splitting import rejoin, split
from rag_mt.translation.journal import Journal
from rag_mt.translation.tasks import SentenceTask, translate_all
from rag_mt.translation.translator import Translator

WINDOW = 256
"""Segments that are planned together: long enough to sort, short enough to give output early."""


MOST_NAMED = 20
"""Lost placeholders that are named by file and line; all are counted."""


@dataclass
class Counts:
    """What a job did, for its last line."""

    sentences: int = 0
    with_hints: int = 0
    hints: int = 0
    used: int = 0
    failed: int = 0
    noted: dict[str, int] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    """Where a placeholder was lost or added, and which (`a.po:7: placeholder lost: %s`), of the first MOST_NAMED."""

    def add(self, translation: Translation) -> None:
        self.sentences += 1
        self.with_hints += bool(translation.hints)
        self.hints += len(translation.hints)
        self.used += sum(translation.used)
        self.failed += not translation.ok
        for note in translation.notes:
            reason = note.split(":")[0]
            self.noted[reason] = self.noted.get(reason, 0) + 1
            if reason.startswith("placeholder") and len(self.lost) < MOST_NAMED:
                self.lost.append(f"{translation.source.source}: {note}")


def translate_segments(
    translator: Translator,
    segments: Iterable[Segment],
    counts: Counts,
    journal: Journal | None = None,
    advance: Callable[[int], object] = lambda n: None,
) -> Iterator[TranslatedText]:
    """One TranslatedText per segment, in order; `advance` is told of every finished source sentence."""
    stream = iter(segments)
    first = 0
    while window := list(islice(stream, WINDOW)):
        spans = [split(s.text, translator.source) for s in window]
        sentences = [
            Sentence(span.of(segment.text), translator.source, segment.origin)
            for segment, parts in zip(window, spans, strict=True)
            for span in parts
        ]
        translations = _translate_window(translator, sentences, first, journal, advance)
        first += len(sentences)
        yield from _texts(window, spans, translations, counts)


def _texts(
    window: Sequence[Segment], spans: Sequence[Sequence[Span]], translations: Sequence[Translation], counts: Counts
) -> Iterator[TranslatedText]:
    """The window's translations put back into their segments' spacing."""
    at = 0
    for segment, parts in zip(window, spans, strict=True):
        own = tuple(translations[at : at + len(parts)])
        at += len(parts)
        for translation in own:
            counts.add(translation)
        yield TranslatedText(rejoin(segment.text, parts, [t.text for t in own]), own)


def _translate_window(
    translator: Translator,
    sentences: Sequence[Sentence],
    first: int,
    journal: Journal | None,
    advance: Callable[[int], object],
) -> list[Translation]:
    """The window's translations: those in the journal, and the others as they are finished.

    Equal sentences of a window are translated once.
    """
    numbers = {sentence.text: number for number, sentence in reversed(list(enumerate(sentences, first)))}
    by_text: dict[str, Translation] = {}
    if journal:
        for text, number in numbers.items():
            if kept := journal.take(number, sentences[number - first]):
                by_text[text] = kept
    advance(len(by_text) + len(sentences) - len(numbers))

    def finished(task: SentenceTask) -> None:
        translation = task.translation
        assert translation is not None
        by_text[task.sentence.text] = translation
        if journal:
            journal.add([numbers[task.sentence.text]], [translation])
        advance(1)

    missing = [SentenceTask(translator, sentences[n - first]) for text, n in numbers.items() if text not in by_text]
    for _ in translate_all(missing, finished):
        pass
    return [replace(by_text[sentence.text], source=sentence) for sentence in sentences]
