"""Building an index: sentences in, a folder that appears whole out; a killed build goes on where it stopped.

Resuming reads the input again from the start but computes only what is missing. Several processes can each make a part
of the index, which is put together at the end.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace as replace_fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from rag_mt.base.defaults import FP16, SHARD
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, file_sha256, sync
from rag_mt.base.languages import language as language_of
from rag_mt.base.only import Label, labelled
from rag_mt.base.types import Sentence
from rag_mt.formats import reading
from rag_mt.models.adapter_files import ADAPTERS
from retrievers.bm25 import Bm25, Bm25Settings
from retrievers.index.codes import TOGETHER
from retrievers.index.engines import Change, engine_of
from retrievers.index.manifest import (
    MANIFEST,
    ROWS,
    VECTORS,
    Manifest,
    check_codes,
    check_kind,
    read_manifest,
    write_manifest,
)
from retrievers.index.opening import map_sentences, map_spans, open_index
from retrievers.index.places import kind_of
from retrievers.index.replacing import put_back, restore, take_place
from retrievers.index.search import Index
from retrievers.index.shards import (
    BODY,
    COUNTS,
    LISTS,
    Seen,
    Shard,
    Writer,
    batches_of,
    distinct_blocks,
    merge_texts,
    write_kept,
    writer_of,
)
from retrievers.index.unfinished import KEPT, LISTS_OF, SHARDS, Unfinished
from retrievers.index.vectors import Rows, fitting, form_for, seed_lists, with_ivf, write_vectors
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")


def build_index(
    folder: Path,
    sentences: Iterable[Sentence],
    maker: UnitMaker,
    *,
    retriever: str,
    language: str,
    plan: Mapping[str, Any] | None = None,
    shard: int = SHARD,
    writer: Writer | None = None,
    replace: bool = False,
    restart: bool = False,
    total: int | None = None,
    show: bool = True,
    form: str = "auto",
    terms: Bm25Settings | None = None,
    without: Collection[str] | None = None,
    codes: Mapping[str, Any] | None = None,
    label: Label | None = None,
    advance: Callable[[int], object] = lambda n: None,
) -> Manifest:
    """Index the units that `maker` sees in the sentences; equal texts are kept once, blank ones not at all.

    `plan` tells the input from another one (names and sizes, say): an interrupted build is only resumed with the same
    plan and settings. `restart` forgets an interrupted build. `form` is `exact`, `ivf` or, by the number of units,
    `auto`; it may differ from that of the interrupted build. A shard has `shard` sentences in whole blocks of the
    maker, and at least one block; the index does not depend on where shards end, nor on the `writer` that makes them
    (default: this process). With `terms` BM25 searches the units too, or alone if the vectors of the maker have no
    dimension. With `replace` an existing index gives way when the new one is complete. With `without` it goes on in the
    new one: what it has stays, save the sentences of files of these names, so that only what it does not have is
    computed; its cut-offs and models stay too, and how vectors are compressed, unless there are other `codes`
    (see the manifest; `compress_index` says what they need). `label` tells the domain and the date of the files that
    the sentences are from; a file that the index had keeps what is not told anew. `total` is the number of sentences,
    for the progress bar; `advance` is told of sentences that are done, and an error that it raises ends the build.
    Memory use does not grow with the input, save eight bytes per sentence to know duplicates by, eight bytes per unit
    while the lists of the IVF form are written and tuned and, with `terms`, some 40 bytes per word of the units (see
    `Bm25.build`). The disk holds up to three copies of the vectors meanwhile.
    Raises UserError if the folder is taken, another process builds it, the settings differ from those of the
    interrupted build, nothing could be indexed or the disk cannot be written.
    """
    if (engine := engine_of(folder)) is not None:
        if without is None:
            raise _not_built(folder)
        change = Change(retriever, language, terms, without, form, total, show, advance, label or Label())
        return engine.change_index(folder, sentences, maker, change)
    restore(folder)
    if without is not None:
        read_manifest(folder)  # it must be there, and of this version
        replace = True
    check_target(folder, replace)
    form_for(form, 0, maker.unit)  # an unknown one is refused now
    build = Unfinished(folder, maker, retriever=retriever, language=language, plan=plan, terms=terms, shard=shard)
    building, term_settings = build.place, build.settings.get("terms")
    with _disk_errors(folder, building), _alone(building, folder):
        put_back(folder, building)  # it was killed between the two renames at its end
        build.check_alone()
        try:
            check_target(folder, replace)  # again: it may have come back
            base = None if without is None else _going_on(folder, maker, retriever, language, term_settings)
            if base is not None and codes is not None:
                check_codes(folder, base.manifest, codes)
            if base is not None:
                files = {name: file["sha256"] for name, file in base.manifest.files.items()}
                build.settings["index"] = {"files": files, "without": sorted(without or ())}
            build.begin(restart)
            counts, seen, kept = dict.fromkeys(COUNTS, 0), Seen(), list[Shard]()
            if base is not None:
                kept, counts = _kept(building, base, without or (), build.block, seen)
            blocks = distinct_blocks(sentences, build.block, counts, seen)
            writer = writer or writer_of(maker)
            shards, resumed = build.shards(kept, blocks, writer, total=total, show=show and total != 0, advance=advance)
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
                codes=codes or (None if base is None else base.manifest.codes),
                resumed=resumed,
            )
            return _finish(building, folder, shards, manifest, replace, form, base, label or Label(), show)
        except BaseException:
            if not any(building.glob(SHARDS)):  # nothing to go on from: leave no trace
                shutil.rmtree(building, ignore_errors=True)
            raise


def build_part(
    folder: Path,
    sentences: Iterable[Sentence],
    maker: UnitMaker,
    part: tuple[int, int],
    *,
    retriever: str,
    language: str,
    plan: Mapping[str, Any] | None = None,
    shard: int = SHARD,
    terms: Bm25Settings | None = None,
    replace: bool = False,
    show: bool = True,
) -> tuple[int, int]:
    """Make the part `part` (n, of) of the shards of an index, n from 1 on; returns the number of their sentences, and
    of those that had been made before.

    Each of several processes, on machines that share a disk, makes a part, for which it reads all of the input;
    `build_index` with the same settings then puts the shards together, and makes those that are missing. While it does,
    parts wait for its end. With `replace` there may be an index, which that gives way then. Raises UserError as
    `build_index` does.
    """
    if kind_of(folder):
        raise _not_built(folder)
    restore(folder)
    check_target(folder, replace)
    settings: dict[str, Any] = {"retriever": retriever, "language": language, "plan": plan, "terms": terms}
    build = Unfinished(folder, maker, shard=shard, part=part, **settings)
    with _disk_errors(folder, build.place), ExitStack() as stack:
        with _alone(build.place, folder, wait=True):  # not while the index is put together
            try:
                check_target(folder, replace)  # again: it may have been finished meanwhile
                stack.enter_context(build.begun_part())
            except BaseException:
                if not any(build.place.iterdir()):
                    build.place.rmdir()
                raise
        blocks = distinct_blocks(sentences, build.block, dict.fromkeys(COUNTS, 0), Seen())
        shards, resumed = build.shards((), blocks, writer_of(maker), total=None, show=show)
        return sum(shard.sentences for shard in shards), resumed


def _alone(building: Path, folder: Path, wait: bool = False) -> AbstractContextManager[None]:
    return alone_in(building, f"the build of index {folder}", wait)


def _going_on(folder: Path, maker: UnitMaker, retriever: str, language: str, terms: Mapping[str, Any] | None) -> Index:
    """The index that goes on in the new one; raises UserError if it is of another kind."""
    index = open_index(folder, maker.settings)
    check_kind(folder, index.manifest, retriever, language, terms)
    return index


def _not_built(folder: Path) -> UserError:
    kind = kind_of(folder)
    title = kind.title if kind else ""
    return UserError(f"an index is not built in {title}: build it in a folder, then `rag-mt index copy DIR {folder}`")


def check_target(folder: Path, replace: bool) -> None:
    """Raises UserError for a folder that is not to become an index: with `replace` it may be one."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder for the index")
    with suppress(OSError):  # there may be no current folder any more
        if Path.cwd().is_relative_to(folder.resolve()):
            raise UserError(f"{folder} is the current folder or above it, which cannot be replaced: run this elsewhere")
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


