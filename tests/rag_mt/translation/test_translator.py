"""The facade with the embedded models, and the plan of a job."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path
from typing import Any

import pytest

from prompts.style import Style
from rag_mt import Index
from rag_mt.base.errors import UserError
from rag_mt.base.findings import Finding
from rag_mt.base.only import Only
from rag_mt.base.terms import Term
from rag_mt.base.types import Completion, Origin, Prompt, Returning, Sentence, Skips, TranslatedText, Translation
from rag_mt.cli.translate import _closing_lines
from rag_mt.formats.format import Segment
from rag_mt.glossary.glossary import Glossary
from rag_mt.translation.jobs import MOST_NAMED, Counts, split_segments, translate_segments
from rag_mt.translation.queue import longest_first, translate_all
from rag_mt.translation.tasks import SentenceTask
from rag_mt.translation.translator import Translator
from tests.ui.conftest import RuleLLM, RuleRetriever

TEXT = "  Das Museum öffnet um zehn Uhr. Der Eintritt ist frei.\n\nWo ist der Bahnhof?\n"


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator("de", "en", retriever="sentence", dtype="float32", max_new_tokens=60)


def test_running_text_keeps_its_spacing(translator: Translator) -> None:
    result = translator.translate(TEXT)
    assert len(result.sentences) == 3
    first, second, third = (s.text for s in result.sentences)
    assert result.text == f"  {first} {second}\n\n{third}\n"
    assert str(result) == result.text
    assert any(hour in first.casefold() for hour in ("ten", "10"))
    assert "station" in third.casefold()


def test_a_stream_gives_the_same_text(translator: Translator) -> None:
    pieces = list(translator.stream(TEXT))
    assert len(pieces) > 6
    assert "".join(pieces) == translator.translate(TEXT).text


@pytest.mark.parametrize("short", [0, 1])
def test_a_stream_knows_whether_the_answer_ended(translator: Translator, short: int) -> None:
    """An answer with as many tokens as are allowed has ended; with one less allowed it has not."""
    sentence = Sentence("Wo ist der Bahnhof?", "de")
    task = SentenceTask(translator, sentence)
    for _ in translate_all([task]):
        pass
    assert task.completion is not None
    tokens = task.completion.tokens
    ready = {"retriever": translator.retriever, "llm": translator.llm}
    exact = Translator("de", "en", **ready, max_new_tokens=tokens - short)  # type: ignore[arg-type]
    stream = Returning(exact.stream_sentence(sentence))
    assert "".join(stream) == stream.value.text
    assert stream.value == exact.translate_sentences([sentence])[0]


def test_sentences_that_touch_are_streamed_apart(translator: Translator) -> None:
    text = "你好。再见。\n"
    chinese = Translator("zh", llm=translator.llm, wrapper="compact", max_new_tokens=20)
    assert "".join(chinese.stream(text)) == chinese.translate(text).text


def test_blank_sentences_are_their_own_translation(translator: Translator) -> None:
    first, second = translator.translate_sentences([Sentence(text, "de") for text in ("  ", "Guten Morgen.")])
    assert (first.text, first.ok) == ("  ", True)
    assert second.ok


def test_sentences_have_hints_with_their_origin(translator: Translator) -> None:
    texts = ["Guten Morgen.", "Die Zentralbank hat die Zinsen gesenkt."]
    made = translator.translate_sentences([Sentence(text, "de") for text in texts])
    assert [t.source.text for t in made] == ["Guten Morgen.", "Die Zentralbank hat die Zinsen gesenkt."]
    for translation in made:
        assert translation.ok
        assert len(translation.used) == len(translation.hints)
        assert translation.source.text in translation.prompt
        for hint in translation.hints:
            assert hint.hit.sentence.language == "en"
            assert hint.hit.sentence.source.line > 0
            assert hint.phrase in translation.prompt


def test_settings_tell_translators_apart(translator: Translator) -> None:
    plain = Translator("de", "en", retriever=translator.retriever, llm=translator.llm, max_new_tokens=61)
    assert plain.settings != translator.settings


def test_the_same_languages_and_unknown_names_are_refused() -> None:
    with pytest.raises(UserError, match="'magic'"):
        Translator("de", retriever="magic")
    with pytest.raises(UserError, match="'xx'"):
        Translator("xx")
    with pytest.raises(UserError, match="source and target are both German"):
        Translator("de", "German")


def test_an_index_that_nothing_searches_is_refused() -> None:
    with pytest.raises(UserError, match="the retriever none searches no index, but /nowhere is given"):
        Translator("de", retriever="none", index="/nowhere")


def test_a_style_is_part_of_the_settings_and_stays_with_a_glossary() -> None:
    plain = Translator("en", "de", retriever="none", llm=RuleLLM(), wrapper="chat")
    styled = Translator(
        "en",
        "de",
        retriever="none",
        llm=RuleLLM(),
        wrapper="chat",
        formality="more",
        instruction="Be brief.",
        title="T",
    )
    assert plain.settings.keys() | {"formality", "instruction", "title"} == styled.settings.keys()
    with_terms = plain.with_glossary(Glossary("en", "de", (Term("bank", "en", "de", ("Ufer",)),)))
    other = with_terms.with_style(Style("less"))
    assert (other.settings["formality"], other.settings["glossary"]) == ("less", with_terms.settings["glossary"])
    assert other.terms is not None and other.terms.prompts is other.prompts and plain.prompts is not other.prompts
    with pytest.raises(UserError, match="formality cannot be asked of rule"):
        Translator("en", "de", retriever="none", llm=RuleLLM(), wrapper="compact", formality="more")


def ruled() -> Translator:
    """A translator without models, which answers in capitals."""
    return Translator("de", retriever=RuleRetriever(), llm=RuleLLM(), wrapper="compact", max_new_tokens=64)


def test_a_batch_gives_each_text_with_its_spacing_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["Das Haus ist alt.  Der Garten ist neu.\n", "", "Ja."]
    translator = ruled()
    calls, retrieve = [], translator.retriever.retrieve
    monkeypatch.setattr(translator.retriever, "retrieve", lambda s: calls.append(len(s)) or retrieve(s))
    results = translator.translate_batch(texts)
    assert [result.text for result in results] == [text.upper() for text in texts]
    assert [len(result.sentences) for result in results] == [2, 0, 1]
    assert calls == [3]


def test_a_list_and_a_text_are_not_confused() -> None:
    with pytest.raises(UserError, match="translate_batch"):
        ruled().translate(["Ja."])  # type: ignore[arg-type]
    with pytest.raises(UserError, match="give that to translate"):
        ruled().translate_batch("Ja.")


def test_without_index_and_retriever_there_are_no_hints_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "rag_mt"):
        translator = Translator("de", llm=RuleLLM(), wrapper="compact")
        Translator("de", retriever="none", llm=RuleLLM(), wrapper="compact")
    assert translator.retriever.name == "none"
    (line,) = [record.getMessage() for record in caplog.records if record.name == "rag_mt"]
    assert '"ccpr"' in line and "--retriever ccpr" in line and "--index" in line


def test_what_would_not_be_used_is_refused() -> None:
    for retriever in (None, "none"):
        with pytest.raises(UserError, match="encoder e5 is given, but nothing that searches"):
            Translator("de", encoder="e5", retriever=retriever, llm=RuleLLM())
    with pytest.raises(UserError, match="is open already"):
        Translator("de", index="/nowhere", retriever=RuleRetriever(), llm=RuleLLM())


def test_some_files_are_looked_at_by_translators_that_share_all_else(tmp_path: Path) -> None:
    texts = [Sentence(f"The museum of {name} is closed.", "en", Origin(f"{name}.txt", 1)) for name in ("Bern", "Rome")]
    Index.build(tmp_path / "index", texts=texts, language="en", retriever="bm25")
    options: dict[str, Any] = {"index": tmp_path / "index", "llm": RuleLLM(), "wrapper": "compact"}
    translator = Translator("de", **options)

    def files(asked: Translator) -> set[str]:
        return {hint.hit.sentence.source.file for hint in asked.retriever.retrieve([texts[0]])[0]}

    rome, bern = Only("Rome.txt"), Only("Bern.txt")
    within = translator.with_only(rome)
    assert files(translator) == {"Bern.txt"} and files(within) == {"Rome.txt"}
    assert files(within.with_only(bern)) == {"Bern.txt"} and within.llm is translator.llm
    assert translator.with_only(rome).retriever is within.retriever, "it is opened once"
    assert (
        within.settings
        == Translator("de", index=tmp_path / "index", llm=RuleLLM(), wrapper="compact", only=rome).settings
    )
    assert within.settings != translator.settings
    with pytest.raises(UserError, match=r"named Oslo\.txt"):
        translator.with_only(Only("Oslo.txt"))
    for without in (RuleRetriever(), "none"):
        with pytest.raises(UserError, match="only"):
            Translator("de", "en", retriever=without, llm=RuleLLM()).with_only(rome)


def test_a_choice_of_files_while_the_index_is_away_leaves_the_other_prompts_as_they_are(tmp_path: Path) -> None:
    Index.build(tmp_path / "index", texts=["The museum is closed."], language="en", retriever="bm25")
    options: dict[str, Any] = {"index": tmp_path / "index", "llm": RuleLLM(), "index_away": "plain"}
    translator = Translator("de", **options)
    translator.hint_source._answering.reason, translator.hint_source._answering.again = "it is away", math.inf
    within = translator.with_only(Only("texts"))
    assert within.prompts.unit == within.terms.prompts.unit == within.retriever.unit == "sentence"
    assert translator.prompts.unit == translator.terms.prompts.unit == "passage"
    translator.hint_source._answering.again = 0.0
    assert within.hint_source.ask(lambda retriever: retriever.retrieve([Sentence("museum", "de")]), [])[0]
    assert within.prompts.unit == within.terms.prompts.unit == "passage"


def test_models_are_freed_with_their_translators(tmp_path: Path) -> None:
    Index.build(tmp_path / "index", texts=["The museum is closed."], language="en", retriever="bm25")

    def used(**options: Any) -> weakref.ref[Any]:
        translator = Translator("de", llm=RuleLLM(), wrapper="compact", **options)
        translator.translate("Das Museum ist geschlossen.")
        if "index" in options:
            translator.with_only(Only("texts")).with_context(1).translate("Das Museum ist geschlossen.")
        return weakref.ref(translator.llm)

    gc.disable()  # it may not come for a long time
    try:
        assert used(retriever="none")() is None and used(index=tmp_path / "index")() is None
    finally:
        gc.enable()


def test_half_a_surrogate_pair_is_a_replacement_character(translator: Translator) -> None:
    made = translator.translate("Guten \ud83d Morgen.")
    assert made.sentences[0].ok and "\ufffd" in made.sentences[0].prompt


def test_longer_prompts_come_first_and_none_is_lost(translator: Translator) -> None:
    tasks = [
        SentenceTask(translator, Sentence(str(n), "de"), Prompt("x" * length))
        for n, length in enumerate([3, 9, 1, 9, 5, 2, 7])
    ]
    assert [task.sentence.text for task in longest_first(tasks)] == [*"1364052"]


def test_equal_sentences_of_a_window_are_asked_once(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = translator.read

    def counted(sentence: Sentence, prompt: Prompt, completion: Completion) -> Translation:
        read.append(sentence.text)
        return original(sentence, prompt, completion)

    monkeypatch.setattr(translator, "read", counted)
    segments = [Segment(text, Origin("a.txt", n)) for n, text in enumerate(["Ja.", "Guten Morgen.", "Ja. Ja."], 1)]
    counts = Counts()
    texts = list(translate_segments(translator, split_segments(segments, "de"), counts))
    assert len(read) == 2
    assert counts.sentences == 4
    assert texts[2].text == f"{texts[0].text} {texts[0].text}"
    assert [s.source.source.line for s in texts[2].sentences] == [3, 3]


def test_errors_are_named_with_their_place_and_some_leave_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    error, place = "placeholder lost: %s", Origin("folder/a.po", 7)
    counts = Counts()
    counts.add_text(TranslatedText("Still.", findings=(Finding("placeholders", "error", error),)), place)
    assert _closing_lines(counts, Skips(folder="folder/"), False) == 1
    assert f"\na.po:7: error: {error} [placeholders]\nfindings: 1 x placeholders\n" in capsys.readouterr().err
    others = (Finding("terms", "error", "term not used"), Finding("ends", "warning", "ends with a colon"))
    counts = Counts()
    for _ in range(100):
        counts.add_text(TranslatedText("Still.", findings=(*others, others[1])), place)
    assert _closing_lines(counts, Skips(), False) == 0, "only lost content makes a job fail"
    shown = capsys.readouterr().err
    assert "findings: 200 x ends, 100 x terms\n" in shown and "colon" not in shown
    assert len(counts.errors) == MOST_NAMED == shown.count("term not used")
    for rule in ("empty", "numbers"):
        counts = Counts()
        counts.add_text(TranslatedText("", findings=(Finding(rule, "error", "!"),)), place)
        assert _closing_lines(counts, Skips(), False) == 1
