"""Numbers and placeholders that a translation lost are asked for again, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from prompts.answers import UNFINISHED
from rag_mt.base.errors import UserError
from rag_mt.base.terms import Term
from rag_mt.base.types import Completion, Encoder, Hint, Hit, Origin, Prompt, PromptQueue, Returning, Sentence, Span
from rag_mt.glossary.glossary import Glossary
from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM, RuleMemory, RuleRetriever

TEXT = "Das Museum öffnet um 19.30 Uhr."


class ScriptedLLM(RuleLLM):
    """Answers with the text; what is begun is completed by the first of `endings` that the
    beginning ends with. `asked` holds all prompts."""

    def __init__(self, answer: str, endings: Mapping[str, str] | None = None, chat: bool = False) -> None:
        super().__init__()
        self.text, self.endings, self.has_chat_template = answer, endings or {}, chat
        self.asked: list[Prompt] = []

    def _answer(self, prompt: Prompt) -> list[str]:
        self.asked.append(prompt)
        if not prompt.begun:
            return [f" {word}" for word in self.text.split()]
        return [f" {word}" for end, rest in self.endings.items() if prompt.begun.endswith(end) for word in rest.split()]


def translator_of(llm: RuleLLM, **options: object) -> Translator:
    settings = {"retriever": "none", "wrapper": "chat" if llm.has_chat_template else "compact", "max_new_tokens": 24}
    return Translator("de", "en", llm=llm, **(settings | options))  # type: ignore[arg-type]


def translated(llm: RuleLLM, text: str, **options: object) -> str:
    return translator_of(llm, **options).translate(text).text


def test_a_changed_number_is_asked_for_from_the_wrong_one_on() -> None:
    llm = ScriptedLLM("The museum opens at 9.30 pm.", {"at 19.30": "o'clock."})
    translator = translator_of(llm, encoders=no_encoder)
    (made,) = translator.translate_sentences([Sentence(TEXT, "de")])
    assert made.text == "The museum opens at 19.30 o'clock." and made.notes == ()
    assert [prompt.begun for prompt in llm.asked] == ["", " The museum opens at 19.30"]


@pytest.mark.parametrize(
    ("text", "answer", "begun", "end", "repaired"),
    [
        ("Es kostet 1.234,50 Euro.", "It costs 1.235 euros.", " It costs 1,234.50", "euros.",
         "It costs 1,234.50 euros."),
        ("Hallo {name}, guten Tag.", "Hello {nombre}, good day.", " Hello {name}", "and good day.",
         "Hello {name} and good day."),
        ("Starte <b> jetzt", "Start <i> now", " Start <b>", "now", "Start <b> now"),
        ("Noch %d Tage bis %s", "Still %s days", " Still %s days", "", "Still %s days"),
    ],
)  # fmt: skip
def test_what_is_wrong_gives_way_to_what_the_source_has(
    text: str, answer: str, begun: str, end: str, repaired: str
) -> None:
    llm = ScriptedLLM(answer, {begun: end})
    assert translated(llm, text) == repaired
    assert len(llm.asked) == 2, "one question in all"


def test_a_lost_placeholder_is_asked_for_where_it_is_aligned() -> None:
    llm = ScriptedLLM("The file was not found.", {"{0}": "was not found.", "The file {0}": "was not found."})
    assert "{0}" in translated(llm, "Die Datei {0} wurde nicht gefunden.")
    (again,) = llm.asked[1:]
    assert again.begun.endswith("{0}") and "The file was not found.".startswith(again.begun[1:-3].strip())


def test_nothing_is_asked_where_nothing_is_missing() -> None:
    for text, answer in ((TEXT, "The museum opens at 7.30 pm."), ("Guten Tag", "Hello 5 {x}"), ("Tag.", "Day.")):
        llm = ScriptedLLM(answer)
        assert translated(llm, text, encoders=no_encoder) == answer and len(llm.asked) == 1


@pytest.mark.parametrize(
    ("endings", "why"),
    [
        ({"19.30": ""}, "it broke off"),
        ({"19.30": "pm and at 21.15 for {guests}."}, "as much is wrong"),
        ({}, "the model says nothing more"),
    ],
)
def test_a_worse_answer_is_not_taken(endings: dict[str, str], why: str) -> None:
    answer = "On every single working day of the week at 9.30 pm the museum opens its doors for all."
    assert translated(ScriptedLLM(answer, endings), TEXT) == answer, why


def test_an_answer_with_further_notes_is_not_taken() -> None:
    class Unending(ScriptedLLM):
        def round(self, queue: PromptQueue, prompts: list[Prompt], first: int, most: int):  # type: ignore[no-untyped-def, override]
            for number, prompt in enumerate(prompts, first):
                queue.finish(number, Completion(" ".join(self._answer(prompt)), 4, not prompt.begun))
            yield

    llm = Unending("The museum opens at 9.30 pm.", {"19.30": "o'clock or so"})
    (made,) = translator_of(llm).translate_sentences([Sentence(TEXT, "de")])
    assert made.text.endswith("9.30  pm.") and UNFINISHED not in made.notes and len(llm.asked) == 2


def test_a_chat_that_takes_no_beginning_is_asked_with_what_is_missing_as_terms() -> None:
    class Attentive(ScriptedLLM):
        def _answer(self, prompt: Prompt) -> list[str]:
            self.text = "It opens at 19.30 with {0}." if prompt.terms else "It opens at 9.30."
            return super()._answer(prompt)

    llm = Attentive("", chat=True)
    assert translated(llm, "Es öffnet um 19.30 Uhr mit {0}.", encoders=no_encoder) == "It opens at 19.30 with {0}."
    (first, again) = llm.asked
    assert first.terms == () and "- 19.30 = 19.30\n" in again.text and "- {0} = {0}\n" in again.text


def test_where_there_is_no_encoder_what_is_missing_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    llm = ScriptedLLM("The file was not found.")
    assert translated(llm, "Die Datei {0} wurde nicht gefunden.", encoders=no_encoder) == llm.text
    assert len(llm.asked) == 2 and [match.term.source for match in llm.asked[1].terms] == ["{0}"]
    assert "for want of an encoder: there is none" in caplog.text


def no_encoder(*names: object) -> Encoder:
    raise UserError("there is none")


@pytest.mark.parametrize("placeholder", ["<eos>", "<unk/>", "{{ a }}", "%(x)s", "&amp;", "<a href='x'>", "<s>"])
def test_hostile_placeholders_stay_text(placeholder: str) -> None:
    class Reserving(ScriptedLLM):
        reserved = frozenset({"<eos>", "<unk/>"})

    llm = Reserving("Go <x> now", {"": "now"})
    text = f"Geh {placeholder} jetzt"
    made = translated(llm, text)
    assert placeholder in made and "<x>" not in made
    assert not {"<eos>", "<unk/>", "<s>"} & set(llm.asked[1].begun.split())


def test_terms_and_literals_are_asked_for_from_left_to_right() -> None:
    terms = (Term("Stadtrat", "de", "en", ("assembly",)),)
    llm = ScriptedLLM("The council wants 15 bridges.", {"assembly": "wants 15 bridges.", "wants 14": "new bridges."})
    translator = translator_of(llm, glossary=Glossary("de", "en", terms))
    (made,) = translator.translate_sentences([Sentence("Der Stadtrat will 14 Brücken.", "de")])
    assert made.text == "The assembly wants 14 new bridges." and made.terms[0].ok
    assert [prompt.begun for prompt in llm.asked[1:]] == [" The assembly", " The assembly wants 14"]


def test_a_term_that_is_lost_behind_a_number_is_asked_for_next() -> None:
    terms = (Term("Brücken", "de", "en", ("bridges",)),)
    for encoders, kept in ((None, "The council wants 14 of bridges"), (no_encoder, "The council wants 15 bridges.")):
        llm = ScriptedLLM("The council wants 15 bridges.", {"wants 14": "of them."})
        glossary = Glossary("de", "en", terms)
        made = translated(llm, "Der Stadtrat will 14 Brücken.", glossary=glossary, encoders=encoders)
        assert made == kept, "a number is not won by the loss of a term"
        assert len(llm.asked) == 3


def test_what_a_memory_led_to_is_repaired_and_what_it_knows_is_not() -> None:
    class Misled(ScriptedLLM):
        def _answer(self, prompt: Prompt) -> list[str]:
            self.text = "It opens at 9.30 again." if prompt.hints else "It opens at 9.30."
            return super()._answer(prompt)

    llm, memory = Misled("", {"19.30": "o'clock sharp."}), RuleMemory()
    (made,) = translator_of(llm, retriever=memory).translate_sentences([Sentence(TEXT, "de")])
    assert made.text == "It opens at 19.30 o'clock sharp." and made.recalled is not None and made.draft
    assert [bool(prompt.begun) for prompt in llm.asked] == [False, False, True]
    known = "It opens at nine."
    memory.translated[TEXT] = Hit(Sentence(known, "en", Origin("own.tmx", 7)), Span(0, len(known)), 1.0, TEXT)
    assert translated(Misled(""), TEXT, retriever=memory, reuse_known=True) == known


def test_hints_stay_those_that_were_shown_at_first() -> None:
    class Times(RuleRetriever):
        def retrieve(self, sentences: Sequence[Sentence]) -> list[tuple[Hint, ...]]:
            hit = Hit(Sentence("Opens at 19.30.", "en"), Span(9, 14), 0.9)
            return [(Hint(Span(13, 18), hit),) for _ in sentences]

    class Attentive(ScriptedLLM):
        def _answer(self, prompt: Prompt) -> list[str]:
            self.text = "It opens at 19.30." if prompt.terms else "It opens at 9.30."
            return super()._answer(prompt)

    llm = Attentive("", chat=True)
    (made,) = translator_of(llm, retriever=Times()).translate_sentences([Sentence("Es öffnet um 19.30 Uhr.", "de")])
    assert [len(prompt.hints) for prompt in llm.asked] == [1, 0], "a number takes the place of the hint for it"
    assert made.text == "It opens at 19.30." and len(made.hints) == 1 and made.used == (True,)


def test_streams_wait_where_something_may_be_missing() -> None:
    for text, early in ((TEXT, False), ("Das Museum öffnet.", True)):
        llm = ScriptedLLM("The museum opens at nine for all of its dear visitors.", {"19.30": "for all."})
        stream = Returning(translator_of(llm).stream(text))
        pieces = [piece for piece in stream if piece]
        assert "".join(pieces) == stream.value.text
        assert (len(pieces) > 1) == early


def test_the_settings_tell_that_answers_are_repaired() -> None:
    assert "repair" in translator_of(ScriptedLLM("")).settings
