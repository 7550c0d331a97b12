"""An index of target-language text as it lies in its folder or engine: what it holds, and what can be done with it
without its encoder. Nothing here imports a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rag_mt.base.only import Labels
from rag_mt.translation.index_adapters import describe, index_adapters
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.labelling import label_files
from retrievers.index.manifest import Manifest
from retrievers.index.opening import open_index
from retrievers.index.places import place_text


class IndexFiles:
    """An index that is not searched; see `rag_mt.translation.index.Index`."""

    def __init__(
        self, folder: Path, manifest: Manifest, encoder: str, device: str = "auto", dtype: str = "auto"
    ) -> None:
        """See `open`, which makes the objects."""
        self.folder, self.manifest = folder, manifest
        self._named = (encoder, device, dtype)

    @classmethod
    def open(cls, folder: str | Path, *, encoder: str | None = None, device: str = "auto", dtype: str = "auto") -> Self:
        """The index in a folder; `encoder` is another name (a local folder, say) of the one that it was built with.
        Raises UserError for a folder without an index and for a damaged one."""
        manifest = open_index(Path(folder)).manifest
        return cls(Path(folder), manifest, encoder or manifest.encoder, device, dtype)

    def label(
        self, files: str | Sequence[str] = "*", *, domain: str | None = None, date: str | None = None
    ) -> list[str]:
        """Say of files of the index what their `domain` is and which day (YYYY-MM-DD) they are from, so that a search
        can be told to look at some of them only; returns their names.

        Files are named as the index has them, or by patterns (see `Only`). What is None stays, what is empty is taken
        away, and nothing is encoded. Raises UserError for names that it does not have, a domain or date that is none,
        and where neither is given.
        """
        patterns = [files] if isinstance(files, str) else list(files)
        manifest, names = label_files(self.folder, self.manifest, self.files, patterns, domain, date)
        self._changed(manifest)
        return names

    def copy(self, target: str | Path, *, replace: bool = False, form: str = "auto", show: bool = False) -> Self:
        """Copy the index to `target`, a place in LanceDB (`lance:FOLDER`, `lance:s3://BUCKET/FOLDER`) or Qdrant
        (`qdrant:FOLDER`, `qdrant:http://HOST:6333/NAME`), or, where it is in one of them, to a folder, and return the
        copy, which is used as the index is. `replace` puts it in the place of an index that is there, `form` is that of
        `build`. Raises UserError for another place, one that is taken or cannot be written, and where its engine is
        not installed."""
        manifest = copy_index(self.folder, Path(target), replace=replace, form=form, show=show)
        return type(self)(Path(target), manifest, *self._named)

    def compress(self, bits: int, *, rerank: bool = False, show: bool = False) -> None:
        """Store each number of the vectors in 8, 4 or 2 bits instead of the 16 of fp16, or in 16 again where they are
        there.

        With `rerank` the vectors stay in fp16 as well, beside the compressed ones: search then compares the best hits
        by them, and finds nearly what it found before. The index is replaced in one step, as by `add`. Raises
        UserError for another number of bits, one that the vectors cannot be had in (any more, or 4 and 2 bits of fewer
        than 256), an index in an engine and one without vectors.
        """
        from retrievers.registry import terms_for  # and with it models, which nothing else here needs

        manifest = compress_index(self.folder, bits, rerank, terms_for(self.retriever, **self._terms), show)
        self._changed(manifest)

    @property
    def files(self) -> dict[str, int]:
        """The files that its sentences came from, with the number of sentences of each."""
        return open_index(self.folder).files()

    @property
    def labels(self) -> Labels:
        """What is known of its files, by name: `domain` and `date`."""
        return self.manifest.labels

    @property
    def _terms(self) -> dict[str, float]:
        """The settings of BM25 that it was built with."""
        return {name: float(value) for name, value in (self.manifest.terms or {}).items()}

    @property
    def language(self) -> str:
        """The code of the language of its text."""
        return self.manifest.language

    @property
    def retriever(self) -> str:
        """The name of the retriever that it was built for."""
        return self.manifest.retriever

    @property
    def sentences(self) -> int:
        """The number of sentences (or passages) in it."""
        return self.manifest.sentences

    @property
    def encoder(self) -> str:
        """The name of its encoder."""
        return self._named[0]

    def describe(self) -> str:
        """What it holds, in one line for people."""
        return f"{place_text(self.folder)}: {'; '.join([self.manifest.describe(), *self.adapters])}"

    @property
    def adapters(self) -> list[str]:
        """The adapters that were tuned on its text, each in a few words for people."""
        return [f"adapter from {code}: {describe(report)}" for code, report in index_adapters(self.folder).items()]

    def __repr__(self) -> str:
        return f"<Index {self.describe()}>"

    def _changed(self, manifest: Manifest) -> None:
        """The index has become another one, with this manifest."""
        self.manifest = manifest
