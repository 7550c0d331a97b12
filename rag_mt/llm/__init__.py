"""Language models behind one protocol (`rag_mt.types.LanguageModel`): local weights or a server."""

from __future__ import annotations

from typing import cast

from rag_mt.llm.openai_llm import PREFIX, OpenAILLM
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models import DEFAULT_LLM, Quantization, load_llm
from rag_mt.types import LanguageModel

__all__ = ["OpenAILLM", "TransformersLLM", "open_llm"]


def open_llm(
    name: str = DEFAULT_LLM,
    *,
    adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    quantization: str = "none",
    batch_size: int = 16,
    base_url: str | None = None,
    api_key: str | None = None,
) -> LanguageModel:
    """The language model `name`: `openai:MODEL@URL`, or any model with `base_url`, is asked over HTTP; everything
    else (hub id, folder, `embedded:NAME`) is loaded.

    `batch_size`, `adapter`, `device`, `dtype` and `quantization` are for loaded models; a server has its own.
    Raises UserError for a name, setting or server that cannot be used.
    """
    if base_url is not None or name.startswith(PREFIX):
        return OpenAILLM(name, base_url, api_key=api_key, adapter=adapter)
    loaded = load_llm(name, adapter, device, dtype, cast(Quantization, quantization))
    return TransformersLLM(loaded, batch_size, adapter)
