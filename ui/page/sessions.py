"""What the demo remembers of each open page, and of the person before it: nothing of one reaches another."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from rag_mt.base.languages import language
from rag_mt.base.types import TranslatedText
from rag_mt.formats.lines import added_fields
from rag_mt.formats.tmx import Unit, Variant, write_memory
from ui.page.hint_markup import ShownHint
from ui.page.markup import escaped, table, tagged
from ui.server.translators import Choice
from ui.server.work import Job, Order

log = logging.getLogger("rag_mt")

GRACE = 3600.0
"""Seconds that documents and indexes stay after the last page of their owner was closed: phones close pages early."""
MOST = 10_000
"""Pages that are remembered: who asks for more of them closes the oldest."""
LIMIT = 200
"""Entries that the history of a session keeps."""
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets compute cells that begin so: in CSV an apostrophe is set before them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One finished translation: when (UTC), from and into which language, the text, what came of it, and by what."""

    time: datetime
    source: str
    target: str
    text: str
    translated: TranslatedText
    system: str

    @property
    def hints(self) -> int:
        return sum(len(t.hints) for t in self.translated.sentences)

    @property
    def used(self) -> int:
        return sum(sum(t.used) for t in self.translated.sentences)


def history_table(entries: Sequence[Entry]) -> str:
    """The entries as an escaped table, newest first."""
    if not entries:
        return '<p class="mt-empty">Nothing has been translated in this session yet.</p>'
    return table(
        "Translations of this session",
        ("Time", "Languages", "Source", "Translation", "Hints used"),
        map(_row, reversed(entries)),
    )


def _row(entry: Entry) -> tuple[str, ...]:
    languages = f"{language(entry.source).native} → {language(entry.target).native}"
    return (
        f"{entry.time.astimezone():%H:%M:%S}",
        f"{escaped(languages)}<br><small>{escaped(entry.system)}</small>",
        tagged(entry.text, entry.source),
        tagged(entry.translated.text, entry.target),
        f"{entry.used} of {entry.hints}",
    )


def export(entries: Sequence[Entry], name: str) -> str:
    """The entries, oldest first, as the text of a `tmx`, `csv` or `jsonl` file."""
    return _WRITERS[name](entries)


def _csv(entries: Sequence[Entry]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(("time", "source_language", "target_language", "source", "translation", "hints", "used", "system"))
    for e in entries:
        cells = (e.source, e.target, e.text, e.translated.text, str(e.hints), str(e.used), e.system)
        harmless = (f"'{cell}" if cell.startswith(FORMULA_STARTS) else cell for cell in cells)
        writer.writerow((e.time.isoformat(timespec="seconds"), *harmless))
    return f"\ufeff{out.getvalue()}"  # the mark tells spreadsheets that it is UTF-8


def _jsonl(entries: Sequence[Entry]) -> str:
    """The records that a JSONL job writes, with the hints and where they came from."""
    records = [
        {
            "time": e.time.isoformat(timespec="seconds"),
            "source_language": e.source,
            "target_language": e.target,
            "system": e.system,
            "text": e.text,
            **added_fields(e.text, e.translated),
        }
        for e in entries
    ]
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _tmx(entries: Sequence[Entry]) -> str:
    """One memory: each entry is a unit with its own source and target language."""
    units = (
        Unit(
            (Variant(e.source, e.text), Variant(e.target, e.translated.text)),
            created=f"{e.time.astimezone(UTC):%Y%m%dT%H%M%SZ}",
        )
        for e in entries
    )
    out = io.BytesIO()
    write_memory(out, units, "*all*", "paragraph")
    return out.getvalue().decode("utf-8")


_WRITERS: dict[str, Callable[[Sequence[Entry]], str]] = {"tmx": _tmx, "csv": _csv, "jsonl": _jsonl}
EXPORTS = tuple(_WRITERS)


@dataclass(frozen=True, slots=True)
class Result:
    """The last translation of a page: what was ordered, and what came of it (None while it is made)."""

    order: Order
    hints: tuple[ShownHint, ...] = ()
    translated: TranslatedText | None = None

    @property
    def text(self) -> str:
        return self.order.text

    @property
    def choice(self) -> Choice:
        return self.order.choice


@dataclass(eq=False)
class Session:
    """One open page. `owner` names whose documents and indexes it sees and cannot be guessed."""

    owner: str
    job: Job | None = None
    result: Result | None = None
    off: dict[str, ShownHint] = field(default_factory=dict)
    history: deque[Entry] = field(default_factory=lambda: deque(maxlen=LIMIT))

    def cancel(self) -> bool:
        """End the translation that runs, if there is one."""
        return self.job is not None and self.job.cancel()


class Sessions:
    """The open pages by the name that the server gives each. `forget` is told of owners who have gone for good."""

    def __init__(self, forget: Callable[[str], object] = lambda owner: None, grace: float = GRACE) -> None:
        self._forget, self._grace = forget, grace
        self._sessions: dict[str, Session] = {}
        self._left: dict[str, float] = {}  # owners without a page, and since when
        self._closed: dict[str, str] = {}  # owners of closed pages, which may only be asleep
        self._lock = threading.Lock()

    def of(self, page: str | None) -> Session:
        """The session of a page; a new one has the owner that it had before it was closed, or one that nobody knows."""
        with self._lock:
            key = page or ""
            if key not in self._sessions:
                if len(self._sessions) >= MOST:
                    self._close(next(iter(self._sessions)))
                owner = self._closed.pop(key, None) or secrets.token_hex(16)
                self._left.pop(owner, None)
                self._sessions[key] = Session(owner)
            return self._sessions[key]

    def all(self) -> list[Session]:
        """The sessions of all open pages."""
        with self._lock:
            return list(self._sessions.values())

    def claim(self, page: str | None, token: str, user: str = "") -> Session:
        """Make the bearer of a secret `token` (of the browser) the owner of the page, so that a page that is loaded
        again finds its indexes; with logins, the same browser has other owners for other users."""
        session = self.of(page)
        session.owner = hashlib.sha256(f"{user}\n{token}".encode("utf-8", "replace")).hexdigest()
        with self._lock:
            self._left.pop(session.owner, None)
        self.sweep()
        return session

    def close(self, page: str | None) -> None:
        """The page has gone: its translation ends and its history is forgotten."""
        with self._lock:
            self._close(page or "")
        self.sweep()

    def _close(self, key: str) -> None:
        session = self._sessions.pop(key, None)
        if session is None:
            return
        session.cancel()
        self._closed[key] = session.owner
        if len(self._closed) > MOST:
            del self._closed[next(iter(self._closed))]
        if all(other.owner != session.owner for other in self._sessions.values()):
            self._left[session.owner] = time.monotonic()

    def sweep(self) -> None:
        """Forget the owners whose last page closed long ago."""
        now = time.monotonic()
        with self._lock:
            gone = {owner for owner, since in self._left.items() if now - since >= self._grace}
            for owner in gone:
                del self._left[owner]
            self._closed = {page: owner for page, owner in self._closed.items() if owner not in gone}
        for owner in gone:
            try:
                self._forget(owner)
            except Exception:  # the others are to be forgotten all the same
                log.exception("the uploads of a user who has gone could not be deleted")

    def keep_sweeping(self, every: float = 60.0) -> None:
        """Sweep again and again from now on, though nobody comes any more."""

        def work() -> None:
            while True:
                time.sleep(every)
                self.sweep()

        threading.Thread(target=work, name="sweeping", daemon=True).start()


def new_token() -> str:
    """A secret for a browser to keep."""
    return secrets.token_urlsafe(32)
