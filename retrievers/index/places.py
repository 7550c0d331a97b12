"""Where an index is that an engine of others keeps: `NAME:WHERE` in the place of the folder of an index."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from rag_mt.base.errors import AwayError, UserError

LONGEST = 200
"""Characters of what an engine says that an error quotes."""
SCHEME = re.compile(r"^([a-z][a-z0-9+.-]+):/+")
"""The beginning of a URI, as a Path has it, too."""
CONNECT = 10
"""Seconds that a server or store has to be there."""
TIMEOUT = "RAG_MT_INDEX_TIMEOUT"
"""The variable of the environment that says how many seconds an engine has to answer; without it it is ANSWER."""
ANSWER = 60.0
WAITS = (0.5, 2.0)
"""Seconds before an engine that was away for a moment is asked again."""
TRIES = 1 + len(WAITS)
UNREACHED = re.compile(r"\b(IO|I/O)\b")
"""Words by which engines say that they did not reach what they store."""
REASON = re.compile(r'<Message>([^<]+)|message: "([^"]+)|source: "([^"(]+)|status code: (\d+[^:]*)')
"""What a store itself said, in what an engine says of it at length."""
MISSING = "NoSuchBucket"
"""What a store says that answers, and will not have what is asked for."""
UNITS, SENTENCES, FILES = PARTS = "units", "sentences", "files"
"""What the manifest of an index in an engine tells of in the place of files."""


Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Kind:
    """An engine: its name for people, the package that it comes in, and what places of it look like."""

    title: str
    package: str
    places: str


KINDS = {
    "lance": Kind("LanceDB", "lancedb", "lance:FOLDER or lance:s3://BUCKET/FOLDER"),
    "qdrant": Kind("Qdrant", "qdrant_client", "qdrant:FOLDER or qdrant:http://HOST:6333/NAME"),
}
"""By what stands before the colon, which is the name of the extra, too."""


def name_of(folder: str | Path) -> str | None:
    """The engine that the place of an index is in, None for a folder."""
    name, colon, _ = str(folder).partition(":")
    return name if colon and name in KINDS else None


def kind_of(folder: str | Path) -> Kind | None:
    """What is known of the engine that the place of an index is in, None for a folder."""
    name = name_of(folder)
    return None if name is None else KINDS[name]


def only_in_folders(folder: Path) -> None:
    """Raises UserError for a place in an engine, where what is to be done needs the files of an index folder."""
    if kind_of(folder):
        raise UserError(f"{place_text(folder)} has no files, which this needs: give the folder that it is a copy of")


def where_of(folder: str | Path) -> tuple[str, str]:
    """The scheme of what comes after the colon, which is empty where there is none, and all of it; a Path has made one
    slash of the two of `s3://`."""
    rest = str(folder).partition(":")[2]
    scheme = SCHEME.match(rest)
    return (scheme[1], f"{scheme[1]}://{rest[scheme.end() :]}") if scheme else ("", rest)


def place_text(folder: str | Path) -> str:
    """The place of an index as people write it: with both slashes of a URL, of which a Path keeps one."""
    name, (scheme, where) = name_of(folder), where_of(folder)
    if name is None:
        return str(folder)
    return f"{name}:{where.replace('://', ':///') if scheme == 'file' else where}"


def package_of(folder: Path) -> Any:
    """The package of the engine; raises UserError where it is not installed."""
    kind = kind_of(folder)
    assert kind is not None
    try:
        return import_module(kind.package)
    except ImportError as error:
        raise UserError(
            f"{place_text(folder)} is a place in {kind.title}, which is not installed ({error}): pip install "
            f"'rag-mt[{name_of(folder)}]'"
        ) from error


def no_index(folder: Path, state: str) -> UserError:
    """The error for a place without an index."""
    place = place_text(folder)
    return UserError(f"index {place} {state}: copy one there with `rag-mt index copy DIR {place}`")


def taken(folder: Path) -> UserError:
    """The error for a place with an index that is not to be replaced."""
    return UserError(
        f"index {place_text(folder)} exists already: give another place, or --replace (replace=True) to copy it anew"
    )


def changed_by_others(folder: Path, job: str) -> UserError:
    """The error for a change that is not to be finished, for the index is another one by now."""
    return UserError(f"index {place_text(folder)} was changed by others during its {job}: start the {job} again")


@contextmanager
def store_errors(
    folder: Path, kinds: tuple[type[Exception], ...] = (ValueError, RuntimeError, OSError)
) -> Iterator[None]:
    """What an engine raises, by its kinds, as a UserError; it is an AwayError where the engine was not reached."""
    try:
        yield
    except UserError:
        raise
    except kinds as error:
        said = " ".join(str(error).split()) or type(error).__name__
        if len(said) > LONGEST and (reason := REASON.search(said)):
            short = reason[reason.lastindex or 0][:LONGEST]
        else:
            short = said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
        if MISSING not in said and (isinstance(error, OSError) or UNREACHED.search(said)):
            raise AwayError(
                f"index {place_text(folder)} does not answer ({short}): see that its folder, store or server can be "
                "reached and its keys are set"
            ) from error
        raise UserError(
            f"index {place_text(folder)} cannot be read or written ({short}): see that its folder, store or "
            "server can be reached and its keys are set; `rag-mt index copy --replace` makes it again if it is damaged"
        ) from error


def seconds_to_answer() -> float:
    """The seconds that an engine has to answer (see TIMEOUT); raises UserError where that is no number above 0."""
    text = os.environ.get(TIMEOUT, "")
    try:
        seconds = float(text or ANSWER)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise UserError(f"{TIMEOUT} is {text!r}: expected a number of seconds above 0, such as {ANSWER:g}")
    return seconds


def in_time(call: Callable[[], Answer]) -> Answer:
    """What an engine without time limits of its own answers; raises TimeoutError if it takes more than TRIES
    times `seconds_to_answer`. The call goes on in a thread of its own, which ends with the process at the latest."""
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as error:  # raised where it is waited for
            errors.append(error)

    thread, seconds = Thread(target=run, name="index", daemon=True), TRIES * seconds_to_answer()
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"no answer in {seconds:g} seconds")
    return answers[0]
