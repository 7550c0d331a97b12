"""Indexes that users make of their own texts: each belongs to one owner and is there for nobody else.

On disk: `FOLDER/OWNER/ID/index` is the index and `FOLDER/OWNER/ID/info.json` its name; OWNER is a hash, ID is random.
No name that a user gave is ever part of a path.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rag_mt.base.defaults import INDEX_RETRIEVER
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS, read_json, whole_file
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Encoder, Sentence, Skips
from rag_mt.formats.reading import read_sentences
from retrievers.calibration import CALIBRATION_LINES, SAMPLE_DROP, calibrate, needs_cut_off
from retrievers.index.opening import open_index
from retrievers.registry import RETRIEVERS, build_for, maker_for, retriever_spec
from ui.server.limits import BusyError, LimitError, Limits, MissingError
from ui.server.tasks import Outcome, OwnedTasks, Task, missing
from ui.server.uploads import OwnFolder, keep, named, owner_folder, shown_name, shown_title

INFO = "info.json"
INDEX = "index"
WAITING_BUILDS = 8

Uploads = Sequence[tuple[str, Path]]
"""The user's name of each file, and where the file is."""


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
    language: str = ""
    retriever: str = ""


class UserIndexes:
    """The indexes of all owners in `folder`. All methods may be called from any thread; builds run one at a time.

    `encoder` gives the encoder of a retriever; `gone` is told of the folder of an index that is about to be deleted.
    `builds` are those that go on, and the last ones that failed or were cancelled.
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
        self.builds = OwnedTasks[Build]("index", "the index could not be built", self._own, 1, self._settle)

    def build(
        self,
        owner: str,
        name: str,
        code: str,
        files: Uploads,
        retriever: str = INDEX_RETRIEVER,
        column: str = "",
    ) -> Build:
        """Begin to build an index of text in the language `code`.

        The files are copied and checked before this returns. Raises LimitError and BusyError for what is too much,
        UserError for a retriever that has no index, a name that is taken and a file that holds no text.
        """
        if not files:
            raise UserError("no file was given: upload at least one file with text in the target language")
        if not retriever_spec(retriever).needs_index:
            able = ", ".join(name for name, spec in RETRIEVERS.items() if spec.needs_index)
            raise UserError(f"retriever {retriever!r} has no index: choose one of {able}")
        build = Build(owner, language=language(code).code, retriever=retriever)

        def check_room() -> None:
            build.name = self._free_name(owner, name)
            self._check_room(owner)

        def prepare(folder: Path) -> Callable[[], object]:
            most = self.limits.index_bytes
            self.limits.check_file(sum(path.stat().st_size for _, path in files), most)
            uploads = [
                (shown_name(name), keep(path, folder, str(n), name, most)) for n, (name, path) in enumerate(files)
            ]
            total = sum(1 for _ in _sentences(uploads, build.language, column, Skips(shown=0)))
            if not total:
                raise UserError(f"there is no {language(code).name} sentence in the upload: expected running text")
            build.progress = (0, total)
            return lambda: self._index(build, uploads, column, folder)

        return self.builds.launch(build, check_room, prepare)

    def of(self, owner: str) -> list[UserIndex]:
        """The owner's finished indexes, the oldest first."""
        indexes = [self._info(folder) for folder in self._owner_folder(owner).glob("*/") if (folder / INFO).is_file()]
        return sorted(indexes, key=lambda index: (index.created, index.id))

    def get(self, owner: str, id: str) -> UserIndex:
        """An index of the owner; raises MissingError if there is none of that id."""
        return self._info(self.folder_of(owner, id).parent)

    def folder_of(self, owner: str, id: str) -> Path:
        """The folder of an index of the owner; raises MissingError if there is none of that id."""
        folder = self._owner_folder(owner) / id
        if not id.isalnum() or not id.isascii() or not (folder / INFO).is_file():
            raise missing("index", id)
        return folder / INDEX

    def rename(self, owner: str, id: str, name: str) -> UserIndex:
        """Give an index another name; raises UserError for a name that is taken."""
        with self.builds.lock:
            index = self.get(owner, id)
            if shown_title(name) != index.name:
                index = replace(index, name=self._free_name(owner, name))
                self._write(self.folder_of(owner, id).parent, index)
        return index

    def delete(self, owner: str, id: str) -> None:
        """Cancel and forget a build, or delete a finished index; raises MissingError if there is neither of that id. A
        running build is removed by its own thread, and counts until then."""
        try:
            self.builds.delete(owner, id)
        except MissingError:
            self._delete_folder(self.folder_of(owner, id).parent)

    def delete_all(self, owner: str) -> None:
        """Delete everything of an owner, running builds too."""
        self.builds.delete_all(owner)
        for index in self.of(owner):
            with suppress(MissingError):
                self.delete(owner, index.id)
        shutil.rmtree(self._owner_folder(owner), ignore_errors=True)

    def close(self, timeout: float = 60.0) -> None:
        """Cancel all builds, wait up to `timeout` seconds for their ends, and delete their uploads."""
        self.builds.stop(timeout)
        self._own.close()

    def _check_room(self, owner: str) -> None:
        running = [build for build in self.builds.all() if not build.ended]
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

    def _free_name(self, owner: str, name: str) -> str:
        """The name as it will be shown; raises UserError if the owner has an index of that name."""
        name = shown_title(name)
        taken = {build.name for build in self.builds.of(owner) if not build.ended}
        taken |= {index.name for index in self.of(owner)}  # after the builds: one that ends meanwhile is here
        if name in taken:
            raise UserError(f"you have an index named {name!r} already: give another name")
        return name

    def _index(self, build: Build, uploads: Uploads, column: str, folder: Path) -> None:
        """Build the index in the task's folder, and move it to its place in one step."""
        whole = folder / "whole"
        whole.mkdir()
        skips = Skips(shown=0)
        encoder = self._encoder(build.retriever)
        with named(whole / INDEX, build.name):
            manifest = build_for(
                build.retriever,
                whole / INDEX,
                _sentences(uploads, build.language, column, skips),
                encoder,
                build.language,
                show=False,
                advance=build.advance,
            )
            _calibrate(whole / INDEX, build, encoder)
        build.advance(0)
        build.notes = (skips.summary(),) if skips.counts else ()
        names = (build.id, build.name, build.language, build.retriever)
        self._write(whole, UserIndex(*names, manifest.sentences, manifest.units, build.created))
        owner_folder = self._owner_folder(build.owner)
        owner_folder.mkdir(parents=True, exist_ok=True)
        whole.rename(owner_folder / build.id)

    def _settle(self, build: Build, outcome: Outcome | None) -> None:
        """Delete the upload, and forget a build that nobody needs any more: it is an index now, its owner has deleted
        it, or it is one of too many that failed or were cancelled."""
        shutil.rmtree(self.builds.folder / build.id, ignore_errors=True)
        done = outcome is not None and outcome[0] == "done"
        if done or build.forgotten:
            self.builds.forget(build)
        if done and build.forgotten:  # deleted in the last moment
            self._delete_folder(self._owner_folder(build.owner) / build.id)
        if outcome:
            build.end(*outcome)  # who waits for the end finds nothing left
        ended = [other for other in self.builds.all() if other.ended]
        too_many = [other for other in ended if other.owner == build.owner][: -self.limits.indexes]
        left = [other for other in ended if other not in too_many]
        for old in too_many + left[: -self.limits.all_indexes]:
            self.builds.forget(old)

    def _delete_folder(self, folder: Path) -> None:
        """Delete a finished index: it goes out of sight first, so that a killed server leaves no half of it."""
        self._gone(folder / INDEX)
        deleted = self.builds.folder / f"deleted-{folder.name}"
        folder.rename(deleted)
        shutil.rmtree(deleted, ignore_errors=True)

    def _owner_folder(self, owner: str) -> Path:
        return owner_folder(self.folder, owner)

    def _info(self, folder: Path) -> UserIndex:
        try:
            return UserIndex(**read_json(folder / INFO))
        except (OSError, TypeError, ValueError) as error:
            raise missing("index", folder.name) from error

    def _write(self, folder: Path, index: UserIndex) -> None:
        with whole_file(folder / INFO) as part:
            part.write_text(json.dumps(asdict(index), ensure_ascii=False), encoding="utf-8")


def _sentences(uploads: Uploads, code: str, column: str, skips: Skips) -> Iterator[Sentence]:
    """The sentences of the uploads, which say that they come from the file as its user named it."""
    for name, path in uploads:
        with named(path, name):
            for sentence in read_sentences([str(path)], code, column=column, skips=skips):
                yield replace(sentence, source=replace(sentence.source, file=name))


def _calibrate(folder: Path, build: Build, encoder: Encoder) -> None:
    """Choose a cut-off for each language of the sample corpus, unless a model judges the hits."""
    maker = maker_for(build.retriever, encoder)
    if not needs_cut_off(maker.unit, encoder, folder):
        return
    index = open_index(folder, maker.settings)
    for path in sorted(SAMPLE_CORPUS.glob("*.txt")):
        if path.stem != base_code(build.language):
            build.advance(0)
            lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
            calibrate(index, maker, lines[: CALIBRATION_LINES[maker.unit]], path.stem, SAMPLE_DROP)
