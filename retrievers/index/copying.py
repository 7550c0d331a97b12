"""Copying an index into an engine of others, out of it, or from one to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace as with_fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.index.beside import contents_of, files_in, local_files, pieces_of
from retrievers.index.engines import engine_of
from retrievers.index.manifest import MANIFEST, Manifest
from retrievers.index.opening import open_index
from retrievers.index.places import KINDS, UNITS, kind_of, package_of, place_text
from retrievers.index.search import Index
from retrievers.index.stored import StoredIndex
from retrievers.index.vectors import form_for

Block = TypeVar("Block")


class Source:
    """An open index that is copied, with the `files` that it has beside vectors and text; `bar` is told of units.

    `problem` is what was wrong with the index itself when it was read: an engine that is given its rows tells only
    that there were no more.
    """

    def __init__(self, index: Index, files: Mapping[str, Path], bar: Any) -> None:
        self.index, self.files, self._bar = index, files, bar
        self.problem: UserError | None = None

    @property
    def manifest(self) -> Manifest:
        """What the copy is: vectors that are there in fp16 are copied so, whatever others are beside them."""
        manifest = self.index.manifest
        return with_fields(manifest, ivf=None, codes=manifest.codes if manifest.lossy else None)

    @property
    def rerank(self) -> bool:
        """Whether the index is compressed beside its vectors in fp16, or a copy of one that is."""
        return self.index.manifest.rerank or bool(self.index.manifest.files.get(UNITS, {}).get("rerank"))

    @cached_property
    def contents(self) -> str:
        """What tells its files from others."""
        return contents_of(self.files)

    def units(self, size: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Floats]]:
        """Numbers, spans and vectors of the units, `size` at a time."""
        return self._read(self._units(size))

    def sentences(self, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        """The sentences, `size` at a time, with the columns of `schema`: those that all have, `sentence`, their
        numbers, and `original`, what they translate, empty where that is not known."""
        return self._read(self._sentences(schema, size))

    def pieces(self, size: int) -> Iterator[tuple[str, int, bytes]]:
        """Name, number and bytes of the pieces of the files, at most `size` bytes each."""
        return self._read(pieces_of(self.files, size))

    def _read(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """The blocks; raises UserError, which is the `problem`, where the index cannot be read."""
        while True:
            try:
                block = next(blocks)
            except StopIteration:
                return
            except UserError as error:
                self.problem = error
                raise
            except (OSError, RuntimeError, ValueError) as error:
                said = str(error).splitlines()[0] if str(error) else type(error).__name__
                self.problem = UserError(
                    f"index {place_text(self.index.folder)} cannot be read ({said}): `rag-mt index verify "
                    f"{place_text(self.index.folder)}` says what is wrong with it"
                )
                raise self.problem from error
            yield block

    def _units(self, size: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Floats]]:
        for begin in range(0, len(self.index), size):
            units = np.arange(begin, min(begin + size, len(self.index)))
            yield units, self.index.spans(units), self.index.reconstruct(units)
            self._bar.update(len(units))

    def _sentences(self, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
        index, first = self.index, 0
        batches: Iterable[pa.RecordBatch] = (
            index.text_batches(size)
            if isinstance(index, StoredIndex)
            else index.sentences.to_batches(max_chunksize=size)
        )
        for batch in batches:
            columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
            columns["file"] = columns["file"].cast(pa.string())
            columns["sentence"] = pa.array(np.arange(first, first + len(batch)))
            columns.setdefault("original", pa.array([""] * len(batch), pa.string()))
            yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
            first += len(batch)


def copy_index(
    source: Path, target: Path, *, replace: bool = False, form: str = "auto", show: bool = False
) -> Manifest:
    """Copy an index to `target`, a place in an engine; or one in an engine to a folder, or to another engine. Returns
    the manifest of the copy.

    Units and sentences keep their numbers, cut-offs and models are the same, and adapters go with it. Vectors that are
    there in few bits alone are copied as they are to an engine, and the copy's manifest tells of it; a folder has them
    in as few bits again. `form` is as for `build_index`: the vectors are put into lists or searched exactly. With
    `replace` an index that is there gives way when the new one is complete, and who has it open goes on with it.
    Raises UserError for a source that is no index or has no vectors, and a target that is taken or cannot be written.
    """
    kind, engine = kind_of(target), engine_of(target)
    if engine is None and kind_of(source) is None:
        places = ", ".join(kind.places for kind in KINDS.values())
        titles = " or ".join(kind.title for kind in KINDS.values())
        raise UserError(f"{target} is no place in {titles}: expected {places}")
    index = open_index(source)
    manifest = index.manifest
    title = kind.title if kind else "an engine"
    if not manifest.dimension:
        raise UserError(
            f"index {source} is one of {manifest.retriever} without vectors, which are what {title} searches: "
            "use the folder itself, or build an index for another retriever"
        )
    form_for(form, manifest.units, manifest.unit)  # an unknown one is refused now
    if kind is not None:
        package_of(target)  # before its folder is made
    with closing(progress(manifest.units, "units", f"copying {place_text(source)}", show=show)) as bar:
        copied = Source(index, files_in(local_files(source)), bar)
        try:
            if engine is not None:
                return engine.write_copy(target, copied, replace=replace, form=form)
            from retrievers.index.folder import write_copy  # which builds indexes, as those of engines do

            return write_copy(target, copied, replace=replace, form=form)
        except UserError as error:
            if copied.problem is None or copied.problem is error:
                raise
            raise copied.problem from error


def not_a_folder(local: Path, target: Path) -> None:
    """Raises UserError if the folder in which an engine is to keep an index is that of another one of ours."""
    if (local / MANIFEST).exists():
        raise UserError(f"{local} is the folder of another index: give a place of its own, such as {target}.copy")
