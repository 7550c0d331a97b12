"""A small linear model over named features, as it is fitted and stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.types import Floats
from retrievers.ccpr.confidence import Doubles, fit_logistic, sigmoid


@dataclass(frozen=True)
class Regression:
    """bias + weights · (x - means) / scales for the features of these names; `chance` is its logistic function."""

    features: tuple[str, ...]
    weights: tuple[float, ...]
    bias: float
    means: tuple[float, ...]
    scales: tuple[float, ...]

    def value(self, features: Mapping[str, Floats]) -> Doubles:
        """The linear form for arrays (n,) by name; a feature that is not there counts as its mean."""
        size = len(next(iter(features.values())))
        value = np.full(size, self.bias)
        for name, weight, mean, scale in zip(self.features, self.weights, self.means, self.scales, strict=True):
            if name in features:
                value += weight * (np.asarray(features[name], np.float64) - mean) / scale
        return value

    def chance(self, features: Mapping[str, Floats]) -> Doubles:
        """1 / (1 + exp(-value)), from 0 to 1."""
        return sigmoid(self.value(features))

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, numbers to six digits."""
        values = asdict(self)
        return {k: [float(f"{x:.6g}") for x in v] if k in _LISTS else v for k, v in values.items()}

    @staticmethod
    def of(stored: Mapping[str, Any]) -> Regression:
        """What `as_dict` gave; raises ValueError or TypeError for anything else."""
        if stored.keys() != {f.name for f in fields(Regression)}:
            raise ValueError("it lacks entries or has unknown ones")
        lists = {name: tuple(stored[name]) for name in ("features", *_LISTS)}
        numbers = [stored["bias"], *(x for name in _LISTS for x in lists[name])]
        if len({len(values) for values in lists.values()}) != 1 or not np.isfinite(numbers).all():
            raise ValueError("its lists do not fit together")
        if min(lists["scales"], default=1) <= 0:
            raise ValueError("its scales are not above 0")
        return Regression(**{**stored, **lists})


_LISTS = ("weights", "means", "scales")


def fitted(features: Mapping[str, Floats], names: Sequence[str], truth: NDArray[Any]) -> Regression:
    """The logistic regression of `truth` (n,), shares from 0 to 1, on the features of those `names`, scaled. A feature
    that never varies gets a weight of 0."""
    columns = np.stack([np.asarray(features[name], np.float64) for name in names], axis=1)
    means, scales = columns.mean(axis=0), columns.std(axis=0)
    scales[scales < 1e-9] = 1.0
    bias, *weights = fit_logistic((columns - means) / scales, truth).tolist()
    return Regression(tuple(names), tuple(weights), bias, tuple(means.tolist()), tuple(scales.tolist()))
