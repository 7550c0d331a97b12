"""Glossaries of users: each belongs to one owner and is there for nobody else.

On disk: `FOLDER/OWNER/ID.json` has a glossary with its name and its terms; OWNER is a hash, ID is random.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath

from pydantic import TypeAdapter, ValidationError

from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.languages import language
from rag_mt.base.terms import Term
from rag_mt.base.types import Skips
from rag_mt.formats.registry import suffix_of
from rag_mt.glossary.glossary import Glossary
from rag_mt.glossary.reading import SUFFIXES, read_glossary
from rag_mt.glossary.tables import table_of
from ui.server.limits import LimitError, Limits
from ui.server.tasks import missing
from ui.server.uploads import check_size, named, owner_folder, shown_name, shown_title

OPEN = 16
"""Glossaries that stay in memory."""


@dataclass(frozen=True, slots=True)
class UserGlossary:
    """A glossary of an owner; `created` is in seconds since 1970, `notes` tell what of the upload was left out."""

    id: str
    name: str
    source: str
    target: str
    terms: tuple[Term, ...]
    created: float
    notes: tuple[str, ...] = ()


STORED = TypeAdapter(UserGlossary)


class UserGlossaries:
    """The glossaries of all owners in `folder`. All methods may be called from any thread."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder, self.limits = folder, limits
        self._lock = threading.Lock()
        self._opened: Callable[[Path, int], Glossary] = lru_cache(OPEN)(self._open)

    def add(
        self, owner: str, name: str, source: str, target: str, files: Sequence[tuple[str, Path]], id: str = ""
    ) -> UserGlossary:
        """Keep the terms of files (the user's name of each, and where it is), as a new glossary or in the place of the
        one of that id. Raises LimitError for too much, UserError for what has no terms or a name that is taken."""
        codes = language(source).code, language(target).code
        if codes[0] == codes[1]:
            raise UserError(f"source and target are both {language(codes[0]).name}: give another source or target")
        terms, skips = self._read(files, *codes)
        with self._lock:
            title, created = shown_title(name), time.time()
            others = [glossary for glossary in self.of(owner) if glossary.id != id]
            if id:
                old = self.get(owner, id)
                title, created = (shown_title(name) if name else old.name), old.created
            elif len(others) >= self.limits.indexes:
                raise LimitError(
                    f"you have {len(others)} glossaries and at most {self.limits.indexes} are allowed: delete one"
                )
            elif len(list(self.folder.glob("*/*.json"))) >= self.limits.all_indexes:
                raise LimitError("the server holds as many glossaries as it may: ask for room or come back later")
            if title in {glossary.name for glossary in others}:
                raise UserError(f"you have a glossary named {title!r} already: give another name")
            notes = (skips.summary(),) if skips.counts else ()
            glossary = UserGlossary(id or secrets.token_hex(16), title, *codes, terms, created, notes)
            path = self._owner_folder(owner) / f"{glossary.id}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as part:
                part.write_bytes(STORED.dump_json(glossary))
        return glossary

    def of(self, owner: str) -> list[UserGlossary]:
        """The owner's glossaries, the oldest first."""
        found = [self._info(path) for path in self._owner_folder(owner).glob("*.json")]
        return sorted(found, key=lambda glossary: (glossary.created, glossary.id))

    def get(self, owner: str, id: str) -> UserGlossary:
        """A glossary of the owner; raises MissingError if there is none of that id."""
        return self._info(self._path(owner, id))

    def opened(self, owner: str, id: str, source: str, target: str) -> Glossary:
        """A glossary of the owner, ready for a translation; raises MissingError if there is none of that id, UserError
        if it is of other languages."""
        path = self._path(owner, id)
        glossary = self._opened(path, path.stat().st_mtime_ns)
        if (glossary.source, glossary.target) != (source, target):
            raise UserError(
                f"the glossary {self.get(owner, id).name!r} is from {glossary.source} into {glossary.target}: leave it "
                "out or translate between these"
            )
        return glossary

    def table(self, owner: str, id: str) -> str:
        """A glossary of the owner as CSV; raises MissingError if there is none of that id."""
        glossary = self.get(owner, id)
        return table_of(glossary.terms, glossary.source, glossary.target)

    def delete(self, owner: str, id: str) -> None:
        """Delete a glossary; raises MissingError if there is none of that id."""
        self._path(owner, id).unlink(missing_ok=True)

    def delete_all(self, owner: str) -> None:
        """Delete everything of an owner."""
        shutil.rmtree(self._owner_folder(owner), ignore_errors=True)

    def _read(self, files: Sequence[tuple[str, Path]], source: str, target: str) -> tuple[tuple[Term, ...], Skips]:
        if not files:
            raise UserError(f"no file was given: upload a glossary ({' '.join(SUFFIXES)})")
        skips = Skips(shown=0)
        terms: list[Term] = []
        with tempfile.TemporaryDirectory(prefix="rag-mt-") as folder:
            for n, (name, upload) in enumerate(files):
                shown = shown_name(name)
                suffix = suffix_of(PurePosixPath(shown))
                path = Path(folder) / f"{n}{suffix if suffix in SUFFIXES else ''}"
                shutil.copyfile(upload, path)
                with named(path, shown):
                    check_size(path, shown, self.limits.file_bytes)
                    own = read_glossary([path], source, target, skips).terms
                terms += [replace(t, origin=replace(t.origin, file=shown)) for t in own]
        return tuple(terms), skips

    def _open(self, path: Path, changed: int) -> Glossary:
        stored = self._info(path)
        return Glossary(stored.source, stored.target, stored.terms)

    def _path(self, owner: str, id: str) -> Path:
        path = self._owner_folder(owner) / f"{id}.json"
        if not id.isalnum() or not id.isascii() or not path.is_file():
            raise missing("glossary", id)
        return path

    def _owner_folder(self, owner: str) -> Path:
        return owner_folder(self.folder, owner)

    def _info(self, path: Path) -> UserGlossary:
        try:
            return STORED.validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise missing("glossary", path.stem) from error
