"""What is read out of a model's answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prompts.answers import LOOPED, UNFINISHED, read_answer
from prompts.builder import PromptBuilder
from prompts.wording import shots
from rag_mt.base.types import Completion, Hint, Hit, Prompt, Sentence, Span

WRAPPERS = ("alpaca", "few-shot", "chat", "compact")
SOURCE = "Das Haus am See ist alt."
TEXT = "The house by the lake is old."
HINT = Hint(Span(0, 8), Hit(Sentence("We saw the old house in May.", "en"), Span(7, 20), 0.9))


def prompt_for(source: str = SOURCE, wrapper: str = "few-shot", hints: tuple[Hint, ...] = ()) -> Prompt:
    return PromptBuilder("de", "en", wrapper).build(Sentence(source, "de"), hints)


def read(answer: str, source: str = SOURCE, wrapper: str = "few-shot", hints: tuple[Hint, ...] = ()) -> str:
    found = read_answer(Completion(answer, 9, True), source, prompt_for(source, wrapper, hints))
    assert found.ok and found.notes == (), found
    return found.text


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize(
    "answer",
    [
        TEXT,
        f" {TEXT} \n",
        f"\n\n{TEXT}",
        f"{TEXT}\n\nGerman: Noch ein Satz.\nEnglish: One more.",
        f"{TEXT} German: Noch ein Satz.",
        f"{TEXT}\n\nNote: this is a literal translation.",
        f"{TEXT} ### Instruction: more",
        f"{TEXT}<|im_end|>",
        f"<s> {TEXT}</s><s>",
        f"English: {TEXT}",
        f"Translation: {TEXT}",
        f"**English translation:** {TEXT}",
        f"English:\n{TEXT}",
        f"### Response:\n{TEXT}",
        f"Sure! Here is the translation:\n\n{TEXT}",
        f"Here is the English translation: {TEXT}",
        f"German: {SOURCE}\nEnglish: {TEXT}",
        f'"{TEXT}"',
        f"“{TEXT}”",
        f"**{TEXT}**",
        f"<think>\nThe user wants English.\n</think>\n\n{TEXT}",
    ],
)
def test_the_translation_is_read(answer: str, wrapper: str) -> None:
    assert read(answer, wrapper=wrapper) == TEXT


def test_a_repeated_prompt_before_the_answer_is_left_out() -> None:
    for wrapper in WRAPPERS:
        assert read(prompt_for(wrapper=wrapper).text + TEXT, wrapper=wrapper) == TEXT
    instruction = prompt_for(wrapper="chat").text.splitlines()[0]
    assert read(f"{instruction}\n{TEXT}", wrapper="chat") == TEXT


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ('"Das Haus ist alt."', '"The house is old."'),
        ("»Nein«, sagte er. »Nie.«", '"No," he said. "Never."'),
        ("Er las »Faust«", 'He read "Faust"'),
        ("Sie heißen »A« und »B« hier", '"A" and "B"'),
        ("Antwort: ja", "Answer: yes"),
        ("Deutsch: eine schwere Sprache", "German: a difficult language"),
        ("Englisch: leicht", "English: easy"),
        ("Angela Merkel", "Angela Merkel"),
        ("42", "42"),
        ("...", "..."),
        ("Um 10:30 Uhr: Abfahrt", "At 10:30: departure"),
        ("Folgendes:", "The following:"),
        ("Nein, nein, nein, nein!", "No, no, no, no!"),
        ("Siehe Anhang [1].", "See annex [1]."),
        ("**Wichtig**", "**Important**"),
    ],
)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_what_belongs_to_the_translation_stays(source: str, answer: str, wrapper: str) -> None:
    assert read(answer, source, wrapper) == answer


def test_a_sentence_of_the_examples_can_be_translated() -> None:
    shot = shots()[0]
    assert read(shot["en"]["text"], shot["de"]["text"]) == shot["en"]["text"]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("[[The old house]] by the lake", "The old house by the lake"),
        ("The [[ old house ]] by the lake", "The old house by the lake"),
        ("The [[old house by the lake", "The old house by the lake"),
        ("the old house", "the old house"),
        ("We saw the old house in May.", "We saw the old house in May."),
    ],
)
def test_marks_of_the_hints_are_not_copied(answer: str, expected: str) -> None:
    assert read(answer, hints=(HINT,)) == expected


@pytest.mark.parametrize(
    ("source", "answer", "expected"),
    [
        ("Nutze [[Seite]] dort", "Use ⟦⟦page⟧⟧ there", "Use [[page]] there"),
        ("Nutze [[Seite]] dort", "Use [[page]] in [[the old house]]", "Use [[page]] in the old house"),
        ("Das Zeichen <s> hier", "The sign ⟨s⟩ here", "The sign <s> here"),
        ("Das Zeichen <s> hier", "The sign <s> here", "The sign <s> here"),
        ("### Titel", "♯♯♯ Title", "### Title"),
        ("### Titel", "### Title", "### Title"),
        ("[INST] und {source}", "⟦INST⟧ and {source}", "[INST] and {source}"),
    ],
)
def test_the_users_own_characters_come_back(source: str, answer: str, expected: str) -> None:
    assert read(answer, source, hints=(HINT,)) == expected


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("The house is is is is is is", "The house is"),
        ("We go home and we go home and we go home and we go", "We go home and"),
        (f"{TEXT} {TEXT}", TEXT),
        ("The house of the house of the house of the house of the lake", "The house of the lake"),
        ("The house" + "!?" * 40, "The house!?"),
        ("家" + "はい" * 40 + "は", "家はい"),
    ],
)
def test_loops_are_cut(answer: str, text: str) -> None:
    found = read_answer(Completion(answer, 9, True), SOURCE, prompt_for())
    assert (found.text, found.ok, found.notes) == (text, True, (LOOPED,))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "the model gave no answer"),
        (" \n\n", "the model gave no answer"),
        ("<think>I never stop", "the model gave no answer"),
        ("German: Ein anderer Satz.\nEnglish: Another sentence.", "the model only repeated the prompt"),
        ("### Instruction:\nTranslate it.", "the model only repeated the prompt"),
        ("...", "the answer has no words"),
        ("[[]]", "the answer has no words"),
        ('""', "the answer has no words"),
    ],
)
def test_unusable_answers_say_why(answer: str, reason: str) -> None:
    found = read_answer(Completion(answer, 9, True), SOURCE, prompt_for(hints=(HINT,)))
    assert (found.text, found.ok, found.notes) == ("", False, (reason,))


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_echo_of_the_prompt_is_no_translation(wrapper: str) -> None:
    prompt = prompt_for(wrapper=wrapper, hints=(HINT,))
    echo = {
        "few-shot": shots()[1]["en"]["text"],
        "compact": "A hint comes from another text and may not fit",
    }.get(wrapper, "- Adapt a phrase that you use to the grammar")
    found = read_answer(Completion(echo, 9, True), SOURCE, prompt)
    assert not found.ok and found.notes == ("the model only repeated the prompt",)


def test_the_translation_of_an_example_answers_a_source_like_it() -> None:
    source, answer = shots()[1]["de"]["text"].replace("Arbeit", "Datei"), shots()[1]["en"]["text"]
    assert source != shots()[1]["de"]["text"]
    assert read(answer, source, hints=(HINT,)) == answer
    other = shots()[0]["en"]["text"]
    found = read_answer(Completion(other, 9, True), source, prompt_for(source, hints=(HINT,)))
    assert not found.ok


def test_an_instruction_in_other_words_is_no_translation() -> None:
    prompt = prompt_for(wrapper="alpaca")
    answer = "The German text is put into English. Reply with the translation alone, on a single line."
    found = read_answer(Completion(answer, 9, True), SOURCE, prompt)
    assert not found.ok and found.notes == ("the model only repeated the prompt",)


@pytest.mark.parametrize(
    ("answer", "notes"),
    [("The house by", (UNFINISHED,)), ("The house.\n\nGerman: Das", ()), (f"{TEXT}\n", (UNFINISHED,))],
)
def test_an_unfinished_answer_is_noted(answer: str, notes: tuple[str, ...]) -> None:
    found = read_answer(Completion(answer, 256, False), SOURCE, prompt_for())
    assert found.ok and found.notes == notes


PIECES = ["[[", "]]", "###", "<s>", "<|im_end|>", '"', "German:", "English:", "\n", " ", "Haus", ".", "{", "**", ":"]


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.text(max_size=20), st.sampled_from(WRAPPERS))
def test_an_answer_is_one_trimmed_line(answer: str, source: str, wrapper: str) -> None:
    found = read_answer(Completion(answer, 3, True), source, prompt_for(source, wrapper, (HINT,)))
    assert found.text == found.text.strip() and len(found.text.splitlines()) <= 1
    assert found.ok == bool(found.text) and (found.ok or found.notes)
