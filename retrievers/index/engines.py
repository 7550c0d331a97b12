"""Engines of others that keep and search indexes in the place of our folders; a new one is a package of modules and a
line in `retrievers.index.places`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from rag_mt.base.only import Label
from rag_mt.base.types import Sentence
from retrievers.index.places import name_of

if TYPE_CHECKING:
    from retrievers.bm25 import Bm25Settings
    from retrievers.index.copying import Source
    from retrievers.index.manifest import Manifest
    from retrievers.index.search import Index
    from retrievers.units.unit import UnitMaker


@dataclass(frozen=True)
class Change:
    """What `build_index` is asked to do with an index that goes on; its documentation tells what each is."""

    retriever: str
    language: str
    terms: Bm25Settings | None
    without: Collection[str]
    form: str
    total: int | None
    show: bool
    advance: Callable[[int], object]
    label: Label

    @property
    def bm25(self) -> dict[str, Any] | None:
        """The settings of BM25 as a manifest has them."""
        return None if self.terms is None else asdict(self.terms)


class Engine(Protocol):
    """What an engine can do; all of it raises UserError for a place without an index or out of reach."""

    def stored_manifest(self, folder: Path) -> Manifest:
        """The manifest of the index in that place."""

    def open_stored(self, folder: Path, manifest: Manifest) -> Index:
        """The index with that manifest."""

    def stored_files(self, folder: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
        """What else it has, by names in a folder: pieces of files, those of one file in their order."""

    def change_stored(
        self, folder: Path, known: Manifest, job: str, change: Callable[[Manifest], Manifest]
    ) -> Manifest:
        """`change_manifest` of such an index."""

    def change_index(self, folder: Path, sentences: Iterable[Sentence], maker: UnitMaker, change: Change) -> Manifest:
        """`build_index` of an index that goes on."""

    def write_copy(self, target: Path, source: Source, *, replace: bool, form: str) -> Manifest:
        """Copy an index to the place `target`, where it appears whole or not at all."""


def engine_of(folder: str | Path) -> Engine | None:
    """The engine that the place of an index is in, None for a folder."""
    name = name_of(folder)
    return None if name is None else cast(Engine, import_module(f"retrievers.index.{name}.engine"))
