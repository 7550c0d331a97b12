"""How far a hit is to be trusted: a logistic regression over what a search tells, fitted on development data.

A search always finds something. Whether the nearest phrase is a translation shows in its score, in how far it is ahead
of other phrases, in whether it leads back to the span that was asked for, and, for names and numbers, in its letters.
`eval.hints --fit` writes `confidence.json` beside the `ccpr.json` of a phrase model, for any index, or into
the folder of an index, for that one: how often a hit of some score is right depends on what an index holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Floats

FILE = "confidence.json"

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Confidence:
    """The probability that a hit is right, 1 / (1 + exp(-(bias + weights · (x - means) / scales))), from the features
    of these names (see `retrievers.ccpr.features`).

    Hits with less than `minimum` are not shown unless the index says otherwise. `fitted` tells of the data: languages,
    sentences, examples, share of right ones, penalty.
    """

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
        made = sigmoid(scaled @ np.array(self.weights) + self.bias)
        return np.where(unlike, 0, made).astype(np.float32)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        with whole_file(path) as part:
            part.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Confidence:
        """Read it; raises UserError for a file of another make."""
        try:
            found = read_json(path)
            if found.keys() != {f.name for f in fields(Confidence)}:
                raise ValueError("it lacks entries or has unknown ones")
            lists = {name: tuple(found[name]) for name in ("features", "weights", "means", "scales")}
            if len({len(own) for own in lists.values()}) != 1 or not all(map(np.isfinite, lists["weights"])):
                raise ValueError("its lists do not fit together")
            if not 0 <= found["minimum"] <= 1 or min(lists["scales"], default=1) <= 0:
                raise ValueError("its numbers are out of range")
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path} is no confidence model ({error}): fit it again with `python -m eval.hints --fit {path}`"
            ) from None
        return Confidence(**{**found, **lists})


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

    A feature that never varies gets a weight of 0. Raises UserError if all hits are right, or all wrong.
    """
    if not right.any() or right.all():
        raise UserError(
            f"{len(right)} hits of which {int(right.sum())} are right teach no confidence: give more development data"
        )
    columns = np.stack([features[name] for name in names], axis=1).astype(np.float64)
    means, scales = columns.mean(axis=0), columns.std(axis=0)
    scales[scales < 1e-9] = 1.0
    found = fit_logistic((columns - means) / scales, right, penalty)
    return Confidence(
        features=tuple(names),
        weights=tuple(found[1:].tolist()),
        bias=float(found[0]),
        means=tuple(means.tolist()),
        scales=tuple(scales.tolist()),
        minimum=minimum,
        fitted=dict(fitted or {}),
    )


def fit_logistic(columns: Doubles, labels: NDArray[np.bool_], penalty: float = 1.0, steps: int = 100) -> Doubles:
    """Intercept and weights (features + 1,) of the logistic regression of `labels` (n,) on `columns` (n, features).

    Minimises the negative log-likelihood plus penalty / 2 * |weights|², the intercept free, by Newton's method
    (iteratively reweighted least squares), a step being halved until it leads down.
    """
    design = np.concatenate([np.ones((len(columns), 1)), columns], axis=1)
    truth = labels.astype(np.float64)
    ridge = np.full(design.shape[1], float(penalty))
    ridge[0] = 0.0
    weights = np.zeros(design.shape[1])
    loss = _loss(design, truth, ridge, weights)
    for _ in range(steps):
        chance = sigmoid(design @ weights)
        slope = design.T @ (chance - truth) + ridge * weights
        if float(np.abs(slope).max()) < 1e-9 * max(1, len(truth)):
            break
        curvature = (design * (chance * (1 - chance))[:, None]).T @ design + np.diag(ridge)
        step = np.linalg.lstsq(curvature, slope, rcond=None)[0]
        size, lower = 1.0, _loss(design, truth, ridge, weights - step)
        while lower > loss and size > 1e-8:
            size /= 2
            lower = _loss(design, truth, ridge, weights - size * step)
        if lower > loss:
            break
        weights, loss = weights - size * step, lower
    return weights


def _loss(design: Doubles, truth: Doubles, ridge: Doubles, weights: Doubles) -> float:
    logits = design @ weights
    return float((np.logaddexp(0, logits) - truth * logits).sum() + 0.5 * (ridge * weights**2).sum())


def sigmoid(logits: Doubles) -> Doubles:
    """1 / (1 + exp(-logits)) without overflow."""
    made: Doubles = np.exp(-np.logaddexp(0, -logits))
    return made
