"""Encoders that compute in 8-bit integers, for CPUs that have no bfloat16.

A scale for each token keeps what one scale for a whole batch, as in PyTorch's and ONNX Runtime's dynamic quantisation,
loses: reports/encoders-int8.md has the measurements.
"""

from __future__ import annotations

import torch
from torch import nn

from rag_mt.base.errors import UserError
from retrievers.encoders.encoder import TransformerEncoder

PRECISE = "value"
"""The linear layer of attention that stays in float32: half of the error comes from it, and a twelfth of the work."""
LARGEST = 127
LARGEST_PAIR = 127.5
"""Limits of a weight and of the sum of two: processors without VNNI add the products of two neighbours in 16 bits,
where 255 * 128, to which the sum may be rounded, still fits. Which two of four neighbours is the kernel's choice."""


class Int8Linear(nn.Module):
    """y = x W^T + b with integers of 8 bits. Every token x is written as q * step + low with q from 0 to 255, every row
    of W as integers from -127 to 127 times a scale, so that y = step * (q W^T + low / step * (sum of the row)) + b."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        fours = nn.functional.pad(weight.abs(), (0, -weight.shape[1] % 4)).unflatten(1, (-1, 4))
        pairs = fours.topk(2).values.sum(2).amax(1)
        self.scales = torch.maximum(fours.amax((1, 2)) / LARGEST, pairs / LARGEST_PAIR).clamp_min(1e-12)
        integers = (weight / self.scales[:, None]).round()
        self.sums = integers.sum(1) * self.scales
        self.bias = torch.zeros_like(self.sums) if linear.bias is None else linear.bias.detach().float()
        self.packed = torch.ops.onednn.qlinear_prepack(integers.to(torch.int8), None)
        self.zeros = torch.zeros(len(weight), dtype=torch.int64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Float32 (..., outputs) of x (..., inputs)."""
        rows = x.reshape(-1, x.shape[-1])
        low = rows.amin(1, keepdim=True)
        step = (rows.amax(1, keepdim=True) - low).clamp_min(1e-12) / 255
        q = torch.addcmul(0.5 - low / step, rows, 1 / step).to(torch.uint8)
        y = torch.ops.onednn.qlinear_pointwise(
            q, 1.0, 0, self.packed, self.scales, self.zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        y.addcmul_(low / step, self.sums).mul_(step).add_(self.bias)  # in place: new memory costs more than the sums
        result: torch.Tensor = y.reshape(*x.shape[:-1], -1)
        return result


def cpu_has_int8() -> bool:
    """Whether the processor has instructions for sums of products of 8-bit integers (VNNI), and PyTorch its kernels
    for them. With AVX2 alone the gain is small."""
    able = torch.cpu.get_capabilities()
    return bool(torch.backends.mkldnn.is_available()) and any(able.get(key) for key in ("avx512_vnni", "avx_vnni"))


def in_int8(encoder: TransformerEncoder) -> None:
    """Let an encoder in float32 compute its linear layers but one in integers of 8 bits from now on; it can no longer
    be trained. Its fingerprint stays: the mean cosine of its vectors to those in float32 is above 0.999, so that an
    index serves for both. Raises UserError where it would not be fast."""
    if encoder.device.type != "cpu" or not cpu_has_int8():
        raise UserError(
            f"the number format int8 is for x86 CPUs with VNNI instructions, but this is another {encoder.device}: "
            "choose auto"
        )
    for module in list(encoder.model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, nn.Linear) and name != PRECISE:
                setattr(module, name, Int8Linear(layer))
    encoder.dtype = torch.int8
