"""With a memory: a draft, what is recalled for it, and another answer only where that is worth showing."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prompts.builder import WRAPPERS, PromptBuilder
from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Hint, Hit, Origin, Prompt, Recalled, Returning, Sentence, Span
from rag_mt.formats.format import Segment
from rag_mt.formats.lines import added_fields
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import LoadedLLM, load_llm
from rag_mt.translation.jobs import Counts, split_segments, translate_segments
from rag_mt.translation.journal import Journal
from rag_mt.translation.queue import RECALLED_TOGETHER, TaskQueue
from rag_mt.translation.tasks import DRAFT_STANDS, SentenceTask
from rag_mt.translation.translator import Translator
from tests.ui.conftest import HintedLLM, RuleLLM, RuleMemory

LETTERS = "abcdefghij"
TEXTS = [f"Satz {'sehr ' * (n % 3)}kurz {LETTERS[n // 10]}{LETTERS[n % 10]}." for n in range(40)]
"""Without numbers: those that a model that answers at random loses would be asked for."""
SENTENCES = [Sentence(text, "de", Origin("a.txt", n)) for n, text in enumerate(TEXTS, 1)]
NEVER: Callable[[str], bool] = lambda text: False  # noqa: E731
EVEN: Callable[[str], bool] = lambda text: LETTERS.index(text.rstrip(".")[-1]) % 2 == 0  # noqa: E731


def translator_of(memory: RuleMemory | str, llm: RuleLLM | TransformersLLM | None = None) -> Translator:
    return Translator("de", retriever=memory, llm=llm or HintedLLM(), wrapper="compact", max_new_tokens=24)


@pytest.fixture(scope="module")
def loaded(tiny_llm: Callable[..., Path]) -> LoadedLLM:
    return load_llm(str(tiny_llm()), device="cpu", dtype="float32")


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_the_prompt_of_a_draft_is_the_plain_one(wrapper: str) -> None:
    plain = PromptBuilder("de", "en", wrapper, "sentence").build(SENTENCES[0], ())
    assert PromptBuilder("de", "en", wrapper, "memory").build(SENTENCES[0], ()) == plain


@pytest.mark.parametrize("reuse", [True, False])
def test_known_translations_are_reused_on_request(reuse: bool, tmp_path: Path) -> None:
    memory = RuleMemory(NEVER)
    text = "As it was."
    known = Hit(Sentence(text, "en", Origin("own.tmx", 7)), Span(0, len(text)), 1.0, SENTENCES[1].text)
    memory.translated[SENTENCES[1].text] = known
    translator = Translator(
        "de", retriever=memory, llm=HintedLLM(), wrapper="compact", max_new_tokens=24, reuse_known=reuse
    )
    first, second, third = translator.translate_sentences(SENTENCES[:3])
    assert [SENTENCES[1].text in dict(asked) for asked in memory.asked] == [not reuse]
    assert ("reuse_known" in translator.settings) == reuse
    if reuse:
        assert (second.text, second.used, second.recalled) == (text, (True,), None)
        assert second.notes == ("translated before: reused from own.tmx:7",) and second.hints[0].hit == known
        with closing(Journal(tmp_path / "journal", {})) as journal:
            journal.add([1], [second])
        with closing(Journal(tmp_path / "journal", {})) as journal:
            assert journal.take(1, SENTENCES[1]) == second
        assert "".join(translator.stream(SENTENCES[1].text)) == text
    else:
        assert second.text != text and second.recalled is not None
    assert first.recalled is not None and third.recalled is not None


@pytest.mark.parametrize("retriever", ["none", "monolingual"])
def test_reusing_needs_a_memory_of_both_languages(retriever: str) -> None:
    memory = RuleMemory()
    memory.bilingual = False
    with pytest.raises(UserError, match=r"are only reused .* from a memory of both languages"):
        Translator("de", retriever="none" if retriever == "none" else memory, llm=HintedLLM(), reuse_known=True)


@given(st.integers(1, 17), st.lists(st.integers(0, 39), min_size=1, max_size=20))
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_memory_that_shows_nothing_gives_the_plain_translations(
    loaded: LoadedLLM, batch_size: int, numbers: list[int]
) -> None:
    """By a real model in float32, whatever is computed together."""
    sentences = [SENTENCES[n] for n in numbers]
    plain = translator_of("none", TransformersLLM(loaded, 3)).translate_sentences(sentences)
    made = translator_of(RuleMemory(NEVER), TransformersLLM(loaded, batch_size)).translate_sentences(sentences)
    assert [replace(t, draft="", recalled=None) for t in made] == plain
    for translation in made:
        assert translation.draft == (translation.text if translation.ok else "")
        assert translation.recalled is not None and not translation.recalled.shown and translation.recalled.hints


def test_each_draft_is_recalled_for_once_with_its_own_sentence(loaded: LoadedLLM) -> None:
    """By a real model with room for four: the first drafts do not wait for the last ones, nor for more than needed."""
    memory, llm = RuleMemory(EVEN), TransformersLLM(loaded, 4)
    made = translator_of(memory, llm).translate_sentences(SENTENCES)
    plain = translator_of("none", llm).translate_sentences(SENTENCES)
    own = {t.source.text: t.text if t.ok else "" for t in plain}
    assert sorted(pair for call in memory.asked for pair in call) == sorted(own.items())
    assert RECALLED_TOGETHER <= len(memory.asked[0]) < RECALLED_TOGETHER + 4, "while most sentences wait"
    assert [t.draft for t in made] == list(own.values())
    assert [t.recalled.shown for t in made if t.recalled] == [EVEN(text) for text in TEXTS]
    assert any(t.text != t.draft for t in made)


def test_where_hints_are_shown_the_second_answer_is_the_translation() -> None:
    memory, llm = RuleMemory(EVEN), HintedLLM()
    made = translator_of(memory, llm).translate_sentences(SENTENCES[:4])
    assert llm.calls == [4, 2], "four drafts, and two answers with hints"
    for n, translation in enumerate(made):
        draft = TEXTS[n].upper()
        assert translation.draft == draft
        assert translation.text == (f"AGAIN {draft}" if n % 2 == 0 else draft)
        assert len(translation.hints) == len(translation.used) == (n % 2 == 0)
        assert (f"Similar, 80%: Einst: {TEXTS[n]} = Of old: {draft}" in translation.prompt) == (n % 2 == 0)
        assert translation.recalled is not None
    assert made[0].used == (False,)


def test_blank_sentences_have_no_draft() -> None:
    memory = RuleMemory()
    blank, full = translator_of(memory).translate_sentences([Sentence(" ", "de"), SENTENCES[0]])
    assert (blank.text, blank.draft, blank.recalled) == (" ", "", None) and full.recalled is not None
    assert len(memory.asked) == 1


class FourHits(RuleMemory):
    """Recalls four lines for every sentence, one for a sentence that ends with 1; the last line is `last`, and that of
    the sentence `copied` its draft."""

    def __init__(self, last: str = "Seconds of old.", similarity: float = 0.1, copied: str = "") -> None:
        super().__init__()
        self.last, self.similarity, self.copied = last, similarity, copied

    def _recalled(self, text: str, draft: str) -> Recalled:
        lines = [f"{word} of old." for word in ("First", "Second", "Third")]
        lines.append(draft if text == self.copied else self.last)
        hits = [
            Hit(Sentence(line, "en", Origin("memory.txt", n)), Span(0, len(line)), self.similarity)
            for n, line in enumerate(lines)
        ]
        hints = [Hint(Span(0, len(text)), hit) for hit in hits]
        return Recalled(tuple(hints[:1] if text.endswith("1.") else hints), True)


class Echoing(HintedLLM):
    """Answers with the hints that it is shown; `unreadable` hints lead to no answer."""

    def __init__(self, unreadable: str = "") -> None:
        super().__init__()
        self.unreadable = unreadable
        self.shown: list[str] = []

    def _answer(self, prompt: Prompt) -> list[str]:
        phrases = [hint.phrase.split()[0] for hint in prompt.hints]
        self.shown.append("+".join(phrases))
        if self.unreadable and self.shown[-1] in self.unreadable.split():
            return [" "]
        return [f" {word}" for word in phrases] or super()._answer(prompt)


def test_consensus_shows_the_first_hints_together_and_each_alone() -> None:
    llm = Echoing()
    translator = Translator("de", retriever=FourHits(), llm=llm, wrapper="compact")
    first, second = translator.translate_sentences(SENTENCES[2:4])
    asked = ["", "First", "First+Second+Third", "Second", "Third", "Seconds"]
    assert sorted(llm.shown) == sorted(asked * 2)
    assert second.text == "First Second Third" and len(second.hints) == 3
    assert first.text == "First Second Third"
    assert translator.settings["consensus"] and second.draft == TEXTS[3].upper() and second.recalled is not None
    (single,) = translator.translate_sentences([Sentence("Satz 1.", "de")])
    assert single.text == "First" and llm.shown[-2:] == ["", "First"], "one hint is one question"
    assert "".join(translator.stream(TEXTS[2])) == "First Second Third"
    quick = Translator("de", retriever=FourHits(), llm=Echoing(), wrapper="compact", consensus=False)
    assert quick.translate_sentences(SENTENCES[2:3])[0].text == "First Second Third"
    assert quick.llm.shown == ["", "First+Second+Third"] and "consensus" not in quick.settings  # type: ignore[attr-defined]


def test_what_a_similar_hit_says_is_chosen_be_it_the_draft() -> None:
    memory = FourHits("Another", 0.9, copied=TEXTS[3])
    first, second = Translator("de", retriever=memory, llm=Echoing(), wrapper="compact").translate_sentences(
        SENTENCES[2:4]
    )
    assert (first.text, [hint.phrase for hint in first.hints]) == ("Another", ["Another"])
    assert (second.text, second.hints) == (second.draft, ()) and second.recalled is not None and second.recalled.shown
    answers = {"First Second Third", "First", "Second", "Third"}
    assert set(first.alternatives) == answers | {first.draft}
    assert set(second.alternatives) == answers | {"SATZ"}, "the draft is the translation itself"


@pytest.mark.parametrize(
    ("longest", "asked"),
    [(3, ["First", "First+Second+Third", "Second", "Seconds", "Third"]), (0, ["First", "Second", "Third"])],
)
def test_no_question_is_asked_again_where_hints_do_not_fit(longest: int, asked: list[str]) -> None:
    llm, memory = Echoing(), FourHits("Seconds " * 40)
    translator = Translator("de", retriever=memory, llm=llm, wrapper="compact", max_new_tokens=24)
    (recalled,) = memory.recall(SENTENCES[2:3], [""])
    fitting = translator.prompts.build(SENTENCES[2], recalled.hints[longest : longest + 1])
    llm.context_length = llm.count_tokens(fitting) + 24
    assert translator.translate_sentences(SENTENCES[2:3])[0].ok
    assert sorted(llm.shown) == ["", *asked]


def test_alternatives_have_the_spacing_of_their_text(tmp_path: Path) -> None:
    translator = Translator("de", retriever=FourHits("Another", 0.9), llm=Echoing(), wrapper="compact")
    one, two = translator.translate_batch([f" {TEXTS[2]}\n", "Der Zug. Das Schiff."])
    assert one.text == " Another\n" and " First Second Third\n" in one.alternatives and len(one.alternatives) == 5
    assert len(two.sentences) == 2 and two.alternatives == []
    with closing(Journal(tmp_path / "journal", {})) as journal:
        journal.add([1], one.sentences)
    with closing(Journal(tmp_path / "journal", {})) as journal:
        assert journal.take(1, one.sentences[0].source) == replace(one.sentences[0], prompt="")
    (fields,) = added_fields(TEXTS[2], one)["memory"]
    assert fields["alternatives"] == list(one.sentences[0].alternatives)


@given(st.permutations(range(5)), st.integers(1, 5))
def test_questions_of_a_sentence_are_asked_together_and_answered_in_any_order(order: list[int], room: int) -> None:
    translator = Translator("de", retriever=FourHits(), llm=Echoing(), wrapper="compact")
    task = SentenceTask(translator, SENTENCES[2])
    queue = TaskQueue([task])
    assert len(queue.take(9)) == 1 and not queue.take(9)
    queue.finish(0, Completion(" DRAFT", 1, True))
    prompts = [*queue.take(room), *queue.take(9)]
    assert prompts == task.hinted and len(prompts) == 5 and not queue.take(9)
    assert queue.progress(1, " so far") and not task.begun, "no answer is known to be the one"
    words = [" ".join(hint.phrase.split()[0] for hint in prompt.hints) for prompt in prompts]
    for number in order:
        assert task.translation is None and len(queue.running) > 0
        queue.finish(number + 1, Completion(f" {words[number]}", 1, True))
    assert task.translation is not None and task.translation.text == "First Second Third"
    assert [answer.text.strip() for answer in task.answers] == ["DRAFT", *words] and not queue.running


@pytest.mark.parametrize(
    ("unreadable", "wrapper", "text", "hints"),
    [
        ("First+Second+Third First", "compact", "Seconds", 1),
        ("First+Second+Third First", "few-shot", "Second", 1),  # what is closest to a hit has no advantage there
        ("First+Second+Third First Second Third Seconds", "compact", TEXTS[2].upper(), 0),
    ],
)
def test_answers_that_cannot_be_read_have_no_say(unreadable: str, wrapper: str, text: str, hints: int) -> None:
    translator = Translator("de", retriever=FourHits(), llm=Echoing(unreadable), wrapper=wrapper)
    (made,) = translator.translate_sentences(SENTENCES[2:3])
    assert (made.ok, made.text, len(made.hints)) == (True, text, hints)
    assert any(note.startswith(DRAFT_STANDS) for note in made.notes) == (not hints)


class Unreadable(HintedLLM):
    """Gives no answer to prompts with hints (or `without` any too)."""

    without = False

    def _answer(self, prompt: Prompt) -> list[str]:
        return [" "] if prompt.hints or self.without else super()._answer(prompt)


def test_the_draft_stands_where_the_second_answer_cannot_be_read() -> None:
    (made,) = translator_of(RuleMemory(), Unreadable()).translate_sentences(SENTENCES[:1])
    assert made.ok and made.text == made.draft == TEXTS[0].upper() and not made.hints
    assert made.notes == (
        f"{DRAFT_STANDS}: no translation could be read from the answer with hints (the model gave no answer)",
    )
    assert made.recalled is not None and made.recalled.shown


def test_without_any_readable_answer_there_is_no_translation() -> None:
    memory, llm = RuleMemory(), Unreadable()
    llm.without = True
    (made,) = translator_of(memory, llm).translate_sentences(SENTENCES[:1])
    assert (made.ok, made.text, made.draft) == (False, TEXTS[0], "")
    assert memory.asked == [[(TEXTS[0], "")]], "the memory sees no draft that is the source text"


def test_hints_without_a_place_in_the_prompt_change_nothing() -> None:
    """A prompt that shows none would be that of the draft once more."""
    llm = HintedLLM()
    translator = Translator("de", retriever=RuleMemory(), llm=llm, wrapper="compact", max_new_tokens=24)
    llm.context_length = 24 + translator.llm.count_tokens(translator.prompts.build(SENTENCES[0], ()))
    (made,) = translator.translate_sentences(SENTENCES[:1])
    assert llm.calls == [1] and made.text == made.draft
    assert made.recalled is not None and not made.recalled.shown
    assert "hints left out" in made.notes[0]


@pytest.mark.parametrize(("shows", "expected"), [(True, "AGAIN SATZ KURZ AA."), (False, "SATZ KURZ AA.")])
def test_a_stream_gives_out_nothing_that_changes(shows: bool, expected: str) -> None:
    translator = translator_of(RuleMemory(lambda text: shows))
    stream = Returning(translator.stream_sentence(SENTENCES[0]))
    pieces = list(stream)
    assert "".join(pieces) == expected == stream.value.text
    assert (len(pieces) > 1) == shows, "the second answer comes in pieces, the draft once it is known to stand"
    assert translator_of(RuleMemory(EVEN)).translate(" ".join(TEXTS[:3])).text == "".join(
        translator_of(RuleMemory(EVEN)).stream(" ".join(TEXTS[:3]))
    )


class StoppedEarlyError(Exception):
    """Raised in the middle of a job."""


@pytest.mark.parametrize("stop", [1, 2, 5, 7])
def test_an_interrupted_job_goes_on_with_equal_bytes(tmp_path: Path, loaded: LoadedLLM, stop: int) -> None:
    """Also what is told of drafts and of what was recalled; nothing that was kept is asked again."""
    segments = [Segment(text, Origin("a.txt", n)) for n, text in enumerate([*TEXTS[:8], TEXTS[0]], 1)]
    done: list[int] = []

    def lines(memory: RuleMemory, journal: Journal, advance: Callable[[int], object] = lambda n: None) -> list[str]:
        translator = translator_of(memory, TransformersLLM(loaded, 3))
        texts = translate_segments(translator, split_segments(segments, "de"), Counts(), journal, advance)
        return [json.dumps(added_fields(segment.text, text)) for segment, text in zip(segments, texts, strict=True)]

    def interrupted(number: int) -> None:
        done.append(number)
        if sum(done) > stop:
            raise StoppedEarlyError

    whole = lines(RuleMemory(EVEN), Journal(tmp_path / "whole", {}))
    journal = Journal(tmp_path / "parts", {})
    with pytest.raises(StoppedEarlyError):
        lines(RuleMemory(EVEN), journal, interrupted)
    journal.close()
    memory, journal = RuleMemory(EVEN), Journal(tmp_path / "parts", {})
    assert lines(memory, journal) == whole
    assert sum(map(len, memory.asked)) == 8 - journal.resumed < 8
    assert [len(json.loads(line)["memory"]) for line in whole] == [1] * 9
    journal.close()


def test_what_is_told_of_a_sentence() -> None:
    texts = translator_of(RuleMemory(EVEN)).translate_batch(TEXTS[:2])
    shown, kept = ([*added_fields(text, own)["memory"]] for text, own in zip(TEXTS, texts, strict=False))
    line = {"source": TEXTS[0], "phrase": "Of old: SATZ KURZ AA.", "original": f"Einst: {TEXTS[0]}", "score": 0.8}
    assert shown == [
        {
            "source": TEXTS[0],
            "draft": "SATZ KURZ AA.",
            "hits": [line | {"file": "memory.txt", "line": 3}],
            "shown": True,
            "changes": [["", "AGAIN"]],
            "alternatives": [],
        }
    ]
    assert [(own["shown"], own["changes"]) for own in kept] == [(False, [])]
    assert "memory" not in added_fields("Ja.", translator_of("none", RuleLLM()).translate("Ja."))
