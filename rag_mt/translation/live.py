"""Output to a terminal: every sentence appears while it is generated."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, BinaryIO

from rag_mt.base.types import Returning, TranslatedText, Translation
from rag_mt.formats.opening import BOM

if TYPE_CHECKING:
    from rag_mt.translation.jobs import SplitSegment
    from rag_mt.translation.translator import Translator


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
    finished: Callable[[Translation], object],
) -> Iterator[TranslatedText]:
    """One TranslatedText per segment, in order, each shown through `echo` while it is generated."""
    for part in segments:
        pieces = Returning(translator.stream(part.segment.text, part.segment.origin, part.spans))
        for piece in pieces:
            echo.show(piece)
        for translation in pieces.value.sentences:
            finished(translation)
        yield pieces.value
