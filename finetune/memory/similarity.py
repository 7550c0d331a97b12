"""Fitting the similarity of a memory: what chrF a stored sentence would have if it were pasted as the translation.

Every candidate of every sentence is an example; its label is its chrF against the reference. The report is on held-out
parts: each fold of consecutive sentences is judged by a model of the other folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from finetune.memory.cells import Cell
from rag_mt.base.console import progress
from rag_mt.base.types import Floats
from retrievers.encoders.encoder import ModelEncoder
from retrievers.memory.features import feature_names
from retrievers.memory.overlap import overlaps
from retrievers.memory.regression import Regression, fitted
from retrievers.memory.similarity import Similarity, kind

AT_ONCE = 64
DEPLOYED = 12
"""The best candidates of a sentence by a first model, which the model that is kept is fitted on: what is shown is among
them, and how similar those are that look best is what matters."""
BINS = np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0])
RIVALS = ("cosine", "margin", "draft cosine", "draft chrf", "draft dice", "draft ratio", "draft bm25", "original")
"""Single features that the model is compared with, as far as there are candidates with them."""


@dataclass(frozen=True)
class Examples:
    """Candidates of all cells: `sentences` (examples,) the number of the sentence, `folds`, `labels` the chrF from 0
    to 1, `features` by name, `groups` the direction group of each sentence (sentences,)."""

    sentences: NDArray[np.int64]
    folds: NDArray[np.int64]
    labels: Floats
    features: Mapping[str, Floats]
    groups: NDArray[np.str_]

    def where(self, rows: NDArray[Any]) -> Examples:
        """Some of the examples."""
        features = {name: values[rows] for name, values in self.features.items()}
        return Examples(self.sentences[rows], self.folds[rows], self.labels[rows], features, self.groups)


def examples_of(cells: Sequence[Cell], encoder: ModelEncoder, drafts: bool, show: bool = True) -> Examples:
    """The candidates of the sentences of all cells, found with or without their drafts."""
    parts: list[Examples] = []
    total = sum(len(cell.sentences) for cell in cells)
    with progress(total, "sentences", f"searching {'with' if drafts else 'without'} drafts", show=show) as bar:
        first = 0
        for cell in cells:
            retriever = cell.retriever(encoder, Similarity({}, {}))
            asked = cell.drafts if drafts else ("",) * len(cell.sentences)
            folds = cell.folds()
            for begin in range(0, len(cell.sentences), AT_ONCE):
                part = slice(begin, begin + AT_ONCE)
                found = retriever.candidates(cell.sentences[part], asked[part])
                rows = found.rows + begin
                right = [cell.references[row] for row in rows.tolist()]
                labels = overlaps(found.texts, right).chrf()
                parts.append(Examples(rows + first, folds[rows], labels, found.features, np.zeros(0, np.str_)))
                bar.update(len(cell.sentences[part]))
            first += len(cell.sentences)
    names = set.intersection(*(set(part.features) for part in parts))
    features = {name: np.concatenate([part.features[name] for part in parts]) for name in sorted(names)}
    sentences, folds, labels = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("sentences", "folds", "labels")
    )
    groups = np.array([cell.group for cell in cells for _ in cell.sentences])
    return Examples(sentences, folds, labels, features, groups)


def fit(examples: Examples, names: Sequence[str]) -> Regression:
    """The model on the candidates that a model on all of them ranks first."""
    first = fitted(examples.features, names, examples.labels)
    best = examples.where(_best(examples.sentences, first.value(examples.features), DEPLOYED))
    return fitted(best.features, names, best.labels)


def fit_similarity(
    cells: Sequence[Cell], encoder: ModelEncoder, show: bool = True
) -> tuple[dict[str, Regression], dict[str, Any]]:
    """The regressions by kind, of those that the cells have examples for, and the report of each on held-out folds."""
    models: dict[str, Regression] = {}
    reports: dict[str, Any] = {}
    for drafts in (False, True):
        examples = examples_of(cells, encoder, drafts, show)
        for original in (False, True):
            if original:  # of the candidates of which it is known what they translate
                rows = np.flatnonzero(examples.features.get("original", np.zeros(len(examples.labels))) > 0)
                if not len(rows):
                    continue
                examples = examples.where(rows)
            names = feature_names(drafts, original)
            name = kind(drafts, original)
            models[name] = fit(examples, names)
            reports[name] = report(examples, names)
    return models, reports


def report(examples: Examples, names: Sequence[str]) -> dict[str, Any]:
    """What models of the other folds make of each: correlation and R2 over all candidates; and of the best hit of each
    sentence, by direction group, the mean chrF that is expected and that it has, a reliability table, and the mean chrF
    of the best hit by single features and at best."""
    expected = np.zeros(len(examples.labels))
    for fold in np.unique(examples.folds):
        own = examples.folds == fold
        expected[own] = fit(examples.where(~own), names).chance(examples.where(own).features)
    residual = float(((examples.labels - expected) ** 2).sum())
    variance = float(((examples.labels - examples.labels.mean()) ** 2).sum())
    values: dict[str, Any] = {
        "features": list(names),
        "candidates": len(expected),
        "R2": 1 - residual / variance,
        "correlation": float(np.corrcoef(expected, examples.labels)[0, 1]),
    }
    group_of = examples.groups[examples.sentences]
    for group in ("all", *np.unique(examples.groups).tolist()):
        rows = np.flatnonzero((group_of == group) | (group == "all"))
        values[group] = _of_best(examples.where(rows), expected[rows], [n for n in RIVALS if n in names])
    rounded: dict[str, Any] = _rounded(values)
    return rounded


def _of_best(examples: Examples, expected: NDArray[np.float64], rivals: Sequence[str]) -> dict[str, Any]:
    best = _best(examples.sentences, expected, 1)
    own, right = expected[best], examples.labels[best].astype(np.float64)
    ways = {name: examples.features[name] for name in rivals}
    bins = np.clip(np.digitize(own, BINS) - 1, 0, len(BINS) - 2)
    return {
        "sentences": len(best),
        "expected": own.mean(),
        "chrf": right.mean(),
        "correlation": np.corrcoef(own, right)[0, 1],
        "at best": examples.labels[_best(examples.sentences, examples.labels, 1)].mean(),
        **{f"by {name}": examples.labels[_best(examples.sentences, v, 1)].mean() for name, v in ways.items()},
        "reliability": [
            {
                "from": BINS[n],
                "hits": int((bins == n).sum()),
                "expected": own[bins == n].mean(),
                "chrf": right[bins == n].mean(),
            }
            for n in np.unique(bins)
        ],
    }


def _best(sentences: NDArray[np.int64], values: NDArray[Any], count: int) -> NDArray[np.int64]:
    """The rows of the `count` greatest values of each sentence, in order of the sentences."""
    order = np.lexsort((-values, sentences))
    ranks = np.arange(len(order)) - np.searchsorted(sentences[order], sentences[order])
    rows: NDArray[np.int64] = order[ranks < count]
    return rows


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(float(value), 4) if isinstance(value, float | np.floating) else value
