"""Phrase retrieval: which n-grams with which vectors, overlaps, and real hits."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prompts.builder import MAX_HINTS
from rag_mt.base.types import Sentence
from rag_mt.text.words import word_spans
from retrievers.dense import best_apart
from retrievers.encoders.encoder import family_of
from retrievers.registry import build_for, open_retriever
from retrievers.units.unit import NgramUnits, default_layer

TERMS = {  # German word -> what a good English hit has in it
    "Zentralbank": "bank",
    "Zinsen": "interest|rates",
    "Krankenhaus": "hospital",
    "Frühling": "spring",
    "Regen": "rain",
    "Ernte": "harvest",
    "Passwort": "password",
    "Museum": "museum",
    "Feiertagen": "holidays",
    "Zug": "train",
    "Wissenschaftler": "scientists",
    "Froschart": "frog|species",
    "Kinder": "children",
    "Regierung": "government",
    "Wohnungen": "flats",
    "Wasser": "water",
    "Minister": "minister",
    "Korruption": "corruption",
}


def hints_for(retriever, sentence):
    return {h.source_span.of(sentence.text): h.phrase for h in retriever.retrieve([sentence])[0]}


@pytest.fixture(scope="module")
def retriever(tmp_path_factory, e5, parallel):
    folder = tmp_path_factory.mktemp("phrases") / "en"
    build_for("phrases", folder, parallel["en"], e5, "en", show=False)
    return open_retriever("phrases", folder, e5, source_language="de", target_language="en")


def test_terms_find_their_translations(retriever, parallel):
    found = retriever.retrieve(parallel["de"])
    right = 0
    for term, wanted in TERMS.items():
        hits = [
            hint.phrase
            for sentence, hints in zip(parallel["de"], found, strict=True)
            for hint in hints
            if term in hint.source_span.of(sentence.text)
        ]
        right += any(re.search(wanted, hit, re.IGNORECASE) for hit in hits)
    assert right >= 0.7 * len(TERMS), right


def test_the_upper_half_of_hits_comes_from_the_translation(retriever, parallel):
    found = [
        (hint.hit.score, hint.hit.sentence == target)
        for hints, target in zip(retriever.retrieve(parallel["de"]), parallel["en"], strict=True)
        for hint in hints
    ]
    best = sorted(found, reverse=True)[: len(found) // 2]
    assert sum(right for _, right in best) > 0.75 * len(best)


def test_hints_keep_the_rules(retriever, parallel):
    long = Sentence(" ".join(s.text for s in parallel["de"]), "de")
    for sentence in (*parallel["de"], long):
        (hints,) = retriever.retrieve([sentence])
        assert 0 < len(hints) <= MAX_HINTS
        scores = [h.hit.score for h in hints]
        assert scores == sorted(scores, reverse=True)
        spans = [h.source_span for h in hints]
        assert not any(a.overlaps(b) for i, a in enumerate(spans) for b in spans[:i])
        for span in spans:
            words = word_spans(sentence.text)
            assert span.start in words[:, 0]
            assert span.end in words[:, 1]
            assert any(map(str.isalpha, span.of(sentence.text)))
    assert len(retriever.retrieve([long])[0]) == MAX_HINTS


def test_names_may_be_copied(tmp_path, e5):
    sentences = [Sentence("Mayor Helena Brandt opened the bridge.", "en"), Sentence("Anna Kowalska won.", "en")]
    build_for("phrases", tmp_path / "i", sentences, e5, "en", show=False)
    retriever = open_retriever("phrases", tmp_path / "i", e5, source_language="de", target_language="en")
    found = hints_for(retriever, Sentence("Die Brücke wurde von Helena Brandt eröffnet.", "de"))
    assert any("Helena" in phrase for source, phrase in found.items() if "Helena" in source)


def test_text_without_words_has_no_hints(retriever):
    found = retriever.retrieve([Sentence(t, "de") for t in ("", "12 345", "?!", "Ja")])
    assert [len(h) for h in found] == [0, 0, 0, 1]
    assert retriever.retrieve([]) == []


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(st.text(st.sampled_from("ab1 ,.-é漢\n'"), max_size=25), max_size=6), max_words=st.integers(1, 5))
def test_ngrams_are_all_and_nothing_else(fake, texts, max_words):
    encoder = fake()
    maker = NgramUnits(encoder, layer=2, max_words=max_words)
    vectors, spans = maker.units(texts, "passage")
    expected, expected_vectors = [], []
    for number, (text, made) in enumerate(zip(texts, encoder.states(texts, 2), strict=True)):
        words = word_spans(text).tolist()
        for i in range(len(words)):
            for j in range(i, min(i + max_words, len(words))):
                covered = "".join(text[a:b] for a, b in words[i : j + 1])
                if any(map(str.isalpha, covered)):
                    expected.append([number, words[i][0], words[j][1]])
                    both = np.concatenate([made.states[i], made.states[j]])
                    expected_vectors.append(both / np.linalg.norm(both))
    assert spans.tolist() == expected
    assert spans.dtype == np.int32
    assert vectors.shape == (len(expected), maker.dimension)
    if expected:
        np.testing.assert_allclose(vectors, expected_vectors, atol=1e-6)


def test_vectors_are_first_and_last_token_of_the_words(e5):
    text = "Die Zentralbank erhöht Leitzinsen"
    maker = NgramUnits(e5)
    vectors, spans = maker.units([text], "query")
    (made,) = e5.states([text], maker.layer)
    for vector, (_, start, end) in zip(vectors, spans.tolist(), strict=True):
        first = np.flatnonzero(made.offsets[:, 0] == start)[0]
        last = np.flatnonzero(made.offsets[:, 1] == end)[0]
        expected = np.concatenate([made.states[first], made.states[last]])
        assert expected @ vector / np.linalg.norm(expected) > 0.9999
    assert len(spans) == 10


def test_default_layers(e5, fake):
    assert default_layer(e5) == 7
    assert default_layer(fake()) == 2


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("embedded:e5-small", 7),
        ("intfloat/multilingual-e5-small", 7),
        ("models/multilingual-e5-small/", 7),
        ("intfloat/multilingual-e5-base", 8),
        ("sentence-transformers/LaBSE", 8),
    ],
)
def test_the_measured_layer_is_for_the_size_it_was_measured_on(fake, name, layer):
    encoder = fake()
    encoder.layers, encoder.family = 12, family_of(name, None)
    assert default_layer(encoder) == layer
    encoder.layers = 6  # a smaller model of that name does not have layer 7
    assert default_layer(encoder) == 4


@given(
    rows=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9), st.integers(0, 5)), max_size=25),
    limit=st.integers(1, 8),
)
def test_best_apart(rows, limit):
    starts = np.array([r[0] for r in rows], np.int32)
    ends = np.array([r[0] + r[1] for r in rows], np.int32)
    scores = np.array([r[2] for r in rows], np.float32)
    taken = best_apart(starts, ends, scores, limit).tolist()

    def rank(i):
        return (-scores[i], starts[i] - ends[i], starts[i])

    assert len(set(taken)) == len(taken) <= limit
    assert [rank(i) for i in taken] == sorted(rank(i) for i in taken)
    for i in range(len(rows)):  # whatever is left out overlaps something better, or came after the limit
        overlapped = any(starts[i] < ends[j] and starts[j] < ends[i] and rank(j) <= rank(i) for j in taken)
        assert overlapped or (len(taken) == limit and rank(i) >= rank(taken[-1]))
    assert not any(starts[i] < ends[j] and starts[j] < ends[i] for i in taken for j in taken if i != j)
