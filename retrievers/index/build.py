"""Building an index: sentences in, a folder that appears whole out; a killed build goes on where it stopped.

`FOLDER.building` holds `plan.json` (the settings of the build), a folder per finished shard and, for the IVF form, one
with its centroids and lists as far as they are known. Resuming reads the input again from the start but computes only
what is missing.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import Any

import numpy as np

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, file_sha256, read_json, sync, write_whole
from rag_mt.base.languages import language as language_of
from rag_mt.base.types import Sentence
from rag_mt.models.adapter_files import ADAPTERS
from retrievers.bm25 import Bm25, Bm25Settings
from retrievers.index.manifest import (
    FORMAT,
    MANIFEST,
    VECTORS,
    Manifest,
    differences,
    read_manifest,
    write_manifest,
)
from retrievers.index.search import Index, map_sentences, map_spans, open_index
from retrievers.index.shards import (
    BODY,
    LISTS,
    Seen,
    Shard,
    batches_of,
    distinct_blocks,
    merge_texts,
    read_shard,
    texts_digest,
    write_kept,
    write_shard,
)
from retrievers.index.vectors import Rows, form_for, seed_lists, with_ivf, write_vectors
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")

PLAN = "plan.json"
SHARDS = "shard-*"
KEPT, REPLACED = "kept", "replaced"
SHARD_SECONDS = 5.0
"""What a build that is killed may lose, beside one block of the maker."""


def build_index(
    folder: Path,
    sentences: Iterable[Sentence],
    maker: UnitMaker,
    *,
    retriever: str,
    language: str,
    plan: Mapping[str, Any] | None = None,
    shard_seconds: float = SHARD_SECONDS,
    replace: bool = False,
    restart: bool = False,
    total: int | None = None,
    show: bool = True,
    form: str = "auto",
    terms: Bm25Settings | None = None,
    without: Collection[str] | None = None,
    advance: Callable[[int], object] = lambda n: None,
) -> Manifest:
    """Index the units that `maker` sees in the sentences; equal texts are kept once, blank ones not at all.

    `plan` tells the input from another one (names and sizes, say): an interrupted build is only resumed with the same
    plan and settings. `restart` forgets an interrupted build. `form` is `exact`, `ivf` or, by the number of units,
    `auto`; it may differ from that of the interrupted build. A shard takes whole blocks of the maker until
    `shard_seconds` have passed; the index does not depend on where shards end. With `terms` BM25 searches the units
    too, or alone if the vectors of the maker have no dimension. With `replace` an existing index gives way when the new
    one is complete. With `without` it goes on in the new one: what it has stays, save the sentences of files of these
    names, so that only what it does not have is computed; its cut-offs and models stay too. `total` is the number of
    sentences, for the progress bar; `advance` is told of every block that is encoded, and an error that it raises ends
    the build.
    Memory use does not grow with the input, save eight bytes per sentence to know duplicates by, eight bytes per unit
    while the lists of the IVF form are written and tuned and, with `terms`, some 40 bytes per word of the units (see
    `Bm25.build`). The disk holds up to three copies of the vectors meanwhile.
    Raises UserError if the folder is taken, another process builds it, the settings differ from those of the
    interrupted build, nothing could be indexed or the disk cannot be written.
    """
    if without is not None:
        restore(folder)
        read_manifest(folder)  # it must be there, and of this version
        replace = True
    _check_target(folder, replace)
    form_for(form, 0, maker.unit)  # an unknown one is refused now
    building = folder.with_name(folder.name + ".building")
    block = int(getattr(maker, "pooled", maker.block))
    term_settings = None if terms is None else asdict(terms)
    settings = {
        "format": FORMAT,
        "retriever": retriever,
        "language": language,
        "settings": dict(maker.settings),
        "block": block,
        "input": dict(plan or {}),
        **({"terms": term_settings} if term_settings else {}),
    }
    with _disk_errors(folder, building), alone_in(building, f"the build of index {folder}"):
        _restore(building, folder)  # it was killed between the two renames at its end
        try:
            _check_target(folder, replace)  # again: it may have come back
            base = None if without is None else _going_on(folder, maker, retriever, language, term_settings)
            if base is not None:
                files = {name: file["sha256"] for name, file in base.manifest.files.items()}
                settings["index"] = {"files": files, "without": sorted(without or ())}
            _begin(building, folder, settings, restart)
            counts, seen, kept = {"read": 0, "kept": 0, "duplicates": 0, "unusable": 0}, Seen(), list[Shard]()
            if base is not None:
                kept, counts = _kept(building, base, without or (), block, seen)
            blocks = distinct_blocks(sentences, block, counts, seen)
            with closing(progress(total, "sentences", f"indexing {language_of(language).name}", show=show)) as bar:
                shards, resumed = _shards(building, folder, kept, blocks, maker, shard_seconds, bar, advance)
            manifest = Manifest(
                retriever=retriever,
                unit=maker.unit,
                language=language,
                settings=dict(maker.settings),
                dimension=maker.dimension,
                sentences=counts["kept"],
                units=sum(shard.units for shard in shards),
                counts=counts,
                files={},
                terms=term_settings,
                resumed=resumed,
            )
            return _finish(building, folder, shards, manifest, replace, form, base)
        except BaseException:
            if not any(building.glob(SHARDS)):  # nothing to go on from: leave no trace
                shutil.rmtree(building, ignore_errors=True)
            raise


def _going_on(folder: Path, maker: UnitMaker, retriever: str, language: str, terms: Mapping[str, Any] | None) -> Index:
    """The index that goes on in the new one; raises UserError if it is of another kind."""
    index = open_index(folder, maker.settings)
    now = index.manifest
    if (now.retriever, now.language, now.terms) != (retriever, language, terms):
        raise UserError(
            f"index {folder} is a {now.retriever} index of {language_of(now.language).name} by now: open it again"
        )
    return index


def _check_target(folder: Path, replace: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder for the index")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{folder} holds other files and no index: give another folder")
    if not replace:
        raise UserError(
            f"index {folder} exists already: give another folder, or --replace (replace=True) to build it anew"
        )


@contextmanager
def _disk_errors(folder: Path, building: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        ours = str(error.filename or "").startswith(str(building))
        if not ours and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise UserError(
            f"index {folder} cannot be written ({error.strerror}): make room or give a folder you can write to; "
            "what is finished is kept and the same command goes on from there"
        ) from error


def _begin(building: Path, folder: Path, settings: Mapping[str, Any], restart: bool) -> None:
    """Clear what a killed build left unfinished, and compare its settings with those of this one."""
    finished = (building / REPLACED).is_dir()  # all but tidied up
    restart = restart or finished or not any(building.glob(SHARDS))
    for path in building.iterdir():
        if path.is_dir() and (restart or not path.name.startswith(("shard-", "lists-"))):
            shutil.rmtree(path)
    wanted = json.loads(json.dumps(settings, default=str))
    if any(building.glob(SHARDS)):
        try:
            interrupted = read_json(building / PLAN)
        except (OSError, ValueError):
            interrupted = {"plan": "unreadable"}
        if different := differences(interrupted, wanted):
            raise UserError(
                f"an interrupted build of index {folder} had other settings ({'; '.join(different)}): "
                "build with those to go on, or give --restart to start over"
            )
    write_whole(building / PLAN, json.dumps(wanted, ensure_ascii=False, indent=2))


def _kept(
    building: Path, base: Index, without: Collection[str], block: int, seen: Seen
) -> tuple[list[Shard], dict[str, int]]:
    """What an index has, except the files `without`, as the first shard, and its counts without them; its texts are
    seen."""
    shard = write_kept(building / KEPT, base, without, block)
    for batch in batches_of(shard):
        seen.add(batch.column("text").to_pylist())
    gone = base.manifest.sentences - shard.sentences
    counts = dict(base.manifest.counts)
    return [shard], counts | {name: counts[name] - gone for name in ("read", "kept")}


def restore(folder: Path) -> None:
    """Put an index back that a killed build had moved aside for the one that replaces it."""
    building = folder.with_name(folder.name + ".building")
    if not folder.exists() and (building / REPLACED).is_dir():
        with alone_in(building, f"the build of index {folder}", wait=True):
            _restore(building, folder)


def _restore(building: Path, folder: Path) -> None:
    if (building / REPLACED).is_dir() and not folder.exists():
        (building / REPLACED).rename(folder)


def _shards(
    building: Path,
    folder: Path,
    kept: Sequence[Shard],
    blocks: Iterator[list[Sentence]],
    maker: UnitMaker,
    seconds: float,
    bar: Any,
    advance: Callable[[int], object],
) -> tuple[list[Shard], int]:
    """All shards, those of the index that goes on first, and the number of sentences in those of an interrupted
    build."""
    shards = list(kept)
    resumed = 0

    def encoded(sentences: int) -> None:
        bar.update(sentences)
        advance(sentences)

    for first in blocks:
        place = building / f"shard-{len(shards):06d}"
        shard = read_shard(place)
        if shard is None:
            shards.append(write_shard(place, first, blocks, maker, seconds, encoded))
            continue
        taken, size = [first], len(first)
        while size < shard.sentences and (block := next(blocks, None)):
            taken.append(block)
            size += len(block)
        if texts_digest(taken) != shard.digest:
            raise UserError(
                f"the text has changed since the build of index {folder} was interrupted (near {first[0].source}): "
                "give --restart to start over"
            )
        resumed += size
        bar.initial = resumed  # so that the rate is that of the encoder
        encoded(size)
        shards.append(shard)
    if resumed:
        log.info("%s: %d sentences were kept from the interrupted build", folder, resumed)
    return shards, resumed


def _finish(
    building: Path,
    folder: Path,
    shards: Sequence[Shard],
    manifest: Manifest,
    replace: bool,
    wanted_form: str,
    base: Index | None,
) -> Manifest:
    """Make one index of the shards and put it in its place. If the index `base` goes on in it, which is the first
    shard, so do its lists, unless the new one needs another number of them, and its models."""
    if not manifest.units:
        shutil.rmtree(building)
        raise UserError(
            f"there is nothing to index for {folder}: of {manifest.counts['read']} sentences read none has a "
            f"{manifest.unit} in it; give files with {language_of(manifest.language).name} text"
        )
    merged = building / "merged"
    merged.mkdir()
    lists = 0
    seeded = False
    if manifest.dimension:
        rows = Rows([(shard.place / BODY, shard.units) for shard in shards], manifest.dimension)
        form = form_for(wanted_form, manifest.units, manifest.unit)
        work = building / f"lists-{manifest.units}"
        if form == "ivf" and base is not None and base.manifest.ivf is not None:
            seeded = seed_lists(work, base.centroids, np.load(shards[0].place / LISTS, allow_pickle=False), rows)
        lists = write_vectors(merged / VECTORS, rows, form, work)
    merge_texts(shards, merged, manifest.schema)
    if manifest.terms is not None:  # of the sentences of the units, titles included
        texts, sentences = map_sentences(merged).column("text"), map_spans(merged)[:, 0].tolist()
        settings = Bm25Settings(float(manifest.terms["k1"]), float(manifest.terms["b"]))
        Bm25.build((texts[number].as_py() for number in sentences), manifest.language, settings).save(merged)
    paths = [merged / name for name in sorted(manifest.file_names)]
    files = {path.name: {"size": path.stat().st_size, "sha256": file_sha256(path)} for path in paths}
    manifest = replace_fields(manifest, files=files)
    if lists and not seeded:
        manifest = with_ivf(merged, manifest, lists)
    with nullcontext() if base is None else alone_in(folder, f"a change of index {folder}", wait=True):
        if base is not None:
            manifest = _with_cut_offs(folder, base, manifest, seeded)
        write_manifest(merged, manifest)
        for path in (*merged.iterdir(), merged):
            sync(path)
        _check_target(folder, replace)  # again: it may have appeared meanwhile
        if (folder / MANIFEST).exists():
            _keep_adapters(folder, merged, manifest.language)
            if base is not None:
                _keep_models(folder, merged)
            folder.rename(building / REPLACED)
        merged.rename(folder)
    sync(folder.absolute().parent)
    for place in building.glob(SHARDS):  # before what tells that they are needed no more
        shutil.rmtree(place)
    shutil.rmtree(building)
    return manifest


def _with_cut_offs(folder: Path, base: Index, manifest: Manifest, same_lists: bool) -> Manifest:
    """The manifest with what calibrations have stored in that of the index that goes on; raises UserError if that was
    replaced meanwhile."""
    now = read_manifest(folder)
    if now.files != base.manifest.files:
        raise UserError(f"index {folder} was replaced during its change: start the change again")
    return replace_fields(manifest, thresholds=now.thresholds, ivf=now.ivf if same_lists else manifest.ivf)


def _keep_adapters(folder: Path, merged: Path, language: str) -> None:
    """Give an index the adapters of the one that it replaces, if it is of the same language."""
    with suppress(UserError):  # one of another version or a damaged one
        if (folder / ADAPTERS).is_dir() and read_manifest(folder).language == language:
            shutil.copytree(folder / ADAPTERS, merged / ADAPTERS)
            log.info("%s keeps the adapters of the old index: `rag-mt adapt --replace` tunes new ones", folder)


def _keep_models(folder: Path, merged: Path) -> None:
    """Give an index the models of confidence or similarity that the one had which goes on in it."""
    for path in folder.iterdir():
        if path.is_file() and path.suffix == ".json" and not (merged / path.name).exists():
            shutil.copy2(path, merged)
