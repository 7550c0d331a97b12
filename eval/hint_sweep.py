"""Thresholds of the segmentation against what hints come to: for choosing them, on development data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from eval.hint_coverage import Judged, by_coverage, joined, shown
from eval.hint_systems import SENTENCES_AT_ONCE, Development, gathered, judged
from eval.hint_verdicts import RIGHT
from rag_mt.types import Floats
from retrievers.ccpr.confidence import fit_confidence, sigmoid
from retrievers.ccpr.features import CHANCE, FEATURES
from retrievers.ccpr.retriever import ALL, NEIGHBOURS, Answers, candidates, described
from retrievers.ccpr.units import CcprUnits
from retrievers.index import Index

THRESHOLDS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DEPTH = 4 * NEIGHBOURS
"""Hits that are looked up for each phrase, among which enough are left at the highest threshold of the index."""

COVERAGES = (0.05, 0.1, 0.2, 0.3)


def sweep(maker: CcprUnits, index: Index, data: Sequence[Development], precision: float) -> Iterator[str]:
    """The lines of a Markdown table: for each threshold of queries and of the index, the phrases per sentence and the
    share of the index that are left, right hints per sentence at the wanted precision, and precision at some coverages
    (blank where too little is left).

    Thresholds of the index start at the one that it was built with; the units that a higher one would leave out are
    taken out of the results by their own probability. Each pair of thresholds has its own fit, on the same sentences.
    """
    built = maker.thresholds["passage"]
    queries = THRESHOLDS
    passages = [built, *(t for t in THRESHOLDS if t > built)]
    found: dict[float, list[tuple[Answers, Judged]]] = {t: [] for t in passages}
    left, units = np.zeros(len(passages)), 0
    for own in data:
        parts: dict[float, list[Answers]] = {t: [] for t in passages}
        for begin in range(0, len(own.sources), SENTENCES_AT_ONCE):
            texts = own.sources[begin : begin + SENTENCES_AT_ONCE]
            asked = candidates(maker, texts, queries[0])
            scores, ids = index.search(asked.vectors[asked.asked], DEPTH)
            chances, all_chances = _chances(maker, index, ids)
            left += [(all_chances > t).sum() for t in passages]
            units += len(all_chances)
            for threshold in passages:
                kept_scores, kept = _kept(scores, ids, chances > threshold)
                made = described(index, texts, asked, kept_scores, kept)
                shift = np.array([begin, 0, 0], np.int32)
                parts[threshold].append(Answers(made.spans + shift, made.hits, made.features, made.unlike))
        for threshold, made_parts in parts.items():
            answers = gathered(made_parts)
            found[threshold].append((answers, judged(own, answers)))
    yield (
        f"| query | index | phrases/sentence | index kept | right hints/sentence at {precision:.0%} | "
        + " | ".join(f"right at {c:.0%} of content" for c in COVERAGES)
        + " |"
    )
    yield "|---" * (5 + len(COVERAGES)) + "|"
    for number, passage in enumerate(passages):
        for query in queries:
            number_asked, *shares = _cells(found[passage], query, precision)
            kept_share = left[number] / max(units, 1)
            yield f"| {query:g} | {passage:g} | {number_asked} | {kept_share:.1%} | {' | '.join(shares)} |"


def _chances(maker: CcprUnits, index: Index, ids: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """The probability of each unit of `ids` that it is a phrase, of the same shape, 0 for gaps; and those of all
    phrases, as the index was built, of the sentences they are in."""
    units, places = np.unique(ids, return_inverse=True)
    hits = [index.hit(unit, 0.0) for unit in units[units >= 0].tolist()]
    texts = list(dict.fromkeys(hit.sentence.text for hit in hits))
    numbers = {text: n for n, text in enumerate(texts)}
    made = np.zeros(len(units), np.float32)
    known: dict[tuple[int, int, int], float] = {}
    every = [np.zeros(0, np.float32)]
    for begin in range(0, len(texts), maker.block):
        _, spans, chances = maker.scored(texts[begin : begin + maker.block], ALL)
        spans = spans + np.array([begin, 0, 0], np.int32)
        known |= dict(zip(map(tuple, spans.tolist()), chances.tolist(), strict=True))
        every.append(chances[chances > maker.thresholds["passage"]])
    made[units >= 0] = [known.get((numbers[h.sentence.text], h.span.start, h.span.end), 0.0) for h in hits]
    return made[places.reshape(ids.shape)], np.concatenate(every)


def _kept(scores: Floats, ids: NDArray[np.int64], good: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.int64]]:
    """The best hits among the good ones."""
    order = np.argsort(~good, axis=1, kind="stable")[:, :NEIGHBOURS]
    rows = np.take_along_axis(np.where(good, ids, -1), order, axis=1)
    return np.take_along_axis(scores, order, axis=1), rows


def _cells(parts: Sequence[tuple[Answers, Judged]], query: float, precision: float) -> list[str]:
    pieces = []
    for answers, own in parts:
        rows = np.flatnonzero(sigmoid(answers.features[CHANCE].astype(np.float64)) > query)
        pieces.append((answers.take(rows), own.take(rows)))
    every = joined([own for _, own in pieces])
    features = {name: np.concatenate([answers.features[name] for answers, _ in pieces]) for name in FEATURES}
    unlike = np.concatenate([answers.unlike for answers, _ in pieces])
    good = {name: own[~unlike] for name, own in features.items()}
    truth = every.verdicts[~unlike] >= RIGHT
    if not truth.any() or truth.all():  # too little is left to fit anything
        return [f"{len(every.verdicts) / every.sentences:.1f}", *[""] * (1 + len(COVERAGES))]
    confidence = fit_confidence(good, truth, FEATURES)
    trust = confidence.of(features, unlike)
    rows = shown(every, trust)
    right = np.cumsum(every.verdicts[rows] >= RIGHT)
    precise = np.flatnonzero(right >= precision * np.arange(1, len(rows) + 1))
    most = int(right[precise[-1]]) if len(precise) else 0
    lines = by_coverage(every, trust, COVERAGES)
    shares = ["" if own is None or own.right is None else f"{own.right:.1%}" for own in lines]
    return [f"{len(every.verdicts) / every.sentences:.1f}", f"{most / every.sentences:.2f}", *shares]
