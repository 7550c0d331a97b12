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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from dataclasses import replace as replace_fields
from itertools import islice
from pathlib import Path
from typing import Any

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.languages import language as language_of
from rag_mt.base.paths import alone_in, sync, whole_file
from rag_mt.base.types import Sentence
from retrievers.bm25 import Bm25, Bm25Settings
from retrievers.index.duplicates import Seen
from retrievers.index.files import MANIFEST, VECTORS, map_sentences, map_spans
from retrievers.index.manifest import FORMAT, Manifest, differences, listed, write_manifest
from retrievers.index.probing import with_ivf
from retrievers.index.shards import BODY, Shard, merge_texts, read_shard, texts_digest, write_shard
from retrievers.index.vectors import Rows, form_for, write_vectors
from retrievers.units.unit import UnitMaker, index_block

log = logging.getLogger("rag_mt")

PLAN = "plan.json"
SHARDS = "shard-*"
LISTS = "lists-*"
REPLACED = "replaced"
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
    advance: Callable[[int], object] = lambda n: None,
) -> Manifest:
    """Index the units that `maker` sees in the sentences; equal texts are kept once, blank ones not at all.

    `plan` tells the input from another one (names and sizes, say): an interrupted build is only resumed with the same
    plan and settings. `restart` forgets an interrupted build. `form` is `exact`, `ivf` or, by the number of units,
    `auto`; it may differ from that of the interrupted build. A shard takes whole blocks of the maker until
    `shard_seconds` have passed; the index does not depend on where shards end. With `terms` BM25 searches the units
    too, or alone if the vectors of the maker have no dimension. With `replace` an existing index gives way when the new
    one is complete. `total` is the number of sentences, for the progress bar; `advance` is told of every block that is
    encoded, and an error that it raises ends the build.
    Memory use does not grow with the input, save eight bytes per sentence to know duplicates by, eight bytes per unit
    while the lists of the IVF form are written and tuned and, with `terms`, some 40 bytes per word of the units (see
    `Bm25.build`). The disk holds up to three copies of the vectors meanwhile.
    Raises UserError if the folder is taken, another process builds it, the settings differ from those of the
    interrupted build, nothing could be indexed or the disk cannot be written.
    """
    _check_target(folder, replace)
    form_for(form, 0, maker.unit)  # an unknown one is told now
    building = folder.with_name(folder.name + ".building")
    settings = {
        "format": FORMAT,
        "retriever": retriever,
        "language": language,
        "settings": dict(maker.settings),
        "block": index_block(maker),
        "input": dict(plan or {}),
    }
    if terms is not None:
        settings["terms"] = asdict(terms)
    with _disk_errors(folder, building), alone_in(building, f"the build of index {folder}"):
        _restore(building, folder)
        try:
            _check_target(folder, replace)  # again: it may have come back
            _begin(building, folder, settings, restart)
            counts = {"read": 0, "kept": 0, "duplicates": 0, "unusable": 0}
            blocks = _blocks(sentences, index_block(maker), counts)
            shards, resumed = _shards(building, folder, blocks, maker, language, total, show, advance, shard_seconds)
            manifest = Manifest(
                retriever=retriever,
                unit=maker.unit,
                language=language,
                settings=dict(maker.settings),
                dimension=maker.dimension,
                sentences=counts["kept"],
                units=sum(s.units for s in shards),
                counts=counts,
                files={},
                terms=None if terms is None else asdict(terms),
                resumed=resumed,
            )
            return _finish(building, folder, shards, manifest, replace, form)
        except BaseException:
            if not any(building.glob(SHARDS)):  # nothing to go on from: leave no trace
                shutil.rmtree(building, ignore_errors=True)
            raise


