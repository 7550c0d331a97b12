"""Metrics by name; a new one is a module here and a line in `METRICS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.metrics.bertscore import open_bertscore
from eval.metrics.bleu import open_bleu
from eval.metrics.chrf import open_chrf, open_chrf_words
from eval.metrics.comet import open_comet
from eval.metrics.formulas import FORMULAS, Formula
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Metric

__all__ = ["DEFAULT_METRICS", "FORMULAS", "METRICS", "Formula", "MetricSettings", "open_metrics"]


@dataclass(frozen=True)
class MetricSettings:
    """What metrics are made of beside their names.

    BERTScore: a `model`, one of its layers, and a folder of baselines, `LANG.tsv` for each target language that is
    rescaled. COMET: files of sentence scores, and the name of the model that made them.
    """

    bertscore_model: str = DEFAULT_ENCODER
    bertscore_layer: int | None = None
    bertscore_baselines: Path | None = None
    comet_scores: tuple[Path, ...] = ()
    comet_model: str = ""


METRICS: Mapping[str, Callable[[MetricSettings, str], Metric]] = {
    "bleu": lambda settings, target: open_bleu(target),
    "chrf": lambda settings, target: open_chrf(),
    "chrf++": lambda settings, target: open_chrf_words(),
    "bertscore": lambda settings, target: open_bertscore(
        settings.bertscore_model, settings.bertscore_layer, settings.bertscore_baselines, target
    ),
    "comet": lambda settings, target: open_comet(settings.comet_scores, settings.comet_model),
}
"""What makes the metric of a name for translations into a language."""

DEFAULT_METRICS = ("bleu", "chrf", "chrf++")


def open_metrics(names: Sequence[str], settings: MetricSettings, target: str) -> list[Metric]:
    """The metrics of those names for a target language; raises UserError for an unknown one."""
    for name in names:
        if name not in METRICS:
            raise UserError(f"unknown metric {name!r}: choose from {', '.join(METRICS)}")
    return [METRICS[name](settings, target) for name in names]
