"""BERTScore (Zhang et al. 2020) by the package bert-score, with any encoder and layer.

The layer of the embedded encoder was chosen by human scores (`reports/metrics.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from eval.metrics.formulas import Rows
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import folder_fingerprint
from rag_mt.base.languages import base_code
from rag_mt.models.loading import FINGERPRINTED, quiet_loading, resolve_model

BATCH = 64
LAYERS = {DEFAULT_ENCODER: 12}
"""The layer of an encoder that agreed best with human scores."""
BASELINES = {DEFAULT_ENCODER: Path(__file__).parent / "baselines" / "e5-small"}
"""Made by `python -m eval.quality.baselines`."""


class BertScore:
    """BERTScore F1 in percent (a Metric) by a hidden layer of an encoder (hub id, folder, `embedded:NAME`).

    `layer` None is the one of `LAYERS`, or that the package names for a model that it knows. `baselines` is a folder,
    None the one of `BASELINES`: where it has `TARGET.tsv`, with a baseline b of that layer, the score is
    (F1 - b) / (1 - b), as in the package. Raises UserError for a missing package, model, layer or row of a baseline.
    """

    name = "BERTScore"
    formula = "mean"

    def __init__(self, model: str, layer: int | None, baselines: Path | None, target: str) -> None:
        self._scorer, fingerprint = open_scorer(model, LAYERS.get(model) if layer is None else layer)
        layer = self._scorer.num_layers
        baseline = read_baseline(baselines or BASELINES.get(model), base_code(target), layer)
        self._baseline = baseline[1] if baseline else 0.0
        rescaled = f"yes, {baseline[0]} {baseline[1]:.4f}" if baseline else "no"
        self.signature = (
            f"model:{model}|weights:{fingerprint}|layer:{layer}|idf:no|rescaled:{rescaled}|"
            f"version:{version('bert-score')}"
        )

    def statistics(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Rows:
        """Score and 1, (sentences, 2). A blank text scores 0, rescaled or not."""
        rows = [n for n, (a, b) in enumerate(zip(hypotheses, references, strict=True)) if a.strip() and b.strip()]
        statistics = np.zeros((len(hypotheses), 2))
        statistics[:, 1] = 1
        if rows:
            scores = self._scorer.score([hypotheses[n] for n in rows], [references[n] for n in rows], batch_size=BATCH)
            f1 = scores[2].double().numpy()
            statistics[rows, 0] = 100 * (f1 - self._baseline) / (1 - self._baseline)
        return statistics


@lru_cache(1)
def open_scorer(model: str, layer: int | None, all_layers: bool = False) -> tuple[Any, str]:
    """The package's scorer by one layer, or by all at once, and a hash of the encoder's files."""
    try:
        from bert_score import BERTScorer
        from bert_score.utils import model2layers
    except ImportError:
        raise UserError("the metric bertscore needs the package bert-score: `pip install bert-score`") from None
    folder = str(resolve_model(model))
    number = model2layers.get(model) if layer is None else layer
    if number is None:
        raise UserError(f"no layer of {model} is known to be good for BERTScore: give one with --bertscore-layer")
    if "t5" in folder:  # bert-score goes by the name
        raise UserError(f"bert-score takes {folder} for a T5 model, because of `t5` in its path: move it elsewhere")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = {"nthreads": 0, "device": device, "use_fast_tokenizer": True}
    try:
        with quiet_loading():
            scorer = BERTScorer(folder, num_layers=number, all_layers=all_layers, **options)
    except AssertionError as error:
        raise UserError(f"{model} has no layer {number} ({error}): give another --bertscore-layer") from None
    return scorer, folder_fingerprint(Path(folder), FINGERPRINTED)


def read_baseline(folder: Path | None, target: str, layer: int) -> tuple[str, float] | None:
    """The name and the F1 of the baseline for a language and layer, or None where there is no file for it.

    Files are those of the package: `LANG.tsv` with lines `layer,P,R,F`. Raises UserError for a file without that layer.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise UserError(f"there is no folder of baselines {folder}: expected one with files such as de.tsv")
    path = folder / f"{target}.tsv"
    if not path.is_file():
        return None
    try:
        rows = [line.split(",") for line in path.read_text(encoding="utf-8").split()][1:]
        return path.name, {int(number): float(f1) for number, _, _, f1 in rows}[layer]
    except (ValueError, KeyError):
        raise UserError(f"{path} has no baseline of layer {layer}: expected lines layer,P,R,F") from None
