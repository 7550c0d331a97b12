"""BLEU, chrF and means: the statistics of sentences, and from sums of them to scores.

Formulas score many sums at once, which significance tests do thousands of times: they take float64 (rows, statistics)
and return float64 (rows,), from 0 to 100 for what sacreBLEU defines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language

Rows = NDArray[np.float64]

ORDERS = 4
"""BLEU's n-grams: of 1 to 4 words."""
BETA = 2
"""chrF's weight of recall against precision."""


@dataclass(frozen=True)
class Formula:
    """`corpus` scores sums over sentences, `sentences` the statistics of single ones."""

    corpus: Callable[[Rows], Rows]
    sentences: Callable[[Rows], Rows]


def bleu(sums: Rows, effective_order: bool = False) -> Rows:
    """BLEU with exponential smoothing, as sacreBLEU computes it (Post 2018); with `effective_order`, for single
    sentences, only over the orders of n-grams that the output is long enough for.

    Columns: length of the output and of the reference in words, n-grams of 1 to 4 words that match, n-grams there are.
    """
    output, reference = sums[:, 0], sums[:, 1]
    correct, total = sums[:, 2 : 2 + ORDERS], sums[:, 2 + ORDERS :]
    orders = np.maximum((total > 0).sum(axis=1), 1) if effective_order else np.full(len(sums), ORDERS)
    missed = (correct == 0) & (total > 0)
    smoothed = 1 / (2.0 ** np.cumsum(missed, axis=1))  # halved again at each order without a match
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(total > 0, np.where(missed, smoothed, correct) / total, 0)
        logs = np.where(np.arange(ORDERS) < orders[:, None], np.log(precisions), 0)
        brevity = np.where(output < reference, np.exp(1 - reference / output), 1)
    scores = 100 * brevity * np.exp(logs.sum(axis=1) / orders)
    return np.where((correct.sum(axis=1) > 0) & (output > 0), scores, 0.0)


def chrf(sums: Rows) -> Rows:
    """chrF or chrF++, as sacreBLEU computes it (Popović 2015, 2017).

    Columns: for each order of n-grams those of the output, those of the reference, and those that match.
    """
    output, reference, match = (sums[:, n::3] for n in range(3))
    there = (output > 0) & (reference > 0)
    orders = np.maximum(there.sum(axis=1), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(there, match / output, 0).sum(axis=1) / orders
        recall = np.where(there, match / reference, 0).sum(axis=1) / orders
        scores = 100 * (1 + BETA**2) * precision * recall / (BETA**2 * precision + recall)
    return np.where(precision + recall > 0, scores, 0.0)


def mean(sums: Rows) -> Rows:
    """The mean of sentence scores. Columns: the score, and 1."""
    means: Rows = sums[:, 0] / np.maximum(sums[:, 1], 1)
    return means


def mean_rows(scores: NDArray[Any]) -> Rows:
    """The statistics (..., units, 2) of `mean` for the scores of units (..., units)."""
    return np.stack([scores, np.ones_like(scores, dtype=np.float64)], axis=-1, dtype=np.float64)


FORMULAS: Mapping[str, Formula] = {
    "bleu": Formula(bleu, partial(bleu, effective_order=True)),
    "chrf": Formula(chrf, chrf),
    "mean": Formula(mean, mean),
}


class NgramMetric:
    """The n-gram counts of a metric of sacreBLEU, with sacreBLEU's own signature (a Metric)."""

    def __init__(self, name: str, formula: str, counter: BLEU | CHRF) -> None:
        self.name, self.formula, self._counter = name, formula, counter
        counter.corpus_score(["a"], [["a"]])  # tells it that there is one reference, which its signature names
        self.signature = str(counter.get_signature())

    def statistics(self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Rows:
        """The columns of `bleu`, (sentences, 10), or `chrf`, (sentences, 3 * orders)."""
        return np.array(self._counter._extract_corpus_statistics(hypotheses, [references]), np.float64)


def open_bleu(target: str) -> NgramMetric:
    """BLEU with sacreBLEU's tokenizer for the target language; raises UserError where that is not installed."""
    code = base_code(target)
    try:
        return NgramMetric("BLEU", "bleu", BLEU(trg_lang=code))
    except (RuntimeError, ImportError):  # tokenizers of Japanese and Korean are packages of their own
        raise UserError(
            f"BLEU of {language(target).name} needs another tokenizer: `pip install 'sacrebleu[{code}]'`, or leave "
            "bleu out of --metrics"
        ) from None


def open_chrf(word_order: int = 0) -> NgramMetric:
    """chrF over n-grams of 1 to 6 characters or, with n-grams of 1 and 2 words besides, chrF++."""
    return NgramMetric("chrF" + "+" * word_order, "chrf", CHRF(word_order=word_order))
