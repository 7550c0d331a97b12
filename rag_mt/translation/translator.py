"""The facade: a sentence in, its translation with the hints that were shown out."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from prompts.answers import read_answer
from prompts.builder import PromptBuilder, resolved_wrapper
from prompts.context import check_context
from prompts.style import Style
from rag_mt.base.defaults import (
    DEFAULT_ADAPTER,
    DEFAULT_LLM,
    LLM_CONCURRENCY,
    LLM_TIMEOUT,
)
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.base.only import EVERY, Only
from rag_mt.base.quality import Said
from rag_mt.base.types import (
    NOWHERE,
    Completion,
    DraftRetriever,
    LanguageModel,
    Origin,
    Prompt,
    PromptQueue,
    Retriever,
    Returning,
    Sentence,
    Span,
    TranslatedText,
    Translation,
)
from rag_mt.checks.rules import RULES, Pair, check
from rag_mt.glossary.glossary import Glossary
from rag_mt.glossary.rule import terms_rule
from rag_mt.llm.opening import open_llm
from rag_mt.llm.options import Options
from rag_mt.text.answers import takes_up
from rag_mt.text.splitting import needs_space, rejoin, split
from rag_mt.translation.away import HintSource, Unreached
from rag_mt.translation.consistency import DocumentTerms
from rag_mt.translation.context import checked_size, finished_pair, surround, tell_not_learnt, translate_together
from rag_mt.translation.opening import (
    adapter_by_index,
    aligning_encoder,
    chosen_adapter,
    estimator_for,
    index_folder,
    opened_glossary,
    opened_retriever,
)
from rag_mt.translation.queue import TaskQueue, translate_all
from rag_mt.translation.tasks import SentenceTask
from rag_mt.translation.terms import ALIGN_LAYER, TermKeeper

if TYPE_CHECKING:  # what searches is imported when something is searched
    from rag_mt.translation.index import Index
    from retrievers.registry import EncoderOpener

NARROWED = 16
"""Choices of files whose retrievers are kept open: those that were asked for last."""
HELD_BACK = 8
"""Characters at the end of a streamed answer that wait, because a mark or a label may still begin there."""


class Translator:
    """Translates between two languages with one retriever, one prompt builder and one language model.

        from rag_mt import Translator
        translator = Translator("de", "en", retriever="ccpr")
        result = translator.translate("Der Stadtrat hat den Bau einer neuen Brücke beschlossen.")
        print(result.text)
        print([hint.phrase for hint in result.sentences[0].hints])

    `settings` holds all that could change an output; two translators with equal settings give equal
    outputs for equal batches.
    """

    def __init__(
        self,
        source: str,
        target: str = "en",
        *,
        index: str | Path | Index | None = None,
        only: Only | None = None,
        retriever: str | Retriever | None = None,
        llm: str | LanguageModel = DEFAULT_LLM,
        encoder: str | None = None,
        adapter: str | None = DEFAULT_ADAPTER,
        wrapper: str = "auto",
        device: str = "auto",
        dtype: str = "auto",
        quantization: str = "none",
        engine: str = "auto",
        batch_size: int = 16,
        max_new_tokens: int = 256,
        llm_timeout: float = LLM_TIMEOUT,
        llm_concurrency: int = LLM_CONCURRENCY,
        llm_options: Options | None = None,
        consensus: bool = True,
        reuse_known: bool = False,
        glossary: Glossary | Sequence[str | Path] | None = None,
        formality: str = "",
        instruction: str = "",
        title: str = "",
        context: int = 0,
        consistent: bool = False,
        min_quality: float | None = None,
        index_away: str = "stop",
        show: bool = False,
        encoders: EncoderOpener | None = None,
    ) -> None:
        """`source` and `target` are codes (`de`) or English names (`German`). Models are hub ids, local folders or
        `embedded:NAME`, language models also GGUF files, encoders also names of what comes with rag_mt.

        `index` is a folder or an open `Index`, whose retriever and encoder are taken where no others are named. Without
        an index, `retriever` looks into the sample index of the target language, which is built once and cached (`show`
        shows its progress); without either there are no hints, which is logged. `only` says which files of the index
        are looked at, if not all (see `Only`). `retriever` and `llm` may also be ready
        objects, to be shared between translators; what is named for loading them (`encoder`, `adapter`, `engine`,
        `quantization`, `batch_size`, `llm_timeout`, `llm_concurrency`, `llm_options`) is then not used.

        `llm` may be `openai:MODEL@URL` (`llm_timeout`: seconds for an answer, `llm_concurrency`: requests at once;
        OPENAI_API_KEY is sent to that host). `llm_options` go along with every request to a server (see
        `rag_mt.llm.options`); a loaded model takes `chat_template_kwargs` of them. `adapter` is a folder, None, or
        `auto` for the one beside the index, else the one that comes with rag_mt, if any (see `chosen_adapter`).
        `wrapper` is the prompt family, `engine`, `device` and `dtype` say by what, where and in what number format the
        models compute (see `open_llm`), `batch_size` how many sentences at once, at most, `max_new_tokens` is the
        length of the longest answer. With `consensus` a memory's hints are shown together and each alone, and of the
        draft and these answers the one is taken that the others and the hits support most. With `reuse_known` a
        sentence of which a memory has a translation is not translated anew. The terms of a `glossary`, open or in
        files, are shown in the prompts and asked for again where a translation lacks them (see
        `rag_mt.translation.terms`). `formality` (`more` or `less`), `instruction`, a text of up to 2,000 characters,
        and the `title` of the document go along with every prompt of models that follow instructions (see
        `prompts.style`). With `context`, as many sentences before one in its text, and half as many after it, are
        shown with it, with their translations so far (see `rag_mt.translation.context`). With `consistent` the
        sentences of a text that lack what the other ones' translations agree on are translated again (see
        `rag_mt.translation.consistency`), but not those of a stream. With `min_quality`, a score from 0 to 100, the
        quality of all translations is estimated, and lower ones are among the findings. Where the index is in an engine
        and does not answer, an AwayError is raised, or with `index_away` `plain` sentences are translated without hints
        until it answers (see `rag_mt.translation.away`). `encoders` opens encoders
        instead of `encoder_for`, so that several translators can share one.

        Raises UserError for every name, language or index that cannot be used.
        """
        self.source, self.target = language(source).code, language(target).code
        if self.source == self.target:
            raise UserError(f"source and target are both {language(source).name}: give another source or target")
        resolved_wrapper(wrapper, self.source, self.target, None)  # names are checked before minutes of loading
        style, context = Style(formality, instruction, title), checked_size(context)
        folder = index_folder(index)
        if not isinstance(retriever, str | None) and (index is not None or encoder is not None):
            raise UserError(f"the retriever {retriever.name} is open already: leave index and encoder out, or name it")

        own_source, own_target = self.source, self.target

        def open_source(only: Only) -> Retriever:  # without `self`: else only the garbage collector would free models
            opened = retriever
            if isinstance(opened, Unreached):
                opened = opened.within(only)
            elif isinstance(opened, str | None):
                more = (index, encoder, device, dtype, show, encoders, only)
                opened = opened_retriever(own_source, own_target, opened, *more)
            elif only:
                raise UserError(f"the retriever {opened.name} is open already: leave only out, or name it")
            if reuse_known and not getattr(opened, "bilingual", False):
                raise UserError(
                    f"translations are only reused (--reuse-known) from a memory of both languages, and "
                    f"{folder or 'it'} is none: build one with `rag-mt index build DIR FILE.tmx --retriever memory`"
                )
            return opened

        source_of_hints = HintSource(index_away, partial(open_source, only or EVERY))
        self.hint_source = source_of_hints
        self._within = lru_cache(NARROWED)(lambda other: source_of_hints.narrowed(partial(open_source, other)))
        if isinstance(llm, str):
            llm = open_llm(
                llm,
                adapter=adapter_by_index(
                    adapter, llm, self.source, self.target, folder, self.hint_source.plain, context > 0
                ),
                device=device,
                dtype=dtype,
                quantization=quantization,
                engine=engine,
                batch_size=batch_size,
                timeout=llm_timeout,
                concurrency=llm_concurrency,
                options=llm_options,
            )
        self.llm: LanguageModel = llm
        self.max_new_tokens = max_new_tokens
        self.consensus, self.reuse_known = consensus, reuse_known
        self._prompts = PromptBuilder(
            self.source, self.target, wrapper, self.retriever.unit, llm=llm, max_new_tokens=max_new_tokens
        ).with_style(style)
        self._show_context(context)
        self._open_aligner = cache(partial(aligning_encoder, encoders, device, dtype))
        self.consistent = consistent
        modes = {
            "consensus": consensus and self.memory is not None,
            "reuse_known": reuse_known,
            "consistent": consistent,
        }
        self.more_settings: dict[str, Any] = {name: True for name, wanted in modes.items() if wanted}
        self._keep_to(glossary if glossary is not None else Glossary(self.source, self.target))
        self.min_quality = min_quality
        self._open_estimator = partial(estimator_for, device, dtype)

    def with_only(self, only: Only) -> Translator:
        """A translator that looks at some files of the index only and shares all else with this one; raises UserError
        if there are none of these, or no index."""
        other = copy(self)
        other.hint_source = self._within(only)
        return other

    def with_glossary(self, glossary: Glossary) -> Translator:
        """A translator that keeps to a glossary and shares all else with this one; raises UserError for a glossary of
        other languages."""
        other = copy(self)
        other._keep_to(glossary)
        return other

    def with_style(self, style: Style) -> Translator:
        """A translator that asks for a style and shares all else with this one; raises UserError if its prompts have no
        place for one."""
        other = copy(self)
        other._prompts = self.prompts.with_style(style)
        other._keep_to(self.terms.glossary)
        return other

    def with_context(self, size: int) -> Translator:
        """A translator that shows so many sentences of context and shares all else with this one; raises UserError if
        its prompts have no place for them."""
        other = copy(self)
        other._show_context(checked_size(size))
        return other

    def _show_context(self, size: int) -> None:
        self.context = size
        if size:
            check_context(self.prompts.wrapper, self.llm.id)
            if self._ours:
                tell_not_learnt(self.llm.id)

    def with_min_quality(self, score: float) -> Translator:
        """A translator that estimates the quality of its translations and shares all else with this one."""
        other = copy(self)
        other.min_quality = score
        return other

    def _keep_to(self, glossary: Glossary | Sequence[str | Path]) -> None:
        opened = opened_glossary(glossary, self.source, self.target)
        self.terms = TermKeeper(opened, self.prompts, self.llm, self._open_aligner)
        self.rules = (*RULES.values(), *([terms_rule(opened)] if opened.terms else []))

    @property
    def retriever(self) -> Retriever:
        """What finds hints; it is another one once an index answers that was away from the start."""
        return self.hint_source.retriever

    @retriever.setter
    def retriever(self, retriever: Retriever) -> None:
        self.hint_source.retriever = retriever

    @property
    def prompts(self) -> PromptBuilder:
        """What makes prompts, of hits of the retriever's kind."""
        if self._prompts.unit != self.retriever.unit:
            self._prompts = self._prompts.with_unit(self.retriever.unit)
            self._keep_to(self.terms.glossary)  # a keeper of its own: others may share that one
        return self._prompts

    @property
    def memory(self) -> DraftRetriever | None:
        """The retriever, if it looks for what is similar to a draft."""
        return cast(DraftRetriever, self.retriever) if hasattr(self.retriever, "recall") else None

    @property
    def settings(self) -> dict[str, Any]:
        """All that could change an output, JSON-able: what the translator, its retriever and its prompts are, and
        `more_settings`."""
        return {
            "source": self.source,
            "target": self.target,
            "retriever": self.retriever.name,
            "retrieval": dict(self.retriever.settings),
            "llm": self.llm.fingerprint,
            "max_new_tokens": self.max_new_tokens,
            "prompts": self.prompts.settings,
            **self.prompts.style.settings,
            **({"context": self.context} if self.context else {}),
            "repair": {"layer": ALIGN_LAYER},
            **({"glossary": self.terms.settings} if self.terms.glossary.terms else {}),
            **self.more_settings,
        }

    def translate(self, text: str) -> TranslatedText:
        """Running text, which is split into sentences and keeps its spacing."""
        if not isinstance(text, str):
            raise UserError(
                f"translate takes one text, not a {type(text).__name__}: give several texts to translate_batch"
            )
        return self.translate_batch([text])[0]

    def translate_batch(self, texts: Sequence[str]) -> list[TranslatedText]:
        """Several texts, each as by `translate`; all their sentences are retrieved for and generated as one call, and
        none is context of another text's."""
        if isinstance(texts, str):
            raise UserError("translate_batch takes a list of texts, not one text: give that to translate")
        spans = [split(text, self.source) for text in texts]
        parts = self._translate_documents(
            [[Sentence(span.of(text), self.source) for span in own] for text, own in zip(texts, spans, strict=True)]
        )
        estimated = iter(self.estimated(list(chain(*parts))))
        return [
            self.joined(text, own, list(islice(estimated, len(own)))) for text, own in zip(texts, spans, strict=True)
        ]

    def stream(
        self,
        text: str,
        origin: Origin = NOWHERE,
        spans: Sequence[Span] | None = None,
        before: Sequence[Translation] = (),
    ) -> Generator[str, None, TranslatedText]:
        """The translation of running text in pieces as they are generated, spacing included; `spans` are those of its
        sentences, if they are known, and `before` are translations of sentences before the text. Where there is
        context, it is the finished translations before a sentence.

        Closing the generator stops the computation; its return value is the whole result. The pieces joined are its
        text, save where an answer proves to be none (an echo of the prompt, say) or a loop after its first words were
        given out.
        """
        translations: list[Translation] = []
        recent = deque(before, self.context)
        spans, end = split(text, self.source) if spans is None else spans, 0
        for span in spans:
            if span.start > end:
                yield text[end : span.start]
            touching = bool(translations) and span.start == end
            sentence = Sentence(span.of(text), self.source, origin)
            pieces = Returning(self.stream_sentence(sentence, tuple(recent)))
            for piece in pieces:
                if touching and piece and needs_space(translations[-1].text, piece):
                    yield " "
                touching = touching and not piece
                yield piece
            translations.append(pieces.value)
            recent.append(pieces.value)
            end = span.end
        yield text[end:]
        return self.joined(text, spans, translations)

    def estimated(self, translations: Sequence[Translation]) -> list[Translation]:
        """The translations, with estimates of their quality if that is wanted; failed ones have none."""
        rows = [n for n, t in enumerate(translations) if t.ok and t.estimate is None and t.source.text.strip()]
        if self.min_quality is None or not rows:
            return list(translations)
        pairs = [(translations[n].source.text, translations[n].text) for n in rows]
        said = Said(self.llm.id, f"{self.source}-{self.target}", [translations[n].logprob for n in rows])
        estimates = dict(zip(rows, self._open_estimator().estimate(pairs, said), strict=True))
        return [replace(t, estimate=estimates.get(n, t.estimate)) for n, t in enumerate(translations)]

    def joined(self, text: str, spans: Sequence[Span], translations: Sequence[Translation]) -> TranslatedText:
        """The translation of running text from those of its sentences, which have these spans; the rules are about the
        whole text, as of a file's segments."""
        whole = rejoin(text, spans, [translation.text for translation in translations])
        findings = tuple(check(Pair(text, whole, self.source, self.target), self.rules))
        translated = TranslatedText(whole, tuple(self.estimated(translations)), findings)
        if self.min_quality is None or translated.estimate is None:
            return translated
        return replace(translated, findings=(*findings, *translated.estimate.below(self.min_quality)))

    def stream_sentence(
        self, sentence: Sentence, before: Sequence[Translation] = ()
    ) -> Generator[str, None, Translation]:
        """The pieces of one sentence's translation; the generator's return value is the whole Translation. `before` are
        the translations of those before it.

        A piece is given out as soon as further tokens cannot change it, a draft once it is known to be the translation.
        Where the finished answer is no continuation of what was given out (no translation could be read, or it left a
        loop), nothing more is given out.
        """
        task, shown = SentenceTask(self, sentence), ""
        surround([*map(finished_pair, before), task], self.context)
        for _ in self.answer(TaskQueue([task])):
            beginning = task.begun
            if beginning.startswith(shown) and beginning != shown:
                yield beginning[len(shown) :]
                shown = beginning
        assert task.translation is not None
        if task.begun.startswith(shown) and task.begun != shown:  # it ended after the last token, or before the first
            yield task.begun[len(shown) :]
        return task.translation

    def sure_beginning(self, sentence: Sentence, prompt: Prompt, answer: str) -> str:
        """How the translation in an unfinished answer begins, without an end that may still change."""
        read = read_answer(Completion(answer, 0, True), sentence.text, prompt)
        return read.text[:-HELD_BACK] if read.ok else ""

    def translate_sentences(self, sentences: Sequence[Sentence]) -> list[Translation]:
        """One translation per sentence, in order; the sentences are retrieved for and generated as one call. Where
        there is context they are one document.

        A blank sentence is its own translation.
        """
        return self._translate_documents([sentences])[0]

    def _translate_documents(self, documents: Sequence[Sequence[Sentence]]) -> list[list[Translation]]:
        """The translations of each document's sentences, all as one call."""
        tasks = [[SentenceTask(self, sentence) for sentence in sentences] for sentences in documents]
        written = [[task for task in own if task.sentence.text.strip()] for own in tasks]
        for own in written:
            translate_together(own, self.context)
        for _ in translate_all(list(chain(*written))):
            pass
        made = [[task.translation or Translation(task.sentence, task.sentence.text) for task in own] for own in tasks]
        return self._consistent(made) if self.consistent else made

    def _consistent(self, documents: Sequence[Sequence[Translation]]) -> list[list[Translation]]:
        """The translations of each document, those that differ from the rest of it translated again."""
        terms = [DocumentTerms(self, SentenceTask) for _ in documents]
        again = [own.again(made, {}) for own, made in zip(terms, documents, strict=True)]
        for _ in self.answer(TaskQueue(chain(*(tasks.values() for tasks in again)))):
            pass
        return [
            own.kept(made, {n: task.translation for n, task in tasks.items() if task.translation is not None})
            for own, made, tasks in zip(terms, documents, again, strict=True)
        ]

    def answer(self, queue: PromptQueue) -> Iterator[None]:
        """Let the language model answer the prompts of a queue (see `LanguageModel.answer`)."""
        return self.llm.answer(queue, self.max_new_tokens)

    def asked(self, prompt: Prompt) -> Prompt:
        """The prompt as the language model is asked, which tells how likely its answer is where estimates need that."""
        scored = self.min_quality is not None and not prompt.begun and self._ours
        return replace(prompt, scored=True) if scored else prompt

    @property
    def tuned(self) -> bool:
        """Whether the language model learnt from prompts with hints when to take one up: by an adapter of ours, here or
        (prompts of the shape `compact`) behind a server."""
        return bool(getattr(self.llm, "trained_wrapper", None)) or self.prompts.wrapper == "compact"

    @cached_property
    def _ours(self) -> bool:
        """Whether the language model is ours, with our adapter: the one whose probabilities the estimator knows."""
        adapter = getattr(self.llm, "adapter", None)
        ours = chosen_adapter("auto", DEFAULT_LLM, self.source, self.target)
        return self.llm.id == DEFAULT_LLM and adapter is not None and adapter == ours

    def read(self, sentence: Sentence, prompt: Prompt, completion: Completion) -> Translation:
        """The translation in the language model's answer to a prepared prompt."""
        whole = replace(completion, text=prompt.begun + completion.text) if prompt.begun else completion
        answer = read_answer(whole, sentence.text, prompt)
        notes = (*prompt.notes, *answer.notes)
        text = answer.text if answer.ok else sentence.text
        used = tuple(answer.ok and takes_up(text, hint) for hint in prompt.hints)
        plain = not (prompt.hints or prompt.terms or prompt.context or prompt.begun)  # what the estimator knows
        logprob = completion.logprob if answer.ok and plain else None
        return Translation(sentence, text, prompt.hints, prompt.text, used, notes, answer.ok, logprob=logprob)
