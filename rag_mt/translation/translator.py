"""The facade: a sentence in, its translation with the hints that were shown out."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

from prompts.answers import read_answer
from prompts.builder import PromptBuilder, resolved_wrapper
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM, DEFAULT_RETRIEVER, LLM_CONCURRENCY, LLM_TIMEOUT
from rag_mt.base.errors import UserError
from rag_mt.base.languages import direction_group, language
from rag_mt.base.types import (
    NOWHERE,
    Completion,
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
from rag_mt.llm.opening import open_llm
from rag_mt.models.offline.embedded import PREFIX
from rag_mt.models.weights import FOLDER, tell_if_left_out
from rag_mt.text.answers import placeholder_notes, takes_up
from rag_mt.text.splitting import needs_space, rejoin, split
from rag_mt.translation.tasks import SentenceTask, TaskQueue, translate_all
from retrievers.calibration import default_index
from retrievers.encoders.encoder import ModelEncoder
from retrievers.index.manifest import read_manifest
from retrievers.registry import encoder_for, open_retriever, retriever_spec

NONE, PLAIN = "none", "plain"
"""No adapter; the adapter for sentences without hints, where that for phrases has a higher loss
(reports/lora-training.md, to English: 1.751, plain 1.742)."""
HELD_BACK = 8
"""Characters at the end of a streamed answer that wait, because a mark or a label may still begin there."""


class Translator:
    """Translates between two languages with one retriever, one prompt builder and one language model.

        from rag_mt.translation.translator import Translator
        translator = Translator.from_pretrained(src="de", tgt="en")
        result = translator.translate("Der Stadtrat hat den Bau einer neuen Brücke beschlossen.")
        print(result.text)
        print([hint.phrase for hint in result.sentences[0].hints])

    `settings` holds all that could change an output; two translators with equal settings give equal
    outputs for equal batches.
    """

    def __init__(
        self,
        source: str,
        target: str,
        retriever: Retriever,
        llm: LanguageModel,
        wrapper: str = "auto",
        max_new_tokens: int = 256,
    ) -> None:
        self.source, self.target = source, target
        self.retriever, self.llm = retriever, llm
        self.max_new_tokens = max_new_tokens
        self.prompts = PromptBuilder(source, target, wrapper, retriever.unit, llm=llm, max_new_tokens=max_new_tokens)
        self.more_settings: dict[str, Any] = {}

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
            **self.more_settings,
        }

    @classmethod
    def from_pretrained(
        cls,
        src: str,
        tgt: str = "en",
        retriever: str | None = None,
        llm: str | LanguageModel = DEFAULT_LLM,
        index: str | Path | None = None,
        encoder: str | None = None,
        adapter: str | None = DEFAULT_ADAPTER,
        wrapper: str = "auto",
        device: str = "auto",
        dtype: str = "auto",
        quantization: str = "none",
        batch_size: int = 16,
        max_new_tokens: int = 256,
        llm_timeout: float = LLM_TIMEOUT,
        llm_concurrency: int = LLM_CONCURRENCY,
        show: bool = False,
        encoders: Callable[[str, str | None, str, str], ModelEncoder] = encoder_for,
    ) -> Translator:
        """A translator from names: hub ids, local folders or `embedded:NAME`; what is not named is the index's own
        retriever and encoder, or `ccpr` and the encoder of the retriever.

        `llm` may also be `openai:MODEL@URL` (`llm_timeout`: seconds for an answer, `llm_concurrency`: requests at once;
        OPENAI_API_KEY is sent to that host) or a ready LanguageModel; `adapter` is a folder, None, or `auto` for the
        ones that come with rag_mt, if any (see `chosen_adapters`); `encoders` opens encoders, so that several
        translators can share one.

        Without `index` the sample index of the target language is built once and cached; `show` shows its progress.
        Raises UserError for every name, language or index that cannot be used.
        """
        source, target = language(src).code, language(tgt).code
        if source == target:
            raise UserError(f"source and target are both {language(source).name}: give another src or tgt")
        if index and retriever is not None and not retriever_spec(retriever).needs_index:
            raise UserError(f"the retriever {retriever} searches no index, but {index} is given: leave one of them out")
        resolved_wrapper(wrapper, source, target, None)  # names and folders are checked before minutes of loading
        manifest = read_manifest(Path(index)) if index else None
        if manifest:
            retriever = retriever or manifest.retriever
            if retriever == manifest.retriever:
                encoder = encoder or manifest.encoder
        retriever = retriever or DEFAULT_RETRIEVER
        spec = retriever_spec(retriever)
        folder: Path | None = None
        encode = None
        if spec.needs_index:
            encode = encoders(retriever, encoder, device, dtype)
            folder = Path(index) if index else default_index(retriever, target, encode, show=show)
        opened = open_retriever(
            retriever, folder, encode, source_language=source, target_language=target, manifest=manifest
        )
        if isinstance(llm, str):
            adapters = chosen_adapters(adapter, llm, retriever, source, target)
            llm = open_llm(
                llm,
                **adapters._asdict(),
                device=device,
                dtype=dtype,
                quantization=quantization,
                batch_size=batch_size,
                timeout=llm_timeout,
                concurrency=llm_concurrency,
            )
        return cls(source, target, opened, llm, wrapper, max_new_tokens)

    @overload
    def translate(self, text: str) -> TranslatedText: ...
    @overload
    def translate(self, text: list[str] | tuple[str, ...]) -> list[Translation]: ...
    def translate(self, text: str | list[str] | tuple[str, ...]) -> TranslatedText | list[Translation]:
        """Running text, which is split into sentences and keeps its spacing, or a list of sentences."""
        if not isinstance(text, str):
            return self.translate_sentences([Sentence(t, self.source) for t in text])
        spans = split(text, self.source)
        parts = self.translate_sentences([Sentence(s.of(text), self.source) for s in spans])
        return TranslatedText(rejoin(text, spans, [p.text for p in parts]), tuple(parts))

    def stream(
        self, text: str, origin: Origin = NOWHERE, spans: Sequence[Span] | None = None
    ) -> Generator[str, None, TranslatedText]:
        """The translation of running text in pieces as they are generated, spacing included; `spans` are those of its
        sentences, if they are known.

        Closing the generator stops the computation; its return value is the whole result. The pieces joined are its
        text, save where an answer proves to be none (an echo of the prompt, say) or a loop after its first words were
        given out.
        """
        translations: list[Translation] = []
        spans, end = split(text, self.source) if spans is None else spans, 0
        for span in spans:
            if span.start > end:
                yield text[end : span.start]
            touching = bool(translations) and span.start == end
            pieces = Returning(self.stream_sentence(Sentence(span.of(text), self.source, origin)))
            for piece in pieces:
                if touching and piece and needs_space(translations[-1].text, piece):
                    yield " "
                touching = touching and not piece
                yield piece
            translations.append(pieces.value)
            end = span.end
        yield text[end:]
        return TranslatedText(rejoin(text, spans, [t.text for t in translations]), tuple(translations))

    def stream_sentence(self, sentence: Sentence) -> Generator[str, None, Translation]:
        """The pieces of one sentence's translation; the generator's return value is the whole Translation.

        A piece is given out as soon as further tokens cannot change it. Where the finished answer is no
        continuation of what was given out (no translation could be read, or it left a loop), nothing more is given out.
        """
        task, shown = SentenceTask(self, sentence), ""
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
        """One translation per sentence, in order; the sentences are retrieved for and generated as one call.

        A blank sentence is its own translation.
        """
        tasks = [SentenceTask(self, sentence) for sentence in sentences]
        for _ in translate_all([task for task in tasks if task.sentence.text.strip()]):
            pass
        return [task.translation or Translation(task.sentence, task.sentence.text) for task in tasks]

    def answer(self, queue: PromptQueue) -> Iterator[None]:
        """Let the language model answer the prompts of a queue (see `LanguageModel.answer`)."""
        return self.llm.answer(queue, self.max_new_tokens)

    def read(self, sentence: Sentence, prompt: Prompt, completion: Completion) -> Translation:
        """The translation in the language model's answer to a prepared prompt."""
        answer = read_answer(completion, sentence.text, prompt)
        notes = (*prompt.notes, *answer.notes)
        text = answer.text if answer.ok else sentence.text
        if answer.ok:
            notes = (*notes, *placeholder_notes(sentence.text, text))
        used = tuple(answer.ok and takes_up(text, hint) for hint in prompt.hints)
        return Translation(sentence, text, prompt.hints, prompt.text, used, notes, answer.ok)


