"""Prompts as whole texts, their hints, and how they fit a window."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from prompts.builder import PromptBuilder
from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Hint, Hit, Prompt, Sentence, Span, Unit

GOLDEN = Path(__file__).parent / "golden"
WRAPPERS = ("alpaca", "few-shot", "chat", "compact")
SOURCE = Sentence("Der Bundestag hat am Freitag über den neuen Haushalt beraten.", "de")
BUDGET = (
    "Members of parliament debated the new budget for more than eleven hours before they went home on Friday, "
    "the speaker said."
)


def hint(source_phrase: str, text: str, phrase: str, score: float, source: str = SOURCE.text) -> Hint:
    start, found = source.index(source_phrase), text.index(phrase)
    hit = Hit(Sentence(text, "en"), Span(found, found + len(phrase)), score)
    return Hint(Span(start, start + len(source_phrase)), hit)


HINTS = (
    hint("den neuen Haushalt", BUDGET, "the new budget", 0.9),
    hint("Der Bundestag", "The German Bundestag meets in Berlin.", "German Bundestag", 0.8),
    hint("am Freitag", "They left on Friday.", "on Friday", 0.4),
)
RELATED = (hint(SOURCE.text, BUDGET, BUDGET, 0.6),)
WINDOW = (hint(SOURCE.text, BUDGET, BUDGET[: BUDGET.index(" on Friday")], 0.6),)


class Words:
    """A language model that counts words as tokens."""

    id = fingerprint = "words"

    def __init__(self, context_length: int = 100_000, chat: bool = False, reserved: Sequence[str] = ()) -> None:
        self.context_length, self.has_chat_template, self.reserved = context_length, chat, frozenset(reserved)
        self.counted = 0

    def count_tokens(self, prompt: Prompt) -> int:
        self.counted += 1
        return len(prompt.text.split())

    def generate(self, prompts: Sequence[Prompt], max_new_tokens: int = 256) -> list[Completion]:
        return [Completion("", 0, True) for _ in prompts]

    def stream(self, prompt: Prompt, max_new_tokens: int = 256) -> Iterator[str]:
        return iter(())


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    ("kind", "hints"), [("plain", ()), ("phrase", HINTS), ("sentence", RELATED), ("passage", WINDOW)]
)
def test_golden(wrapper: str, kind: str, hints: tuple[Hint, ...], request: pytest.FixtureRequest) -> None:
    unit = cast(Unit, "phrase" if kind == "plain" else kind)
    prompt = PromptBuilder("de", "en", wrapper, unit).build(SOURCE, hints)
    assert prompt.text + "\n" == (GOLDEN / f"{wrapper}.{kind}.txt").read_text(encoding="utf-8")
    assert prompt.chat == (wrapper == "chat")


def test_language_codes_stand_beside_the_bare_sentence() -> None:
    """TranslateGemma's template writes the instruction and has no place for hints."""
    prompt = PromptBuilder("de", "pt-BR", "translategemma", "phrase").build(SOURCE, HINTS)
    assert (prompt.text, prompt.chat, prompt.coded, prompt.hints) == (SOURCE.text, True, True, ())
    assert (prompt.source, prompt.target) == ("de", "pt-BR")
    assert prompt.notes == (f"hints left out: {len(HINTS)} for which the prompt style translategemma has no place",)
    asks = Words(chat=True)
    assert PromptBuilder("de", "en", "auto", llm=asks).wrapper == "chat"
    asks.takes_language_codes = True  # type: ignore[attr-defined]
    assert PromptBuilder("de", "en", "auto", llm=asks).wrapper == "translategemma"


def test_hints_stand_in_source_order_without_duplicates_and_overlaps() -> None:
    repeated = hint("am Freitag", "It was on Friday again.", "on Friday", 0.2)
    overlapping = hint("neuen Haushalt", "A household name.", "household", 0.95)
    prompt = PromptBuilder("de", "en", "alpaca").build(SOURCE, (*HINTS, repeated, overlapping))
    assert [h.phrase for h in prompt.hints] == ["German Bundestag", "on Friday", "household"]
    assert prompt.notes == ("hints left out: 1 overlapping, 1 repeated",)


