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
from retrievers.ccpr.retriever import NEIGHBOURS, Answers, candidates, described
from retrievers.ccpr.units import CcprUnits
from retrievers.index import Index

THRESHOLDS = (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
DEPTH = 2 * NEIGHBOURS
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
    chances = _Chances(maker, index)
    for own in data:
        parts: dict[float, list[Answers]] = {t: [] for t in passages}
        for begin in range(0, len(own.sources), SENTENCES_AT_ONCE):
            texts = own.sources[begin : begin + SENTENCES_AT_ONCE]
            asked = candidates(maker, texts, threshold=queries[0])
            scores, ids = index.search(asked.queries, DEPTH)
            own_chances = chances.of(ids)
            for threshold in passages:
                kept_scores, kept = _kept(scores, ids, own_chances > threshold)
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
    for passage in passages:
        for query in queries:
            number_asked, *shares = _cells(found[passage], query, precision)
            kept_share = float((chances.all > passage).mean()) if len(chances.all) else 0.0
            yield f"| {query:g} | {passage:g} | {number_asked} | {kept_share:.1%} | {' | '.join(shares)} |"


class _Chances:
    """The probabilities of the index's units that they are phrases, by reading their sentences again, each once."""

    def __init__(self, maker: CcprUnits, index: Index) -> None:
        self._maker, self._index = maker, index
        self._known: dict[tuple[str, int, int], float] = {}
        self._read: set[str] = set()

    @property
    def all(self) -> Floats:
        """Those of all units of the sentences that were read."""
        return np.fromiter(self._known.values(), np.float32, len(self._known))

    def of(self, ids: NDArray[np.int64]) -> Floats:
        """Those of units, of the same shape; 0 for gaps (-1)."""
        units, places = np.unique(ids, return_inverse=True)
        hits = [self._index.hit(unit, 0.0) for unit in units[units >= 0].tolist()]
        self._read_again(list({hit.sentence.text for hit in hits} - self._read))
        made = np.zeros(len(units), np.float32)
        made[units >= 0] = [self._known.get((h.sentence.text, h.span.start, h.span.end), 0.0) for h in hits]
        return made[places.reshape(ids.shape)]

    def _read_again(self, texts: Sequence[str]) -> None:
        self._read.update(texts)
        for begin in range(0, len(texts), self._maker.block):
            part = texts[begin : begin + self._maker.block]
            _, spans, chances = self._maker.scored(part, self._maker.thresholds["passage"])
            keys = ((part[n], a, b) for n, a, b in spans.tolist())
            self._known |= dict(zip(keys, chances.tolist(), strict=True))


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
