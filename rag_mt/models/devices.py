"""Devices and number formats by name, checked against the machine."""

from __future__ import annotations

import platform

import torch

from rag_mt.base.errors import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def choose_device(name: str) -> torch.device:
    """The device `name` (`auto`, `cpu`, `cuda`, `cuda:1`, `mps`); `auto` takes the first of cuda, mps, cpu.

    Raises UserError if the name is no device or the machine has no such device.
    """
    present = _present_devices()
    if name == "auto":
        return torch.device(next(kind for kind in ("cuda", "mps", "cpu") if kind in present))
    if name not in present:
        raise UserError(f"there is no device {name!r} here: choose auto or one of {', '.join(present)}")
    return torch.device(name)


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The number format `name` (`auto`, `float32`, `bfloat16`, `float16`) for work on `device`.

    `auto` is bfloat16 where the hardware computes in it, else float16 on older CUDA cards and float32 elsewhere.
    """
    if name in DTYPES:
        return DTYPES[name]
    if name != "auto":
        raise UserError(f"unknown number format {name!r}: choose auto, {', '.join(DTYPES)}")
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    native = torch.backends.mps.is_macos_or_newer(14, 0) if device.type == "mps" else cpu_has_bfloat16()
    return torch.bfloat16 if native else torch.float32


def _present_devices() -> list[str]:
    cards = [f"cuda:{number}" for number in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return ["cpu", *(["cuda", *cards] if cards else []), *(["mps"] if torch.backends.mps.is_available() else [])]


def cpu_has_bfloat16() -> bool:
    """Whether the processor multiplies bfloat16 itself; where it must be emulated, float32 is faster."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())
