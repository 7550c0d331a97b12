"""What is done while the index of a translator, in an engine such as Qdrant or LanceDB, does not answer.

With `stop` the error ends what is being translated. With `plain` sentences are translated without hints, each is told
of (`Translation.hints_away`), and the index is asked again after INDEX_PAUSE seconds, so that a long job does not wait
for it at every sentence. Once it answers there are hints again, also where it was away from the start.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rag_mt.base.defaults import INDEX_AWAY, INDEX_PAUSE
from rag_mt.base.errors import AwayError, UserError
from rag_mt.base.only import EVERY, Only
from rag_mt.base.types import Hint, Retriever, Sentence
from retrievers.no_hints import NoHints

log = logging.getLogger("rag_mt")

T = TypeVar("T")


class Unreached(NoHints):
    """The retriever of an index of which nothing is known, for it was away whenever it was looked for. `opener`, if
    any, opens another one in its place, which looks at some files only, or raises AwayError."""

    def __init__(self, reason: str, opener: Callable[[Only], Retriever] | None = None, only: Only = EVERY) -> None:
        self.reason, self.opener, self.only = reason, opener, only

    @property
    def later(self) -> Callable[[], Retriever] | None:
        """What opens the one in its place."""
        return None if self.opener is None else partial(self.opener, self.only)

    def within(self, only: Only) -> Unreached:
        """The same with other files that are looked at."""
        return Unreached(self.reason, self.opener, only)

    def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
        """Raises AwayError."""
        raise AwayError(self.reason)


@dataclass
class _Answering:
    """Why an index does not answer, empty while it does, and when it is asked again, by `time.monotonic()`."""

    reason: str = ""
    again: float = 0.0


class HintSource:
    """The retriever of a translator, and whether its index answers. All methods may be called from any thread."""

    def __init__(self, away: str, opener: Callable[[], Retriever], answering: _Answering | None = None) -> None:
        """Opens the retriever. Raises UserError for another `away` than those of INDEX_AWAY and for an index that
        cannot be used; with `plain` one that is away is opened later."""
        if away not in INDEX_AWAY:
            raise UserError(f"index_away is {away!r}: expected one of {', '.join(INDEX_AWAY)} (--index-away)")
        self.plain = away == "plain"
        self._opener: Callable[[], Retriever] | None = opener
        self._opening = threading.Lock()
        self._answering = answering or _Answering()
        if self._paused:
            self.retriever: Retriever = Unreached(self.reason)
            return
        try:
            self.retriever = self._opened()
        except AwayError as error:
            self._note(error)
            self.retriever = Unreached(self.reason)

    @property
    def reason(self) -> str:
        """Why its index does not answer; empty while it does."""
        return self._answering.reason

    @property
    def _paused(self) -> bool:
        """Whether the index is away and not to be asked yet."""
        return bool(self.plain and self.reason) and time.monotonic() < self._answering.again

    def narrowed(self, opener: Callable[[], Retriever]) -> HintSource:
        """One of the same index with another retriever; both know whether it answers."""
        return HintSource("plain" if self.plain else "stop", opener, self._answering)

    def _opened(self) -> Retriever:
        """The retriever, opened at the first call that reaches its index."""
        with self._opening:
            if self._opener is not None:
                self.retriever = self._opener()
                self._opener = self.retriever.later if isinstance(self.retriever, Unreached) else None
            return self.retriever

    def ask(self, question: Callable[[Retriever], Sequence[T]], without: Sequence[T]) -> tuple[Sequence[T], str]:
        """What the retriever answers and an empty text, or while its index is away `without` and the reason."""
        if self._paused:
            return without, self.reason
        try:
            answer = question(self._opened())
        except AwayError as error:
            self._note(error)
            return without, self.reason
        if self.reason and self.plain:
            log.warning("the index answers again: sentences are translated with hints")
        self._answering.reason = ""
        return answer, ""

    def _note(self, error: AwayError) -> None:
        """Remember that the index is away, and tell of it if that is new; without `plain` raise the error."""
        if not self.plain:
            self._answering.reason = str(error)
            raise error
        if not self.reason:
            log.warning(
                "%s; sentences are translated without hints until it answers, it is asked every %g seconds",
                *(error, INDEX_PAUSE),
            )
        self._answering.reason, self._answering.again = str(error), time.monotonic() + INDEX_PAUSE
