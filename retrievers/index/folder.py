"""Writing an index as an index folder: one that is copied back from an engine, or changed there."""

from __future__ import annotations

import shutil
from dataclasses import replace as with_fields
from pathlib import Path

import numpy as np
import pyarrow as pa

from rag_mt.base.defaults import FP16
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, file_sha256, sync
from retrievers.index.build import check_target
from retrievers.index.codes import TOGETHER
from retrievers.index.copying import Source
from retrievers.index.manifest import SENTENCES, SPANS, VECTORS, Manifest, write_manifest
from retrievers.index.replacing import REPLACED, copying_place, put_back, restore, take_place
from retrievers.index.shards import BODY, TEXTS, Shard, merge_texts
from retrievers.index.vectors import Rows, form_for, with_ivf, write_vectors

BLOCK = 1 << 14
"""Units, and sentences, that are in memory at once."""


def write_copy(target: Path, source: Source, *, replace: bool, form: str) -> Manifest:
    """Copy an index to a folder, where it appears whole or not at all; see `retrievers.index.copying`. What a killed
    copy left beside it is removed."""
    restore(target)
    check_target(target, replace)
    work = copying_place(target)
    with alone_in(work, f"a copy to {target}"):
        put_back(target, work)  # it was killed just now
        for left in work.iterdir():
            shutil.rmtree(left)
        try:
            manifest = write_folder(source, work / "index", form)
            for path in (*(work / "index").rglob("*"), work / "index"):
                sync(path)
            check_target(target, replace)  # again: it may have appeared meanwhile
            take_place(work / "index", target, work)
        except OSError as error:
            raise UserError(
                f"index {target} cannot be written ({error.strerror}): make room or give a folder you can write to"
            ) from error
        finally:
            if target.exists() or not (work / REPLACED).is_dir():
                shutil.rmtree(work, ignore_errors=True)
    return manifest


def write_folder(source: Source, folder: Path, form: str) -> Manifest:
    """Write an index as a new folder, with work beside it; vectors that it has in few bits alone are in as few again.
    In memory are BLOCK units or sentences, the spans of all, and what `write_vectors` says."""
    manifest, kept = source.manifest, folder.with_name("kept")
    folder.mkdir(parents=True)
    kept.mkdir()
    for name, path in source.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, folder / name)
    spans = np.lib.format.open_memmap(kept / SPANS, mode="w+", dtype="<i4", shape=(manifest.units, 3))
    with (kept / BODY).open("wb") as body:
        for units, places, vectors in source.units(BLOCK):
            spans[units] = places
            body.write(vectors.astype("<f2").data)
    spans.flush()
    origins: dict[str, None] = {}  # in the order of the text
    with pa.ipc.new_file(str(kept / SENTENCES), TEXTS) as table:
        for batch in source.sentences(TEXTS, BLOCK):
            origins |= dict.fromkeys(batch.column("file").unique().to_pylist())
            table.write_batch(batch)
    shard = Shard(kept, "", manifest.sentences, manifest.units, list(origins), {})
    merge_texts([shard], folder, manifest.schema)
    lists = _write_vectors(folder, shard, manifest, form)
    paths = [folder / name for name in sorted(manifest.file_names)]
    files = {path.name: {"size": path.stat().st_size, "sha256": file_sha256(path)} for path in paths}
    manifest = with_fields(manifest, files=files)
    if lists:
        manifest = with_ivf(folder, manifest, lists)
    write_manifest(folder, manifest)
    return manifest


def _write_vectors(folder: Path, shard: Shard, manifest: Manifest, form: str) -> int:
    """Write the vectors of a shard; returns the number of their lists, 0 where they are searched exactly."""
    rows = Rows([(shard.place / BODY, shard.units)], manifest.dimension)
    form = "ivf" if manifest.bits in TOGETHER else form_for(form, manifest.units, manifest.unit)
    return write_vectors(
        folder / VECTORS, rows, form, folder.with_name("work"), manifest.bits if manifest.lossy else FP16
    )
