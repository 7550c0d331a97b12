"""An index of target-language text as one object: build it, open it, search it, and choose what it shows."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import Any, Self, overload

from prompts.safety import encodable
from rag_mt.base.cluster import Cluster
from rag_mt.base.defaults import INDEX_RETRIEVER, SHARD
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language as language_of
from rag_mt.base.only import Label, Only
from rag_mt.base.types import Hint, Origin, Retriever, Sentence, Skips, TranslatedSentence
from rag_mt.formats.format import Segment
from rag_mt.formats.reading import files_of, input_stamp, place_of, segments_of, sentences_of
from rag_mt.translation.index_files import IndexFiles
from retrievers.calibration import DROP, calibrate_for, set_confidence
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.build import build_part
from retrievers.index.far import dtype_for_all, far_writer
from retrievers.index.manifest import Manifest, read_manifest
from retrievers.index.opening import open_index
from retrievers.index.vectors import form_of
from retrievers.registry import (
    build_for,
    confidence_for,
    encoder_for,
    maker_for,
    open_maker,
    open_retriever,
    retriever_spec,
    terms_for,
)
from retrievers.units.passages import passages_of

log = logging.getLogger("rag_mt")

RETRIEVERS = 16
"""Retrievers that an index keeps open: one for each language and each choice of files that was asked for lately."""


class Index(IndexFiles):
    """Target-language text in a folder, searched for the hints of sentences in any other language.

        from rag_mt import Index
        index = Index.build("my-index", texts=["The city council meets on Monday."], language="en")
        for hint in index.search("Der Stadtrat tagt am Montag.", source="de"):
            print(hint.phrase, hint.hit.score, hint.hit.sentence.source)

    `skips` counts what was left out of the text when the index was built by this object. The encoder is loaded once, at
    the first search: a `Translator` that is given the index uses the same. Several threads may search the index.
    """

    def __init__(
        self, folder: Path, manifest: Manifest, encoder: str, device: str = "auto", dtype: str = "auto"
    ) -> None:
        """See `build` and `open`, which make the objects."""
        super().__init__(folder, manifest, encoder, device, dtype)
        self.skips = Skips()
        self._encoder: ModelEncoder | None = None
        self._retrievers: OrderedDict[tuple[str, Only], Retriever] = OrderedDict()
        self._opening = RLock()

    @classmethod
    def build(
        cls,
        folder: str | Path,
        files: str | Path | Sequence[str | Path] = (),
        *,
        language: str,
        texts: Iterable[str | Sentence] | None = None,
        retriever: str = INDEX_RETRIEVER,
        encoder: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        format: str = "auto",
        column: str = "",
        split: bool = True,
        replace: bool = False,
        restart: bool = False,
        form: str = "auto",
        show: bool = False,
        shard: int = SHARD,
        cluster: Cluster | None = None,
        domain: str = "",
        date: str = "",
        **terms: float,
    ) -> Index:
        """Index text in `language` for a retriever: `files`, folders and `hf:` data sets, or `texts` in memory.

        Texts and files are split into sentences (for passages into passages) unless `split` is false; a `Sentence`
        among the texts keeps its origin. `format` and `column` say how files are read. `replace` puts the new index in
        the place of an existing one; a build that was interrupted goes on where it stopped unless `restart` is true.
        `form` is how vectors are searched (`exact`, `ivf`, `auto`), `terms` are the settings `k1`, `b` and `alpha` of
        bm25 and hybrid, `show` shows a progress bar. Lines that cannot be used are logged and counted in `skips`. With
        a `cluster` its machines encode the text, `shard` sentences at a time; the index is the same. `domain` and
        `date` (YYYY-MM-DD) are those of all files (see `label`).
        Raises UserError for what cannot be read, found or written, and where nothing could be indexed.
        """
        terms_for(retriever, **terms)  # a wrong one is refused before an encoder is loaded
        label = Label(domain, date)
        folder, code = Path(folder), language_of(language).code
        sentences, plan, skips = _read(folder, files, texts, code, retriever, format, column, split)
        opened = encoder_for(retriever, encoder, device, dtype)
        options: dict[str, Any] = {"replace": replace, "restart": restart, "form": form, "show": show, "shard": shard}
        options["label"] = label
        if cluster is not None:
            arguments = (retriever, encoder, device, dtype_for_all(dtype, opened))
            options["writer"] = far_writer(cluster, open_maker, arguments, maker_for(retriever, opened).settings)
        manifest = build_for(retriever, folder, sentences, opened, code, terms, plan=plan, **options)
        index = cls(folder, manifest, encoder or manifest.encoder, device, dtype)
        index.skips, index._encoder = skips, opened
        return index

    @staticmethod
    def build_part(
        folder: str | Path,
        files: str | Path | Sequence[str | Path],
        part: tuple[int, int],
        *,
        language: str,
        retriever: str = INDEX_RETRIEVER,
        encoder: str | None = None,
        device: str = "auto",
        dtype: str = "auto",
        format: str = "auto",
        column: str = "",
        split: bool = True,
        replace: bool = False,
        show: bool = False,
        shard: int = SHARD,
        **terms: float,
    ) -> tuple[int, int]:
        """Encode the part `part` (n, of) of the text of an index: every `of`-th shard from the n-th on, n from 1.

        Processes that share a disk may each encode a part; `build` with the same arguments then makes the index.
        Returns the number of sentences in the part, and of those that had been encoded before. Raises UserError as
        `build` does.
        """
        folder, code = Path(folder), language_of(language).code
        settings = terms_for(retriever, **terms)
        sentences, plan, _ = _read(folder, files, None, code, retriever, format, column, split)
        maker = open_maker(retriever, encoder, device, dtype)
        options: dict[str, Any] = {"plan": plan, "terms": settings, "shard": shard, "replace": replace, "show": show}
        return build_part(folder, sentences, maker, part, retriever=retriever, language=code, **options)

    def add(
        self,
        files: str | Path | Sequence[str | Path] = (),
        *,
        texts: Iterable[str | Sentence] | None = None,
        format: str = "auto",
        column: str = "",
        split: bool = True,
        restart: bool = False,
        show: bool = False,
        domain: str = "",
        date: str = "",
    ) -> None:
        """Add text to the index; the arguments are those of `build`. A file that it has gives way to its new text, and
        keeps the domain and the date that are not given anew.

        What its other files have is not encoded again, and cut-offs and adapters stay. The index is replaced in one
        step; translators that were opened before go on with the old one. Raises UserError as `build` does.
        """
        label = Label(domain, date)
        names = files_of([str(name) for name in ([files] if isinstance(files, str | Path) else files)], format)
        sentences, plan, skips = _read(self.folder, names, texts, self.language, self.retriever, format, column, split)
        self.skips = skips
        places = {place_of(name) for name in names}
        gone = [name for name in self.files if place_of(name) in places]
        self._go_on(sentences, gone, plan=plan, restart=restart, show=show, label=label)

    def remove(self, files: str | Path | Sequence[str | Path], *, restart: bool = False, show: bool = False) -> None:
        """Take the text of files out of the index. A sentence that other files have as
        well goes with the one that brought it. `restart` forgets an interrupted change.

        Raises UserError for a file that it does not have, and where nothing would be left."""
        names = [str(name) for name in ([files] if isinstance(files, str | Path) else files)]
        known, gone = self.files, list[str]()
        places = {name: place_of(name) for name in known}
        if not names:
            raise UserError(f"no file to take out of index {self.folder} is named: name one or more")
        for name in names:
            same = [other for other, place in places.items() if other == name or place == place_of(name)]
            gone += same
            if not same:
                near = ([other for other in known if name in other] or sorted(known))[:3]
                raise UserError(
                    f"index {self.folder} has no file {name}: name one that it has, such as {', '.join(near)}"
                )
        if known.keys() <= set(gone):
            raise UserError(f"nothing would be left of index {self.folder}: delete the folder, or name fewer files")
        self._go_on((), gone, plan={"removed": sorted(gone)}, restart=restart, show=show)

    def copy(self, target: str | Path, *, replace: bool = False, form: str = "auto", show: bool = False) -> Self:
        """The copy, with the encoder that is loaded; see `IndexFiles.copy`."""
        copy = super().copy(target, replace=replace, form=form, show=show)
        copy._encoder = self._encoder
        return copy

    def _changed(self, manifest: Manifest) -> None:
        """The index has become another one: a search that is opening a retriever with the old one is done before."""
        with self._opening:
            super()._changed(manifest)
            self._retrievers.clear()

    def _go_on(self, sentences: Iterable[Sentence], without: Sequence[str], **options: Any) -> None:
        """Replace the index by one with further sentences, and without those of some files."""
        manifest = build_for(
            self.retriever, self.folder, sentences, self.opened_encoder(), self.language, self._terms,
            without=without, form=form_of(self.manifest), **options,
        )  # fmt: skip
        self._changed(manifest)

    @property
    def least_confidence(self) -> float | None:
        """The confidence from which on hints are shown where none is stored; None without a confidence model."""
        model = confidence_for(self.opened_encoder(), self.folder)
        return None if model is None else model.minimum

    def opened_encoder(self) -> ModelEncoder:
        """Its encoder, which is loaded at the first call."""
        with self._opening:
            if self._encoder is None:
                self._encoder = encoder_for(self.retriever, *self._named)
            return self._encoder

    def open_retriever(self, source: str, target: str | None = None, only: Only | None = None) -> Retriever:
        """Its retriever for sentences in a language, which looks at some of its files `only`, or at all; raises
        UserError if `target` is given and not its language, and where it has none of these files."""
        return open_retriever(
            self.retriever,
            self.folder,
            self.opened_encoder(),
            source_language=language_of(source).code,
            target_language=target or self.language,
            only=only,
        )

    @overload
    def search(self, text: str, source: str, only: Only | None = None) -> list[Hint]: ...
    @overload
    def search(self, text: list[str] | tuple[str, ...], source: str, only: Only | None = None) -> list[list[Hint]]: ...
    def search(
        self, text: str | list[str] | tuple[str, ...], source: str, only: Only | None = None
    ) -> list[Hint] | list[list[Hint]]:
        """The hints for a sentence in the language `source`, strongest first, or those for each of several sentences.
        A sentence for which nothing is trusted has none (see `calibrate`). `only` says which files are looked at, if
        not all; raises UserError where there are none of these."""
        if isinstance(text, str):
            return self.search([text], source, only)[0]
        code = language_of(source).code
        key = code, only or Only()
        with self._opening:
            retriever = self._retrievers.pop(key, None) or self.open_retriever(code, only=only)
            self._retrievers[key] = retriever  # behind those that were asked less recently
            while len(self._retrievers) > RETRIEVERS:
                self._retrievers.popitem(last=False)
        return [list(hints) for hints in retriever.retrieve([Sentence(encodable(t), code) for t in text])]

    def calibrate(
        self,
        source: str,
        *,
        texts: Sequence[str] | None = None,
        drop: float = DROP,
        confidence: float | None = None,
    ) -> float:
        """Store the score under which hints for sentences in the language `source` are not shown, and return it.

        It is the one under which the share `drop` of the hints for `texts` falls, which are sentences of that language
        (of text like that to be translated, not translations of the index), or `confidence`, where a confidence model
        judges the hints (ccpr). Translators that were opened before go on with the old one. Raises UserError if both
        or neither are given, for texts without any hit, and for a confidence where there is no such model.
        """
        code = language_of(source).code
        if (texts is None) == (confidence is None):
            raise UserError("the cut-off is chosen on texts, or a confidence is given: give exactly one of the two")
        if texts is not None:
            if isinstance(texts, str):
                raise UserError("texts is one text: give a list of sentences to calibrate on")
            cut_off = calibrate_for(self.folder, self.opened_encoder(), list(texts), code, drop)
            if (least := self.least_confidence) is not None and cut_off < least:
                log.info(
                    "hints of %s are shown from a confidence of %.3f on, weaker ones than the confidence model's own "
                    "bound allows: confidence=%g (`rag-mt index calibrate %s --src %s --confidence %g`) goes back to "
                    "that",
                    *(language_of(code).name, cut_off, least, self.folder, code, least),
                )
        elif self.least_confidence is None:
            raise UserError(
                f"the {self.retriever} index {self.folder} has no confidence model: give development text instead of a "
                "confidence, or an index of ccpr"
            )
        else:
            assert confidence is not None
            set_confidence(open_index(self.folder), confidence, code)
            cut_off = float(confidence)
        with self._opening:  # nothing else changes it between reading and keeping the manifest
            self._changed(read_manifest(self.folder))
        return cut_off


def _read(
    folder: Path,
    files: str | Path | Sequence[str | Path],
    texts: Iterable[str | Sentence] | None,
    code: str,
    retriever: str,
    format: str,
    column: str,
    split: bool,
) -> tuple[Iterable[Sentence], dict[str, Any], Skips]:
    """The sentences or passages of files or texts, what tells them from others, and what was left out of them, which
    grows as they are read."""
    skips = Skips()
    names = [str(name) for name in ([files] if isinstance(files, str | Path) else files)]
    if bool(names) == (texts is not None):
        raise UserError(f"index {folder} needs files or texts to be built of, and not both: give one of them")
    plan: dict[str, Any] = {"format": format, "column": column}
    if texts is None:
        sources = segments_of(names, code, format=format, column=column, skips=skips)
        plan = {"files": [input_stamp(name) for name in names], **plan}
    else:
        segments = _segments(texts)
        sources = iter([(False, segments)])
        plan["texts"] = sha256(repr(segments).encode("utf-8", "surrogatepass")).hexdigest()
    if retriever_spec(retriever).unit == "passage":
        return passages_of(sources, code, split), plan, skips
    return sentences_of(sources, code, split, skips), plan, skips


def _segments(texts: Iterable[str | Sentence]) -> list[Segment]:
    """Texts as segments, which are numbered where they say nothing about their origin."""
    if isinstance(texts, str):
        raise UserError("texts is one text: give a list of texts to index")
    segments = []
    for number, text in enumerate(texts, 1):
        sentence = text if isinstance(text, Sentence) else Sentence(text, "", Origin("texts", number))
        if not isinstance(sentence.text, str):
            raise UserError(f"text {number} is a {type(sentence.text).__name__}: expected text")
        original = sentence.original if isinstance(sentence, TranslatedSentence) else ""
        segments.append(Segment(sentence.text, sentence.source, original))
    return segments
