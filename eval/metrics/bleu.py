"""BLEU (Papineni et al. 2002) by sacreBLEU (Post 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics.bleu import BLEU

from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language


class Bleu:
    """BLEU with sacreBLEU's own tokenizer for the target language and its own signature (a Metric)."""

    name = "BLEU"
    formula = "bleu"

    def __init__(self, target: str) -> None:
        code = base_code(target)
        try:
            self._bleu = BLEU(trg_lang=code)
        except (RuntimeError, ImportError):  # tokenizers of Japanese and Korean are packages of their own
            raise UserError(
                f"BLEU of {language(target).name} needs another tokenizer: `pip install 'sacrebleu[{code}]'`, or leave "
                "bleu out of --metrics"
            ) from None
        self._bleu.corpus_score(["a"], [["a"]])  # tells it that there is one reference, which its signature names
        self.signature = str(self._bleu.get_signature())

    def statistics(
        self, sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> NDArray[np.float64]:
        """See `eval.metrics.formulas.bleu`: (sentences, 10)."""
        return np.array(self._bleu._extract_corpus_statistics(hypotheses, [references]), np.float64).reshape(-1, 10)


def open_bleu(target: str) -> Bleu:
    """BLEU for translations into a language; raises UserError where its tokenizer is not installed."""
    return Bleu(target)
