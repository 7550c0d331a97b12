"""Cut-offs: the right quantile, stored with the index; and the default index that is calibrated at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from retrievers.calibration import calibrate, default_index
from retrievers.dense import DenseRetriever
from retrievers.index.build import build_index
from retrievers.index.opening import open_index
from retrievers.index.verifying import verify_index
from retrievers.registry import open_retriever
from retrievers.units.unit import NgramUnits, SentenceUnits


@pytest.fixture
def index(tmp_path, fake, parallel):
    maker = SentenceUnits(fake())
    build_index(tmp_path / "i", parallel["en"], maker, retriever="sentence", language="en", show=False)
    return open_index(tmp_path / "i"), maker


def scores(index, maker, sentences, without=None):
    found = DenseRetriever("sentence", index, maker).retrieve(sentences, without)
    return [h.hit.score for hints in found for h in hints]


@pytest.mark.parametrize("drop", [0.0, 0.25, 0.9])
def test_the_quantile_of_the_shown_scores(index, parallel, drop):
    opened, maker = index
    cut = calibrate(opened, maker, [s.text for s in parallel["de"]], "de", drop)
    all_scores = np.array(scores(opened, maker, parallel["de"]))
    assert cut == pytest.approx(np.quantile(all_scores, drop))
    assert (all_scores < cut).sum() == pytest.approx(drop * len(all_scores), abs=1)


def test_only_the_manifest_changes(index, parallel):
    opened, maker = index
    before = {p.name: p.read_bytes() for p in opened.folder.iterdir()}
    cuts = {c: calibrate(opened, maker, [s.text for s in parallel[c]], c) for c in ("de", "cs")}
    after = {p.name: p.read_bytes() for p in opened.folder.iterdir()}
    assert [n for n in before if before[n] != after[n]] == ["manifest.json"]
    again = open_index(opened.folder)
    assert again.manifest == opened.manifest
    assert {c: again.manifest.cut_off(c) for c in ("de", "cs", "tr")} == {**cuts, "tr": max(cuts.values())}
    assert again.manifest.thresholds["de"]["sentences"] == 12
    assert "cut-offs cs" in again.manifest.describe()
    assert verify_index(opened.folder)


def test_calibrations_at_the_same_time_are_both_kept(index, parallel):
    opened, maker = index
    other = open_index(opened.folder)
    cuts = {"de": calibrate(opened, maker, [s.text for s in parallel["de"]], "de")}
    cuts["cs"] = calibrate(other, maker, [s.text for s in parallel["cs"]], "cs")
    manifest = open_index(opened.folder).manifest
    assert {c: manifest.cut_off(c) for c in manifest.thresholds} == cuts
    assert not list(opened.folder.parent.glob("*.lock"))


def test_a_cut_off_is_not_stored_in_an_index_that_took_the_place(index, parallel):
    opened, maker = index
    options = {"retriever": "sentence", "language": "en", "show": False, "replace": True}
    build_index(opened.folder, parallel["en"][:5], maker, **options)
    with pytest.raises(UserError, match="replaced during its calibration"):
        calibrate(opened, maker, [s.text for s in parallel["de"]], "de")
    assert open_index(opened.folder).manifest.thresholds == {}


def test_languages_without_a_cut_off_take_the_highest(index, fake, parallel, caplog):
    opened, maker = index
    caplog.set_level("INFO", "rag_mt")

    def cut_off(source):
        caplog.clear()
        languages = {"source_language": source, "target_language": "en"}
        return open_retriever("sentence", opened.folder, fake(), **languages).cut_off

    assert cut_off("de") is None
    assert f"no cut-off for German, so that every hit is shown: `rag-mt index calibrate {opened.folder} " in caplog.text
    assert "--src de` stores one" in caplog.text
    cuts = {c: calibrate(opened, maker, [s.text for s in parallel[c]], c, d) for c, d in (("de", 0.9), ("cs", 0.1))}
    assert cuts["de"] > cuts["cs"]
    assert cut_off("cs") == cut_off("cs-CZ") == cuts["cs"]
    assert "cut-off" not in caplog.text
    assert cut_off("fr") == cuts["de"]
    assert "no cut-off for French, so that the one for German is used" in caplog.text


def test_a_sentence_can_be_left_out(index, parallel):
    opened, maker = index
    own = list(range(12))
    assert np.allclose(scores(opened, maker, parallel["en"]), 1, atol=0.01)
    others = scores(opened, maker, parallel["en"], own)
    assert max(others) < 0.95
    cut = calibrate(opened, maker, [s.text for s in parallel["en"]], "en", 0.5, own)
    assert cut == pytest.approx(np.median(others))


def test_phrases_are_calibrated_on_what_is_left_of_overlaps(tmp_path, fake, parallel):
    maker = NgramUnits(fake())
    build_index(tmp_path / "i", parallel["en"], maker, retriever="phrases", language="en", show=False)
    opened = open_index(tmp_path / "i")
    cut = calibrate(opened, maker, [s.text for s in parallel["de"]], "de", 0.25)
    found = DenseRetriever("phrases", opened, maker).retrieve(parallel["de"])
    assert cut == pytest.approx(np.quantile([h.hit.score for hints in found for h in hints], 0.25))
    kept = DenseRetriever("phrases", opened, maker, cut).retrieve(parallel["de"])
    assert kept == [tuple(h for h in hints if h.hit.score >= cut) for hints in found]


def test_what_cannot_be_calibrated(index):
    opened, maker = index
    with pytest.raises(UserError, match="none of the 2 sentences"):
        calibrate(opened, maker, ["", " "], "de")
    with pytest.raises(UserError, match=r"share of 1\.5"):
        calibrate(opened, maker, ["a"], "de", 1.5)
    assert opened.manifest.thresholds == {}


@pytest.fixture
def corpus(tmp_path, monkeypatch, parallel):
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "corpus"
    folder.mkdir()
    for code, sentences in parallel.items():
        (folder / f"{code}.txt").write_text("".join(f"{s.text}\n" for s in sentences), encoding="utf-8")
    return folder


def test_a_memory_of_the_sample_corpus_needs_no_cut_offs(corpus, fake):
    folder = default_index("memory", "en", fake(), corpus=corpus)
    assert open_index(folder).manifest.thresholds == {}


@pytest.mark.parametrize("name", ["sentence", "phrases"])
def test_default_index_is_built_once(corpus, fake, parallel, name):
    encoder = fake()
    folder = default_index(name, "en", encoder, corpus=corpus)
    assert folder.parent.name == "indexes"
    assert folder.name.startswith(f"{name}-en-")
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    encoded = encoder.encoded
    assert default_index(name, "en-GB", encoder, corpus=corpus) == folder
    assert encoder.encoded == encoded
    manifest = open_index(folder).manifest
    assert sorted(manifest.thresholds) == ["cs", "de", "ru", "tr"]
    assert open_index(folder).sentence(3) == parallel["en"][3]
    assert verify_index(folder)
    assert default_index(name, "de", encoder, corpus=corpus) != folder
    assert default_index(name, "en", fake("f2"), corpus=corpus) != folder
    (corpus / "cs.txt").write_text((corpus / "cs.txt").read_text().replace("bank", "bánk"))
    assert default_index(name, "en", encoder, corpus=corpus) != folder


def test_default_cut_offs_lie_below_true_pairs(corpus, e5, parallel):
    """A line's own translation does not take part in the calibration: true pairs score above the cut-off."""
    folder = default_index("sentence", "en", e5, corpus=corpus)
    retriever = open_retriever("sentence", folder, e5, source_language="de", target_language="en")
    found = retriever.retrieve(parallel["de"])
    assert retriever.cut_off is not None
    assert all(hints and hints[0].hit.score > retriever.cut_off + 0.02 for hints in found)


