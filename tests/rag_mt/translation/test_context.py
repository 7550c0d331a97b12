"""Context: drafts of the sentences around one in its prompt, the same whatever is finished first, and after a kill."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Hit, Origin, Prompt, Returning, Sentence, Span
from rag_mt.formats.format import Segment
from rag_mt.llm.opening import open_llm
from rag_mt.translation import jobs
from rag_mt.translation.jobs import Counts, Echo, split_segments, stream_segments, translate_segments
from rag_mt.translation.journal import Journal
from rag_mt.translation.queue import TaskQueue
from rag_mt.translation.tasks import DRAFT_STANDS, SentenceTask
from rag_mt.translation.translator import Translator
from tests.rag_mt.translation.test_terms import glossary_of
from tests.ui.conftest import RuleLLM, RuleMemory, RuleRetriever

TEXTS = [f"Satz {'sehr ' * (n % 3)}kurz {n}." for n in range(12)]
SENTENCES = [Sentence(text, "de", Origin("a.txt", n)) for n, text in enumerate(TEXTS, 1)]


class ContextLLM(RuleLLM):
    """Answers in capitals, and with the places of what is shown around the sentence. `asked` holds all prompts; for
    sentences with one of the words `mute` there is no answer."""

    def __init__(self, mute: Sequence[str] = (), chat: bool = False) -> None:
        super().__init__()
        self.asked: list[Prompt] = []
        self.mute, self.has_chat_template = mute, chat

    def _answer(self, prompt: Prompt) -> list[str]:
        self.asked.append(prompt)
        lines = [line for line in prompt.text.splitlines() if line.startswith("German: ")]
        source = lines[-1].removeprefix("German: ")
        if any(word in source for word in self.mute):
            return [""]
        words = [*source.upper().split(), *(f"{one.offset:+}" for one in prompt.context)]
        return [f" {word}" for word in words[len(prompt.begun.split()) :]]


def translator_of(llm: RuleLLM, retriever: RuleMemory | RuleRetriever | str = "none", **more: object) -> Translator:
    return Translator(
        "de", retriever=retriever, llm=llm, max_new_tokens=64, **{"wrapper": "chat", "context": 2, **more}
    )  # type: ignore[arg-type]


def source_of(prompt: Prompt) -> str:
    return prompt.text.splitlines()[-1].removeprefix("German: ")


def offsets(prompt: Prompt) -> list[int]:
    return [one.offset for one in prompt.context]


@pytest.mark.parametrize(
    ("size", "first", "middle", "last"),
    [(1, [], [-1], [-1]), (2, [1], [-2, -1, 1], [-2, -1]), (3, [1], [-3, -2, -1, 1], [-3, -2, -1])],
)
def test_each_sentence_is_shown_with_those_around_it(
    size: int, first: list[int], middle: list[int], last: list[int]
) -> None:
    llm = ContextLLM()
    made = translator_of(llm, context=size).translate_sentences(SENTENCES)
    assert [t.draft for t in made] == [text.upper() for text in TEXTS]
    drafts, shown = (
        llm.asked[: len(TEXTS)],
        {prompt.text.splitlines()[-1]: prompt for prompt in llm.asked[len(TEXTS) :]},
    )
    assert all(not prompt.context for prompt in drafts) and len(shown) == len(TEXTS) - (not first)
    by_text = [shown.get(f"German: {text}") for text in TEXTS]
    assert [offsets(prompt) if prompt else [] for prompt in (by_text[0], by_text[6], by_text[-1])] == [
        first,
        middle,
        last,
    ]
    assert by_text[6] is not None
    for one in by_text[6].context:
        assert (one.source, one.translation) == (TEXTS[6 + one.offset], TEXTS[6 + one.offset].upper())
    assert made[6].text == " ".join([TEXTS[6].upper(), *(f"{n:+}" for n in middle)])


def test_texts_are_documents_of_their_own() -> None:
    llm = ContextLLM()
    translator = translator_of(llm)
    one, other, alone = translator.translate_batch(["Ja eins. Nein zwei.", "Gut drei. Schlecht vier.", "Allein."])
    assert (one.text, other.text) == ("JA EINS. +1 NEIN ZWEI. -1", "GUT DREI. +1 SCHLECHT VIER. -1")
    assert alone.text == "ALLEIN." and translator.translate("").text == ""
    shown = {neighbour.source for prompt in llm.asked for neighbour in prompt.context if "drei" in prompt.text}
    assert shown == {"Gut drei.", "Schlecht vier."}
    blank, word = translator.translate_sentences([Sentence(" ", "de"), Sentence("Ja.", "de")])
    assert (blank.text, word.text) == (" ", "JA.")


@pytest.mark.parametrize("order", [list, reversed, lambda tasks: sorted(tasks, key=lambda t: t.sentence.text[::-1])])
@pytest.mark.parametrize("most", [1, 3, 64])
def test_prompts_do_not_depend_on_the_order(
    order: Callable[[list[SentenceTask]], Iterable[SentenceTask]], most: int
) -> None:
    class Narrow(ContextLLM):
        def answer(self, queue, max_new_tokens=256):  # type: ignore[no-untyped-def]
            first = 0
            while prompts := queue.take(most):
                yield from self.round(queue, prompts, first, max_new_tokens)
                first += len(prompts)

    def asked(own_order: Callable[[list[SentenceTask]], Iterable[SentenceTask]]) -> list[str]:
        from rag_mt.translation.context import translate_together

        llm = Narrow()
        translator = translator_of(llm, RuleMemory(lambda text: "sehr" in text))
        tasks = [SentenceTask(translator, sentence) for sentence in SENTENCES]
        translate_together(tasks, 2)
        queue = TaskQueue(own_order(tasks))
        for _ in translator.answer(queue):
            pass
        assert all(task.translation for task in tasks) and not queue.left
        return sorted(prompt.text for prompt in llm.asked)

    assert asked(order) == asked(list)


def test_hints_are_shown_with_context_and_without() -> None:
    llm = ContextLLM()
    made = translator_of(llm, RuleRetriever()).translate_sentences(SENTENCES[:2])
    assert all(prompt.hints for prompt in llm.asked) and len(llm.asked) == 4
    assert made[1].hints and made[1].recalled is None and made[1].text.endswith("-1")


def test_with_a_memory_hinted_prompts_carry_context_and_so_do_those_without_hints() -> None:
    llm, memory = ContextLLM(), RuleMemory(lambda text: text == TEXTS[1])
    made = translator_of(llm, memory).translate_sentences(SENTENCES[:3])
    drafts, second = llm.asked[:3], sorted(llm.asked[3:], key=source_of)
    assert not any(prompt.context or prompt.hints for prompt in drafts)
    assert [(len(prompt.hints), offsets(prompt)) for prompt in second] == [(0, [1]), (1, [-1, 1]), (0, [-2, -1])]
    assert [t.recalled.shown for t in made if t.recalled] == [False, True, False]
    assert [t.text[-2:] for t in made] == ["+1", "+1", "-1"]


def test_known_translations_are_context_too() -> None:
    llm, memory = ContextLLM(), RuleMemory(lambda text: False)
    known = "As it was."
    memory.translated[TEXTS[1]] = Hit(Sentence(known, "en", Origin("own.tmx", 7)), Span(0, len(known)), 1.0, TEXTS[1])
    made = translator_of(llm, memory, reuse_known=True).translate_sentences(SENTENCES[:3])
    assert made[1].text == known
    last = next(prompt for prompt in llm.asked if prompt.context and source_of(prompt) == TEXTS[2])
    assert [one.translation for one in last.context] == [TEXTS[0].upper(), known]


def test_the_draft_stands_where_the_answer_with_context_cannot_be_read() -> None:
    class Silent(ContextLLM):
        def _answer(self, prompt: Prompt) -> list[str]:
            return [""] if prompt.context else super()._answer(prompt)

    made = translator_of(Silent()).translate_sentences(SENTENCES[:2])
    assert [t.text for t in made] == [text.upper() for text in TEXTS[:2]]
    assert made[0].notes == (
        f"{DRAFT_STANDS}: no translation could be read from the answer with context (the model gave no answer)",
    )


def test_what_could_not_be_drafted_is_not_shown() -> None:
    llm = ContextLLM(mute=["kurz 1."])
    made = translator_of(llm).translate_sentences(SENTENCES[:3])
    assert [t.ok for t in made] == [True, False, True]
    assert [made[0].text, made[2].text] == [TEXTS[0].upper(), f"{TEXTS[2].upper()} -2"]


def test_examples_show_what_comes_before_alone() -> None:
    llm = ContextLLM()
    made = translator_of(llm, wrapper="few-shot").translate_sentences(SENTENCES[:3])
    assert [t.text for t in made] == [TEXTS[0].upper(), f"{TEXTS[1].upper()} -1", f"{TEXTS[2].upper()} -2 -1"]
    assert len(llm.asked) == 5, "the first one has nothing before it: its draft is its translation"


def test_terms_are_asked_for_with_context() -> None:
    llm = ContextLLM(chat=True)
    glossary = glossary_of(("kurz", "brief"))
    translator_of(llm, glossary=glossary).translate_sentences(SENTENCES[:2])
    again = sorted(llm.asked[4:], key=source_of)
    assert [offsets(prompt) for prompt in again] == [[1], [-1]] and all(p.terms for p in again)


def test_a_stream_shows_finished_translations_before() -> None:
    llm = ContextLLM()
    stream = Returning(translator_of(llm).stream("Ja eins. Nein zwei. Gut drei. Schlecht vier."))
    assert "".join(stream) == stream.value.text
    made = [t.text for t in stream.value.sentences]
    assert made == ["JA EINS.", "NEIN ZWEI. -1", "GUT DREI. -2 -1", "SCHLECHT VIER. -2 -1"]
    assert len(llm.asked) == 4 and llm.asked[3].context[1].translation == stream.value.sentences[2].text
    segments = split_segments([Segment(text, Origin("a.txt", n)) for n, text in enumerate(TEXTS[:3])], "de")
    llm.asked.clear()
    list(stream_segments(translator_of(llm), segments, Echo(io.BytesIO()), Counts()))
    assert [offsets(prompt) for prompt in llm.asked] == [[], [-1], [-2, -1]], "segments of a file are one document"


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("kept", [0, 1, 4, 5, 9, 11])
def test_a_resumed_job_gives_the_same(kept: int, memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of four segments, of which some repeat a sentence; journals with the first and with the last ones."""
    monkeypatch.setattr(jobs, "WINDOW", 4)
    texts = [*TEXTS[:6], TEXTS[0], *TEXTS[7:]]
    segments = split_segments([Segment(text, Origin("a.txt", n)) for n, text in enumerate(texts, 1)], "de")

    def run(journal: Journal | None) -> tuple[list[str], list[str]]:
        llm = ContextLLM(mute=["kurz 5."])
        translator = translator_of(llm, RuleMemory(lambda text: "sehr" in text) if memory else "none", consensus=False)
        counts = Counts()
        made = list(translate_segments(translator, segments, counts, journal))
        assert counts.sentences == len(texts)
        if journal is not None:
            journal.close()
        return [text.text for text in made], [prompt.text for prompt in llm.asked]

    whole, prompts = run(None)
    assert whole[4] == f"{texts[4].upper()} -2 -1", (
        "the one after it cannot be drafted, those before are of another window"
    )
    assert whole[3].endswith("-2 -1") and whole[2].endswith("+1"), "what comes after is of the same window"
    _, all_prompts = run(Journal(tmp_path / "first", {}))
    assert all_prompts == prompts
    with closing(Journal(tmp_path / "first", {})) as complete:
        records = complete.earlier
    for name, chosen in (("begin", list(records)[:kept]), ("end", list(records)[4 - kept % 4 : 4])):
        with closing(Journal(tmp_path / name, {})) as partial:
            partial.add_records(chosen, [records[number] for number in chosen])
        again, fewer = run(Journal(tmp_path / name, {}))
        assert again == whole and set(fewer) <= set(prompts) and (not chosen or len(fewer) < len(prompts))