def method_of(retriever: str) -> str:
    """The kind of adapter for a retriever's prompts: `plain`, `phrase` or `sentence` (which passages use too)."""
    spec = retriever_spec(retriever)
    if not spec.needs_index:
        return PLAIN
    return "phrase" if spec.unit == "phrase" else "sentence"


class Adapters(NamedTuple):
    """The folder of an adapter, and the folder of another one for prompts without hints; None where there is none."""

    adapter: str | None = None
    plain_adapter: str | None = None


def chosen_adapters(adapter: str | None, llm: str, retriever: str, source: str, target: str) -> Adapters:
    """The adapters for a language model, retriever and direction (language codes).

    `adapter` is a folder, which serves for all prompts, `none`, or `auto` for the ones that ship: embedded language
    models have them for directions to or from English.
    """
    if adapter in (None, NONE):
        return Adapters()
    if adapter != DEFAULT_ADAPTER:
        return Adapters(adapter)
    if not llm.startswith(PREFIX):
        return Adapters()
    tell_if_left_out(llm)
    hinted, plain = (_shipped(llm, method, source, target) for method in (method_of(retriever), PLAIN))
    return Adapters(hinted, plain if hinted and plain != hinted else None)


def _shipped(llm: str, method: str, source: str, target: str) -> str | None:
    group = direction_group(source, target).replace("_", "-")
    folder = FOLDER / llm.removeprefix(PREFIX) / f"{method}.{group}"
    return str(folder) if folder.is_dir() else None