def test_the_weakest_hints_go_first(monkeypatch) -> None:
    monkeypatch.setattr("prompts.builder.MAX_HINTS", 2)
    prompt = PromptBuilder("de", "en", "chat").build(SOURCE, HINTS)
    assert [h.phrase for h in prompt.hints] == ["German Bundestag", "the new budget"]
    assert prompt.notes == ("hints left out: 1 beyond the limit of 2",)


def test_useless_hints_are_counted_and_leave_the_plain_prompt() -> None:
    builder = PromptBuilder("de", "en", "few-shot")
    blank = Hint(Span(3, 4), HINTS[0].hit)
    outside = Hint(Span(50, 200), HINTS[1].hit)
    wordless = Hint(Span(0, 3), Hit(Sentence("a  b", "en"), Span(1, 3), 0.9))
    unscored = Hint(Span(0, 3), Hit(Sentence("The", "en"), Span(0, 3), float("nan")))
    prompt = builder.build(SOURCE, (blank, outside, wordless, unscored))
    assert prompt.text == builder.build(SOURCE, ()).text
    assert prompt.hints == () and prompt.notes == ("hints left out: 4 empty",)


def test_phrases_that_are_longer_than_a_context_are_left_out(monkeypatch) -> None:
    monkeypatch.setattr("prompts.builder.CONTEXT_CHARS", len("the new budget"))
    prompt = PromptBuilder("de", "en", "chat").build(SOURCE, HINTS)
    assert [h.phrase for h in prompt.hints] == ["on Friday", "the new budget"]
    assert prompt.notes == ("hints left out: 1 longer than the context limit",)


@pytest.mark.parametrize("unit", ["sentence", "passage"])
def test_one_related_text_is_shown(unit: Unit) -> None:
    other = hint(SOURCE.text, "Nothing to see here.", "Nothing to see here.", 0.1)
    prompt = PromptBuilder("de", "en", "chat", unit).build(SOURCE, (other, *RELATED))
    assert prompt.hints == RELATED and "Nothing" not in prompt.text


def test_a_prompt_fits_the_window_by_losing_its_weakest_hints() -> None:
    full = len(PromptBuilder("de", "en", "alpaca").build(SOURCE, HINTS).text.split())
    llm = Words(full - 1 + 50)
    prompt = PromptBuilder("de", "en", "alpaca", llm=llm, max_new_tokens=50).build(SOURCE, HINTS)
    assert [h.phrase for h in prompt.hints] == ["German Bundestag", "the new budget"]
    window = f"the model's window of {full + 49} tokens beside 50 new ones"
    assert prompt.notes == (f"hints left out: the 1 weakest of 3, to fit {window}",)


@given(st.integers(1, 400), st.integers(0, 30))
def test_fitting_keeps_as_many_hints_as_possible(room: int, number: int) -> None:
    source = Sentence(" ".join(f"w{i}" for i in range(30)), "de")
    hints = [hint(f"w{i}", f"some words before p{i} and after", f"p{i}", i / 7 % 1, source.text) for i in range(number)]
    llm = Words(room + 20)
    prompt = PromptBuilder("de", "en", "chat", llm=llm, max_new_tokens=20).build(source, hints)
    assert llm.counted <= 8
    strongest = sorted(hints, key=lambda h: (-h.hit.score, h.source_span))
    assert set(prompt.hints) == set(strongest[: len(prompt.hints)])
    fits = len(prompt.text.split()) <= room
    if len(prompt.hints) < len(hints):
        more = PromptBuilder("de", "en", "chat").build(source, strongest[: len(prompt.hints) + 1])
        assert len(more.text.split()) > room
    assert fits == (not any("does not fit" in note for note in prompt.notes))
    assert fits or not prompt.hints


def test_a_plain_prompt_that_is_too_long_stays_whole_and_says_so() -> None:
    long = Sentence("Wort " * 500, "de")
    prompt = PromptBuilder("de", "en", "chat", llm=Words(300), max_new_tokens=20).build(long, ())
    assert prompt.text.count("Wort") == 500
    assert prompt.notes[0].endswith("does not fit the model's window of 300 tokens beside 20 new ones")


