"""The files of an index folder, and what `manifest.json` says about them.

manifest.json     what the index holds, and the size and sha256 of the files below
vectors.faiss     the vectors of the units (inner product), as FAISS itself writes them: `SQfp16`, or in the IVF form
                  `IVFn(SQfp16),SQfp16`, with `SQ8` or `PQnx8` in the place of the last one where they are compressed
rows.f16          of a compressed index that is re-ranked: rows of fp16 by number of the unit, without a header
spans.npy         int32 (units, 3): sentence number, start and end character of each unit, by sentence number
sentences.arrow   Arrow IPC file: text, name of the file (dictionary-encoded), line and start of each sentence; of a
                  memory also the text that it translates
bm25.*            the terms of the units, in an index that is searched by BM25 (see `retrievers.bm25`)
adapters/         adapters of a language model that were tuned on the text, which the manifest does not know

An index that is searched by BM25 alone has no vectors.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from rag_mt.base.defaults import FP16
from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in, read_json, settings_hash, write_whole
from rag_mt.base.languages import base_code
from rag_mt.base.languages import language as language_of
from rag_mt.base.only import Labels, in_words
from rag_mt.base.types import Unit
from retrievers.bm25 import TERM_FILES
from retrievers.index.engines import engine_of
from retrievers.index.places import kind_of, place_text
from retrievers.index.replacing import building_place, restore

FORMAT = 4
"""Formats 1 to 3 were those of development versions."""
MANIFEST = "manifest.json"
VECTORS, ROWS, SPANS, SENTENCES = "vectors.faiss", "rows.f16", "spans.npy", "sentences.arrow"
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("file", pa.dictionary(pa.int32(), pa.string())),
        ("line", pa.int64()),
        ("start", pa.int64()),
    ]
)
PAIRS = SCHEMA.append(pa.field("original", pa.string()))
"""The sentences of a memory, with what each translates; empty where that is not known."""
MAY_LACK = {"codes", "labels"}
"""Fields of a manifest that are left out where there is nothing in them."""
CONFIDENCE = "confidence"
"""The scale of a stored cut-off that is a confidence; others are scores of the search."""


@dataclass(frozen=True)
class Manifest:
    """The contents of an index.

    `settings` is all that changes the vectors, `encoder` and `fingerprint` among them. `counts` tells of the input:
    sentences read, kept, duplicates of kept ones, and unusable ones (blank or not valid Unicode).
    `thresholds` holds per source language the score under which hits are dropped, with the share dropped and the
    number of development sentences it was chosen on, or the `scale` CONFIDENCE.
    `files` gives the size and sha256 of each file (of an index in an engine what its parts are). `ivf` is None for an
    exact index, else it holds `nlist`, `nprobe` and `measured`: for the index's own sample and for each calibrated
    source language the `nprobe` that it needs with the recall@1 and the number of queries (see
    `retrievers.index.vectors`). `terms` is None where BM25 does not search, else it holds the settings of BM25; without
    vectors the dimension is 0. `codes` is None where vectors are stored in fp16, else it holds `bits`, those of each
    number, and `rerank`, whether the best hits are compared in fp16. `labels` tells the domain and the date of files,
    by name, as far as they were given. `resumed` (not stored) is the number of sentences that an interrupted build had
    finished before.
    """

    retriever: str
    unit: Unit
    language: str
    settings: Mapping[str, Any]
    dimension: int
    sentences: int
    units: int
    counts: Mapping[str, int]
    files: Mapping[str, Mapping[str, Any]]
    thresholds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metric: str = "inner product"
    format: int = FORMAT
    ivf: Mapping[str, Any] | None = None
    terms: Mapping[str, Any] | None = None
    codes: Mapping[str, Any] | None = None
    labels: Labels = field(default_factory=dict)
    resumed: int = field(default=0, compare=False)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The files of the index beside the manifest."""
        vectors = (VECTORS, *((ROWS,) if self.rerank else ())) if self.dimension else ()
        return (*vectors, SPANS, SENTENCES, *(() if self.terms is None else TERM_FILES))

    @property
    def bits(self) -> int:
        """The bits of each number of the vectors that are searched."""
        return FP16 if self.codes is None else int(self.codes["bits"])

    @property
    def rerank(self) -> bool:
        """Whether the vectors are there in fp16, too, by which the best hits are compared."""
        return self.codes is not None and bool(self.codes["rerank"])

    @property
    def lossy(self) -> bool:
        """Whether the vectors are there in fewer bits than those of fp16 alone."""
        return self.codes is not None and not self.rerank

    @property
    def schema(self) -> pa.Schema:
        """The columns of the sentences."""
        return PAIRS if self.unit == "memory" else SCHEMA

    @property
    def encoder(self) -> str:
        """The name of the encoder that made the vectors."""
        return str(self.settings["encoder"])

    def cut_offs(self, scale: str | None = None) -> dict[str, float]:
        """The stored cut-offs by source language: scores of the search, or with `scale` CONFIDENCE confidences."""
        return {code: float(t["score"]) for code, t in self.thresholds.items() if t.get("scale") == scale}

    def cut_off_language(self, source: str, scale: str | None = None) -> str | None:
        """The language whose cut-off is used for texts in the language `source`: that language, with or without its
        region. Where it has no cut-off, scores take the highest one (an unknown language is trusted least), and
        confidences none: the answer is then None, as it is where nothing is stored."""
        cut_offs = self.cut_offs(scale)
        known = next((code for code in (source, base_code(source)) if code in cut_offs), None)
        return known or (None if scale else max(cut_offs, key=lambda code: cut_offs[code], default=None))

    def cut_off(self, source: str, scale: str | None = None) -> float | None:
        """What is stored for `cut_off_language`, or None."""
        code = self.cut_off_language(source, scale)
        return None if code is None else self.cut_offs(scale)[code]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able contents, without the hash."""
        unset = {"resumed", *(name for name in MAY_LACK if not getattr(self, name))}
        return {name: value for name, value in asdict(self).items() if name not in unset}

    def describe(self) -> str:
        """One line for people."""
        cuts = ", ".join(f"{code} {t['score']:.4f}" for code, t in sorted(self.thresholds.items()))
        read = ", ".join(f"{n} {what}" for what, n in self.counts.items())
        vectors = f" vectors of {self.dimension} dimensions in {self.sentences} sentences" if self.dimension else "s"
        search = "exact search"
        if self.ivf is not None:
            recalls = ", ".join(f"{m['recall']:.3f} on {name}" for name, m in sorted(self.ivf["measured"].items()))
            probes = f"{self.ivf['nprobe']} of {self.ivf['nlist']} lists"
            how = f"HNSW search with ef {self.ivf['nprobe']}" if self.ivf.get("graph") else f"IVF search of {probes}"
            search = f"{how} (recall@1 {recalls})"
        parts = [
            f"{self.retriever} index of {language_of(self.language).name}",
            f"{self.units} {self.unit}{vectors} ({read})",
            *([f"encoder {self.encoder}", search] if self.dimension else []),
            *([] if self.codes is None else [f"{self.bits} bits a number{', re-ranked' if self.rerank else ''}"]),
            *([f"BM25 {', '.join(f'{key} {value:g}' for key, value in self.terms.items())}"] if self.terms else []),
            f"cut-offs {cuts}" if cuts else "no cut-off is calibrated",
            *([in_words(self.labels)] if self.labels else []),
            *([f"{self.resumed} sentences were kept from the interrupted build"] if self.resumed else []),
        ]
        return "; ".join(parts)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write `manifest.json` with its own hash; an earlier one is replaced at once."""
    write_whole(folder / MANIFEST, manifest_text(manifest))


def manifest_text(manifest: Manifest) -> str:
    """The manifest as JSON, with its own hash."""
    contents = manifest.as_dict()
    contents["hash"] = settings_hash(contents)
    return json.dumps(contents, ensure_ascii=False, indent=2, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of an index folder, or of an index in an engine (see `retrievers.index.engines`); raises UserError
    if there is none, or one that cannot be trusted."""
    if (engine := engine_of(folder)) is not None:
        return engine.stored_manifest(folder)
    restore(folder)
    if not (folder / MANIFEST).is_file():
        if building_place(folder).is_dir():
            raise UserError(
                f"the build of index {folder} was interrupted: give the same `rag-mt index build` command again"
            )
        state = "is no index (it has no manifest.json)" if folder.exists() else "does not exist"
        raise UserError(f"index {folder} {state}: build one with `rag-mt index build {folder} FILE --lang LANG`")
    try:
        contents = read_json(folder / MANIFEST)
    except ValueError:
        raise damaged(folder, f"{MANIFEST} is not JSON") from None
    return manifest_of(folder, contents)


def manifest_of(folder: Path, contents: Any, files: Collection[str] | None = None) -> Manifest:
    """The manifest with these contents; it must tell of `files`, which are those of a folder if none are named. Raises
    UserError for one that cannot be trusted."""
    if not isinstance(contents, dict):
        raise damaged(folder, f"{MANIFEST} is not a manifest")
    own_hash = contents.pop("hash", None)
    if contents.get("format") != FORMAT and isinstance(contents.get("format"), int):
        raise UserError(
            f"index {place_text(folder)} has format {contents['format']} and this version reads format {FORMAT}: "
            "build it again with `rag-mt index build --replace`"
        )
    if own_hash != settings_hash(contents):
        raise damaged(folder, f"{MANIFEST} does not match its own hash")
    if contents.keys() | MAY_LACK == {f.name for f in fields(Manifest)} - {"resumed"}:
        manifest = Manifest(**contents)
        if set(manifest.files) == set(manifest.file_names if files is None else files):
            return manifest
    raise damaged(folder, f"{MANIFEST} lacks entries or has unknown ones")


def change_manifest(folder: Path, known: Manifest, job: str, change: Callable[[Manifest], Manifest]) -> Manifest:
    """Change the manifest of an index as it is by now, one process at a time; returns the new one. `job` is what is
    being done, for errors, as in "calibration". Raises UserError if the index is no longer the one with the manifest
    `known`."""
    if (engine := engine_of(folder)) is not None:
        return engine.change_stored(folder, known, job, change)
    with alone_in(folder, f"a {job} of index {folder}", wait=True):
        manifest = read_manifest(folder)
        if manifest.files != known.files:
            raise UserError(f"index {folder} was replaced during its {job}: start the {job} again")
        manifest = change(manifest)
        write_manifest(folder, manifest)
    return manifest


def check_kind(
    folder: Path, manifest: Manifest, retriever: str, language: str, terms: Mapping[str, Any] | None
) -> None:
    """Raises UserError if an index that is to be changed is by now one of another retriever, language or terms."""
    if (manifest.retriever, manifest.language, manifest.terms) != (retriever, language, terms):
        name = language_of(manifest.language).name
        raise UserError(f"index {place_text(folder)} is a {manifest.retriever} index of {name} by now: open it again")


def check_codes(folder: Path, manifest: Manifest, codes: Mapping[str, Any]) -> None:
    """Raises UserError if the vectors of an index cannot be had in these codes."""
    if manifest.lossy and (codes["bits"] > manifest.bits or codes["rerank"]):
        raise UserError(
            f"index {place_text(folder)} has its vectors in {manifest.bits} bits a number alone, and not in fp16: "
            "build it again with `rag-mt index build --replace`"
        )


def damaged(folder: Path, reason: str) -> UserError:
    """The error for an index that is not what its builder wrote."""
    place = place_text(folder)
    again = f"copy it again with `rag-mt index copy --replace DIR {place}`"
    return UserError(
        f"index {place} is damaged: {reason}; "
        f"{again if kind_of(folder) else 'build it again with `rag-mt index build --replace`'}"
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The settings in which two configurations differ, such as `layer: 7, now 8`; nested ones by dotted names."""
    lines: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        before, now = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            lines += differences(before, now, f"{prefix}{key}.")
        elif before != now:
            lines.append(f"{prefix}{key}: {_short(before)}, now {_short(now)}")
    return lines


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
