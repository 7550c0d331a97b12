"""Metrics by name; a new one is a line in `open_metrics`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from eval.metrics.bertscore import BertScore
from eval.metrics.comet import Comet
from eval.metrics.formulas import open_bleu, open_chrf
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Metric

METRICS = ("bleu", "chrf", "chrf++", "bertscore", "comet")
DEFAULT_METRICS = METRICS[:3]


def open_metrics(
    names: Sequence[str],
    target: str,
    bertscore: tuple[str, int | None, Path | None] = (DEFAULT_ENCODER, None, None),
    comet: Sequence[Path] = (),
) -> list[Metric]:
    """The metrics of those names for a target language; `bertscore` are its model, layer and baselines (see
    `BertScore`), `comet` its files of scores. Raises UserError for an unknown one."""
    makers: dict[str, Callable[[], Metric]] = {
        "bleu": lambda: open_bleu(target),
        "chrf": open_chrf,
        "chrf++": lambda: open_chrf(word_order=2),
        "bertscore": lambda: BertScore(*bertscore, target),
        "comet": lambda: Comet(comet),
    }
    for name in names:
        if name not in makers:
            raise UserError(f"unknown metric {name!r}: choose from {', '.join(METRICS)}")
    return [makers[name]() for name in names]
