"""Passages as hints: built, calibrated and found by each of the three rankings."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Sentence, Span
from retrievers.bm25 import Bm25Settings
from retrievers.calibration import calibrate, default_index
from retrievers.encoders.encoder import NoEncoder
from retrievers.index.build import build_index
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import open_index
from retrievers.index.verifying import verify_index
from retrievers.mdpr import DualEncoder
from retrievers.passage import HybridSettings, PassageRetriever
from retrievers.registry import build_for, encoder_for, open_retriever
from retrievers.units.passages import PassageUnits, body_start

LONG = (
    "The Town Bank\nThe town is old and its streets are narrow, as everyone knows who has been there in summer. "
    "Then Agnes Halvorsen raised interest rates for the third time this year, which the bank had announced in 1999. "
    "Nobody in the market hall spoke of anything else that week, and the weather was fine."
)
TERMS = {"passage": None, "bm25": Bm25Settings(), "hybrid": HybridSettings(alpha=0.3)}


@pytest.fixture(scope="module")
def dual(e5):
    return DualEncoder("embedded:e5-small", e5, e5)


@pytest.fixture(scope="module")
def indexes(tmp_path_factory, parallel, dual):
    """An index of each kind over the same English passages."""
    passages = [*parallel["en"], Sentence(LONG, "en", Origin("long.txt", 7))]
    folder = tmp_path_factory.mktemp("passages")
    for name, terms in TERMS.items():
        maker = PassageUnits(NoEncoder() if name == "bm25" else dual)
        maker.block = 5
        options = {"retriever": name, "language": "en", "show": False, "terms": terms}
        build_index(folder / name, passages, maker, **options)
    return folder


def retriever(indexes, name, dual, source="de"):
    maker = PassageUnits(NoEncoder() if name == "bm25" else dual)
    return PassageRetriever(name, open_index(indexes / name, maker.settings), maker, source)


def asked(*texts):
    return [Sentence(text, "de") for text in texts]


@pytest.mark.parametrize("name", ["passage", "hybrid"])
def test_the_translation_is_found_across_languages(indexes, name, dual, parallel):
    found = retriever(indexes, name, dual).retrieve(parallel["de"])
    right = [hints[0].hit.sentence.source.line == n for n, hints in enumerate(found, 1)]
    assert sum(right) >= 10
    assert found[1][0].source_span == Span(0, len(parallel["de"][1].text))


@pytest.mark.parametrize("name", TERMS)
def test_the_window_that_fits_best_is_quoted(indexes, name, dual):
    (hint,), *_ = retriever(indexes, name, dual).retrieve(asked("Agnes Halvorsen erhöhte die Zinsen, was 1999 war."))
    assert hint.hit.sentence.source == Origin("long.txt", 7)
    assert "Agnes Halvorsen" in hint.phrase and len(hint.phrase) <= 94
    assert body_start(LONG) <= hint.hit.span.start
    assert len(hint.context().text) <= 100


def test_bm25_finds_names_and_nothing_where_nothing_is_shared(indexes, dual):
    own = retriever(indexes, "bm25", dual)
    found = own.retrieve(asked("Frau Halvorsen kommt.", "und dann", "Ein Hospital."))
    assert [len(hints) for hints in found] == [1, 0, 1]
    assert found[2][0].hit.sentence.source.line == 2


def test_scores_are_cosines_save_for_bm25(indexes, dual):
    query = asked("Agnes Halvorsen")
    (dense,), *_ = retriever(indexes, "passage", dual).retrieve(query)
    (both,), *_ = retriever(indexes, "hybrid", dual).retrieve(query)
    assert both.hit.sentence == dense.hit.sentence
    assert both.hit.score == pytest.approx(dense.hit.score, abs=1e-6)
    assert 0.5 < dense.hit.score <= 1.001


@pytest.mark.parametrize("name", TERMS)
def test_a_sentence_that_is_left_out_is_not_found(indexes, name, dual):
    query = asked("Agnes Halvorsen", "Agnes Halvorsen")
    first, second = retriever(indexes, name, dual).retrieve(query, [12, []])
    assert second[0].hit.sentence.source.file == "long.txt"
    assert not first or first[0].hit.sentence.source.file != "long.txt"


@pytest.mark.parametrize("name", TERMS)
def test_cut_offs_are_calibrated_and_kept(indexes, name, dual, parallel, tmp_path):
    shutil.copytree(indexes / name, tmp_path / "copy")
    maker = PassageUnits(NoEncoder() if name == "bm25" else dual)
    index = open_index(tmp_path / "copy", maker.settings)
    score = calibrate(index, maker, [s.text for s in parallel["de"]], "de", drop=0.5)
    encoder = NoEncoder() if name == "bm25" else dual
    own = open_retriever(name, tmp_path / "copy", encoder, source_language="de", target_language="en")
    found = own.retrieve(parallel["de"])
    uncut = retriever(indexes, name, dual).retrieve(parallel["de"])
    assert 0 < sum(map(bool, found)) < sum(map(bool, uncut))
    assert all(hint.hit.score >= score for hints in found for hint in hints)


@pytest.mark.parametrize("name", TERMS)
def test_an_index_says_what_it_is(indexes, name):
    manifest = read_manifest(indexes / name)
    assert (manifest.retriever, manifest.unit, manifest.units) == (name, "passage", 13)
    assert (manifest.terms is not None) == (name != "passage")
    assert ("vectors.faiss" in manifest.files) == (name != "bm25")
    assert ("BM25" in manifest.describe()) == (name != "passage")
    assert verify_index(indexes / name)


@pytest.mark.parametrize("name", ["bm25.tokens.npy", "bm25.terms.json"])
def test_a_damaged_file_of_terms_is_refused(indexes, name, tmp_path):
    shutil.copytree(indexes / "hybrid", tmp_path / "copy")
    path = tmp_path / "copy" / name
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=f"{name} does not match its sha256"):
        open_index(tmp_path / "copy")


def test_what_an_index_lacks_cannot_be_asked(indexes):
    with pytest.raises(ValueError, match="no vectors"):
        open_index(indexes / "bm25").search(np.zeros((1, 0), np.float32), 1)
    with pytest.raises(ValueError, match="no terms"):
        _ = open_index(indexes / "passage").terms


def test_settings_of_bm25_belong_to_systems_that_have_it(tmp_path):
    with pytest.raises(
        UserError, match="'passage' has no setting k1: leave it out, or choose one of memory, bm25, hybrid"
    ):
        build_for("passage", tmp_path / "x", [], NoEncoder(), "en", {"k1": 1.0})
    with pytest.raises(UserError, match="'bm25' has no encoder"):
        encoder_for("bm25", "embedded:e5-small")


def test_the_sample_index_serves_bm25(tmp_path, monkeypatch):
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    folder = default_index("bm25", "en", NoEncoder())
    own = open_retriever("bm25", folder, NoEncoder(), source_language="de", target_language="en")
    assert own.cut_off is not None
    assert default_index("bm25", "en", NoEncoder()) == folder
