"""Consistency: what a document's translations agree on is kept to by all of them, the same after a kill."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from rag_mt.base.types import Origin, Prompt, Sentence
from rag_mt.formats.format import Segment
from rag_mt.translation import jobs
from rag_mt.translation.consistency import ASKED_AGAIN
from rag_mt.translation.jobs import Counts, split_segments, translate_segments
from rag_mt.translation.journal import Journal
from rag_mt.translation.translator import Translator
from tests.rag_mt.translation.test_terms import glossary_of
from tests.ui.conftest import RuleLLM, RuleMemory

ENGLISH = {
    "Der": "The", "Fluss": "river", "Wald": "forest", "Berg": "mountain", "Sturm": "storm", "ist": "is",
    "tief.": "deep.", "breit.": "broad.", "dunkel.": "dark.", "kalt.": "cold.", "still.": "silent.", "nah.": "near.",
}  # fmt: skip
TEXTS = [
    "Der Fluss ist tief.",
    "Der Fluss ist breit.",
    "Der Wald ist dunkel.",
    "Der Fluss ist kalt.",
    "Der Wald ist still.",
    "Der Fluss ist nah.",
]


class Wavering(RuleLLM):
    """Translates word for word, but in sentences with one of the words `odd` the river is a stream, unless the prompt
    shows the term or begins with it. `asked` holds all prompts."""

    has_chat_template = True

    def __init__(self, *odd: str, stubborn: bool = False) -> None:
        super().__init__()
        self.odd, self.stubborn = odd, stubborn
        self.asked: list[Prompt] = []

    def _answer(self, prompt: Prompt) -> list[str]:
        self.asked.append(prompt)
        lines = [line for line in prompt.text.splitlines() if line.startswith("German: ")]
        source = lines[-1].removeprefix("German: ")
        words = [ENGLISH.get(word, word) for word in source.split()]
        shown = {match.term.source for match in prompt.terms}
        if any(word in source for word in self.odd) and (self.stubborn or "Fluss" not in shown):
            words = ["stream" if word == "river" else word for word in words]
        return [f" {word}" for word in words[len(prompt.begun.split()) :]]


def translator_of(llm: RuleLLM, retriever: RuleMemory | str = "none", **more: object) -> Translator:
    return Translator("de", retriever=retriever, llm=llm, wrapper="chat", **{"consistent": True, **more})  # type: ignore[arg-type]


def test_the_sentence_that_differs_is_translated_again() -> None:
    llm = Wavering("kalt.")
    made = translator_of(llm).translate_sentences([Sentence(text, "de") for text in TEXTS])
    assert [t.text for t in made][3] == "The river is cold." and len(llm.asked) == len(TEXTS) + 1
    assert [t.notes for t in made if t.notes] == [(f"{ASKED_AGAIN}: Fluss = river",)]
    assert not any(t.terms for t in made), "they are no terms of a glossary"
    inconsistent = translator_of(Wavering("kalt."), consistent=False)
    assert inconsistent.translate(TEXTS[3]).text == "The stream is cold."
    assert "consistent" not in {k for k, v in inconsistent.settings.items() if v}


def test_texts_are_documents_of_their_own() -> None:
    llm = Wavering("kalt.")
    alone, together = translator_of(llm).translate_batch([TEXTS[3], " ".join(TEXTS)])
    assert alone.text == "The stream is cold." and "stream" not in together.text
    assert translator_of(llm).translate("").text == ""


def test_nothing_changes_where_the_second_translation_is_no_better() -> None:
    made = translator_of(Wavering("kalt.", stubborn=True)).translate_sentences([Sentence(t, "de") for t in TEXTS])
    assert made[3].text == "The stream is cold." and not any(t.notes for t in made)


def test_a_second_translation_that_loses_a_number_is_not_taken() -> None:
    class Careless(Wavering):
        def _answer(self, prompt: Prompt) -> list[str]:
            words = super()._answer(prompt)
            return [word for word in words if not (prompt.terms and word == " 7")]

    texts = [*TEXTS, "Der Fluss 7 ist kalt."]
    made = translator_of(Careless("7")).translate_sentences([Sentence(text, "de") for text in texts])
    assert made[-1].text == "The stream 7 is cold."


def test_the_glossary_goes_first() -> None:
    llm = Wavering("kalt.", stubborn=True)
    translator = translator_of(llm, glossary=glossary_of(("Fluss", "stream")))
    made = translator.translate_sentences([Sentence(text, "de") for text in TEXTS])
    assert len(llm.asked) == len(TEXTS) + 3, "only for what the glossary has"
    assert [t.terms[0].ok for t in made if t.terms] == [False, False, True, False]
    assert made[3].text == "The stream is cold." and not any(t.notes for t in made)


@pytest.mark.parametrize("memory", [False, True])
@pytest.mark.parametrize("context", [0, 2])
@pytest.mark.parametrize("kept", [0, 1, 4, 5, 6, 9, 10])
def test_a_resumed_job_gives_the_same(
    kept: int, context: int, memory: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of four segments: a later one keeps to what an earlier one agreed on; equal sentences count once."""
    monkeypatch.setattr(jobs, "WINDOW", 4)
    texts = [*TEXTS, TEXTS[3], "Der Sturm ist nah."]
    segments = split_segments([Segment(text, Origin("a.txt", n)) for n, text in enumerate(texts, 1)], "de")

    def run(journal: Journal | None) -> tuple[list[str], list[str]]:
        llm, counts = Wavering("kalt.", "nah."), Counts()
        retriever = RuleMemory(lambda text: "tief" in text) if memory else "none"
        translator = translator_of(llm, retriever, context=context)
        made = list(translate_segments(translator, segments, counts, journal))
        assert counts.sentences == len(texts) and counts.noted[ASKED_AGAIN] == 3
        if journal is not None:
            journal.close()
        return [text.text for text in made], [prompt.text for prompt in llm.asked]

    whole, prompts = run(None)
    assert not any("stream" in text for text in whole)
    _, all_prompts = run(Journal(tmp_path / "first", {}))
    assert all_prompts == prompts
    with closing(Journal(tmp_path / "first", {})) as complete:
        records = complete.earlier
        assert complete.resumed == sum(number >= 0 for number in records) < len(records)
    written = sorted(records, key=lambda number: (max(number, ~number) // 4, number < 0, max(number, ~number)))
    with closing(Journal(tmp_path / "cut", {})) as partial:
        partial.add_records(written[:kept], [records[number] for number in written[:kept]])
    again, fewer = run(Journal(tmp_path / "cut", {}))
    assert again == whole and set(fewer) <= set(prompts) and (not kept or len(fewer) < len(prompts))
