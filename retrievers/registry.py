"""The retrieval systems by name; a new one is a unit maker and a line here."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rag_mt.base.defaults import (
    DEFAULT_ENCODER,
    DEFAULT_PASSAGE_MODEL,
    DEFAULT_PHRASE_MODEL,
    DEFAULT_XPR_MODEL,
    INT8,
)
from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.only import Only
from rag_mt.base.types import Encoder, Retriever, Sentence, Unit
from retrievers.bm25 import Bm25Settings
from retrievers.ccpr.confidence import Confidence, confidence_in
from retrievers.ccpr.model import PhraseEncoder, is_phrase_model, open_phrase_encoder, phrase_model_folder
from retrievers.ccpr.retriever import CcprRetriever, CcprUnits
from retrievers.dense import DenseRetriever, IndexRetriever
from retrievers.encoders.encoder import NO_ENCODER, ModelEncoder, NoEncoder, TransformerEncoder, open_encoder
from retrievers.encoders.int8 import in_int8
from retrievers.index.beside import local_files
from retrievers.index.build import build_index
from retrievers.index.manifest import CONFIDENCE, Manifest, read_manifest
from retrievers.index.opening import open_index
from retrievers.index.places import place_text
from retrievers.index.search import Index
from retrievers.mdpr import DualEncoder, is_passage_model, open_mdpr
from retrievers.memory import similarity as similarities
from retrievers.memory.retriever import MemoryRetriever
from retrievers.memory.units import MemoryUnits
from retrievers.no_hints import NoHints
from retrievers.passage import HybridSettings, PassageRetriever
from retrievers.units.passages import PassageUnits
from retrievers.units.unit import NgramUnits, SentenceUnits, UnitMaker
from retrievers.xpr.model import BEST_LAYERS, is_xpr_model, open_xpr, untrained_xpr
from retrievers.xpr.units import XprUnits

log = logging.getLogger("rag_mt")


@dataclass(frozen=True, slots=True)
class RetrieverSpec:
    """A retrieval system: what its hits are and, if it searches an index, what makes its units, its default encoder
    and, if BM25 searches too, the kind of its settings."""

    name: str
    unit: Unit
    maker: Callable[[Encoder], UnitMaker] | None = None
    encoder: str = DEFAULT_ENCODER
    terms: type[Bm25Settings] | None = None

    @property
    def needs_index(self) -> bool:
        return self.maker is not None


_SPECS = (
    RetrieverSpec(NoHints.name, NoHints.unit),
    RetrieverSpec("sentence", "sentence", SentenceUnits),
    RetrieverSpec("memory", "memory", MemoryUnits, terms=Bm25Settings),
    RetrieverSpec("phrases", "phrase", NgramUnits),
    RetrieverSpec("ccpr", "phrase", CcprUnits, DEFAULT_PHRASE_MODEL),
    RetrieverSpec("xpr", "phrase", XprUnits, DEFAULT_XPR_MODEL),
    RetrieverSpec("passage", "passage", PassageUnits, DEFAULT_PASSAGE_MODEL),
    RetrieverSpec("bm25", "passage", PassageUnits, NO_ENCODER, Bm25Settings),
    RetrieverSpec("hybrid", "passage", PassageUnits, DEFAULT_PASSAGE_MODEL, HybridSettings),
)
RETRIEVERS = {spec.name: spec for spec in _SPECS}


def retriever_spec(name: str) -> RetrieverSpec:
    """The system of that name; raises UserError for an unknown one."""
    if name not in RETRIEVERS:
        raise UserError(f"unknown retriever {name!r}: choose one of {', '.join(RETRIEVERS)}")
    return RETRIEVERS[name]


def encoder_for(retriever: str, name: str | None = None, device: str = "auto", dtype: str = "auto") -> ModelEncoder:
    """The encoder `name`, or the default one of a system; phrase and passage models open with all that they have. XPR
    takes any encoder, as it is if it was not trained for XPR, which is logged. A `dtype` of encoders alone is `int8`
    (see `in_int8`). Raises UserError for an encoder that cannot be loaded or does not fit the system."""
    encoder = _opened(retriever, name, device, "float32" if dtype == INT8 else dtype)
    if dtype == INT8:
        for part in {encoder.query, encoder.passage} if isinstance(encoder, DualEncoder) else {encoder}:
            if isinstance(part, TransformerEncoder):
                in_int8(part)
    return encoder


def _opened(retriever: str, name: str | None, device: str, dtype: str) -> ModelEncoder:
    spec = retriever_spec(retriever)
    name = name or spec.encoder
    if spec.encoder == NO_ENCODER:
        if name != NO_ENCODER:
            raise UserError(f"retriever {retriever!r} has no encoder: leave --encoder {name} out")
        return NoEncoder()
    if spec.maker is PassageUnits:
        return open_mdpr(name, device, dtype)
    if spec.maker is CcprUnits or is_phrase_model(name):
        return open_phrase_encoder(name, device, dtype)
    if is_xpr_model(name):
        return open_xpr(name, device, dtype)
    if spec.maker is XprUnits:
        log.info("%s was not trained for XPR and is used as it is: `python -m finetune.xpr` makes a better model", name)
        return untrained_xpr(name, BEST_LAYERS.get(name), device, dtype)
    return open_encoder(name, device, dtype)


EncoderOpener = Callable[[str, str | None, str, str], ModelEncoder]
"""Opens encoders as `encoder_for` does."""


def encoder_key(retriever: str, name: str | None, device: str, dtype: str) -> tuple[Any, ...]:
    """What tells one encoder that `encoder_for` opens from another: systems open the same model in different ways."""
    spec = retriever_spec(retriever)
    return (spec.maker, name or spec.encoder, device, dtype)


def sentence_encoder(name: str, device: str = "auto", dtype: str = "auto") -> ModelEncoder:
    """An encoder of whole sentences: a passage model, a phrase model or any plain encoder."""
    return encoder_for("passage" if is_passage_model(name) else "sentence", name, device, dtype)


def maker_for(name: str, encoder: Encoder) -> UnitMaker:
    """The unit maker of a system that searches an index; raises UserError for one that does not."""
    maker = retriever_spec(name).maker
    if maker is None:
        able = ", ".join(spec.name for spec in _SPECS if spec.needs_index)
        raise UserError(f"retriever {name!r} has no index: choose one of {able}")
    return maker(encoder)


def open_maker(name: str, encoder: str | None = None, device: str = "auto", dtype: str = "auto") -> UnitMaker:
    """The unit maker of a system with its encoder, which is opened for it."""
    return maker_for(name, encoder_for(name, encoder, device, dtype))


def build_for(
    name: str,
    folder: Path,
    sentences: Iterable[Sentence],
    encoder: Encoder,
    language: str,
    terms: Mapping[str, float] | None = None,
    **options: Any,
) -> Manifest:
    """Build the index of a system from target-language sentences, or passages (see `retrievers.units.passages`).
    `terms` are settings of BM25, where it searches; the other `options` are those of `build_index`."""
    maker, settings = maker_for(name, encoder), terms_for(name, **(terms or {}))
    return build_index(folder, sentences, maker, retriever=name, language=language, terms=settings, **options)


def terms_for(name: str, **settings: float) -> Bm25Settings | None:
    """The settings of BM25 in a system, None if it has no BM25; raises UserError for settings that it does not have."""
    kind = retriever_spec(name).terms
    for key in settings:
        able = [spec.name for spec in _SPECS if spec.terms and key in {field.name for field in fields(spec.terms)}]
        if name not in able:
            raise UserError(
                f"retriever {name!r} has no setting {key}: leave it out, or choose one of {', '.join(able)}"
            )
    return kind(**settings) if kind else None


def confidence_for(encoder: Encoder, index: Path | None = None) -> Confidence | None:
    """The confidence model for hits of a phrase model in the index of that folder, which may have one of its own, else
    that of the phrase model; None if there is neither or the encoder is no phrase model."""
    if not isinstance(encoder, PhraseEncoder):
        return None
    return (confidence_in(local_files(index)) if index else None) or confidence_in(phrase_model_folder(encoder.id))


def searching(
    index: Index, maker: UnitMaker, source: str, confidence: Confidence | None, cut_off: float | None
) -> IndexRetriever:
    """The retriever over an open index for sentences in the language `source`, with the given cut-off."""
    name = index.manifest.retriever
    if index.manifest.terms is not None:
        _ = index.terms  # opened now: later another index may stand in the folder
    if isinstance(maker, PassageUnits):
        return PassageRetriever(name, index, maker, source, cut_off)
    if isinstance(maker, MemoryUnits):
        return MemoryRetriever(
            name, index, maker, source, similarities.stored(local_files(index.folder, index.manifest)), cut_off
        )
    if isinstance(maker, CcprUnits) and confidence is not None:
        return CcprRetriever(name, index, maker, confidence, cut_off)
    return DenseRetriever(name, index, maker, cut_off)


def open_retriever(
    name: str,
    index: Path | None,
    encoder: Encoder | None,
    *,
    source_language: str,
    target_language: str,
    manifest: Manifest | None = None,
    only: Only | None = None,
) -> Retriever:
    """The system `name` for sentences in the source language, over an index of the target language, whose `manifest`
    may have been read already; `only` says which of its files are looked at, if not all.

    Hits below the index's cut-off for the source language are dropped (see `Manifest.cut_off_language`). With a phrase
    model hits are judged by the confidence model of the index, or else its own, if there is one: dropped is what is
    below the confidence stored for the source language, or below that model's minimum.
    Raises UserError for an unknown name, for an index that is missing, damaged, of another system, other settings or
    another language, and where none of its files is to be looked at.
    """
    if not retriever_spec(name).needs_index:
        return NoHints()
    if index is None or encoder is None:
        raise UserError(
            f"retriever {name!r} needs an index and its encoder: build one with `rag-mt index build` and pass --index, "
            "or use --retriever none"
        )
    maker = maker_for(name, encoder)
    manifest = manifest or read_manifest(index)
    if manifest.retriever != name:
        raise UserError(
            f"index {place_text(index)} is for retriever {manifest.retriever!r}, not {name!r}: give one that was "
            "built for it"
        )
    if base_code(manifest.language) != base_code(target_language):
        there, wanted = language(manifest.language).name, language(target_language).name
        raise UserError(
            f"index {place_text(index)} holds {there} text: the target language is {wanted}, give an index of {wanted}"
        )
    opened = open_index(index, maker.settings, manifest)
    if only:
        opened = opened.within(only)  # which the CPU searches
    elif getattr(getattr(encoder, "device", None), "type", "cpu") == "cuda":
        opened.to_gpu()
    confidence = confidence_for(encoder, index) if isinstance(maker, CcprUnits) else None
    if confidence is None and not isinstance(maker, MemoryUnits):  # a memory judges what it shows by the draft
        if isinstance(maker, CcprUnits):
            log.info(
                "phrase model %s has no confidence model: its hits are judged by their score alone "
                "(`python -m eval.hints --fit` makes one)",
                encoder.id,
            )
        _log_cut_off(index, manifest, source_language)
    cut_off = manifest.cut_off(source_language, None if confidence is None else CONFIDENCE)
    return searching(opened, maker, source_language, confidence, cut_off)


def _log_cut_off(index: Path, manifest: Manifest, source: str) -> None:
    """Say whose cut-off is used where the source language has none."""
    used = manifest.cut_off_language(source)
    if used is not None and base_code(used) == base_code(source):
        return
    log.info(
        "index %s has no cut-off for %s, %s: `rag-mt index calibrate %s DEVFILE --src %s` stores one",
        place_text(index),
        language(source).name,
        "so that every hit is shown" if used is None else f"so that the one for {language(used).name} is used",
        place_text(index),
        source,
    )
