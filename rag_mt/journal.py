"""Journals of long jobs: a line per finished batch, so that a killed job can go on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rag_mt.errors import UserError
from rag_mt.types import Hint, Hit, Origin, Sentence, Span, Translation

FORMAT = 1


class RecordJournal:
    """Finished records, JSON-able objects, by their number in the job.

    The first line holds the job's settings; a journal of other settings is refused with what differs, unless
    `restart` forgets it. A last line that was cut by a crash is dropped. `kept` counts what an earlier run had
    finished, `finished` that and what this one has.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], restart: bool = False) -> None:
        self.path = path
        self.found: dict[int, dict[str, Any]] = {}
        head = {"journal": FORMAT, "settings": json.loads(json.dumps(settings, default=str))}
        self._file = self._locked()
        try:
            length = 0 if restart else self._read(head)
            self._file.truncate(length)
            if not length:
                self._append(head)
        except BaseException:
            self._file.close()
            raise
        self.kept = self.finished = len(self.found)

    def _locked(self) -> IO[bytes]:
        """The open file, which no other process has; the lock ends with this process, however it ends."""
        while True:
            file = self.path.open("a+b")
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(file.fileno()), self.path.stat()):
                    return file
            except FileNotFoundError:  # its last holder has just finished
                pass
            except BlockingIOError:
                file.close()
                raise UserError(
                    f"another process is at work on the job of {self.path}: wait for it, or give another output"
                ) from None
            file.close()

    def _read(self, head: Mapping[str, Any]) -> int:
        """Load the finished batches; returns the length of the sound part in bytes."""
        end = 0
        self._file.seek(0)
        for number, line in enumerate(self._file):
            try:
                item = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                item = None
            if item is None and (number or not line.endswith(b"\n")):
                break
            if item is None or number == 0:
                self._check(item, head)
            else:
                self.found.update((n, record) for n, record in item["done"])
            end += len(line)
        return end

    def _check(self, found: Any, wanted: Mapping[str, Any]) -> None:
        if not isinstance(found, dict) or found.get("journal") != wanted["journal"]:
            raise UserError(f"{self.path} is not a journal of this version: delete it, or use --restart")
        old, new = found["settings"], wanted["settings"]
        different = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        if different:
            raise UserError(
                f"{self.path} belongs to a job with another {', '.join(different)}: "
                "run that job again to go on with it, give another output, or use --restart to start over"
            )

    def _append(self, item: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def add_records(self, numbers: Sequence[int], records: Sequence[Mapping[str, Any]]) -> None:
        """Write the records of one batch to disk."""
        self._append({"done": list(zip(numbers, records, strict=True))})
        self.finished += len(numbers)

    def close(self) -> None:
        self._file.close()


class Journal(RecordJournal):
    """Finished translations by their number in the job, on disk beside the output."""

    def add(self, numbers: Sequence[int], translations: Sequence[Translation]) -> None:
        """Write the translations of one batch to disk."""
        self.add_records(numbers, [pack(t) for t in translations])

    def take(self, number: int, source: Sentence) -> Translation | None:
        """The translation with that number that an earlier run had finished, or None.

        Raises UserError if it is one of another sentence, as after a change of how texts are split.
        """
        record = self.found.pop(number, None)
        if record is not None and record["source"] != source.text:
            raise UserError(f"{self.path} holds translations of other sentences: use --restart to start over")
        return None if record is None else unpack(record, source)

    def finish(self) -> None:
        """Delete the journal of a job whose output is whole."""
        self.path.unlink(missing_ok=True)
        self.close()


def pack(t: Translation) -> dict[str, Any]:
    """A translation as JSON-able values, without where its source came from and its prompt."""
    return {
        "source": t.source.text,
        "text": t.text,
        "ok": t.ok,
        "notes": t.notes,
        "used": t.used,
        "hints": [
            [
                [h.source_span.start, h.source_span.end],
                [h.hit.span.start, h.hit.span.end],
                h.hit.score,
                h.hit.sentence.text,
                h.hit.sentence.language,
                h.hit.sentence.source.file,
                h.hit.sentence.source.line,
            ]
            for h in t.hints
        ],
    }


def unpack(record: Mapping[str, Any], source: Sentence) -> Translation:
    """The translation that `pack` made the record of."""
    hints = tuple(
        Hint(Span(*span), Hit(Sentence(text, language, Origin(file, line)), Span(*hit), score))
        for span, hit, score, text, language, file, line in record["hints"]
    )
    return Translation(source, record["text"], hints, "", tuple(record["used"]), tuple(record["notes"]), record["ok"])
