"""The classifier of candidates: the probability that two near sentences are translations of each other.

It is a logistic regression over the features of `retrievers.mining.candidates`, fitted by
`python -m eval.bitext --fit FILE`. Like a threshold it belongs to an encoder, but to no language.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from retrievers.ccpr.confidence import Confidence, fit_confidence
from retrievers.mining.candidates import FEATURES, Candidates

FILE = Path(__file__).with_name("classifier.json")
PENALTY = 1.0
FOLDS = 5


def known_classifier(encoder: str, file: Path = FILE) -> Confidence | None:
    """The classifier that comes with rag_mt for the encoder of that name; None if it has none."""
    classifier = Confidence.load(file)
    return classifier if classifier.fitted["encoder"] == encoder else None


def chances(pairs: Candidates, classifier: Confidence) -> Floats:
    """The probability (pairs,) that each candidate, with all its features, is a translation."""
    return classifier.of(pairs.features, np.zeros(len(pairs), dtype=bool))


def fit_classifier(
    sets: Sequence[tuple[Candidates, NDArray[np.bool_]]], minimum: float, fitted: Mapping[str, object]
) -> Confidence:
    """The classifier of all candidates of some sets, each with whether they are `right` (pairs,). Pairs of less than
    `minimum` are not meant to be taken."""
    names = FEATURES
    features = {name: np.concatenate([pairs.features[name] for pairs, _ in sets]) for name in names}
    right = np.concatenate([marks for _, marks in sets])
    return fit_confidence(features, right, names, penalty=PENALTY, minimum=minimum, fitted=fitted)


def held_out_chances(sets: Sequence[tuple[Candidates, NDArray[np.bool_]]], seed: int = 0) -> list[Floats]:
    """For each set the probability (pairs,) of its candidates by classifiers that saw none of their source sentences:
    these are divided into FOLDS parts by chance."""
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, FOLDS, int(pairs.sources.max(initial=0)) + 1)[pairs.sources] for pairs, _ in sets]
    result = [np.zeros(len(pairs), np.float32) for pairs, _ in sets]
    for fold in range(FOLDS):
        seen = [
            (pairs.where(part != fold), right[part != fold]) for (pairs, right), part in zip(sets, parts, strict=True)
        ]
        classifier = fit_classifier(seen, 0.0, {})
        for own, (pairs, _), part in zip(result, sets, parts, strict=True):
            own[part == fold] = chances(pairs.where(part == fold), classifier)
    return result
