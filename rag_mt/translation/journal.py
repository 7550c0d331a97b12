"""Journals of long jobs: every finished record is on disk, so that a killed job can go on where it was."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from rag_mt.base.errors import UserError
from rag_mt.base.terms import Usage
from rag_mt.base.types import Hint, Hit, Origin, Recalled, Sentence, Span, Translation

FORMAT = 2
TABLES = """
CREATE TABLE IF NOT EXISTS job (settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, record TEXT NOT NULL);
"""


class RecordJournal:
    """Finished records, JSON-able objects, by their number in the job, in an SQLite file.

    It also holds the job's settings: a journal of other settings is refused with what differs, unless `restart`
    forgets it. `earlier` are the records of an earlier run, `resumed` is their number, and `finished` counts those of
    this run too; records with negative numbers are further ones, which do not count. No other process can use the file
    until `close` or the end of this process; what a crash cuts off is rolled back. Raises UserError, here and in
    `add_records`, where the file cannot be used.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], restart: bool = False) -> None:
        self.path = path
        self._database = self._opened(restart)
        try:
            with self._transaction() as database:
                if restart:
                    database.execute("DELETE FROM job")
                    database.execute("DELETE FROM records")
                self._check(database, settings)
                rows = database.execute("SELECT number, record FROM records ORDER BY number").fetchall()
        except BaseException:
            self.close()
            raise
        self.earlier: dict[int, dict[str, Any]] = {number: json.loads(record) for number, record in rows}
        self.resumed = self.finished = sum(number >= 0 for number in self.earlier)

    def _opened(self, restart: bool) -> sqlite3.Connection:
        """The database with its tables, which no other process has."""
        database = None
        try:
            database = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            database.execute("PRAGMA locking_mode = EXCLUSIVE")
            database.execute("BEGIN EXCLUSIVE")
            known = database.execute("PRAGMA user_version").fetchone()[0] in (0, FORMAT)
            if known:
                for statement in filter(str.strip, TABLES.split(";")):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {FORMAT}")
                database.execute("COMMIT")
                return database
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
                if database:
                    database.close()
                raise self._error(error) from error
        if database:
            database.close()
        if restart:
            self.path.unlink()
            return self._opened(False)
        raise UserError(f"{self.path} is not a journal of this version: delete it, or use --restart")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """All that the block does is kept on disk at its end, or nothing of it."""
        try:
            self._database.execute("BEGIN")
            yield self._database
            self._database.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _error(self, error: sqlite3.Error) -> UserError:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            return UserError(
                f"another process is at work on the job of {self.path}: wait for it, or give another output"
            )
        return UserError(
            f"the journal {self.path} cannot be used ({error}): check its folder's permissions and the free space, or "
            "delete it"
        )

    def _check(self, database: sqlite3.Connection, wanted: Mapping[str, Any]) -> None:
        """Compare the settings with those of the file, or note them in a new one."""
        row = database.execute("SELECT settings FROM job").fetchone()
        if row is None:
            database.execute("INSERT INTO job VALUES (?)", [json.dumps(wanted, default=str)])
            return
        check_settings(self.path, json.loads(row[0]), wanted)

    def add_records(self, numbers: Sequence[int], records: Sequence[Mapping[str, Any]]) -> None:
        """Write these records to disk, all of them or none."""
        rows = [(number, json.dumps(record)) for number, record in zip(numbers, records, strict=True)]
        with self._transaction() as database:
            database.executemany("INSERT OR REPLACE INTO records VALUES (?, ?)", rows)
        self.finished += sum(number >= 0 for number in numbers)

    def records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """All finished records with their numbers, in order."""
        for number, record in self._database.execute("SELECT number, record FROM records ORDER BY number"):
            yield number, json.loads(record)

    def finish(self) -> None:
        """Delete the journal of a job whose output is whole."""
        self.close()
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        self._database.close()


def check_settings(path: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise UserError if the settings `old`, of the job that wrote `path`, are not those of the job at hand."""
    new = json.loads(json.dumps(new, default=str))
    different = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
    if different:
        raise UserError(
            f"{path} belongs to a job with another {', '.join(different)}: "
            "run that job again to go on with it, give another output, or use --restart to start over"
        )


class Journal(RecordJournal):
    """Finished translations by their number in the job, on disk beside the output."""

    def add(self, numbers: Sequence[int], translations: Sequence[Translation]) -> None:
        """Write these translations to disk."""
        self.add_records(numbers, [pack(t) for t in translations])

    def take(self, number: int, source: Sentence) -> Translation | None:
        """The translation with that number that an earlier run had finished, or None.

        Raises UserError if it is one of another sentence, as after a change of how texts are split.
        """
        record = self.earlier.pop(number, None)
        if record is not None and record["source"] != source.text:
            raise UserError(f"{self.path} holds translations of other sentences: use --restart to start over")
        return None if record is None else unpack(record, source)


USAGES = TypeAdapter(tuple[Usage, ...])
"""What became of a sentence's terms, to and from JSON-able values."""


def pack(t: Translation) -> dict[str, Any]:
    """A translation as JSON-able values, without where its source came from and its prompt."""
    record: dict[str, Any] = {
        "source": t.source.text,
        "text": t.text,
        "ok": t.ok,
        "notes": t.notes,
        "used": t.used,
        "hints": [_pack_hint(hint) for hint in t.hints],
    }
    if t.recalled is not None:
        hints = [_pack_hint(hint) for hint in t.recalled.hints]
        record |= {"recalled": {"hints": hints, "shown": t.recalled.shown}, "alternatives": t.alternatives}
    if t.draft:
        record["draft"] = t.draft
    if t.logprob is not None:
        record["logprob"] = t.logprob
    if t.hints_away:
        record["hints_away"] = t.hints_away
    if t.terms:
        record["terms"] = USAGES.dump_python(t.terms, mode="json")
    return record


def unpack(record: Mapping[str, Any], source: Sentence) -> Translation:
    """The translation that `pack` made the record of."""
    recalled = None
    if values := record.get("recalled"):
        recalled = Recalled(tuple(map(_unpack_hint, values["hints"])), values["shown"])
    return Translation(
        source,
        record["text"],
        tuple(map(_unpack_hint, record["hints"])),
        "",
        tuple(record["used"]),
        tuple(record["notes"]),
        record["ok"],
        record.get("draft", ""),
        recalled,
        tuple(record.get("alternatives", ())),
        USAGES.validate_python(record.get("terms", ())),
        logprob=record.get("logprob"),
        hints_away=record.get("hints_away", ""),
    )


def _pack_hint(hint: Hint) -> list[Any]:
    """A hint as JSON-able values; the last one, the text that its sentence translates, is there where it is known."""
    hit = hint.hit
    sentence = [hit.sentence.text, hit.sentence.language, hit.sentence.source.file, hit.sentence.source.line]
    original = [hit.original] if hit.original else []
    return [*([span.start, span.end] for span in (hint.source_span, hit.span)), hit.stored_score, *sentence, *original]


def _unpack_hint(values: Sequence[Any]) -> Hint:
    source_span, span, score, text, language, file, line, *original = values
    hit = Hit(Sentence(text, language, Origin(file, line)), Span(*span), score, *original)
    return Hint(Span(*source_span), hit)
