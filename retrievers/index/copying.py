"""Copying an index into an engine of others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.index.beside import files_in, local_files
from retrievers.index.engines import engine_of
from retrievers.index.manifest import MANIFEST, Manifest
from retrievers.index.places import KINDS, kind_of, package_of
from retrievers.index.search import Index, open_index
from retrievers.index.vectors import form_for


def copy_index(
    source: Path, target: Path, *, replace: bool = False, form: str = "auto", show: bool = False
) -> Manifest:
    """Copy the index in the folder `source` to `target`, a place in an engine; returns the manifest of the copy.

    Units and sentences keep their numbers, cut-offs and models are the same, and adapters go with it. Vectors that are
    there in few bits alone are copied as they are, and the copy's manifest tells of it. `form` is as for
    `build_index`: the vectors are put into lists or searched exactly. With `replace` an index that is there gives way
    when the new one is complete, and who has it open goes on with it.
    Raises UserError for a source that is no index or has no vectors, and a target that is taken or cannot be written.
    """
    kind, engine = kind_of(target), engine_of(target)
    if kind is None or engine is None:
        places = ", ".join(kind.places for kind in KINDS.values())
        titles = " or ".join(kind.title for kind in KINDS.values())
        raise UserError(f"{target} is no place in {titles}: expected {places}")
    index = open_index(source)
    manifest = index.manifest
    if not manifest.dimension:
        raise UserError(
            f"index {source} is one of {manifest.retriever} without vectors, which are what {kind.title} searches: use "
            "the folder itself, or build an index for another retriever"
        )
    form_for(form, manifest.units, manifest.unit)  # an unknown one is refused now
    package_of(target)  # before its folder is made
    with closing(progress(manifest.units, "units", f"copying {source}", show=show)) as bar:
        return engine.write_copy(target, index, files_in(local_files(source)), replace=replace, form=form, bar=bar)


def not_a_folder(local: Path, target: Path) -> None:
    """Raises UserError if the folder in which an engine is to keep an index is that of another one of ours."""
    if (local / MANIFEST).exists():
        raise UserError(f"{local} is the folder of another index: give a place of its own, such as {target}.copy")


def unit_blocks(index: Index, size: int, bar: Any) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], Floats]]:
    """Numbers, spans and vectors of the units of an index, `size` at a time; `bar` is told of them."""
    for begin in range(0, len(index), size):
        units = np.arange(begin, min(begin + size, len(index)))
        yield units, index.spans(units), index.reconstruct(units)
        bar.update(len(units))


def sentence_blocks(index: Index, schema: pa.Schema, size: int) -> Iterator[pa.RecordBatch]:
    """The sentences of an index, `size` at a time, with the columns of `schema`: those that all have, `sentence`, their
    numbers, and `original`, what they translate, empty where that is not known."""
    first = 0
    for batch in index.sentences.to_batches(max_chunksize=size):
        columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
        columns["file"] = columns["file"].cast(pa.string())
        columns["sentence"] = pa.array(np.arange(first, first + len(batch)))
        columns.setdefault("original", pa.array([""] * len(batch), pa.string()))
        yield pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        first += len(batch)
