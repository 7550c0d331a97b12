"""Sentence retrieval with the real encoder, and the registry that opens it."""

from __future__ import annotations

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Sentence, Span
from retrievers.calibration import calibrate_for
from retrievers.registry import RETRIEVERS, build_for, open_retriever, retriever_spec
from retrievers.units.unit import SentenceUnits


@pytest.fixture(scope="module")
def folder(tmp_path_factory, e5, parallel):
    place = tmp_path_factory.mktemp("sentence") / "en"
    build_for("sentence", place, parallel["en"], e5, "en", show=False)
    return place


@pytest.mark.parametrize("source", ["de", "cs", "ru", "tr"])
def test_finds_the_translation(folder, e5, parallel, source):
    retriever = open_retriever("sentence", folder, e5, source_language=source, target_language="en")
    found = retriever.retrieve(parallel[source])
    assert [len(hints) for hints in found] == [1] * len(parallel[source])
    right = [hints[0].hit.sentence == target for hints, target in zip(found, parallel["en"], strict=True)]
    assert sum(right) >= len(right) - 1
    for sentence, (hint,) in zip(parallel[source], found, strict=True):
        assert hint.source_span == Span(0, len(sentence.text))
        assert hint.phrase == hint.hit.sentence.text
        assert 0.5 < hint.hit.score <= 1.001


def test_blank_and_no_sentences(folder, e5):
    retriever = open_retriever("sentence", folder, e5, source_language="de", target_language="en")
    assert retriever.retrieve([]) == []
    found = retriever.retrieve([Sentence(t, "de") for t in ("", "Das Museum ist zu.", " \n")])
    assert [len(hints) for hints in found] == [0, 1, 0]


def test_the_calibrated_cut_off_drops_the_weakest(tmp_path, e5, parallel):
    build_for("sentence", tmp_path / "en", parallel["en"], e5, "en", show=False)
    texts = [s.text for s in parallel["de"]]
    cut = calibrate_for(tmp_path / "en", e5, texts, "de", drop=0.5)
    for source, shown in (("de", len(texts) // 2), ("de-AT", len(texts) // 2), ("cs", len(texts) // 2)):  # cs borrows
        retriever = open_retriever("sentence", tmp_path / "en", e5, source_language=source, target_language="en")
        found = retriever.retrieve(parallel["de"])
        assert sum(map(len, found)) == shown
        assert min(h.hit.score for hints in found for h in hints) >= cut


def test_index_and_queries_are_encoded_as_what_they_are(fake):
    kinds = []

    class Noting(fake):
        def encode(self, texts, kind="query"):
            kinds.append(kind)
            return super().encode(texts, kind)

    maker = SentenceUnits(Noting())
    maker.units(["a"], "passage")
    maker.units(["a"], "query")
    assert kinds == ["passage", "query"]


def test_a_block_is_one_call_of_the_encoder_and_one_search(tmp_path, fake, parallel, monkeypatch):
    encoder = fake()
    build_for("sentence", tmp_path / "en", parallel["en"], encoder, "en", show=False)
    retriever = open_retriever("sentence", tmp_path / "en", encoder, source_language="de", target_language="en")
    calls = []
    monkeypatch.setattr(encoder, "encode", lambda t, kind: calls.append(len(t)) or type(encoder).encode(encoder, t))
    search = retriever.index.search
    monkeypatch.setattr(retriever.index, "search", lambda v, k: calls.append(len(v)) or search(v, k))
    retriever.retrieve(parallel["de"])
    assert calls == [12, 12]


def test_registry():
    assert list(RETRIEVERS)[:4] == ["none", "sentence", "memory", "phrases"]
    assert [retriever_spec(n).needs_index for n in ("none", "sentence", "phrases")] == [False, True, True]
    assert [retriever_spec(n).unit for n in ("sentence", "memory", "phrases")] == ["sentence", "memory", "phrase"]
    with pytest.raises(UserError, match=r"unknown retriever 'sentences': choose one of none, sentence, memory"):
        retriever_spec("sentences")


def test_none_needs_nothing():
    retriever = open_retriever("none", None, None, source_language="de", target_language="en")
    assert retriever.name == "none"
    assert retriever.retrieve([Sentence("Hallo.", "de")] * 2) == [(), ()]


def test_what_does_not_fit_is_refused(tmp_path, fake, parallel):
    folder, encoder = tmp_path / "en", fake()
    build_for("sentence", folder, parallel["en"], encoder, "en", show=False)

    def opening(name="sentence", index=folder, encoder=encoder, target="en"):
        return open_retriever(name, index, encoder, source_language="de", target_language=target)

    assert opening(target="en-GB").retrieve([Sentence("x", "de")])
    with pytest.raises(UserError, match="holds English text: the target language is Czech"):
        opening(target="cs")
    with pytest.raises(UserError, match="for retriever 'sentence', not 'phrases'"):
        opening("phrases")
    with pytest.raises(UserError, match=r"needs an index .*--retriever none"):
        opening(index=None)
    with pytest.raises(UserError, match="fingerprint: f1, now f2"):
        opening(encoder=fake("f2"))
    with pytest.raises(UserError, match="does not exist"):
        opening(index=tmp_path / "other")
    with pytest.raises(UserError, match="'none' has no index: choose one of sentence, memory, phrases"):
        build_for("none", tmp_path / "x", parallel["en"], encoder, "en")
