"""The scores of metrics on translations with human scores, kept in a folder so that a report is not made twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from eval.comet_score import comet_scores
from eval.metrics import FORMULAS, MetricSettings, open_metrics
from eval.metrics.comet import Triple
from eval.quality_correlations import Scores
from rag_mt.fingerprints import read_json, settings_hash
from rag_mt.paths import whole_file

Scorer = Callable[[Sequence[Triple], str], Scores]
"""From (source, translation, reference) and the target language to a score per translation."""


def harness_scorer(name: str, layer: int | None = None) -> Scorer:
    """A metric of `eval.metrics` by name, sentence by sentence; `layer` is BERTScore's."""

    def scores(triples: Sequence[Triple], target: str) -> Scores:
        (metric,) = open_metrics([name], MetricSettings(bertscore_layer=layer), target)
        sources, translations, references = ([t[n] for t in triples] for n in range(3))
        return FORMULAS[metric.formula].sentences(metric.statistics(sources, translations, references))

    return scores


def comet_scorer(model: Path, quiet: bool = False) -> Scorer:
    """A COMET model of `python -m eval.comet_train`, by unbabel-comet itself from the rebuilt checkpoint."""

    def scores(triples: Sequence[Triple], target: str) -> Scores:
        return np.array(comet_scores(str(model), triples, quiet=quiet)["scores"], np.float64)

    return scores


def kept(folder: Path, name: str, scorer: Scorer, parts: Sequence[tuple[Sequence[Triple], str]]) -> list[Scores]:
    """The scores of each part (triples, target language), read from `folder` if the metric `name` has scored these.

    Parts with one target language are scored in one call.
    """
    key = settings_hash([name, [[list(t) for t in triples] for triples, _ in parts]])
    path = folder / f"{key}.json"
    if not path.is_file():
        made = [s.tolist() for s in _scored(scorer, parts)]
        with whole_file(path) as new:
            new.write_text(json.dumps({"metric": name, "scores": made}) + "\n")
    return [np.array(own, np.float64) for own in read_json(path)["scores"]]


def _scored(scorer: Scorer, parts: Sequence[tuple[Sequence[Triple], str]]) -> list[Scores]:
    made: list[Scores] = [np.zeros(0)] * len(parts)
    for target in dict.fromkeys(language for _, language in parts):
        rows = [n for n, (_, language) in enumerate(parts) if language == target]
        joined = scorer([t for n in rows for t in parts[n][0]], target)
        ends = np.cumsum([len(parts[n][0]) for n in rows])
        for n, own in zip(rows, np.split(joined, ends[:-1]), strict=True):
            made[n] = own
    return made
