"""Adding sentences to an index in LanceDB and taking files out of it: rows are added and deleted, nothing is built
anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language as language_of
from rag_mt.base.only import labelled
from rag_mt.base.types import Sentence, TranslatedSentence
from rag_mt.formats import reading
from retrievers.bm25 import TERM_FILES, Bm25, Bm25Settings
from retrievers.index.beside import contents_of, files_in, local_files, pieces_of
from retrievers.index.engines import Change
from retrievers.index.lance.copying import unit_batch
from retrievers.index.lance.files import PART, write_files
from retrievers.index.lance.lists import bits_for, index_vectors, lists_for, with_lists
from retrievers.index.lance.numbering import Ids, Numbering, condition, runs_of
from retrievers.index.lance.place import connected
from retrievers.index.lance.search import LanceIndex, open_stored
from retrievers.index.lance.tables import (
    SENTENCE_SCHEMA,
    at_version,
    commit,
    compact,
    finished,
    one_writer,
    read_stored,
    table_of,
    tidy,
    write,
)
from retrievers.index.manifest import Manifest, check_kind
from retrievers.index.opening import check_settings
from retrievers.index.places import FILES, SENTENCES, UNITS, changed_by_others, store_errors
from retrievers.index.shards import Seen, distinct_blocks
from retrievers.index.vectors import form_for
from retrievers.units.unit import UnitMaker

JOB = "change"
AT_ONCE = 1 << 16
"""Units that are written at once."""
DELETED_AT_ONCE = 200
"""Stretches of ids that one deletion names."""


def change_index(folder: Path, sentences: Iterable[Sentence], maker: UnitMaker, change: Change) -> Manifest:
    """Take the sentences of files out of an index in LanceDB and add others, as `build_index` does with a folder.

    Only the new sentences are encoded, and only their rows are written; tables are compacted afterwards. Who has the
    index open goes on with what it was, and a change that is killed has changed nothing.
    Raises UserError for an index of another kind, one that others change meanwhile, and where nothing would be left.
    """
    with one_writer(folder, JOB):
        database = connected(folder)
        revision, manifest = finished(folder, read_stored(folder, database))
        check_settings(folder, manifest, maker.settings)
        check_kind(folder, manifest, change.retriever, change.language, change.bm25)
        index = open_stored(folder, manifest)
        units, rows = (_newest(folder, database, manifest, name) for name in (UNITS, SENTENCES))
        # 1. What goes, and the texts that stay.
        counts = dict(manifest.counts)
        gone = index.sentences_of(sorted(change.without))
        staying = _deleted(index, units, rows, gone)
        counts |= {name: counts[name] - len(gone) for name in ("read", "kept")}
        seen = Seen()
        _see(index, gone, seen)
        # 2. What is new.
        blocks = distinct_blocks(sentences, maker.block, counts, seen)
        with closing(progress(change.total, "sentences", "encoding", show=change.show)) as bar:

            def tell(number: int) -> None:
                bar.update(number)
                change.advance(number)

            firsts = index.unit_ids.next_id, index.sentence_ids.next_id
            names: set[str] = set()
            numbering = _added(folder, (units, rows), staying, firsts, maker, _noting(blocks, names), tell)
        if not len(numbering[UNITS]):
            raise UserError(
                f"there is nothing to index for {folder}: none of its sentences would be left, and of those read none "
                f"has a {manifest.unit} in it; give files with {language_of(change.language).name} text"
            )
        # 3. Indexes of the tables, terms of the units, and the manifest, which makes it the index.
        with store_errors(folder):
            for table, name, before in ((units, UNITS, index.unit_ids), (rows, SENTENCES, index.sentence_ids)):
                compact(table, len(before) - len(staying[name]), int(manifest.files[name]["version"]))
        sizes = {name: len(numbers) for name, numbers in numbering.items()}
        manifest = replace(manifest, counts=counts, units=sizes[UNITS], sentences=sizes[SENTENCES])
        lists, bits = 0, bits_for(manifest)
        if manifest.ivf is None and form_for(change.form, manifest.units, manifest.unit) == "ivf":
            lists = lists_for(manifest.units)
            index_vectors(folder, units, lists, bits, manifest.dimension)
        entries: dict[str, dict[str, Any]] = {name: dict(entry) for name, entry in manifest.files.items()}
        if lists:
            entries[UNITS]["bits"] = bits
        for name, table in ((UNITS, units), (SENTENCES, rows)):
            entries[name] |= {"version": table.version, "numbers": numbering[name].runs}
            if table.count_rows() != len(numbering[name]):
                raise changed_by_others(folder, JOB)
        manifest = replace(manifest, files=entries)
        changed = LanceIndex(folder, manifest, units, rows)
        if manifest.labels or change.label.as_dict():
            labels = labelled(manifest.labels, changed.files(), names, change.label, reading.place_of)
            manifest = replace(manifest, labels=labels)
        if manifest.terms is not None:
            entries[FILES] = _with_terms(folder, database, index.manifest, changed)
            manifest = replace(manifest, files=entries)
        if lists:
            manifest = with_lists(folder, manifest, units, rows, lists)
        commit(folder, database, revision, manifest, JOB)
        tidy(folder, database)
    return manifest


def _noting(blocks: Iterable[list[Sentence]], names: set[str]) -> Iterator[list[Sentence]]:
    """The same blocks; the names of their files are noted as they pass."""
    for block in blocks:
        names.update(sentence.source.file for sentence in block)
        yield block


def _newest(folder: Path, database: Any, manifest: Manifest, name: str) -> Any:
    """A table that can be changed and has what the manifest says: what a killed change left in it is gone."""
    table = table_of(folder, database, name)
    if table is None or table.version != int(manifest.files[name]["version"]):
        table = at_version(folder, database, manifest, name)
        with store_errors(folder):
            table.restore()
    return table


def _deleted(index: LanceIndex, units: Any, rows: Any, gone: Ids) -> dict[str, Numbering]:
    """Delete sentences with these ids and their units; returns the numbers of what is left."""
    if not len(gone):
        return {UNITS: index.unit_ids, SENTENCES: index.sentence_ids}
    gone_units = index.units_of_sentences(gone)
    runs = runs_of(gone)
    for begin in range(0, len(runs), DELETED_AT_ONCE):
        ids = np.concatenate([np.arange(*run) for run in runs[begin : begin + DELETED_AT_ONCE]])
        for table in (units, rows):
            write(index.folder, table, partial(table.delete, condition("sentence", ids)), JOB)
    return {UNITS: index.unit_ids.without(gone_units), SENTENCES: index.sentence_ids.without(gone)}


def _see(index: LanceIndex, gone: Ids, seen: Seen) -> None:
    """Let the texts that stay be seen."""
    going = set(index.sentence_ids.numbers(gone).tolist())
    texts = index.sentences.column("text")
    for begin in range(0, len(texts), AT_ONCE):
        part = texts.slice(begin, AT_ONCE).to_pylist()
        if staying := [text for number, text in enumerate(part, begin) if number not in going]:
            seen.add(staying)


def _added(
    folder: Path,
    tables: tuple[Any, Any],
    numbering: Mapping[str, Numbering],
    firsts: tuple[int, int],
    maker: UnitMaker,
    blocks: Iterable[list[Sentence]],
    advance: Callable[[int], object],
) -> dict[str, Numbering]:
    """Encode and write new sentences; ids of units and sentences begin with `firsts`. Returns the numbers of all."""
    next_unit, next_sentence = firsts
    waiting: tuple[list[pa.RecordBatch], list[pa.RecordBatch]] = ([], [])
    for block in blocks:
        vectors, spans = maker.units([sentence.text for sentence in block], "passage")
        ids = np.arange(next_unit, next_unit + len(spans))
        waiting[0].append(unit_batch(ids, spans[:, 0].astype(np.int64) + next_sentence, spans, vectors))
        waiting[1].append(_sentence_batch(block, next_sentence))
        next_unit, next_sentence = next_unit + len(spans), next_sentence + len(block)
        if sum(map(len, waiting[0])) >= AT_ONCE:
            _write(folder, tables, waiting)
        advance(len(block))
    _write(folder, tables, waiting)
    return {
        UNITS: numbering[UNITS].extended(firsts[0], next_unit),
        SENTENCES: numbering[SENTENCES].extended(firsts[1], next_sentence),
    }


def _write(folder: Path, tables: tuple[Any, Any], waiting: tuple[list[pa.RecordBatch], list[pa.RecordBatch]]) -> None:
    for table, batches in zip(tables, waiting, strict=True):
        if batches:
            write(folder, table, partial(table.add, pa.Table.from_batches(batches)), JOB)
            batches.clear()


def _sentence_batch(block: Sequence[Sentence], first: int) -> pa.RecordBatch:
    """Rows of sentences whose ids begin with `first`."""
    columns: list[list[Any]] = [
        list(range(first, first + len(block))),
        [sentence.text for sentence in block],
        [sentence.source.file for sentence in block],
        [sentence.source.line for sentence in block],
        [sentence.source.start for sentence in block],
        [sentence.original if isinstance(sentence, TranslatedSentence) else "" for sentence in block],
    ]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, SENTENCE_SCHEMA.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SENTENCE_SCHEMA)


def _with_terms(folder: Path, database: Any, before: Manifest, index: LanceIndex) -> dict[str, Any]:
    """The files of an index with the terms of its present units."""
    assert index.manifest.terms is not None
    texts = index.sentences.column("text")
    numbers = index.spans(np.arange(len(index)))[:, 0].tolist()
    settings = Bm25Settings(float(index.manifest.terms["k1"]), float(index.manifest.terms["b"]))
    with TemporaryDirectory() as place:
        terms = Path(place)
        Bm25.build((texts[number].as_py() for number in numbers), index.manifest.language, settings).save(terms)
        files = files_in(local_files(folder, before))
        files |= {name: terms / name for name in TERM_FILES}
        return write_files(folder, database, pieces_of(files, PART), contents_of(files))