def test_a_damaged_default_index_is_made_again(corpus, fake):
    folder = default_index("sentence", "en", fake(), corpus=corpus)
    (folder / "spans.npy").write_bytes(b"")
    assert default_index("sentence", "en", fake(), corpus=corpus) == folder
    assert verify_index(folder)


def test_who_has_a_damaged_default_index_open_keeps_it(corpus, fake, parallel):
    folder = default_index("sentence", "en", fake(), corpus=corpus)
    opened = open_index(folder)
    (folder / "sentences.arrow").unlink()
    default_index("sentence", "en", fake(), corpus=corpus)
    assert opened.sentence(11) == parallel["en"][11]
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_killed_default_index_goes_on_where_it_stopped(corpus, fake, monkeypatch):
    class KilledError(BaseException):
        pass

    calibrated = []

    def dying(index, maker, texts, source, *rest):
        if len(calibrated) == 2:
            raise KilledError
        calibrated.append(source)
        return calibrate(index, maker, texts, source, *rest)

    monkeypatch.setattr("retrievers.calibration.calibrate", dying)
    encoder = fake()
    with pytest.raises(KilledError):
        default_index("sentence", "en", encoder, corpus=corpus)
    assert encoder.encoded == 3 * 12
    monkeypatch.undo()
    monkeypatch.setenv("RAG_MT_CACHE", str(corpus.parent / "cache"))
    folder = default_index("sentence", "en", encoder, corpus=corpus)
    assert encoder.encoded == 5 * 12
    assert sorted(open_index(folder).manifest.thresholds) == ["cs", "de", "ru", "tr"]
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    (folder.parent / f"{folder.name}.unfinished" / "damaged").mkdir(parents=True)  # killed while it tidied up
    default_index("sentence", "en", encoder, corpus=corpus)
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]
    assert encoder.encoded == 5 * 12


def test_one_default_index_is_built_and_others_wait(corpus, fake):
    encoders = [fake() for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        folders = set(pool.map(lambda e: default_index("sentence", "en", e, corpus=corpus), encoders))
    (folder,) = folders
    assert sorted(e.encoded for e in encoders) == [0, 0, 0, 5 * 12]
    assert [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_a_language_without_a_file(corpus, fake):
    with pytest.raises(UserError, match=r"no Swedish text \(it has cs, de, .*rag-mt index build.*--retriever none"):
        default_index("sentence", "sv", fake(), corpus=corpus)
    with pytest.raises(UserError, match=r"no English text \(it is missing\)"):
        default_index("sentence", "en", fake(), corpus=corpus / "none")
