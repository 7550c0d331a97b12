"""The journal of an unfinished translation job: a line per finished batch, so that a killed job can go on."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rag_mt.errors import UserError
from rag_mt.types import Hint, Hit, Origin, Sentence, Span, Translation

FORMAT = 1


class Journal:
    """Finished translations by their number in the job, on disk beside the output.

    The first line holds the job's settings; a journal of other settings is refused with what differs. A last line
    that was cut by a crash is dropped.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.done: dict[int, dict[str, Any]] = {}
        head = {"journal": FORMAT, "settings": json.loads(json.dumps(settings, default=str))}
        self._file = path.open("a+b")
        try:
            self._lock()
            self._file.truncate(self._read(head))
            if not self._file.tell():
                self._append(head)
        except BaseException:
            self._file.close()
            raise
        self.kept = len(self.done)

    def _lock(self) -> None:
        """Keep other processes away from the same output; the lock ends with this process, however it ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"another process is at work on the job of {self.path}: wait for it, or give another -o"
            ) from None

    def _read(self, head: Mapping[str, Any]) -> int:
        """Load the finished batches; returns the length of the sound part in bytes."""
        end = 0
        self._file.seek(0)
        for number, line in enumerate(self._file):
            try:
                item = json.loads(line) if line.endswith(b"\n") else None
            except ValueError:
                item = None
            if item is None:
                break
            if number == 0:
                self._check(item, head)
            else:
                self.done.update((n, record) for n, record in item["done"])
            end += len(line)
        self._file.seek(end)
        return end

    def _check(self, found: Any, wanted: Mapping[str, Any]) -> None:
        if not isinstance(found, dict) or found.get("journal") != wanted["journal"]:
            raise UserError(f"{self.path} is not a journal of this version: delete it, or use --restart")
        old, new = found["settings"], wanted["settings"]
        different = sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
        if different:
            raise UserError(
                f"{self.path} belongs to an interrupted job with another {', '.join(different)}: "
                "run that job again to finish it, or use --restart to start over"
            )

    def _append(self, item: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def add(self, numbers: Sequence[int], translations: Sequence[Translation]) -> None:
        """Write the translations of one batch to disk."""
        records = [(n, pack(t)) for n, t in zip(numbers, translations, strict=True)]
        self._append({"done": records})
        self.done.update(records)

    def take(self, number: int, source: Sentence) -> Translation | None:
        """The finished translation with that number, or None."""
        record = self.done.get(number)
        return None if record is None else unpack(record, source)

    def close(self) -> None:
        self._file.close()

    def finish(self) -> None:
        """Delete the journal of a job whose output is whole."""
        self.path.unlink()
        self.close()


def pack(t: Translation) -> dict[str, Any]:
    """A translation as JSON-able values, without its source sentence and prompt."""
    return {
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
