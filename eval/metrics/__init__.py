"""Metrics by name; a new one is a line in `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.metrics.bertscore import BertScore
from eval.metrics.comet import Comet
from eval.metrics.formulas import open_bleu, open_chrf
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Metric


@dataclass(frozen=True)
class MetricSettings:
    """The settings of BERTScore (see `BertScore`) and the files of COMET scores."""

    bertscore_model: str = DEFAULT_ENCODER
    bertscore_layer: int | None = None
    bertscore_baselines: Path | None = None
    comet_scores: tuple[Path, ...] = ()


METRICS: Mapping[str, Callable[[MetricSettings, str], Metric]] = {
    "bleu": lambda settings, target: open_bleu(target),
    "chrf": lambda settings, target: open_chrf(),
    "chrf++": lambda settings, target: open_chrf(word_order=2),
    "bertscore": lambda settings, target: BertScore(
        settings.bertscore_model, settings.bertscore_layer, settings.bertscore_baselines, target
    ),
    "comet": lambda settings, target: Comet(settings.comet_scores),
}
"""Makes the metric for translations into a language."""

DEFAULT_METRICS = ("bleu", "chrf", "chrf++")


def open_metrics(names: Sequence[str], settings: MetricSettings, target: str) -> list[Metric]:
    """The metrics of those names for a target language; raises UserError for an unknown one."""
    for name in names:
        if name not in METRICS:
            raise UserError(f"unknown metric {name!r}: choose from {', '.join(METRICS)}")
    return [METRICS[name](settings, target) for name in names]