def _finish(
    building: Path,
    folder: Path,
    shards: Sequence[Shard],
    manifest: Manifest,
    replace: bool,
    wanted_form: str,
    base: Index | None,
    label: Label,
    show: bool,
) -> Manifest:
    """Make one index of the shards and put it in its place; `label` is of the files that are new in it. If the index
    `base` goes on in it, which is the first shard, so do its lists, unless the new one needs another number of them,
    and its models."""
    if not manifest.units:
        shutil.rmtree(building)
        raise UserError(
            f"there is nothing to index for {folder}: of {manifest.counts['read']} sentences read none has a "
            f"{manifest.unit} in it; give files with {language_of(manifest.language).name} text"
        )
    merged = building / "merged"
    merged.mkdir()
    if manifest.bits == FP16:
        manifest = replace_fields(manifest, codes=None)
    lists = 0
    seeded = False
    if manifest.dimension:
        rows = Rows([(shard.place / BODY, shard.units) for shard in shards], manifest.dimension)
        form = form_for(wanted_form, manifest.units, manifest.unit)
        if manifest.bits in TOGETHER:
            form = "ivf"
        elif base is not None and base.manifest.lossy:  # other codes would lose more
            form = "exact" if base.manifest.ivf is None else "ivf"
        work = building / f"{LISTS_OF}{manifest.units}"
        if form == "ivf" and base is not None and base.manifest.ivf is not None:
            seeded = seed_lists(work, base, np.load(shards[0].place / LISTS, allow_pickle=False), rows)
        codec = None
        if base is not None and base.manifest.bits == manifest.bits != FP16:
            stays = seeded or (form == "exact" and base.manifest.lossy)
            codec = base.vectors if stays else None
        lists = write_vectors(merged / VECTORS, rows, form, work, manifest.bits, codec, show)
        seeded = seeded and fitting(lists, rows)
        if manifest.rerank:
            rows.save(merged / ROWS)
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
        names = [shard.origins for shard in shards]
        new = names if base is None else names[1:]
        labels = labelled(manifest.labels, chain(*names), chain(*new), label, reading.place_of)
        manifest = replace_fields(manifest, labels=labels)
        write_manifest(merged, manifest)
        for path in (*merged.iterdir(), merged):
            sync(path)
        check_target(folder, replace)  # again: it may have appeared meanwhile
        if (folder / MANIFEST).exists():
            _keep_adapters(folder, merged, manifest.language)
            if base is not None:
                _keep_models(folder, merged)
        take_place(merged, folder, building)
    for place in building.glob(SHARDS):  # before what tells that they are needed no more
        shutil.rmtree(place)
    shutil.rmtree(building)
    return manifest


def _with_cut_offs(folder: Path, base: Index, manifest: Manifest, same_lists: bool) -> Manifest:
    """The manifest with what calibrations have stored in that of the index that goes on, and what is known of its
    files; raises UserError if that was replaced meanwhile."""
    now = read_manifest(folder)
    if now.files != base.manifest.files:
        raise UserError(f"index {folder} was replaced during its change: start the change again")
    ivf = now.ivf if same_lists else manifest.ivf
    return replace_fields(manifest, thresholds=now.thresholds, labels=now.labels, ivf=ivf)


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
