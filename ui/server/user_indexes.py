"""Indexes that users make of their own texts: each belongs to one owner and is there for nobody else.

On disk: `FOLDER/OWNER/ID/index` is the index and `FOLDER/OWNER/ID/info.json` its name; OWNER is a hash, ID is random.
No name that a user gave is ever part of a path.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from rag_mt.base.defaults import DEFAULT_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.languages import base_code, language
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Encoder, Sentence, Skips
from rag_mt.formats.reading import read_sentences
from retrievers.calibration import CALIBRATION_LINES, SAMPLE_CORPUS, SAMPLE_DROP, calibrate
from retrievers.index.search import open_index
from retrievers.registry import RETRIEVERS, build_for, confidence_for, maker_for, retriever_spec
from ui.server.limits import BusyError, LimitError, Limits, MissingError
from ui.server.own_folders import OwnFolder
from ui.server.tasks import Outcome, OwnedTasks, Task, missing, outcome
from ui.server.uploads import keep, named, shown_name, shown_title

INFO = "info.json"
INDEX = "index"
WAITING_BUILDS = 8


@dataclass(frozen=True, slots=True)
class UserIndex:
    """A finished index of an owner; `created` is in seconds since 1970."""

    id: str
    name: str
    language: str
    retriever: str
    sentences: int
    units: int
    created: float


@dataclass(eq=False)
class Build(Task):
    """An index that is being built."""

    language: str = ""
    retriever: str = ""
    uploads: tuple[tuple[str, Path], ...] = field(default=(), repr=False)  # shown name, stored copy


class UserIndexes:
    """The indexes of all owners in `folder`. All methods may be called from any thread; builds run one at a time.

    `encoder` gives the encoder of a retriever; `gone` is told of the folder of an index that is about to be deleted.
    """

    def __init__(
        self,
        folder: Path,
        limits: Limits,
        encoder: Callable[[str], Encoder],
        gone: Callable[[Path], object] = lambda folder: None,
    ) -> None:
        self.folder, self.limits = folder, limits
        self._encoder, self._gone = encoder, gone
        self._own = OwnFolder(folder, ".uploads-")
        self._work = self._own.path
        self._builds = OwnedTasks[Build]("index", self._delete_uploads)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="indexing")

    def build(
        self,
        owner: str,
        name: str,
        code: str,
        files: Sequence[tuple[str, Path]],
        retriever: str = DEFAULT_RETRIEVER,
        column: str = "",
    ) -> Build:
        """Begin to build an index of text in the language `code` from files (name of the upload, where it is now).

        The files are copied and checked before this returns. Raises LimitError and BusyError for what is too much,
        UserError for a retriever that has no index, a name that is taken and a file that holds no text.
        """
        if not files:
            raise UserError("no file was given: upload at least one file with text in the target language")
        if not retriever_spec(retriever).needs_index:
            able = ", ".join(name for name, spec in RETRIEVERS.items() if spec.needs_index)
            raise UserError(f"retriever {retriever!r} has no index: choose one of {able}")
        build = Build(owner, language=language(code).code, retriever=retriever)
        with self._builds.lock:
            build.name = self._free_name(owner, name)
            self._check_room(owner)
            self._builds.add(build)
        place = self._work / build.id
        try:
            place.mkdir()
            build.uploads = self._copies(files, place)
            total = sum(1 for _ in self._sentences(build, column, Skips(shown=0)))
            if not total:
                raise UserError(f"there is no {language(code).name} sentence in the upload: expected running text")
            build.progress = (0, total)
        except BaseException:
            self._builds.forget(build)
            raise
        self._thread.submit(self._run, build, column)
        return build

    def of(self, owner: str) -> list[UserIndex]:
        """The owner's finished indexes, the oldest first."""
        indexes = [self._info(place) for place in self._place(owner).glob("*/") if (place / INFO).is_file()]
        return sorted(indexes, key=lambda index: (index.created, index.id))

    def builds(self, owner: str) -> list[Build]:
        """The owner's builds that go on, and the last ones that failed or were cancelled; the oldest first."""
        return self._builds.of(owner)

    def get_build(self, owner: str, id: str) -> Build:
        """A build of the owner; raises MissingError if there is none of that id."""
        return self._builds.get(owner, id)

    def get(self, owner: str, id: str) -> UserIndex:
        """An index of the owner; raises MissingError if there is none of that id."""
        return self._info(self.folder_of(owner, id).parent)

    def folder_of(self, owner: str, id: str) -> Path:
        """The folder of an index of the owner; raises MissingError if there is none of that id."""
        place = self._place(owner) / id
        if not id.isalnum() or not id.isascii() or not (place / INFO).is_file():
            raise missing("index", id)
        return place / INDEX

    def rename(self, owner: str, id: str, name: str) -> UserIndex:
        """Give an index another name; raises UserError for a name that is taken."""
        with self._builds.lock:
            index = self.get(owner, id)
            if shown_title(name) != index.name:
                index = replace(index, name=self._free_name(owner, name))
                self._write(self.folder_of(owner, id).parent, index)
        return index

    def delete(self, owner: str, id: str) -> None:
        """Cancel and forget a build, or delete a finished index; raises MissingError if there is neither of that id.

        What a running build has on disk is deleted by its own thread, and counts until then.
        """
        try:
            self._builds.delete(owner, id)
        except MissingError:
            self._delete_folder(self.folder_of(owner, id).parent)

    def _delete_folder(self, place: Path) -> None:
        """Delete a finished index: it goes out of sight first, so that a killed server leaves no half of it."""
        self._gone(place / INDEX)
        gone = self._work / f"deleted-{place.name}"
        place.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def delete_all(self, owner: str) -> None:
        """Delete everything of an owner, running builds too."""
        for id in [build.id for build in self.builds(owner)] + [index.id for index in self.of(owner)]:
            with suppress(MissingError):  # a build that has ended meanwhile is forgotten
                self.delete(owner, id)
        shutil.rmtree(self._place(owner), ignore_errors=True)

    def cancel(self) -> None:
        """Cancel all builds."""
        self._builds.cancel()

    def close(self, timeout: float = 60.0) -> None:
        """Cancel all builds, wait up to `timeout` seconds for their ends, and delete their uploads."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.cancel()
        self._builds.wait(timeout)
        self._own.close()

    def _check_room(self, owner: str) -> None:
        running = [build for build in self._builds.all() if not build.ended]
        if len(running) >= WAITING_BUILDS:
            raise BusyError(f"{len(running)} indexes are being built already: try again in a minute", 60)
        indexes = len(self.of(owner)) + sum(build.owner == owner for build in running)
        if indexes >= self.limits.indexes:
            raise LimitError(f"you have {indexes} indexes and at most {self.limits.indexes} are allowed: delete one")
        everybody = len(list(self.folder.glob(f"*/*/{INFO}"))) + len(running)
        if everybody >= self.limits.all_indexes:
            raise LimitError(
                f"the server holds {everybody} indexes, as many as it may: ask for room or come back later"
            )

    def _copies(self, files: Sequence[tuple[str, Path]], place: Path) -> tuple[tuple[str, Path], ...]:
        """The uploads copied into a folder of ours; the limit holds for all of them together."""
        self.limits.check_file(sum(path.stat().st_size for _, path in files), self.limits.index_bytes)
        return tuple(
            (shown_name(name), keep(path, place, str(number), name, self.limits.index_bytes))
            for number, (name, path) in enumerate(files)
        )

    def _sentences(self, build: Build, column: str, skips: Skips) -> Iterator[Sentence]:
        """The sentences of the uploads, which say that they come from the file as its user named it."""
        for name, path in build.uploads:
            with named(path, name):
                for sentence in read_sentences([str(path)], build.language, column=column, skips=skips):
                    yield replace(sentence, source=replace(sentence.source, file=name))

    def _run(self, build: Build, column: str) -> None:
        whole = self._work / build.id / "whole"  # the folder as it will be, which is moved to its place in one step

        def index() -> None:
            whole.mkdir()
            skips = Skips(shown=0)
            sentences, encoder = self._sentences(build, column, skips), self._encoder(build.retriever)
            folder = whole / INDEX
            manifest = build_for(
                build.retriever, folder, sentences, encoder, build.language, show=False, advance=build.advance
            )
            self._calibrate(folder, build, encoder)
            build.advance(0)
            build.notes = (skips.summary(),) if skips.counts else ()
            names = (build.id, build.name, build.language, build.retriever)
            self._write(whole, UserIndex(*names, manifest.sentences, manifest.units, build.created))
            place = self._place(build.owner) / build.id
            place.parent.mkdir(parents=True, exist_ok=True)
            whole.rename(place)

        end = outcome(build, index, whole / INDEX, "the index could not be built")
        self._delete_uploads(build)
        with self._builds.lock:
            self._ended(build, end)

    def _delete_uploads(self, build: Build) -> None:
        shutil.rmtree(self._work / build.id, ignore_errors=True)

    def _ended(self, build: Build, end: Outcome | None) -> None:
        """Give a build its last state (None: it has it), and forget it where nobody needs it any more: it is an index
        now, its owner has deleted it, or it is one of too many that failed or were cancelled."""
        done = end is not None and end[0] == "done"
        if done or build.forgotten:
            self._builds.forget(build)
        if done and build.forgotten:  # deleted in the last moment
            self._delete_folder(self._place(build.owner) / build.id)
        if end:
            build.end(*end)  # who waits for the end finds nothing left
        self._forget_failed([other for other in self._builds.all() if other.owner == build.owner], self.limits.indexes)
        self._forget_failed(self._builds.all(), self.limits.all_indexes)

    def _forget_failed(self, builds: Sequence[Build], most: int) -> None:
        """Forget the oldest of the builds that have ended until there are at most so many."""
        for old in [build for build in builds if build.ended][:-most]:
            self._builds.forget(old)

    def _calibrate(self, folder: Path, build: Build, encoder: Encoder) -> None:
        """Choose a cut-off for each language of the sample corpus, as strict as the sample index has it; hits that a
        confidence model judges need none."""
        if confidence_for(encoder, folder) is not None:
            return
        maker = maker_for(build.retriever, encoder)
        index = open_index(folder, maker.settings)
        for path in sorted(SAMPLE_CORPUS.glob("*.txt")):
            if path.stem != base_code(build.language):
                build.advance(0)
                lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
                calibrate(index, maker, lines[: CALIBRATION_LINES[maker.unit]], path.stem, SAMPLE_DROP)

    def _free_name(self, owner: str, name: str) -> str:
        """The name as it will be shown; raises UserError if the owner has an index of that name."""
        name = shown_title(name)
        taken = {build.name for build in self.builds(owner) if not build.ended}
        taken |= {index.name for index in self.of(owner)}  # after the builds: one that ends meanwhile is here
        if name in taken:
            raise UserError(f"you have an index named {name!r} already: give another name")
        return name

    def _place(self, owner: str) -> Path:
        return self.folder / hashlib.sha256(owner.encode("utf-8", "replace")).hexdigest()[:32]

    def _info(self, place: Path) -> UserIndex:
        try:
            return UserIndex(**read_json(place / INFO))
        except (OSError, TypeError, ValueError) as error:
            raise missing("index", place.name) from error

    def _write(self, place: Path, index: UserIndex) -> None:
        with whole_file(place / INFO) as part:
            part.write_text(json.dumps(asdict(index), ensure_ascii=False), encoding="utf-8")
