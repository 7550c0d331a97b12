"""Recalling from a small memory with the embedded encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_mt import Index
from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Origin, Recalled, Sentence, Span, TranslatedSentence
from retrievers.index.opening import open_index
from retrievers.index.verifying import verify_index
from retrievers.memory import retriever as memory_retriever
from retrievers.memory.regression import Regression
from retrievers.memory.retriever import LEAST_SIMILARITY, MOST_HITS, MemoryRetriever, says_new
from retrievers.memory.similarity import FILE, KINDS, Similarity
from retrievers.memory.units import language_difference
from retrievers.registry import build_for, open_retriever

MORE = """The museum is closed on Sundays and public holidays.
The museum is closed on Sundays and on public holidays.
The museum opens at nine on weekdays.
The library is closed on Mondays.
Our bus was two hours late because of heavy rain.
Children under six eat free of charge."""
DRAFT = "The museum is on Monday and at holidays closed."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, e5: Encoder, parallel: dict[str, list[Sentence]]) -> Path:
    """A memory of one language."""
    place = tmp_path_factory.mktemp("memory") / "en"
    more = [Sentence(text, "en", Origin("more.txt", n)) for n, text in enumerate(MORE.splitlines(), 1)]
    build_for("memory", place, [*parallel["en"], *more], e5, "en", show=False)
    return place


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, e5: Encoder, parallel: dict[str, list[Sentence]]) -> Path:
    """A memory of two languages; what the last sentence translates is not known."""
    place = tmp_path_factory.mktemp("memory") / "de-en"
    both = zip(parallel["en"], parallel["de"], strict=True)
    sentences = [TranslatedSentence(t.text, "en", t.source, s.text) for t, s in both]
    build_for("memory", place, [*sentences, Sentence("Not known.", "en")], e5, "en", show=False)
    return place


def opened(folder: Path, encoder: Encoder) -> MemoryRetriever:
    retriever = open_retriever("memory", folder, encoder, source_language="de", target_language="en")
    assert isinstance(retriever, MemoryRetriever)
    return retriever


def texts_of(recalled: Recalled) -> list[str]:
    return [hint.phrase for hint in recalled.hints]


def test_what_is_similar_comes_first_and_no_near_copy_of_it(folder: Path, e5: Encoder, parallel) -> None:
    museum = parallel["de"][4]
    (recalled,) = opened(folder, e5).recall([museum], [DRAFT])
    assert texts_of(recalled)[0] == parallel["en"][4].text
    assert len([text for text in texts_of(recalled) if "Sundays" in text]) <= 1
    assert recalled.shown
    for hint in recalled.hints:
        assert hint.source_span == Span(0, len(museum.text)) and hint.hit.whole and hint.hit.original == ""


def test_properties_of_what_is_recalled(folder: Path, e5: Encoder, parallel) -> None:
    retriever = opened(folder, e5)
    drafts = [*(s.text for s in parallel["en"][:6]), DRAFT, "", " ", "zzz", "Children under six", "1234"]
    together = retriever.recall(parallel["de"], drafts)
    assert len(together) == 12
    for sentence, draft, recalled in zip(parallel["de"], drafts, together, strict=True):
        scores = [hint.hit.score for hint in recalled.hints]
        assert 1 <= len(scores) <= MOST_HITS and scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert len(set(texts_of(recalled))) == len(scores)
        (alone,) = retriever.recall([sentence], [draft])
        assert texts_of(alone) == texts_of(recalled) and alone.shown == recalled.shown
        assert [hint.hit.score for hint in alone.hints] == pytest.approx(scores, abs=1e-3)  # rounding of batches


def test_without_drafts_the_sentence_is_enough(folder: Path, e5: Encoder, parallel) -> None:
    retriever = opened(folder, e5)
    hints = retriever.retrieve(parallel["de"])
    right = [own[0].phrase == target.text for own, target in zip(hints, parallel["en"], strict=True)]
    assert sum(right) >= 10
    assert retriever.retrieve([]) == [] and retriever.recall([], []) == []
    assert retriever.retrieve([Sentence(" ", "de")]) == [()]
    assert retriever.recall([Sentence("", "de")], ["x"]) == [Recalled()]


def test_left_out_sentences_are_not_recalled(folder: Path, e5: Encoder, parallel) -> None:
    retriever = opened(folder, e5)
    drafts = [s.text for s in parallel["en"]]
    for own in (
        [r.hints for r in retriever.recall(parallel["de"], drafts, list(range(12)))],
        retriever.retrieve(parallel["de"], [[n, 0] for n in range(12)]),
    ):
        for hints, target in zip(own, parallel["en"], strict=True):
            assert hints and target.text not in [hint.phrase for hint in hints]


def test_what_says_nothing_new_is_not_shown(folder: Path, e5: Encoder, parallel) -> None:
    retriever = opened(folder, e5)
    retriever.cut_off = 0.6  # of all hits only the equal one
    (same,) = retriever.recall(parallel["de"][4:5], [parallel["en"][4].text])
    assert texts_of(same) == [parallel["en"][4].text] and not same.shown
    (new,) = retriever.recall(parallel["de"][4:5], ["The museum is closed on Sundays and holidays."])
    assert texts_of(new) and new.shown


def test_hints_are_shown_where_the_best_one_is_similar_enough(
    folder: Path, e5: Encoder, parallel, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever = opened(folder, e5)
    recalled = retriever.recall(parallel["de"], [DRAFT] * 12)
    assert all(own.shown == (own.hints[0].hit.score >= LEAST_SIMILARITY) for own in recalled)
    before, middle = retriever.settings, sorted(own.hints[0].hit.score for own in recalled)[6]
    monkeypatch.setattr(memory_retriever, "LEAST_SIMILARITY", middle)
    again = retriever.recall(parallel["de"], [DRAFT] * 12)
    assert [own.hints for own in again] == [own.hints for own in recalled]
    assert [own.shown for own in again] == [own.hints[0].hit.score >= middle for own in recalled]
    assert {own.shown for own in again} == {True, False}
    assert retriever.settings != before


def test_a_feature_that_is_not_known_counts_as_its_mean() -> None:
    model = Regression(("cosine", "length"), (1.0, -2.0), 0.5, (0.25, 2.0), (1.0, 0.5))
    cosine = np.array([0.0, 0.25], np.float32)
    assert model.value({"cosine": cosine}).tolist() == [0.25, 0.5]
    assert model.value({"cosine": cosine, "length": np.array([2.0, 3.0], np.float32)}).tolist() == [0.25, -3.5]


def test_pairs_are_found_by_what_they_translate(pairs: Path, e5: Encoder, parallel) -> None:
    retriever = opened(pairs, e5)
    asked = Sentence("Das Museum ist sonntags und an Feiertagen geschlossen.", "de")
    found = retriever.candidates([asked.text], [""])
    alike = dict(zip(found.texts, found.features["original"].tolist(), strict=True))
    assert max(alike, key=lambda text: alike[text]) == parallel["en"][4].text
    (recalled,) = retriever.recall([asked], ["Total nonsense."])
    assert recalled.hints[0].hit.original == parallel["de"][4].text
    assert recalled.hints[0].hit.sentence == parallel["en"][4]
    assert open_index(pairs).originals(np.array([12, 4])) == ["", parallel["de"][4].text]
    assert verify_index(pairs)


def test_what_was_translated_before_is_known(folder: Path, e5: Encoder, parallel, tmp_path: Path) -> None:
    lines = ["Once.", "Twice.", "Two times.", "Unknown."]
    originals = ["Einmal.", " Zweimal. ", "Zweimal.", ""]
    sentences = [
        TranslatedSentence(text, "en", Origin("my.tmx", n), original)
        for n, (text, original) in enumerate(zip(lines, originals, strict=True), 1)
    ]
    build_for("memory", tmp_path / "own", sentences, e5, "en", show=False)
    asked = [Sentence(text, "de") for text in ("Zweimal. ", "Dreimal.", "Einmal.", "")]
    two, other, one, blank = opened(tmp_path / "own", e5).known(asked)
    assert two is not None and two.sentence.text == "Twice." and two.sentence.source.line == 2
    assert one is not None and one.sentence.text == "Once." and other is None and blank is None
    assert opened(folder, e5).known(asked) == [None] * 4, "a memory of one language knows no translation"


def test_both_sides_of_a_translation_memory_are_kept(tmp_path: Path, quick_encoder: Path) -> None:
    file = tmp_path / "memory.tmx"
    units = "".join(
        f'<tu><tuv xml:lang="en"><seg>{en}</seg></tuv><tuv xml:lang="de"><seg>{de}</seg></tuv></tu>'
        for en, de in (("One. Two.", "Eins. Zwei."), ("Three.", "Drei, und vier. Fünf."), ("Six.", ""))
    )
    file.write_text(f'<tmx version="1.4"><header srclang="de"/><body>{units}</body></tmx>', encoding="utf-8")
    index = Index.build(tmp_path / "index", file, language="en", retriever="memory", encoder=str(quick_encoder))
    stored = open_index(index.folder)
    units_of = np.arange(index.sentences)
    assert dict(zip(stored.texts(units_of), stored.originals(units_of), strict=True)) == {
        "One.": "Eins.",
        "Two.": "Zwei.",
        "Three.": "",  # two sentences: which of them is not known
        "Six.": "",
    }
    plain = Index.build(tmp_path / "plain", file, language="en", retriever="sentence", encoder=str(quick_encoder))
    assert not open_index(plain.folder).has_originals


@pytest.mark.parametrize(
    ("hit", "draft", "new"),
    [("The museums close.", "the Museum closes", False), ("A b c d", "b d", True), ("x", "", True), ("", "x", False)],
)
def test_what_a_hit_says_that_the_draft_does_not(hit: str, draft: str, new: bool) -> None:
    assert says_new(hit, draft, "en") is new


def test_models_are_stored_whole_and_damaged_ones_refused(tmp_path: Path) -> None:
    model = Regression(("cosine",), (0.5,), -1.0, (0.8,), (0.1,))
    similarity = Similarity(dict.fromkeys(KINDS, model), {"cells": []})
    similarity.save(tmp_path / FILE)
    assert Similarity.load(tmp_path / FILE) == similarity
    text = (tmp_path / FILE).read_text()
    for damaged in (text.replace("0.1", "0.0"), text.replace("draft", "graft"), "{}", "[]", text[:90]):
        (tmp_path / FILE).write_text(damaged)
        with pytest.raises((UserError, ValueError), match=r"fit it again|make it again"):
            Similarity.load(tmp_path / FILE)


def test_sentences_are_turned_into_the_language_of_the_memory(e5: Encoder, parallel) -> None:
    difference = language_difference(e5, "de", "en")
    german, english = (e5.encode([s.text for s in parallel[code]]) for code in ("de", "en"))
    leads = []
    for asked in (german, german - difference):
        own_language = asked @ german.T
        np.fill_diagonal(own_language, -1)
        leads.append(np.diag(asked @ english.T) - own_language.max(axis=1))
    assert (leads[1] > leads[0]).all(), "translations gain on other sentences of the own language"
    assert np.allclose(language_difference(e5, "en", "de"), -difference, atol=1e-3)
    assert not language_difference(e5, "ja", "en").any()
