"""The scores of runs: statistics of every sentence by metric, kept beside the run as `SRC-TGT.scores.json`."""

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
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Metric

SCORES = ".scores.json"


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


def scored(metric: Metric, records: Sequence[Record]) -> Scored:
    """The metric's statistics for the outputs of some records."""
    statistics = metric.statistics(
        [r.source for r in records], [r.text for r in records], [r.reference for r in records]
    )
    return Scored(metric.name, metric.signature, metric.formula, statistics)


def score_run(path: Path, records: Sequence[Record], outputs: str, metrics: Sequence[Metric]) -> list[Scored]:
    """The scores of a run by some metrics, which are added to those in the file `path`.

    A metric of the same signature is not computed again; `outputs` is the hash of what was scored, and scores of other
    outputs are dropped.
    """
    known = {own.name: own for own in read_scores(path, outputs)}
    made = []
    for metric in metrics:
        old = known.get(metric.name)
        own = old if old is not None and old.signature == metric.signature else scored(metric, records)
        known[metric.name] = own
        made.append(own)
    with whole_file(path) as new:
        new.write_text(json.dumps({"outputs": outputs, "metrics": [_packed(s) for s in known.values()]}) + "\n")
    return made


def _packed(own: Scored) -> dict[str, Any]:
    whole = bool((own.statistics == own.statistics.astype(np.int64)).all())
    rows = own.statistics.astype(np.int64).tolist() if whole else own.statistics.tolist()
    return {"name": own.name, "signature": own.signature, "formula": own.formula, "statistics": rows}


def read_scores(path: Path, outputs: str) -> list[Scored]:
    """The scores in a file, none if it is not there or is of other outputs; raises UserError if it is damaged."""
    try:
        found = read_json(path)
        if found["outputs"] != outputs:
            return []
        return [
            Scored(own["name"], own["signature"], own["formula"], np.array(own["statistics"], np.float64))
            for own in found["metrics"]
        ]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}): delete it and score again with --score-only") from None
