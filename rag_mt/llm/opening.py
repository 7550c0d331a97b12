"""Language models by name."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import cast, get_args

from rag_mt.base.defaults import DEFAULT_LLM, LLM_CONCURRENCY, LLM_TIMEOUT, Engine
from rag_mt.base.errors import UserError
from rag_mt.base.types import LanguageModel
from rag_mt.llm.options import Options
from rag_mt.llm.server_names import PREFIX
from rag_mt.models.offline.embedded import PREFIX as EMBEDDED
from rag_mt.models.offline.embedded import embedded_gguf

GGUF = ".gguf"
NVIDIA_OR_AMD = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""What Linux shows where it has a driver for such a card, the last one inside Windows."""
LARGE_BATCH = 64
"""Sentences from which on bfloat16 is several times as fast as llama.cpp's wheels (docs/engines.md)."""


def open_llm(
    name: str = DEFAULT_LLM,
    *,
    adapter: str | None = None,
    engine: str = "auto",
    device: str = "auto",
    dtype: str = "auto",
    quantization: str = "none",
    batch_size: int = 16,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = LLM_TIMEOUT,
    concurrency: int = LLM_CONCURRENCY,
    options: Options | None = None,
) -> LanguageModel:
    """The language model `name`: `openai:MODEL@URL`, or any model with `base_url`, is asked over HTTP; everything
    else (hub id, folder, `FILE.gguf`, `embedded:NAME`) is loaded.

    `engine` says by what: `llamacpp` (GGUF files and embedded models, in the number format of the file), `transformers`
    (all but GGUF files), or `auto` (see `chosen_engine`). `batch_size`, `adapter`, `device`, `dtype` and `quantization`
    are for loaded models; a server has its own, and `timeout` (seconds for an answer) and `concurrency` (requests at
    once) are for servers. `options` are further fields of requests to a server (see `rag_mt.llm.options`); of them,
    loaded models take `chat_template_kwargs`. Raises UserError for a name, setting or server that cannot be used.
    """
    if base_url is not None or name.startswith(PREFIX):
        try:
            from rag_mt.llm.openai_llm import OpenAILLM
        except ModuleNotFoundError as error:
            raise UserError(
                f"{name} needs a package that is not installed ({error.name}): pip install 'rag-mt[openai]'"
            ) from error
        return OpenAILLM(
            name,
            base_url,
            api_key=api_key,
            adapter=adapter,
            timeout=timeout,
            concurrency=concurrency,
            options=options,
        )
    if chosen_engine(name, engine, device, dtype, quantization, batch_size) == "llamacpp":
        from rag_mt.llm.llamacpp import LlamaCppLLM

        gpu = device not in ("auto", "cpu")
        return LlamaCppLLM(name, gguf_file(name), adapter, batch_size, gpu, options)
    from rag_mt.llm.transformers_llm import open_transformers

    return open_transformers(name, adapter, device, dtype, quantization, batch_size, options)


def gguf_file(name: str) -> Path:
    """The file of a model that llama.cpp computes: `FILE.gguf` or `embedded:NAME`."""
    return embedded_gguf(name) if name.startswith(EMBEDDED) else Path(name).expanduser()


def is_gguf(name: str) -> bool:
    """Whether the name of a model is that of a GGUF file."""
    return name.lower().endswith(GGUF)


def chosen_engine(
    name: str,
    engine: str = "auto",
    device: str = "auto",
    dtype: str = "auto",
    quantization: str = "none",
    batch_size: int = 16,
) -> Engine:
    """The engine that computes a model which is loaded.

    `auto` is llama.cpp for a GGUF file, and for an embedded model where neither a GPU nor a number format is asked for
    or at hand, unless a large batch is computed by a processor that multiplies bfloat16; else transformers. Raises
    UserError for what does not go together.
    """
    if engine not in get_args(Engine):
        raise UserError(f"unknown engine {engine!r}: choose one of {', '.join(get_args(Engine))}")
    file, embedded = is_gguf(name), name.startswith(EMBEDDED)
    formats = [value for value, usual in ((dtype, "auto"), (quantization, "none")) if value != usual]
    if engine == "transformers" and file:
        raise UserError(f"{name} is a GGUF file, which transformers does not read here: use the engine llamacpp")
    if engine == "llamacpp" and not (file or embedded):
        raise UserError(f"{name} is no GGUF file: the engine llamacpp needs one, such as {DEFAULT_LLM} or FILE.gguf")
    if (engine == "llamacpp" or file) and formats:
        raise UserError(
            f"{name} is computed by llama.cpp in the number format of its file: leave out {formats[0]}"
            + (", or use the engine transformers" if embedded else "")
        )
    if engine != "auto":
        return cast(Engine, engine)
    if file:
        return "llamacpp"
    if formats or not embedded or not (device == "cpu" or (device == "auto" and not _has_gpu())):
        return "transformers"
    return "transformers" if batch_size >= LARGE_BATCH and _computes_bfloat16() else "llamacpp"


def _computes_bfloat16() -> bool:
    from rag_mt.models.loading import cpu_has_bfloat16

    return cpu_has_bfloat16()


def _has_gpu() -> bool:
    """Whether PyTorch computes on a GPU here. It is loaded for the question only where the system has one: that takes
    a second."""
    if platform.system() == "Linux" and not any(Path(device).exists() for device in NVIDIA_OR_AMD):
        return False
    import torch

    return torch.cuda.is_available()
