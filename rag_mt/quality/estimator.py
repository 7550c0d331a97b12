"""The estimator as it is used: sentences and their translations in, estimates out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache

import numpy as np
import torch

from prompts.safety import encodable
from rag_mt.base.files import remembered_sha256, settings_hash
from rag_mt.base.quality import Estimate, Said
from rag_mt.base.types import Floats
from rag_mt.models.loading import LoadedEncoder
from rag_mt.quality.model import HEAD, MIDDLE, SPREAD, EstimatorHead, EstimatorSettings, Pair, tokenise_pairs
from rag_mt.quality.probability import Probability
from retrievers.ccpr.model import ENCODER
from retrievers.encoders.encoder import batches

DEFAULT_ESTIMATOR = "quality-e5-small"


class Estimator:
    """Judges translations. Threads may share one: they run one after the other."""

    def __init__(self, settings: EstimatorSettings, loaded: LoadedEncoder, head: EstimatorHead, weights: str) -> None:
        """`weights` is a hash of the head's."""
        self.settings = settings
        self._probability = Probability.of(settings.probability) if settings.probability else None
        self.fingerprint = settings_hash([vars(settings), loaded.fingerprint, weights])
        self._loaded, self._head = loaded, head.to(loaded.device).eval()
        self._lock = threading.Lock()

    @property
    def dtype(self) -> torch.dtype:
        """The number format that it computes in."""
        return self._loaded.dtype

    def estimate(self, pairs: Sequence[Pair], said: Said | None = None) -> list[Estimate]:
        """The estimate of each translation; what is empty, or cannot be encoded, counts as it is. What the language
        model has `said` of them counts too, if it is the one that this was fitted for (`settings.probability`)."""
        settings = self.settings
        scores = np.interp(self.measured(pairs), settings.measured, settings.expected)
        if said is not None and self._probability is not None:
            scores = self._probability.added(scores, said)
        return [Estimate(round(float(score), 1)) for score in scores]

    def measured(self, pairs: Sequence[Pair]) -> Floats:
        """The model's own scores (pairs,), before they are calibrated."""
        with self._lock:
            return measured(self._loaded, self._head, pairs, self.settings.max_tokens)


@torch.inference_mode()
def measured(loaded: LoadedEncoder, head: EstimatorHead, pairs: Sequence[Pair], max_tokens: int) -> Floats:
    """The scores (pairs,) of an encoder and its head, from 0 to 100 or somewhat beyond."""
    numbers, device = np.zeros(len(pairs), np.float32), loaded.device
    texts = [(encodable(source), encodable(target)) for source, target in pairs]
    ids = tokenise_pairs(loaded.tokenizer, texts, max_tokens)
    for rows, tokens, mask in batches(ids, loaded.tokenizer.pad_token_id or 0):
        tokens, mask = tokens.to(device), mask.to(device)
        with torch.autocast(device.type, dtype=loaded.dtype, enabled=loaded.dtype != torch.float32):
            states = loaded.model(input_ids=tokens, attention_mask=mask).last_hidden_state
        numbers[rows] = head(states, mask).cpu().numpy()
    return MIDDLE + SPREAD * numbers


@cache
def shared_estimator(device: str = "auto", dtype: str = "auto") -> Estimator:
    """The estimator that comes with rag_mt, opened once."""
    return open_estimator(device=device, dtype=dtype)


def open_estimator(name: str = DEFAULT_ESTIMATOR, device: str = "auto", dtype: str = "auto") -> Estimator:
    """The estimator that comes with rag_mt, or that of a folder that `finetune.quality` wrote.

    Raises UserError if it, or its encoder, cannot be loaded.
    """
    folder = EstimatorSettings.folder(name)
    settings, path = EstimatorSettings.load(folder), folder / HEAD
    head = EstimatorHead(settings.hidden)
    settings.load_head(head, path)
    loaded = settings.load_encoder(folder, folder / ENCODER, device, dtype)
    return Estimator(settings, loaded, head, remembered_sha256(path))