@pytest.mark.parametrize(
    ("target", "chat", "expected"), [("en", True, "chat"), ("en", False, "few-shot"), ("is", False, "alpaca")]
)
def test_auto_wrapper(target: str, chat: bool, expected: str) -> None:
    assert PromptBuilder("de", target, "auto", llm=Words(chat=chat)).wrapper == expected


@pytest.mark.parametrize(
    ("adapter", "trained", "chat", "expected"),
    [
        ("my-adapter", None, False, "alpaca"),
        (None, None, False, "few-shot"),
        ("my-adapter", None, True, "chat"),
        ("my-adapter", "compact", False, "compact"),
        ("my-adapter", "alpaca", True, "alpaca"),
    ],
)
def test_auto_wrapper_of_a_model_with_an_adapter(
    adapter: str | None, trained: str | None, chat: bool, expected: str
) -> None:
    llm = Words(chat=chat)
    llm.adapter, llm.trained_wrapper = adapter, trained  # type: ignore[attr-defined]
    assert PromptBuilder("de", "en", "auto", llm=llm).wrapper == expected


@pytest.mark.parametrize("trained", ["zephyr", "../../secret"])
def test_an_unknown_wrapper_of_a_foreign_adapter_is_refused(trained: str) -> None:
    llm = Words()
    llm.adapter, llm.trained_wrapper = "foreign", trained  # type: ignore[attr-defined]
    said = f"training.json names the prompt wrapper {trained!r}: expected one of alpaca, few-shot, chat, compact"
    with pytest.raises(UserError, match=re.escape(said)):
        PromptBuilder("de", "en", "auto", llm=llm)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("de", "en", "vicuna"), "'vicuna': expected one of auto, alpaca"),
        (("de", "is", "few-shot"), "no few-shot examples for de-is: they exist between cs, de, en, fi, ro, ru, tr"),
        (("de", "en", "chat", "word"), "'word': expected one of phrase, sentence, passage"),
        (("de", "xx-nope", "chat"), "xx-nope"),
    ],
)
def test_user_errors(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        PromptBuilder(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("unit", ["phrase", "sentence", "passage"])
def test_prompts_share_their_beginning(wrapper: str, unit: Unit) -> None:
    builder = PromptBuilder("fi", "tr", wrapper, unit)
    for hints in ((), HINTS[:1]):
        a = builder.build(SOURCE, hints)
        b = builder.build(Sentence(f"Vorab: {SOURCE.text}", "fi"), hints)
        assert a.shared == b.shared and a.text[: a.shared] == b.text[: b.shared]
        assert a.shared > (20 if wrapper == "compact" else 80) and a.text[a.shared - 1] == "\n"
        assert "Bundestag" not in a.text[: a.shared] and len(a.text) - a.shared < 400


def test_settings_are_json_and_tell_builders_apart() -> None:
    builders = [
        PromptBuilder("de", "en", "chat"),
        PromptBuilder("de", "en", "alpaca"),
        PromptBuilder("de", "en", "chat", "sentence"),
        PromptBuilder("de", "en", "chat", llm=Words(reserved=["<x>"])),
        PromptBuilder("en", "de", "chat"),
    ]
    texts = [json.dumps(builder.settings, sort_keys=True) for builder in builders]
    assert len(set(texts)) == len(texts)
    assert json.dumps(PromptBuilder("de", "en", "chat").settings, sort_keys=True) == texts[0]


CONTROL = ("[[", "]]", "###", "<|im_start|>", "</s>", "[INST]", "<start_of_turn>", "<<SYS>>", "<x<x>>", "### Response:")
LOOSE = ("[", "]", "#", "<", "\n", "\u2028", "\x85", "\t", " ", "{source}", "{hints}", "German: ", "Haus", "ä", ":")
NASTY = st.lists(st.sampled_from((*CONTROL, *LOOSE)), max_size=14).map("".join)
RESERVED = ("<x>", "<start_of_turn>", "Haus", "[[", "<|im_start|>", "]x")


@given(NASTY, NASTY, NASTY, NASTY, st.sampled_from(WRAPPERS), st.sampled_from(["phrase", "sentence", "passage"]))
@example("", "", "[[" * 6 + "###" + "<|im_start|>" * 6 + "### Response:", "", "alpaca", "phrase")
def test_inserted_text_stays_in_its_place(
    text: str, before: str, phrase: str, after: str, wrapper: str, unit: Unit
) -> None:
    assume(unit != "phrase" or len(phrase) < 100)  # longer ones are left out
    source = Sentence(f"a{text}", "de")
    hit = Hit(Sentence(f"{before}b{phrase}{after}", "en"), Span(len(before), len(before) + 1 + len(phrase)), 0.5)
    builder = PromptBuilder("de", "en", wrapper, unit, llm=Words(reserved=RESERVED))
    prompt = builder.build(source, (Hint(Span(0, len(source.text)), hit),))
    calm_hit = Hit(Sentence("b", "en"), Span(0, 1), 0.5)
    calm = builder.build(Sentence("a", "de"), (Hint(Span(0, 1), calm_hit),)).text
    for token in (*RESERVED, "[[", "]]", "###", "</s>", "[INST]", "<<SYS>>"):
        assert prompt.text.count(token) == calm.count(token)
    assert prompt.text.splitlines()[-1] == calm.splitlines()[-1] or wrapper not in ("few-shot", "compact")
    assert len(prompt.text.splitlines()) == len(calm.splitlines())


@given(st.text("ab [.,\n", min_size=1, max_size=400), st.data())
def test_the_marked_phrase_is_in_a_context_within_its_limit(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    span = Span(start, data.draw(st.integers(start + 1, len(text))))
    phrase = " ".join(span.of(text).split())
    if not phrase:
        return
    found = Hint(Span(0, 3), Hit(Sentence(text, "en"), span, 0.5))
    prompt = PromptBuilder("de", "en", "chat").build(SOURCE, (found,))
    if len(span) > 100:
        assert prompt.hints == ()
        return
    line = next(line for line in prompt.text.splitlines() if line.startswith("- Der = "))
    context = line.split(", as in: ", 1)[1]
    assert len(context) <= 100 + len("[[]]")
    marked = re.fullmatch(r"[^\[]*\[\[([^\[\]]*)\]\][^\]]*", context)
    assert marked and " ".join(marked[1].replace("⟦", "[").split()) == phrase


def test_slots_in_user_text_stay_literal() -> None:
    text = "{source} {hints} {task} {translation}"
    prompt = PromptBuilder("de", "en", "few-shot").build(Sentence(text, "de"), ())
    assert prompt.text.endswith(f"German: {text}\nEnglish:")


def test_a_memory_shows_phrases_then_sentences_the_most_similar_last() -> None:
    text = "Verbindungen dieses Treibers aufbewahren"

    def similar(sentence: str, score: float, original: str = "") -> Hint:
        hit = Hit(Sentence(sentence, "en"), Span(0, len(sentence)), score, original)
        return Hint(Span(0, len(text)), hit)

    phrase = Hint(Span(13, 28), Hit(Sentence("all of the drivers", "en"), Span(11, 18), 0.9))
    hints = [
        similar("Enable pooling", 0.83),
        similar("Pooling", 0.44, "Sammeln"),
        phrase,
        similar("One", 0.2),
        similar("Two", 0.1),
    ]
    prompt = PromptBuilder("de", "en", "compact", "memory").build(Sentence(text, "de"), hints)
    assert prompt.text == (
        "German to English:\n\nHint: dieses Treibers = drivers (all of the [[drivers]])\nSimilar, 20%: One\n"
        f"Similar, 40%: Sammeln = Pooling\nSimilar, 80%: Enable pooling\nGerman: {text}\nEnglish:"
    )
    assert prompt.notes == ("hints left out: 1 beyond the limit of 3",)
    plain = PromptBuilder("de", "en", "compact", "memory").build(Sentence(text, "de"), ())
    assert plain.text[: plain.shared] == prompt.text[: prompt.shared] == "German to English:\n\n"
