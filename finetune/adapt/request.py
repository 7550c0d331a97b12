"""What is asked of an adaptation, and the models that take part in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_mt.base.cluster import Cluster
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_ENCODER, DEFAULT_LLM, WITHOUT_INDEX
from rag_mt.base.errors import UserError
from rag_mt.base.languages import base_code, language
from rag_mt.base.types import Retriever
from rag_mt.llm.opening import is_gguf
from rag_mt.llm.server_names import PREFIX as SERVER
from rag_mt.models.offline.embedded import PREFIX as EMBEDDED
from rag_mt.translation.opening import chosen_adapter
from rag_mt.translation.translator import Translator
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.manifest import Manifest
from retrievers.registry import encoder_for, open_retriever, sentence_encoder

BATCH = 128
"""Sentences that are translated together."""


@dataclass(frozen=True)
class Request:
    """An adaptation of `llm` to translate from `source` into the language of the index in the folder `index`.

    `adapter` is what is trained further and compared with (a folder, `none`, or `auto` for the one that ships);
    `back_llm` with `back_adapter` translates the index's sentences into `source`, on the machines of a `cluster` if
    there is one. `minutes` bound the time as far as it can be told before, `sentences` the sentences of the index.
    `pairs` are files of the user's own translations, `replay` files of general ones. `restart` forgets an interrupted
    adaptation, `replace` allows one where there is an adapter already.
    """

    index: Path
    source: str
    minutes: int = 90
    sentences: int | None = None
    pairs: tuple[str, ...] = ()
    replay: tuple[str, ...] = ()
    llm: str = DEFAULT_LLM
    adapter: str = DEFAULT_ADAPTER
    back_llm: str = DEFAULT_LLM
    back_adapter: str = DEFAULT_ADAPTER
    device: str = "auto"
    dtype: str = "auto"
    engine: str = "auto"
    cluster: Cluster | None = None
    restart: bool = False
    replace: bool = False


class Models:
    """Opens the models of a request for the index with that manifest. Raises UserError for what cannot be used."""

    def __init__(self, request: Request, manifest: Manifest) -> None:
        self.request, self.manifest = request, manifest
        self.source, self.target = language(request.source).code, manifest.language
        if base_code(self.source) == base_code(self.target):
            raise UserError(
                f"index {request.index} holds {language(self.target).name} text itself: --src is the language that is "
                "translated from, so give another one"
            )
        if request.llm.startswith(SERVER) or is_gguf(request.llm):
            raise UserError(
                f"{request.llm} cannot be tuned here: give --llm a hub id, the folder of a model or {EMBEDDED}NAME"
            )
        back = chosen_adapter(request.back_adapter, request.back_llm, self.target, self.source)
        if request.back_adapter == DEFAULT_ADAPTER and request.back_llm == DEFAULT_LLM and back is None:
            raise UserError(
                f"{request.back_llm} has no adapter from {language(self.target).name} to {language(self.source).name}, "
                "which back-translation needs: give --back-adapter DIR, or --back-llm another model"
            )

    @property
    def start(self) -> str:
        """The folder of the adapter that is trained further, or an empty string."""
        return chosen_adapter(self.request.adapter, self.request.llm, self.source, self.target) or ""

    @property
    def back_arguments(self) -> tuple[str, ...]:
        """What `open_translator` takes for `back`."""
        request = self.request
        settings = request.device, request.dtype, request.engine
        return (self.target, self.source, request.back_llm, request.back_adapter, *settings)

    def back(self) -> Translator:
        """Translates sentences of the index into the source language."""
        return open_translator(*self.back_arguments)

    def forward(self, retriever: Retriever, adapter: str) -> Translator:
        """Translates from the source language, as `rag-mt translate` does with an adapter."""
        request = self.request
        settings = request.device, request.dtype, request.engine
        return open_translator(self.source, self.target, request.llm, adapter, *settings, retriever)

    def retriever(self) -> Retriever:
        """The index's own retriever for sentences in the source language."""
        name, request = self.manifest.retriever, self.request
        encoder = encoder_for(name, self.manifest.encoder, request.device, request.dtype)
        return open_retriever(name, request.index, encoder, source_language=self.source, target_language=self.target)

    def sentence_encoder(self) -> ModelEncoder:
        """What compares both sides of a pair."""
        return sentence_encoder(DEFAULT_ENCODER, self.request.device, self.request.dtype)


def open_translator(
    source: str,
    target: str,
    llm: str,
    adapter: str,
    device: str,
    dtype: str,
    engine: str,
    retriever: str | Retriever = WITHOUT_INDEX,
) -> Translator:
    """A translator for many sentences; `dtype` and `engine` are for models that are loaded here."""
    options: dict[str, Any] = {"device": device}
    if not (llm.startswith(SERVER) or is_gguf(llm)):
        options |= {"dtype": dtype, "engine": engine, "batch_size": BATCH}
    return Translator(source, target, retriever=retriever, llm=llm, adapter=adapter, **options)
