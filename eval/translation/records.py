"""What a run leaves behind: a record per sentence, the times of its batches, and facts once it is finished."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Completion, Origin, Sentence, Translation
from rag_mt.translation.journal import pack, unpack

RETRIEVAL, GENERATION = "retrieval", "generation"


@dataclass(frozen=True)
class Record:
    """A translated sentence of a run: the translation that the user gets, the reference, the line of the pair in its
    file, and the language model's completion before the answer is read out of it."""

    translation: Translation
    reference: str
    line: int
    completion: Completion

    @property
    def source(self) -> str:
        return self.translation.source.text

    @property
    def text(self) -> str:
        return self.translation.text


def record_of(translation: Translation, reference: str, line: int, completion: Completion) -> dict[str, Any]:
    """The record as JSON-able values."""
    own = {"line": line, "reference": reference, "raw": completion.text}
    ended = {"finished": completion.finished, "stopped": completion.stopped}
    return own | {"tokens": completion.tokens} | ended | pack(translation)


def write_records(path: Path, settings: Mapping[str, Any], records: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
    """Write the records of a finished run: a line with its settings, then a line for each sentence, in order."""
    lines = chain([{"journal": 1, "settings": settings}], ({"done": [[n, own]]} for n, own in records))
    with whole_file(path) as part, part.open("w", encoding="utf-8", errors="surrogatepass", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False, default=str) + "\n" for line in lines)


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of a finished run; raises UserError for another file."""
    try:
        with path.open(encoding="utf-8", errors="surrogatepass") as file:
            settings: dict[str, Any] = json.loads(file.readline())["settings"]
            return settings
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _no_run(path, error) from None


def _no_run(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is no run of `python -m eval.translation` ({error!r}): make it again")


def read_records(path: Path) -> list[Record]:
    """The records of a finished run's file in the order of its sentences; raises UserError for another file."""
    found: dict[int, dict[str, Any]] = {}
    try:
        head, *lines = path.read_text(encoding="utf-8", errors="surrogatepass").split("\n")
        languages = json.loads(head)["settings"]
        for line in filter(None, lines):
            found.update((n, own) for n, own in json.loads(line)["done"])
        return [_record(found[n], languages["source"], n) for n in sorted(found)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _no_run(path, error) from None


def _record(own: Mapping[str, Any], language: str, number: int) -> Record:
    source = Sentence(own["source"], language, Origin("", number + 1))
    completion = Completion(own["raw"], own["tokens"], own["finished"], own["stopped"])
    return Record(unpack(own, source), own["reference"], own["line"], completion)


def outputs_sha256(records: Sequence[Record]) -> str:
    """A hash of all sources, outputs and references."""
    rows = [[r.source, r.text, r.reference] for r in records]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


@dataclass(frozen=True)
class Times:
    """Seconds of retrieval (prompts are built in it) and of generation, the tokens generated, and the sentences."""

    retrieval: float
    generation: float
    tokens: int
    sentences: int


def note_time(path: Path, part: str, seconds: float, sentences: int, batch: int = 0, tokens: int = 0) -> None:
    """Add a measured time to the file, apart from the records: those are the same in every run, times are not."""
    item = {"part": part, "batch": batch, "seconds": round(seconds, 4), "sentences": sentences, "tokens": tokens}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(item) + "\n")


def read_times(path: Path) -> Times:
    """The times of a run. What an interrupted run measured twice counts once, by its last time."""
    found = {(item["part"], item["batch"]): item for item in _lines(path)}
    generation = [item for (part, _), item in found.items() if part == GENERATION]
    retrieval = [item for (part, _), item in found.items() if part == RETRIEVAL]
    return Times(
        sum(item["seconds"] for item in retrieval),
        sum(item["seconds"] for item in generation),
        sum(item["tokens"] for item in generation),
        sum(item["sentences"] for item in generation),
    )


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file; one that a crash has cut is left out."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue
