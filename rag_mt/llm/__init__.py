"""Language models behind one protocol (`rag_mt.base.types.LanguageModel`): local weights or a server."""

from __future__ import annotations

from typing import cast

from rag_mt.base.defaults import DEFAULT_LLM, LLM_CONCURRENCY, LLM_TIMEOUT
from rag_mt.base.errors import UserError
from rag_mt.base.types import LanguageModel
from rag_mt.llm.routed import RoutedLLM
from rag_mt.llm.server_names import PREFIX
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import Quantization, load_llm

__all__ = ["RoutedLLM", "TransformersLLM", "open_llm"]


def open_llm(
    name: str = DEFAULT_LLM,
    *,
    adapter: str | None = None,
    plain_adapter: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    quantization: str = "none",
    batch_size: int = 16,
    base_url: str | None = None,
    api_key: str | None = None,
    timeout: float = LLM_TIMEOUT,
    concurrency: int = LLM_CONCURRENCY,
) -> LanguageModel:
    """The language model `name`: `openai:MODEL@URL`, or any model with `base_url`, is asked over HTTP; everything
    else (hub id, folder, `embedded:NAME`) is loaded.

    `batch_size`, `adapter`, `device`, `dtype` and `quantization` are for loaded models; a server has its own, and
    `timeout` (seconds for an answer) and `concurrency` (requests at once) are for servers. With `plain_adapter`
    prompts without hints are answered by the model with that adapter instead.
    Raises UserError for a name, setting or server that cannot be used.
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
            adapter=adapter or plain_adapter,
            timeout=timeout,
            concurrency=concurrency,
        )

    def load(adapter: str | None) -> TransformersLLM:
        loaded = load_llm(name, adapter, device, dtype, cast(Quantization, quantization))
        return TransformersLLM(loaded, batch_size, adapter)

    return RoutedLLM(load(adapter), load(plain_adapter)) if plain_adapter else load(adapter)