def test_context_is_part_of_the_settings_and_must_be_a_number() -> None:
    assert translator_of(RuleLLM(), context=3).settings["context"] == 3
    assert "context" not in translator_of(RuleLLM(), context=0).settings
    for wrong in (-1, "2"):
        with pytest.raises(UserError, match="expected the number of sentences before, from 0 on"):
            translator_of(RuleLLM(), context=wrong)
    with pytest.raises(UserError, match=r"context cannot be shown to rule: its prompts \(wrapper translategemma\)"):
        translator_of(RuleLLM(), wrapper="translategemma")


def test_real_models_are_shown_context(
    tiny_llm: Callable[..., Path], chat_template: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "rag_mt")
    llm = open_llm(str(tiny_llm("llama", chat_template)), dtype="float32", engine="transformers")
    llm.context_length = 2000
    translator = Translator("de", retriever="none", llm=llm, context=2, max_new_tokens=8)
    text = "Das Haus ist alt. Es steht leer. Niemand will es."
    made = translator.translate(text)
    assert all(sentence.draft or not sentence.ok for sentence in made.sentences)
    assert [sentence.text for sentence in translator.translate(text).sentences] == [s.text for s in made.sentences]
    gemma = Translator("de", retriever="none")
    assert "context" not in caplog.text
    gemma = gemma.with_context(2)
    assert "embedded:gemma-3-270m with the adapter for single sentences has not learnt to use context" in caplog.text
    caplog.clear()
    Translator("de", retriever="none", llm=llm, context=2)
    learnt = Translator("de", retriever="none", context=2)
    assert "has not learnt" not in caplog.text and learnt.llm is not gemma.llm
    (first, second) = gemma.translate("Das Museum ist geschlossen. Es öffnet morgen.").sentences
    assert first.ok and second.ok and f"geschlossen. = {first.draft}\nGerman: Es öffnet" in second.prompt
