"""Translators that are loaded when they are asked for and shared by all who ask for the same.

One language model per name and adapter and one encoder per name are in memory, whatever number of translators use them;
who has not been asked for the longest goes first. Everything is loaded in one thread, one after the other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, cast
from weakref import WeakValueDictionary

from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM, DEFAULT_RETRIEVER, LLM_CONCURRENCY, LLM_TIMEOUT
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.types import LanguageModel
from rag_mt.llm import RoutedLLM, TransformersLLM, open_llm
from rag_mt.translation.translator import Translator, chosen_adapters
from retrievers.encoders.encoder import ModelEncoder
from retrievers.registry import encoder_for, encoder_key
from ui.server.limits import Limits

log = logging.getLogger("rag_mt")

State = Literal["not loaded", "loading", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What tells one translator from another. `index` is a folder, or empty for the sample index of the target
    language; `adapter` and `llm` are as in `Translator.from_pretrained`."""

    source: str
    target: str
    retriever: str = DEFAULT_RETRIEVER
    index: str = ""
    adapter: str = DEFAULT_ADAPTER
    llm: str = DEFAULT_LLM

    def __str__(self) -> str:
        index = f", index {Path(self.index).name}" if self.index else ""
        return f"{language(self.source).name} to {language(self.target).name}, retriever {self.retriever}{index}"


@dataclass(frozen=True, slots=True)
class Loading:
    """How far a translator is: since when (`time.time()`) it is in this state, and why it failed."""

    choice: Choice
    state: State
    since: float
    error: str = ""


class Opener(Protocol):
    """Choices to loaded translators."""

    def __call__(self, choice: Choice) -> Translator: ...


class SharedModels:
    """Opens translators that share models (an Opener); a model goes when the last translator with it is forgotten."""

    def __init__(
        self,
        *,
        wrapper: str = "auto",
        device: str = "auto",
        dtype: str = "auto",
        quantization: str = "none",
        batch_size: int = 16,
        max_new_tokens: int = 256,
        llm_timeout: float = LLM_TIMEOUT,
        llm_concurrency: int = LLM_CONCURRENCY,
    ) -> None:
        self._wrapper, self._max_new_tokens = wrapper, max_new_tokens
        self._options: dict[str, Any] = {
            "device": device,
            "dtype": dtype,
            "quantization": quantization,
            "batch_size": batch_size,
            "timeout": llm_timeout,
            "concurrency": llm_concurrency,
        }
        self._llms: WeakValueDictionary[tuple[str | None, ...], Any] = WeakValueDictionary()
        self._encoders: WeakValueDictionary[tuple[Any, ...], ModelEncoder] = WeakValueDictionary()
        self._lock = threading.RLock()

    def __call__(self, choice: Choice) -> Translator:
        """The translator of a choice; raises UserError for what cannot be loaded."""
        with self._lock:
            return Translator.from_pretrained(
                src=choice.source,
                tgt=choice.target,
                retriever=choice.retriever,
                llm=self._llm_for(choice),
                index=choice.index or None,
                wrapper=self._wrapper,
                device=self._options["device"],
                dtype=self._options["dtype"],
                max_new_tokens=self._max_new_tokens,
                encoders=self.encoder,
            )

    def encoder(self, retriever: str, name: str | None, device: str, dtype: str) -> ModelEncoder:
        """The encoder of a name, or the default one of a retriever, loaded once."""
        with self._lock:
            key = encoder_key(retriever, name, device, dtype)
            encoder = self._encoders.get(key)
            if encoder is None:
                encoder = self._encoders[key] = encoder_for(retriever, name, device, dtype)
            return encoder

    def default_encoder(self, retriever: str) -> ModelEncoder:
        """The encoder that new indexes of a retriever are built with."""
        return self.encoder(retriever, None, self._options["device"], self._options["dtype"])

    def _llm_for(self, choice: Choice) -> LanguageModel:
        adapters = chosen_adapters(choice.adapter, choice.llm, choice.retriever, choice.source, choice.target)
        if adapters.plain_adapter is None:
            return self._opened(choice.llm, adapters.adapter)

        def routed() -> LanguageModel:
            return RoutedLLM(*(cast(TransformersLLM, self._opened(choice.llm, adapter)) for adapter in adapters))

        return self._kept((choice.llm, *adapters), routed)

    def _opened(self, llm: str, adapter: str | None) -> LanguageModel:
        return self._kept((llm, adapter), lambda: open_llm(llm, adapter=adapter, **self._options))

    def _kept(self, key: tuple[str | None, ...], opened: Callable[[], LanguageModel]) -> LanguageModel:
        model = self._llms.get(key)
        if model is None:
            model = self._llms[key] = opened()
        return cast(LanguageModel, model)


