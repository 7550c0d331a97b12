"""How far a hit is to be trusted: a logistic regression over what a search tells, fitted on development data.

A search always finds something. Whether the nearest phrase is a translation shows in its score, in how far it is ahead
of other phrases, in whether it leads back to the span that was asked for, and, for names and numbers, in its letters.
`eval.hints --fit` writes `confidence.json` beside the `ccpr.json` of a phrase model, for any index, or into
the folder of an index, for that one: how often a hit of some score is right depends on what an index holds.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from anyascii import anyascii
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, write_whole
from rag_mt.base.types import Floats
from rag_mt.text.words import word_spans

FILE = "confidence.json"

CHANCE = "chance"
FEATURES = (
    *("score", "margin", "lead", "share"),  # see `search_features`
    *("back first", "back rival", "back margin"),  # see `back_features`
    *("length ratio", "length gap", "words", "query digits", "hit digits alone"),  # see `string_features`
    *("query name", "hit name", "alike", "names alike", "names unlike", "query name unlike", "hit name unlike"),
    *("names unlike, margin", CHANCE),  # see `retrievers.ccpr.retriever.answers`
)

_NUMBER = re.compile(r"(?<!\d)\d{1,3}(?:[ \u00a0\u2009\u202f.,'’]\d{3})+(?!\d)(?:[.,]\d+)?|\d+(?:[.,:]\d+)*")

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Confidence:
    """The probability that a hit is right, 1 / (1 + exp(-(bias + weights · (x - means) / scales))), from the features
    of these names (see FEATURES). Hits with less than `minimum` are not shown unless the index says otherwise. `fitted`
    tells of the data: languages, sentences, examples, share of right ones, penalty."""

    features: tuple[str, ...]
    weights: tuple[float, ...]
    bias: float
    means: tuple[float, ...]
    scales: tuple[float, ...]
    minimum: float
    fitted: Mapping[str, Any]

    def of(self, features: Mapping[str, Floats], unlike: NDArray[np.bool_]) -> Floats:
        """The confidence in each hit (hits,) of `features`, arrays (hits,) by name; 0 where `unlike`, which is for hits
        whose numbers are not those of the query."""
        missing = [name for name in self.features if name not in features]
        if missing:
            raise UserError(
                f"the confidence model wants {', '.join(missing)}, which this version of rag_mt does not compute: "
                "fit it again with `python -m eval.hints --fit`"
            )
        columns = np.stack([features[name] for name in self.features], axis=1).astype(np.float64)
        scaled = (columns - np.array(self.means)) / np.array(self.scales)
        chances = sigmoid(scaled @ np.array(self.weights) + self.bias)
        return np.where(unlike, 0, chances).astype(np.float32)

    def save(self, path: Path) -> None:
        write_whole(path, json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n")

    @staticmethod
    def load(path: Path) -> Confidence:
        """Read it; raises UserError for a file of another make."""
        try:
            stored = read_json(path)
            if stored.keys() != {f.name for f in fields(Confidence)}:
                raise ValueError("it lacks entries or has unknown ones")
            lists = {name: tuple(stored[name]) for name in ("features", "weights", "means", "scales")}
            if len({len(values) for values in lists.values()}) != 1 or not all(map(np.isfinite, lists["weights"])):
                raise ValueError("its lists do not fit together")
            if not 0 <= stored["minimum"] <= 1 or min(lists["scales"], default=1) <= 0:
                raise ValueError("its numbers are out of range")
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is no confidence model ({error}): fit it again with `python -m eval.hints --fit {path}`"
            ) from None
        return Confidence(**{**stored, **lists})


def confidence_in(folder: Path) -> Confidence | None:
    """The confidence model in the folder of a phrase model or an index, if it has one."""
    path = folder / FILE
    return Confidence.load(path) if path.is_file() else None


def fit_confidence(
    features: Mapping[str, Floats],
    right: NDArray[np.bool_],
    names: Sequence[str],
    *,
    penalty: float = 1.0,
    minimum: float = 0.0,
    fitted: Mapping[str, Any] | None = None,
) -> Confidence:
    """The confidence model of hits whose `features` and correctness `right` (hits,) are known, on the features `names`.
    A feature that never varies gets a weight of 0. Raises UserError if all hits are right, or all wrong."""
    if not right.any() or right.all():
        raise UserError(
            f"{len(right)} hits of which {int(right.sum())} are right teach no confidence: give more development data"
        )
    columns = np.stack([features[name] for name in names], axis=1).astype(np.float64)
    means, scales = columns.mean(axis=0), columns.std(axis=0)
    scales[scales < 1e-9] = 1.0
    bias, *weights = fit_logistic((columns - means) / scales, right, penalty).tolist()
    numbers = (tuple(weights), bias, tuple(means.tolist()), tuple(scales.tolist()))
    return Confidence(tuple(names), *numbers, minimum, dict(fitted or {}))


def fit_logistic(columns: Doubles, labels: NDArray[Any], penalty: float = 1.0, steps: int = 100) -> Doubles:
    """Intercept and weights (features + 1,) of the logistic regression of `labels` (n,), true or false or shares, on
    `columns` (n, features).

    Minimises the negative log-likelihood plus penalty / 2 * |weights|², the intercept free, by Newton's method
    (iteratively reweighted least squares), a step being halved until it leads down."""
    design = np.concatenate([np.ones((len(columns), 1)), columns], axis=1)
    truth = labels.astype(np.float64)
    ridge = np.full(design.shape[1], float(penalty))
    ridge[0] = 0.0

    def loss(weights: Doubles) -> float:
        logits = design @ weights
        return float((np.logaddexp(0, logits) - truth * logits).sum() + 0.5 * (ridge * weights**2).sum())

    weights = np.zeros(design.shape[1])
    for _ in range(steps):
        chance = sigmoid(design @ weights)
        slope = design.T @ (chance - truth) + ridge * weights
        if float(np.abs(slope).max()) < 1e-9 * max(1, len(truth)):
            break
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        least = loss(weights)
        lower = next((w for w in (weights - step / 2**halvings for halvings in range(28)) if loss(w) <= least), None)
        if lower is None:
            break
        weights = lower
    return weights


def sigmoid(logits: Doubles) -> Doubles:
    """1 / (1 + exp(-logits)) without overflow."""
    chances: Doubles = np.exp(-np.logaddexp(0, -logits))
    return chances


def search_features(scores: Floats, surfaces: NDArray[np.int64]) -> dict[str, Floats]:
    """Features of the best hits from the `scores` (queries, k) of the best k, in descending order, and a number for
    the surface of each; a number below 0 says that there is no such hit.

    `score`; `margin`, how far it is above the best hit of another surface (all of the same: above the last one);
    `lead`, how far above the mean of the hits of other surfaces; `share` of the best surface among the hits.
    """
    there = surfaces >= 0
    other = there & (surfaces != surfaces[:, :1])
    any_hit, alone = there[:, 0], ~other.any(axis=1)
    best = np.where(any_hit, scores[:, 0], 0.0)
    last = np.where(any_hit, np.where(there, scores, np.inf).min(axis=1, initial=np.inf), 0.0)
    second = np.where(other, scores, -np.inf).max(axis=1, initial=-np.inf)
    mean = np.where(other, scores, 0.0).sum(axis=1) / np.maximum(other.sum(axis=1), 1)
    features = {
        "score": best,
        "margin": best - np.where(alone, last, second),
        "lead": best - np.where(alone, last, mean),
        "share": (there & ~other).sum(axis=1) / np.maximum(there.sum(axis=1), 1),
    }
    return {name: values.astype(np.float32) for name, values in features.items()}


def back_features(
    hits: Floats, asked: NDArray[np.int64], vectors: Floats, spans: NDArray[np.int32]
) -> dict[str, Floats]:
    """Features of searching a sentence for its hits: `hits` (queries, dimension) are vectors of the hits, `asked` the
    rows of the spans that were asked for among all spans of their sentence, `vectors` (spans, dimension) and `spans`
    (spans, 3) ordered by sentence.

    `back first`: whether the span that was asked for is the most similar one of all; `back rival` and `back margin`:
    how far it is above the best other one that overlaps it, and above the best one that does not (1 if there is none).
    """
    features = {name: np.ones(len(asked), np.float32) for name in ("back first", "back rival", "back margin")}
    texts = spans[asked, 0]
    for text in np.unique(texts).tolist():
        low, high = np.searchsorted(spans[:, 0], [text, text + 1])
        rows = np.flatnonzero(texts == text)
        scores = hits[rows] @ vectors[low:high].T
        asked_spans = spans[asked[rows]]
        apart = (spans[None, low:high, 2] <= asked_spans[:, 1:2]) | (spans[None, low:high, 1] >= asked_spans[:, 2:])
        overlapping, at = ~apart, (np.arange(len(rows)), asked[rows] - low)
        overlapping[at] = False
        rival = np.where(overlapping, scores, -np.inf).max(axis=1)
        away = np.where(apart, scores, -np.inf).max(axis=1)
        features["back first"][rows] = scores[at] >= np.maximum(rival, away)
        features["back rival"][rows] = np.minimum(scores[at] - rival, 1)
        features["back margin"][rows] = np.minimum(scores[at] - away, 1)
    return features


def string_features(
    queries: Sequence[tuple[str, int, int]], hits: Sequence[tuple[str, int, int]]
) -> tuple[dict[str, Floats], NDArray[np.bool_]]:
    """Features of the letters of queries and hits, each a text with start and end of the phrase; and whether the
    query has numbers that are not those of the hit.

    Lengths: log of hit characters per query character, its absolute value, and the query's words. Digits: whether the
    query has some, whether only the hit has. Names: whether a word inside the sentence, not at its start, has a
    capital; how alike the two are (see `likeness`); and products of these.
    """
    pairs = [(s[a:b], t[c:d]) for (s, a, b), (t, c, d) in zip(queries, hits, strict=True)]
    ratio = np.log([(len(h) + 1) / (len(q) + 1) for q, h in pairs])
    numbers = [(numbers_of(q), numbers_of(h)) for q, h in pairs]
    query_name, hit_name = (np.array([capitalised(*span) for span in side], dtype=bool) for side in (queries, hits))
    alike = np.array([likeness(q, h) for q, h in pairs])
    features = {
        "length ratio": ratio,
        "length gap": np.abs(ratio),
        "words": [q.count(" ") + 1 for q, _ in pairs],
        "query digits": [bool(q) for q, _ in numbers],
        "hit digits alone": [bool(h) and not q for q, h in numbers],
        "query name": query_name,
        "hit name": hit_name,
        "alike": alike,
        "names alike": (query_name & hit_name) * alike,
        "names unlike": (query_name & hit_name) * (1 - alike),
        "query name unlike": (query_name & ~hit_name) * (1 - alike),
        "hit name unlike": (hit_name & ~query_name) * (1 - alike),
    }
    unlike = np.array([bool(q) and q != h for q, h in numbers], dtype=bool)
    return {name: np.asarray(values, dtype=np.float32) for name, values in features.items()}, unlike


def numbers_of(phrase: str) -> list[str]:
    """The numbers in a phrase as sorted strings of ASCII digits: `20 000`, `20.000` and `20,000` are equal, and so are
    `12. Mai 2014` and `May 12, 2014`."""
    digits = ([c for c in number if c.isdecimal()] for number in _NUMBER.findall(phrase))
    return sorted("".join(str(unicodedata.decimal(c)) for c in number) for number in digits)


def capitalised(text: str, start: int, end: int) -> bool:
    """Whether a word between `start` and `end` begins with a capital and is not the first word of the text."""
    words = word_spans(text[start:end])[:, 0].tolist()
    first = not any(map(str.isalnum, text[:start]))
    return any(text[start + a].isupper() for a in (words[1:] if first else words))


def likeness(one: str, other: str) -> float:
    """How similar two phrases look, from 0 to 1, letter case, diacritics and script aside: twice the pairs of
    neighbouring letters that they share over those that they have (Dice; word edges count as letters)."""
    a, b = _letter_pairs(one), _letter_pairs(other)
    return 2 * len(a & b) / (len(a) + len(b)) if a and b else 0.0


@lru_cache(65536)
def _letter_pairs(phrase: str) -> frozenset[str]:
    plain = phrase if phrase.isascii() else anyascii(phrase)
    letters = "".join(c if c.isalnum() else "" if c in "'`\"" else " " for c in plain.casefold())
    return frozenset(word[n : n + 2] for word in (f"^{w}$" for w in letters.split()) for n in range(len(word) - 1))