def _check_target(folder: Path, replace: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: give a folder for the index")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / MANIFEST).is_file():
        raise UserError(f"{folder} holds other files and no index: give another folder")
    if not replace:
        raise UserError(f"index {folder} exists already: give another folder, or --replace to build it anew")


@contextmanager
def _disk_errors(folder: Path, building: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        own = str(error.filename or "").startswith(str(building))
        if not own and error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
            raise
        raise UserError(
            f"index {folder} cannot be written ({error.strerror}): make room or give a folder you can write to; "
            "what is finished is kept and the same command goes on from there"
        ) from error


def _restore(building: Path, folder: Path) -> None:
    """Put back the index that was to be replaced, if the build was killed between the two renames at its end."""
    if (building / REPLACED).is_dir() and not folder.exists():
        (building / REPLACED).rename(folder)


def _begin(building: Path, folder: Path, settings: Mapping[str, Any], restart: bool) -> None:
    """Clear what a killed build left unfinished, and compare its settings with those of this one."""
    for path in building.iterdir():
        if path.is_dir() and (restart or not (path.match(SHARDS) or path.match(LISTS))):
            shutil.rmtree(path)
    wanted = json.loads(json.dumps(settings, default=str))
    if any(building.glob(SHARDS)):
        try:
            found = read_json(building / PLAN)
        except (OSError, ValueError):
            found = {"plan": "unreadable"}
        if different := differences(found, wanted):
            raise UserError(
                f"an interrupted build of index {folder} had other settings ({'; '.join(different)}): "
                "build with those to go on, or give --restart to start over"
            )
    with whole_file(building / PLAN) as part:
        part.write_text(json.dumps(wanted, ensure_ascii=False, indent=2), encoding="utf-8")


def _blocks(sentences: Iterable[Sentence], size: int, counts: dict[str, int]) -> Iterator[list[Sentence]]:
    """The sentences to keep, in lists of `size` (the last one shorter); `counts` tells what became of each."""
    seen, stream = Seen(), iter(sentences)
    waiting: list[Sentence] = []
    while chunk := list(islice(stream, size)):
        usable = [s for s in chunk if s.text.strip() and _encodable(s.text)]
        new = [s for s, is_new in zip(usable, seen.add([s.text for s in usable]), strict=True) if is_new]
        counts["read"] += len(chunk)
        counts["kept"] += len(new)
        counts["duplicates"] += len(usable) - len(new)
        counts["unusable"] += len(chunk) - len(usable)
        waiting += new
        if len(waiting) >= size:
            yield waiting[:size]
            waiting = waiting[size:]
    if waiting:
        yield waiting


def _encodable(text: str) -> bool:
    """Whether the text is valid Unicode: lone surrogates cannot be stored."""
    return text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text)


def _shards(
    building: Path,
    folder: Path,
    blocks: Iterator[list[Sentence]],
    maker: UnitMaker,
    language: str,
    total: int | None,
    show: bool,
    advance: Callable[[int], object],
    seconds: float,
) -> tuple[list[Shard], int]:
    """All shards, made or found finished, and the number of sentences in those found."""
    shards: list[Shard] = []
    resumed = 0
    with closing(progress(total, "sentences", f"indexing {language_of(language).name}", show=show)) as bar:

        def encoded(number: int) -> None:
            bar.update(number)
            advance(number)

        for first in blocks:
            place = building / f"shard-{len(shards):06d}"
            shard = read_shard(place)
            if shard:
                size = _check_text(folder, shard, first, blocks)
                resumed += size
                bar.initial = resumed  # so that the rate is that of the encoder
                encoded(size)
            shards.append(shard or write_shard(place, first, blocks, maker, seconds, encoded))
    if resumed:
        log.info("%s: %d sentences were kept from the interrupted build", folder, resumed)
    return shards, resumed


def _check_text(folder: Path, shard: Shard, first: list[Sentence], blocks: Iterator[list[Sentence]]) -> int:
    """The number of sentences of a finished shard, the first block of which is `first`; takes the others from `blocks`.

    Raises UserError if they are other ones now.
    """
    taken, size = [first], len(first)
    while size < shard.sentences and (block := next(blocks, None)):
        taken.append(block)
        size += len(block)
    if texts_digest(taken) != shard.digest:
        raise UserError(
            f"the text has changed since the build of index {folder} was interrupted (near {first[0].source}): "
            "give --restart to start over"
        )
    return size


def _finish(
    building: Path, folder: Path, shards: Sequence[Shard], manifest: Manifest, replace: bool, wanted: str
) -> Manifest:
    """Make one index of the shards and put it in its place."""
    if not manifest.units:
        shutil.rmtree(building)
        raise UserError(
            f"there is nothing to index for {folder}: of {manifest.counts['read']} sentences read none has a "
            f"{manifest.unit} in it; give files with {language_of(manifest.language).name} text"
        )
    form = form_for(wanted, manifest.units, manifest.unit) if manifest.dimension else "exact"
    merged = building / "merged"
    merged.mkdir()
    lists = 0
    if manifest.dimension:
        rows = Rows([(shard.place / BODY, shard.units) for shard in shards], manifest.dimension)
        lists = write_vectors(merged / VECTORS, rows, form, building / f"lists-{manifest.units}")
    merge_texts(shards, merged)
    if manifest.terms is not None:
        _write_terms(merged, manifest)
    manifest = replace_fields(manifest, files=listed(merged, manifest.file_names))
    if form == "ivf":
        manifest = with_ivf(merged, manifest, lists)
    write_manifest(merged, manifest)
    for file in (*merged.iterdir(), merged):
        sync(file)
    _check_target(folder, replace)  # again: it may have appeared meanwhile
    if (folder / MANIFEST).exists():
        folder.rename(building / REPLACED)
    merged.rename(folder)
    sync(folder.absolute().parent)
    shutil.rmtree(building)
    return manifest


def _write_terms(folder: Path, manifest: Manifest) -> None:
    """The files of BM25 over the sentences of the units, titles included."""
    terms = manifest.terms or {}
    settings = Bm25Settings(k1=float(terms["k1"]), b=float(terms["b"]))
    texts, spans = map_sentences(folder).column("text"), map_spans(folder)
    Bm25.build((texts[number].as_py() for number in spans[:, 0].tolist()), manifest.language, settings).save(folder)
