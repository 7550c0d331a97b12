"""Encoders in 8-bit integers: near float32 with the real models, exact where 16 bits would overflow."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import TokenStates
from retrievers.ccpr.model import PhraseEncoder
from retrievers.encoders import int8
from retrievers.encoders.encoder import NoEncoder, TransformerEncoder
from retrievers.encoders.int8 import Int8Linear, cpu_has_int8
from retrievers.mdpr import DualEncoder
from retrievers.registry import encoder_for

pytestmark = pytest.mark.skipif(not cpu_has_int8(), reason="needs an x86 CPU with VNNI")

TEXTS = [
    line
    for code in ("cs", "de", "en", "fi", "ro", "ru", "tr")
    for line in (SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines()[:4]
]

OVERFLOW = """
import torch
from retrievers.encoders.int8 import Int8Linear
for inputs in (384, 30):
    linear = torch.nn.Linear(inputs, 5)
    torch.nn.init.ones_(linear.weight)
    tokens = torch.ones(7, inputs)
    tokens[:, 0] = 0
    with torch.inference_mode():
        torch.testing.assert_close(Int8Linear(linear)(tokens), linear(tokens), rtol=0.01, atol=0)
"""


def near(a: Any, b: Any) -> Any:
    return (a * b).sum(axis=1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


def stacked(states: Iterable[TokenStates]) -> Any:
    return np.concatenate([text.states for text in states])


@pytest.mark.parametrize("instructions", ["AVX2", "DEFAULT"])
def test_no_sum_overflows(instructions: str) -> None:
    """The largest tokens and weights there are, also by the instructions that add products in 16 bits."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": instructions}
    subprocess.run([sys.executable, "-c", OVERFLOW], env=environment, check=True, timeout=120)


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_is_near_the_one_in_float32(bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(50, 21, bias=bias)
    tokens = torch.randn(3, 4, 50) * 3 + 1
    with torch.inference_mode():
        exact, ours = linear(tokens), Int8Linear(linear)(tokens)
        assert ours.shape == exact.shape
        assert float((ours - exact).norm() / exact.norm()) < 0.02
        assert torch.equal(Int8Linear(linear)(torch.zeros(2, 50)), linear(torch.zeros(2, 50)))


def test_the_embedded_encoder_is_near_float32() -> None:
    exact = encoder_for("sentence", None, "cpu", "float32")
    ours = encoder_for("sentence", None, "cpu", "int8")
    assert isinstance(exact, TransformerEncoder) and isinstance(ours, TransformerEncoder)
    assert ours.dtype == torch.int8 and exact.dtype == torch.float32
    assert ours.fingerprint == exact.fingerprint, "an index serves for both"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vectors = ours.encode(TEXTS)
    cosines = near(vectors, exact.encode(TEXTS))
    assert cosines.min() > 0.999 and cosines.max() < 0.999999, "int8 was not used"
    for layer in (6, 12):
        assert near(stacked(ours.states(TEXTS, layer)), stacked(exact.states(TEXTS, layer))).mean() > 0.999


def test_the_phrase_model_is_near_float32() -> None:
    exact, ours = (encoder_for("ccpr", None, "cpu", dtype) for dtype in ("float32", "int8"))
    assert isinstance(exact, PhraseEncoder) and isinstance(ours, PhraseEncoder)
    assert ours.fingerprint == exact.fingerprint
    layer = exact.heads.settings.layer
    assert near(stacked(ours.states(TEXTS, layer)), stacked(exact.states(TEXTS, layer))).mean() > 0.999


def test_both_encoders_of_a_passage_model_change() -> None:
    exact, ours = (encoder_for("passage", None, "cpu", dtype) for dtype in ("float32", "int8"))
    assert isinstance(exact, DualEncoder) and isinstance(ours, DualEncoder)
    assert ours.dtype == ours.query.dtype == torch.int8
    for kind in ("query", "passage"):
        assert 0.999 < near(ours.encode(TEXTS, kind), exact.encode(TEXTS, kind)).mean() < 0.999999


def test_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(encoder_for("bm25", None, "cpu", "int8"), NoEncoder)
    monkeypatch.setattr(int8, "cpu_has_int8", lambda: False)
    with pytest.raises(UserError, match=r"int8 is for x86 CPUs with VNNI .* another cpu: choose auto"):
        encoder_for("sentence", None, "cpu", "int8")
