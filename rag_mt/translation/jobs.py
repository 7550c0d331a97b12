"""A translation job: the segments of a file through a Translator in reproducible batches.

The sentences of a job are numbered in file order and cut into windows; a window is retrieved for as one call, sorted
by prompt length and cut into batches. That plan depends on the input and the settings alone. Every finished sentence
is kept in the journal, and a resumed job computes exactly those that are missing, so that its output has the same
bytes. (In 16-bit number formats an output can depend, by rounding, on what else is in its batch and on the number of
threads: there the rest of the batch that was interrupted may come out in other words.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rag_mt.base.types import Prompt, Sentence, Span, TranslatedText, Translation
from rag_mt.formats.format import Segment
from rag_mt.text.splitting import rejoin, split
from rag_mt.translation.journal import Journal
from rag_mt.translation.translator import Translator

MOST_NAMED = 20
"""Lost placeholders that are named by file and line; all are counted."""

WINDOW = 256
"""Segments that are planned together: long enough to sort, short enough to give output early."""


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
    batch_size: int = 16,
    advance: Callable[[int], object] = lambda n: None,
) -> Iterator[TranslatedText]:
    """One TranslatedText per segment, in order; `advance` is told of every finished source sentence."""
    stream = iter(segments)
    number = 0
    while window := list(islice(stream, WINDOW)):
        spans = [split(s.text, translator.source) for s in window]
        sentences = [
            Sentence(span.of(segment.text), translator.source, segment.origin)
            for segment, parts in zip(window, spans, strict=True)
            for span in parts
        ]
        done = _translate_window(translator, sentences, number, journal, batch_size, advance)
        number += len(sentences)
        yield from _texts(window, spans, done, counts)


def _texts(
    window: Sequence[Segment], spans: Sequence[Sequence[Span]], done: Sequence[Translation], counts: Counts
) -> Iterator[TranslatedText]:
    """The window's translations put back into their segments' spacing."""
    at = 0
    for segment, parts in zip(window, spans, strict=True):
        own = tuple(done[at : at + len(parts)])
        at += len(parts)
        for translation in own:
            counts.add(translation)
        yield TranslatedText(rejoin(segment.text, parts, [t.text for t in own]), own)


def _translate_window(
    translator: Translator,
    sentences: Sequence[Sentence],
    first: int,
    journal: Journal | None,
    batch_size: int,
    advance: Callable[[int], object],
) -> list[Translation]:
    """The window's translations: those in the journal, and the others batch by batch, each kept when it is there.

    Equal sentences of a window are translated once.
    """
    unique = sorted({s.text: n for n, s in reversed(list(enumerate(sentences)))}.values())
    found: dict[int, Translation] = {}
    if journal:
        for n in unique:
            if kept := journal.take(first + n, sentences[n]):
                found[n] = kept
    advance(len(found) + len(sentences) - len(unique))
    if len(found) < len(unique):
        prompts = dict(zip(unique, translator.prepare([sentences[n] for n in unique]), strict=True))
        for batch in plan(prompts, batch_size):
            missing = [n for n in batch if n not in found]
            for place, made in translator.completed([sentences[n] for n in missing], [prompts[n] for n in missing]):
                n = missing[place]
                if journal:
                    journal.add([first + n], [made])
                found[n] = made
                advance(1)
    by_text = {sentences[n].text: t for n, t in found.items()}
    return [replace(by_text[s.text], source=s) for s in sentences]


def plan(prompts: dict[int, Prompt], batch_size: int) -> list[list[int]]:
    """The numbers of the prompts in batches of similar length, longest first; those with hints, which another model may
    answer, before those without."""
    order = sorted(prompts, key=lambda n: (not prompts[n].hints, -len(prompts[n].text), n))
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
