"""The scores of runs: statistics of every sentence by metric, kept beside the run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.metrics.formulas import FORMULAS, Rows
from eval.translation.records import Record
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.paths import write_whole
from rag_mt.base.types import Metric


@dataclass(frozen=True)
class Scored:
    """What a metric says of a run: its statistics (sentences, statistics)."""

    name: str
    signature: str
    formula: str
    statistics: Rows

    @property
    def corpus(self) -> float:
        """The score of all sentences."""
        return float(FORMULAS[self.formula].corpus(self.statistics.sum(axis=0)[None])[0])

    @property
    def sentences(self) -> Rows:
        """The score of each sentence."""
        return FORMULAS[self.formula].sentences(self.statistics)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able; counts as whole numbers."""
        counts = self.statistics.astype(np.int64)
        rows = counts if (counts == self.statistics).all() else self.statistics
        return {**vars(self), "statistics": rows.tolist()}


def scored(metric: Metric, records: Sequence[Record]) -> Scored:
    """The metric's statistics for the outputs of some records."""
    texts = ([r.source for r in records], [r.text for r in records], [r.reference for r in records])
    return Scored(metric.name, metric.signature, metric.formula, metric.statistics(*texts))


def score_run(path: Path, records: Sequence[Record], outputs: str, metrics: Sequence[Metric]) -> list[Scored]:
    """The scores of a run by some metrics, which are added to those in the file `path`.

    A metric of the same signature is not computed again; `outputs` is the hash of what was scored, and scores of other
    outputs are dropped.
    """
    scores = {old.name: old for old in read_scores(path, outputs)}
    for metric in metrics:
        if metric.name not in scores or scores[metric.name].signature != metric.signature:
            scores[metric.name] = scored(metric, records)
    write_whole(path, json.dumps({"outputs": outputs, "metrics": [s.as_dict() for s in scores.values()]}) + "\n")
    return [scores[metric.name] for metric in metrics]


def read_scores(path: Path, outputs: str) -> list[Scored]:
    """The scores in a file, none if it is not there or is of other outputs; raises UserError if it is damaged."""
    try:
        content = read_json(path)
        if content["outputs"] != outputs:
            return []
        return [Scored(**{**own, "statistics": np.array(own["statistics"], np.float64)}) for own in content["metrics"]]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}): delete it and score again with --score-only") from None