def _models(llm: LanguageModel) -> tuple[LanguageModel, ...]:
    return llm.models if isinstance(llm, RoutedLLM) else (llm,)


class Translators:
    """Loaded translators, at most `most` of them and with at most `most_llms` different language models.

    All methods may be called from any thread. The limits hold after a load; during one there is one model more.
    """

    def __init__(self, opener: Opener, most: int = Limits.translators, most_llms: int = Limits.llms) -> None:
        self._open = opener
        self._most, self._most_llms = most, most_llms
        self._futures: OrderedDict[Choice, Future[Translator]] = OrderedDict()  # least recently asked for first
        self._states: dict[Choice, Loading] = {}
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loading")

    def load(self, choice: Choice) -> Future[Translator]:
        """The translator, at once or when it is loaded; a load that failed is tried anew at the next call."""
        with self._lock:
            known = self._futures.get(choice)
            if known is not None:
                self._futures.move_to_end(choice)
                return known
            self._set(choice, "loading")
            future = self._futures[choice] = self._thread.submit(self._load, choice)
            return future

    def state(self, choice: Choice) -> Loading:
        """How far the translator of a choice is."""
        with self._lock:
            return self._states.get(choice) or Loading(choice, "not loaded", time.time())

    def states(self) -> list[Loading]:
        """All translators that are loaded, being loaded, or failed to load last time."""
        with self._lock:
            return list(self._states.values())

    def forget(self, wanted: Callable[[Choice], bool]) -> None:
        """Drop the loaded translators of the choices that are `wanted` gone (of a deleted index, say)."""
        with self._lock:
            loading = {choice for choice, future in self._futures.items() if not future.done()}
            for choice in [c for c in self._states if wanted(c) and c not in loading]:
                self._drop(choice)

    def close(self, timeout: float | None = None) -> None:
        """Load nothing more; a load that runs is waited for, up to `timeout` seconds."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            running = [future for future in self._futures.values() if not future.done()]
        wait(running, timeout)

    def _load(self, choice: Choice) -> Translator:
        begin = time.perf_counter()
        try:
            translator = self._open(choice)
        except BaseException as error:
            reason = str(error) if isinstance(error, UserError) else f"{type(error).__name__} (see the server's log)"
            if not isinstance(error, UserError):
                log.exception("loading %s failed", choice)
            with self._lock:
                self._futures.pop(choice, None)
                self._set(choice, "failed", reason)
                failed = [c for c, known in self._states.items() if known.state == "failed"]
                for old in failed[: -self._most]:  # users can ask for ever new ones
                    self._states.pop(old)
            raise
        log.info("loaded: %s, in %.1f s", choice, time.perf_counter() - begin)
        with self._lock:
            self._set(choice, "ready")
            self._make_room(choice, translator)
        return translator

    def _make_room(self, newest: Choice, translator: Translator) -> None:
        """Drop the translators that were not asked for the longest until the limits hold."""
        ready = [(c, f.result()) for c, f in self._futures.items() if f.done() and c != newest]
        ready.append((newest, translator))
        while len(ready) > self._most or len({id(m) for _, t in ready for m in _models(t.llm)}) > self._most_llms:
            choice, _ = ready.pop(0)
            self._drop(choice)

    def _drop(self, choice: Choice) -> None:
        self._futures.pop(choice, None)
        self._states.pop(choice, None)

    def _set(self, choice: Choice, state: State, error: str = "") -> None:
        self._states.pop(choice, None)  # the newest last
        self._states[choice] = Loading(choice, state, time.time(), error)
