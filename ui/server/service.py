"""What the demo and the HTTP API stand on: models, queue, languages, users' indexes and documents in one object."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from prompts.style import NO_INSTRUCTIONS, Instructions, Style, read_instructions
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM, DEFAULT_RETRIEVER, INDEX_AWAY, WITHOUT_INDEX
from rag_mt.base.errors import UserError
from rag_mt.base.only import EVERY, Only
from rag_mt.base.types import Encoder
from rag_mt.translation.opening import NONE, context_changes_adapter
from retrievers.registry import retriever_spec
from ui.server.documents import Documents
from ui.server.engine import TO_STOP, BatchReport, Engine
from ui.server.glossaries import UserGlossaries
from ui.server.languages import Detector, Offer, offer_of
from ui.server.limits import Limits, limits_of
from ui.server.own_index import OwnIndex
from ui.server.translators import UNREACHED, Choice, Opener, SharedModels, Translators
from ui.server.uploads import OwnFolder
from ui.server.user_indexes import UserIndexes


class Service:
    """All that users share and own. `llms` are the language models that may be asked for, the default first, and
    `adapters` their adapters: the operator's, the first of them the default of the first model, then `auto` and `none`.

    `folder` keeps users' indexes from one start to the next; without one they are gone with the service.
    """

    def __init__(
        self,
        opener: Opener,
        encoder: Callable[[str], Encoder],
        *,
        limits: Limits,
        offer: Offer,
        llms: Sequence[str] = (DEFAULT_LLM,),
        adapters: Sequence[str] = (),
        index: str = "",
        retriever: str = WITHOUT_INDEX,
        index_away: str = INDEX_AWAY[0],
        instructions: Instructions = NO_INSTRUCTIONS,
        folder: Path | None = None,
        observe: Callable[[BatchReport], None] = lambda report: None,
    ) -> None:
        """`index` is what is searched for its language where no other is asked for; where neither it nor a retriever
        is, `retriever` looks into the sample index, if it searches one. With `index_away` `plain` it may be away.
        `instructions` hold for requests without an own one."""
        self._retriever = retriever
        self.limits, self.offer, self.llms = limits, offer, tuple(dict.fromkeys(llms))
        self._instructions = instructions
        self.adapters = tuple(dict.fromkeys((*adapters, DEFAULT_ADAPTER, NONE)))
        self._temporary = None
        if folder is None:
            self._temporary = OwnFolder(Path(tempfile.gettempdir()), "rag-mt-users-")
            folder = self._temporary.path
        self.detector = Detector([known.code for known in offer.languages])
        self.translators = Translators(opener, limits.translators, limits.llms)
        self.own_index = OwnIndex(index, index_away == "plain", self._index_reached)
        self.engine = Engine(self.translators, limits, observe)
        self.indexes = UserIndexes(folder / "indexes", limits, encoder, self._forget_index)
        self.glossaries = UserGlossaries(folder / "glossaries", limits)
        self.documents = Documents(folder / "documents", self.engine, limits)

    def default_adapter(self, llm: str) -> str:
        """The adapter that a language model has where none is named: others than the first model have their own."""
        return self.adapters[0] if llm == self.llms[0] or self.adapters[0] == NONE else DEFAULT_ADAPTER

    def choice(
        self,
        owner: str,
        source: str,
        target: str,
        retriever: str = "",
        index: str = "",
        adapter: str = "",
        llm: str = "",
        with_hints: bool = False,
        only: Only = EVERY,
        context: int = 0,
    ) -> Choice:
        """A translator by names that a user gave; what is empty is the default. `index` is the id of an index of the
        owner, whose retriever is taken unless it is named `none`. Who asks for an answer `with_hints` and names nothing
        that finds them has those of the sample index. `only` says which files of the index are looked at. Raises
        UserError for what is not offered, and for `only` where no index is searched. `context` is how many sentences
        before each one it is to be shown."""
        source, target = self.offer.known(source), self.offer.known(target)
        self.offer.check(source, target)
        llm = _offered("language model", llm or self.llms[0], self.llms)
        adapter = _offered("adapter", adapter or self.default_adapter(llm), self.adapters)
        if retriever:
            retriever_spec(retriever)
        folder, own = "", self.own_index
        if index and retriever != "none":
            info = self.indexes.get(owner, index)
            if info.language != target:
                raise UserError(f"index {info.name!r} holds text in {info.language}: the target language is {target}")
            if retriever and retriever != info.retriever:
                raise UserError(f"index {info.name!r} was built for retriever {info.retriever}: choose that one")
            retriever, folder = info.retriever, str(self.indexes.folder_of(owner, index))
        elif own.away and retriever != WITHOUT_INDEX:
            retriever, folder = UNREACHED, own.folder
        elif own.folder and own.language == target and retriever in ("", own.retriever):
            retriever, folder = own.retriever, own.folder
        elif not retriever:
            retriever = DEFAULT_RETRIEVER if with_hints and self._retriever == WITHOUT_INDEX else self._retriever
        if only and not folder:
            raise UserError(f"only files {only} are to be looked at, but no index is searched: name one with index")
        around = context > 0 and adapter == DEFAULT_ADAPTER and context_changes_adapter(llm)
        return Choice(source, target, retriever, folder, adapter, llm, around)

    def style(self, target: str, formality: str = "", instruction: str = "", title: str = "") -> Style:
        """The style of translations into a language, by what a request asks for."""
        return Style(formality, instruction or self._instructions.of(target), title)

    def delete_owner(self, owner: str) -> None:
        self.documents.delete_all(owner)
        self.indexes.delete_all(owner)
        self.glossaries.delete_all(owner)

    def close(self, patience: float = 10.0) -> None:
        """End all within `patience` and TO_STOP seconds: translations may finish in the first, tasks are cancelled."""
        end = time.monotonic() + TO_STOP
        self.own_index.close()
        self.documents.cancel()
        self.indexes.builds.cancel()
        self.engine.close(patience)
        self.documents.close(max(0.0, end - time.monotonic()))
        self.indexes.close(max(0.0, end - time.monotonic()))
        if self._temporary:
            self._temporary.close()

    @property
    def away(self) -> list[str]:
        """The directions and retrievers whose index does not answer, and `index` for one that was never reached."""
        choices = [choice for choice in self.translators.away() if choice.retriever != UNREACHED]
        names = {f"{choice.source}-{choice.target} {choice.retriever}" for choice in choices}
        return [*(["index"] if self.own_index.away else []), *sorted(names)]

    def _index_reached(self) -> None:
        self.translators.forget(lambda choice: choice.retriever == UNREACHED)

    def _forget_index(self, folder: Path) -> None:
        self.translators.forget(lambda choice: choice.index == str(folder))


def _offered(kind: str, name: str, names: Sequence[str]) -> str:
    if name not in names:
        raise UserError(f"{kind} {name[:60]!r} is not offered: choose one of {', '.join(names)}")
    return name


def service_with(
    options: argparse.Namespace,
    folder: Path | None = None,
    observe: Callable[[BatchReport], None] = lambda report: None,
    retriever: str = WITHOUT_INDEX,
) -> Service:
    """The service that the options of `add_service_options` ask for, with models that are loaded when they are asked
    for. `folder` is used if they name none, and `retriever` where users name neither one nor an index. Raises UserError
    for what cannot be used."""
    limits, llms = limits_of(options.limit), options.llm or (DEFAULT_LLM,)
    models = SharedModels(
        options.wrapper,
        options.device,
        options.dtype,
        options.index_away,
        engine=options.engine,
        quantization=options.quantization,
        batch_size=limits.batch,
        timeout=options.llm_timeout,
        concurrency=options.llm_concurrency,
        options=options.llm_options,
    )
    return Service(
        models,
        models.default_encoder,
        limits=limits,
        offer=offer_of([code for code in options.languages.split(",") if code], llms[0]),
        llms=llms,
        adapters=options.adapter,
        index=options.index,
        index_away=options.index_away,
        retriever=retriever,
        instructions=read_instructions(options.instruction),
        folder=Path(options.data) if options.data else folder,
        observe=observe,
    )
