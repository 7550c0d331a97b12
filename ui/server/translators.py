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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast
from weakref import WeakValueDictionary

from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM, INDEX_AWAY, WITHOUT_INDEX
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.only import Only
from rag_mt.base.types import LanguageModel, Retriever
from rag_mt.llm.opening import open_llm
from rag_mt.translation.away import Unreached
from rag_mt.translation.opening import adapter_by_index, opened_retriever
from rag_mt.translation.translator import Translator
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.manifest import read_manifest
from retrievers.no_hints import NoHints
from retrievers.registry import encoder_for, encoder_key
from ui.server.limits import Limits

log = logging.getLogger("rag_mt")

UNREACHED = "away"
"""The retriever of a choice whose index has not been reached yet, so that what it is is not known."""
State = Literal["not loaded", "loading", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class Choice:
    """What tells one translator from another. `index` is a folder, or empty for the sample index of the target
    language; `adapter` and `llm` are as in `Translator`, and with `context` the adapter that ships is the one that
    has learnt to use it."""

    source: str
    target: str
    retriever: str = WITHOUT_INDEX
    index: str = ""
    adapter: str = DEFAULT_ADAPTER
    llm: str = DEFAULT_LLM
    context: bool = False

    def __str__(self) -> str:
        index = f", index {Path(self.index).name}" if self.index else ""
        return f"{language(self.source).name} to {language(self.target).name}, retriever {self.retriever}{index}"


@dataclass(frozen=True)
class Loading:
    """How far a translator is: since when (`time.time()`) it is in this state, and why it failed."""

    choice: Choice
    state: State = "not loaded"
    error: str = ""
    future: Future[Translator] | None = None
    since: float = field(default_factory=time.time)
    unwanted: bool = False
    """Whether it is dropped as soon as it is loaded."""


Opener = Callable[[Choice], Translator]
"""Loads the translator of a choice; raises UserError for what cannot be loaded."""


class SharedModels:
    """Opens translators that share models (an Opener); a model goes when the last translator with it is forgotten.
    `index_away` is as in `Translator`, `options` are further ones of `open_llm`."""

    def __init__(
        self,
        wrapper: str = "auto",
        device: str = "auto",
        dtype: str = "auto",
        index_away: str = INDEX_AWAY[0],
        **options: Any,
    ) -> None:
        self._wrapper, self._device, self._dtype, self._index_away = wrapper, device, dtype, index_away
        self._options = {"device": device, "dtype": dtype, **options}
        self._llms: WeakValueDictionary[tuple[str, str | None], Any] = WeakValueDictionary()
        self._encoders: WeakValueDictionary[tuple[Any, ...], ModelEncoder] = WeakValueDictionary()
        self._lock = threading.RLock()

    def __call__(self, choice: Choice) -> Translator:
        unreached = choice.retriever == UNREACHED
        with self._lock:
            return Translator(
                choice.source,
                choice.target,
                retriever=self._unreached(choice) if unreached else choice.retriever,
                llm=self._llm(choice),
                index=None if unreached else choice.index or None,
                index_away=self._index_away,
                wrapper=self._wrapper,
                device=self._device,
                dtype=self._dtype,
                max_new_tokens=256,
                encoders=self.encoder,
            )

    def _unreached(self, choice: Choice) -> Unreached:
        """The retriever of a choice of which only the index is known, until that answers."""

        def opener(only: Only) -> Retriever:
            if read_manifest(Path(choice.index)).language != choice.target:
                return NoHints()
            more = (None, choice.index, None, self._device, self._dtype, False, self.encoder, only)
            return opened_retriever(choice.source, choice.target, *more)

        return Unreached(f"the index {choice.index} was not reached yet", opener)

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
        return self.encoder(retriever, None, self._device, self._dtype)

    def _llm(self, choice: Choice) -> LanguageModel:
        """The language model of a choice, loaded once."""
        index = Path(choice.index) if choice.index and choice.retriever != UNREACHED else None
        plain = self._index_away == "plain"
        languages = choice.source, choice.target
        adapter = adapter_by_index(choice.adapter, choice.llm, *languages, index, plain, choice.context)
        model = self._llms.get((choice.llm, adapter))
        if model is None:
            model = self._llms[choice.llm, adapter] = open_llm(choice.llm, adapter=adapter, **self._options)
        return cast(LanguageModel, model)


class Translators:
    """Loaded translators, at most `most` of them and with at most `most_llms` different language models.

    All methods may be called from any thread. The limits hold after a load; during one there is one model more.
    """

    def __init__(self, opener: Opener, most: int = Limits.translators, most_llms: int = Limits.llms) -> None:
        self._open = opener
        self._most, self._most_llms = most, most_llms
        self._loadings: OrderedDict[Choice, Loading] = OrderedDict()  # least recently asked for first
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loading")

    def load(self, choice: Choice) -> Future[Translator]:
        """The translator, at once or when it is loaded; a load that failed is tried anew at the next call."""
        with self._lock:
            loading = self._loadings.get(choice)
            future = loading.future if loading else None
            if future is None:
                future = self._thread.submit(self._load, choice)
                self._loadings[choice] = Loading(choice, "loading", future=future)
            self._loadings.move_to_end(choice)
            return future

    def state(self, choice: Choice) -> Loading:
        """How far the translator of a choice is."""
        with self._lock:
            return self._loadings.get(choice) or Loading(choice)

    def states(self) -> list[Loading]:
        """All translators that are loaded, being loaded, or failed to load last time."""
        with self._lock:
            return list(self._loadings.values())

    def away(self) -> list[Choice]:
        """The choices of loaded translators whose index does not answer."""
        ready = [(loading.choice, loading.future) for loading in self.states() if loading.state == "ready"]
        return [choice for choice, future in ready if future and future.result().hint_source.reason]

    def forget(self, wanted: Callable[[Choice], bool]) -> None:
        """Drop the translators of the choices that are `wanted` gone (of a deleted index, say); one that is being
        loaded goes when that is done."""
        with self._lock:
            for choice, loading in list(self._loadings.items()):
                if not wanted(choice):
                    continue
                if loading.state == "loading":
                    self._loadings[choice] = replace(loading, unwanted=True)
                else:
                    del self._loadings[choice]

    def close(self, timeout: float | None = None) -> None:
        """Load nothing more; a load that runs is waited for, up to `timeout` seconds."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        futures = [loading.future for loading in self.states() if loading.future]
        wait([future for future in futures if not future.done()], timeout)  # never for those that were cancelled

    def _load(self, choice: Choice) -> Translator:
        begin = time.perf_counter()
        try:
            translator = self._open(choice)
        except BaseException as error:
            reason = error.public if isinstance(error, UserError) else f"{type(error).__name__} (see the server's log)"
            if not isinstance(error, UserError):
                log.exception("loading %s failed", choice)
            with self._lock:
                self._loadings[choice] = Loading(choice, "failed", reason)
                failed = [c for c, loading in self._loadings.items() if loading.state == "failed"]
                for old in failed[: -self._most]:  # users can ask for ever new ones
                    del self._loadings[old]
            raise
        log.info("loaded: %s, in %.1f s", choice, time.perf_counter() - begin)
        with self._lock:
            loading = self._loadings[choice]
            if loading.unwanted:
                del self._loadings[choice]
            else:
                self._loadings[choice] = replace(loading, state="ready", since=time.time())
                self._make_room(choice, translator)
        return translator

    def _make_room(self, newest: Choice, translator: Translator) -> None:
        """Drop the translators that were not asked for the longest until the limits hold."""
        others = [(c, loading.future) for c, loading in self._loadings.items() if c != newest]
        ready = [(c, future.result()) for c, future in others if future and future.done()]
        ready.append((newest, translator))
        while len(ready) > self._most or len({id(t.llm) for _, t in ready}) > self._most_llms:
            del self._loadings[ready.pop(0)[0]]
