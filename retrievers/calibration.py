"""The score under which hits are not shown, chosen on development text and stored in the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code
from rag_mt.base.types import Sentence
from retrievers.ccpr.confidence import Confidence
from retrievers.ccpr.retriever import CcprRetriever
from retrievers.ccpr.units import CcprUnits
from retrievers.dense import DenseRetriever
from retrievers.index.manifest import Manifest, change_manifest
from retrievers.index.probing import QUERIES, tune_nprobe
from retrievers.index.search import Index
from retrievers.passage import PassageRetriever, ranked
from retrievers.units.passages import PassageUnits
from retrievers.units.unit import UnitMaker

DROP = 0.25
"""The share of hits that is dropped: the weakest quarter, as the CCPR authors' code does per test set. A stored score
does it for one sentence alone as well."""

CONFIDENCE = "confidence"
"""The scale of a stored cut-off that is a confidence; others are scores of the search."""

TUNED_AT_ONCE = 16


def calibrate(
    index: Index,
    maker: UnitMaker,
    texts: Sequence[str],
    source_language: str,
    drop: float = DROP,
    without: Sequence[int] | None = None,
    confidence: Confidence | None = None,
) -> float:
    """The `drop` quantile of the scores of the hits for `texts`, now the cut-off for `source_language`.

    It is written into the manifest of the index as it is by then (no other file changes). The texts also decide how
    many lists of an IVF index are searched (see `tune_nprobe`). Scores are those of the hints that would be shown,
    overlaps resolved; with a `confidence` model they are confidences. `without[i]` is a sentence of the index to leave
    out for text i.
    Raises UserError if no text has a hit, or if the index was replaced meanwhile.
    """
    if not 0 <= drop < 1:
        raise UserError(f"a share of {drop} of the hits cannot be dropped: expected a number from 0 to below 1")
    if index.manifest.ivf is not None:
        _tune(index, maker, texts, source_language)
    sentences = [Sentence(t, source_language) for t in texts]
    found = _uncut(index, maker, source_language, confidence).retrieve(sentences, without)
    scores = [hint.hit.score for hints in found for hint in hints]
    if not scores:
        raise UserError(
            f"none of the {len(texts)} sentences to calibrate with has a hit in {index.folder}: "
            "give development text with words in it"
        )
    score = float(np.quantile(np.array(scores, dtype=np.float64), drop))
    threshold = {"score": score, "drop": drop, "sentences": len(texts)}
    _store(index, source_language, threshold if confidence is None else {**threshold, "scale": CONFIDENCE})
    return score


def set_confidence(index: Index, confidence: float, source_language: str) -> None:
    """Store the least confidence of the hits that are shown for a source language.

    Raises UserError for what is no probability.
    """
    if not 0 <= confidence <= 1:
        raise UserError(f"a confidence of {confidence:g} is none: expected a number from 0 to 1")
    _store(index, source_language, {"score": float(confidence), "scale": CONFIDENCE})


def confidence_cut_off(manifest: Manifest, source_language: str) -> float | None:
    """The least confidence that an index has stored for a source language, with or without its region, if any."""
    for code in (source_language, base_code(source_language)):
        threshold = manifest.thresholds.get(code, {})
        if threshold.get("scale") == CONFIDENCE:
            return float(threshold["score"])
    return None


def score_cut_offs(manifest: Manifest) -> Manifest:
    """The manifest with those cut-offs only that scores of the search can be compared with."""
    kept = {code: own for code, own in manifest.thresholds.items() if own.get("scale") != CONFIDENCE}
    return replace(manifest, thresholds=kept)


def _uncut(
    index: Index, maker: UnitMaker, source: str, confidence: Confidence | None
) -> DenseRetriever | CcprRetriever | PassageRetriever:
    """The retriever without any cut-off."""
    name = index.manifest.retriever
    if isinstance(maker, PassageUnits):
        return PassageRetriever(ranked(name), index, maker, source)
    if confidence is None or not isinstance(maker, CcprUnits):
        return DenseRetriever(name, index, maker)
    return CcprRetriever(name, index, maker, confidence, cut_off=0.0)


def _store(index: Index, source_language: str, threshold: Mapping[str, Any]) -> None:
    def change(manifest: Manifest) -> Manifest:
        return replace(manifest, thresholds={**manifest.thresholds, source_language: threshold})

    index.manifest = change_manifest(index.folder, index.manifest, "calibration", change)


def _tune(index: Index, maker: UnitMaker, texts: Sequence[str], source_language: str) -> None:
    """Choose how many lists of an IVF index are searched by the queries of some of the texts."""
    vectors, spread = [], np.random.default_rng(0).permutation(len(texts))
    for begin in range(0, len(texts), TUNED_AT_ONCE):
        chosen = spread[begin : begin + TUNED_AT_ONCE].tolist()
        vectors.append(maker.units([texts[n] for n in chosen], "query")[0])
        if sum(map(len, vectors)) >= QUERIES:
            break
    if queries := sum(map(len, vectors)):
        rows = np.concatenate(vectors)[np.linspace(0, queries - 1, min(queries, QUERIES)).astype(int)]
        tune_nprobe(index, rows, source=source_language)
