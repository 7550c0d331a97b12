"""Growing and shrinking an index: the same as a new one, without encoding again, whole or not at all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in
from rag_mt.base.types import Origin, Sentence, TranslatedSentence
from retrievers.bm25 import Bm25Settings
from retrievers.index import shards, vectors
from retrievers.index.build import build_index
from retrievers.index.manifest import SPANS, VECTORS, change_manifest, read_manifest, write_manifest
from retrievers.index.opening import open_index
from retrievers.index.replacing import REPLACED, restore
from retrievers.index.verifying import verify_index
from retrievers.memory.units import MemoryUnits
from retrievers.units.unit import NgramUnits
from tests.retrievers.index.test_build import StopHereError, build, stopping

OLD = [Sentence(f"sentence {n} of {n % 7}", "en", Origin(f"{n % 3}.txt", n + 1)) for n in range(40)]
NEW = [Sentence(f"text {n} of {n % 5}", "en", Origin("new.txt", n + 1)) for n in range(23)]


def build_units(folder, maker, sentences, **options):
    maker.block = 10
    return build_index(folder, sentences, maker, retriever="any", language="en", show=False, **options)


def rows(folder):
    return open_index(folder).sentences.to_pylist()


def same(one, other):
    """Whether two indexes hold the same: units and vectors byte for byte, and the sentences."""
    names = [VECTORS, SPANS, *(path.name for path in one.glob("bm25.*"))]
    return rows(one) == rows(other) and all((one / n).read_bytes() == (other / n).read_bytes() for n in names)


@pytest.mark.parametrize("terms", [None, Bm25Settings()])
def test_added_text_gives_what_a_new_build_gives(terms, tmp_path, fake, monkeypatch):
    monkeypatch.setattr(shards, "BLOCK", 16)
    options = {"form": "exact", "terms": terms}
    for name, sentences in (("grown", OLD), ("whole", OLD + NEW)):
        build(tmp_path / name, fake(), sentences, **options)
    encoder = fake()
    manifest = build(tmp_path / "grown", encoder, NEW + OLD[:3], without=[], **options)
    assert same(tmp_path / "grown", tmp_path / "whole") and encoder.encoded == len(NEW)
    assert manifest.counts == {"read": 66, "kept": 63, "duplicates": 3, "unusable": 0}
    assert verify_index(tmp_path / "grown") and {p.name for p in tmp_path.iterdir()} == {"grown", "whole"}


@pytest.mark.parametrize("without", [[], ["1.txt"]])
def test_lists_go_on_until_their_number_changes(without, tmp_path, fake, monkeypatch):
    monkeypatch.setattr(vectors, "BLOCK_BYTES", 4 * 16 * 16)  # blocks of 16 vectors
    monkeypatch.setattr(vectors, "lists_for", lambda units, dimension: 4 if units < 100 else 8)
    build(tmp_path / "i", fake(), OLD, form="ivf")
    old = open_index(tmp_path / "i")
    centroids = old.centroids
    stays = [n for n in range(40) if old.sentence(n).source.file not in without]
    lists = old.lists_of(np.array(stays))
    assigned = []
    monkeypatch.setattr(vectors, "_nearest", counting(vectors._nearest, assigned))
    manifest = build(tmp_path / "i", fake(), NEW, form="ivf", without=without)
    new, first = open_index(tmp_path / "i"), len(stays)
    assert np.array_equal(new.centroids, centroids) and manifest.ivf == old.manifest.ivf
    assert np.array_equal(new.lists_of(np.arange(first)), lists) and sum(assigned) == len(new) - first
    queries = fake().encode([s.text for s in NEW])
    assert new.search(queries, 1, probes=4)[1][:, 0].tolist() == [*range(first, len(new))]
    assert verify_index(tmp_path / "i")
    more = [Sentence(f"more {n}", "en") for n in range(60)]
    assert build(tmp_path / "i", fake(), more, form="ivf", without=[]).ivf["nlist"] == 8


def counting(nearest, counts):
    def counted(trained):
        found = nearest(trained)
        return lambda rows: counts.append(len(rows)) or found(rows)

    return counted


def test_removed_files_are_as_if_they_had_never_been(tmp_path, fake):
    build(tmp_path / "one", fake(), OLD + NEW)
    build(tmp_path / "other", fake(), [s for s in OLD if s.source.file != "1.txt"])
    encoder = fake()
    manifest = build(tmp_path / "one", encoder, (), without=["1.txt", "new.txt", "unknown.txt"])
    assert same(tmp_path / "one", tmp_path / "other") and encoder.encoded == 0
    assert manifest.counts == {"read": 27, "kept": 27, "duplicates": 0, "unusable": 0}
    build(tmp_path / "one", fake(), NEW, without=["0.txt"])  # a file gives way, others come
    assert {row["file"] for row in rows(tmp_path / "one")} == {"2.txt", "new.txt"}


def test_memories_keep_what_their_sentences_translate(tmp_path, fake):
    pairs = [TranslatedSentence(f"text {n}", "en", Origin("p.tmx", n), f"Text {n}") for n in range(5)]
    more = [TranslatedSentence("more", "en", Origin("q.tmx", 1), "mehr"), Sentence("alone", "en", Origin("q.tmx", 2))]
    build_units(tmp_path / "i", MemoryUnits(fake()), pairs)
    build_units(tmp_path / "i", MemoryUnits(fake()), more, without=[])
    assert [row["original"] for row in rows(tmp_path / "i")] == [*(f"Text {n}" for n in range(5)), "mehr", ""]


def test_several_units_of_a_sentence_stay_with_it(tmp_path, fake):
    maker = NgramUnits(fake())
    for name, sentences in (("grown", OLD), ("whole", [s for s in OLD if s.source.file != "0.txt"] + NEW)):
        build_units(tmp_path / name, maker, sentences)
    build_units(tmp_path / "grown", maker, NEW, without=["0.txt"])
    assert same(tmp_path / "grown", tmp_path / "whole")


def test_cut_offs_and_models_stay(tmp_path, fake):
    build(tmp_path / "i", fake(), OLD)
    known = {"de": {"score": 0.5, "dropped": 0.25, "sentences": 10}}
    write_manifest(tmp_path / "i", replace(read_manifest(tmp_path / "i"), thresholds=known))
    (tmp_path / "i" / "confidence.json").write_text("{}")
    assert build(tmp_path / "i", fake(), NEW, without=[]).thresholds == known
    assert (tmp_path / "i" / "confidence.json").read_text() == "{}" and len(rows(tmp_path / "i")) == 63


def test_an_interrupted_addition_goes_on(tmp_path, fake):
    for name, sentences in (("grown", OLD), ("whole", OLD + NEW)):
        build(tmp_path / name, fake(), sentences)
    with pytest.raises(StopHereError):
        build(tmp_path / "grown", fake(), stopping(NEW, 20), without=[])
    assert rows(tmp_path / "grown") == rows(tmp_path / "whole")[:40], "the old one serves until then"
    encoder = fake()
    manifest = build(tmp_path / "grown", encoder, NEW, without=[])
    assert same(tmp_path / "grown", tmp_path / "whole") and encoder.encoded == 3 and manifest.resumed == 20
    with pytest.raises(StopHereError):
        build(tmp_path / "grown", fake(), stopping([Sentence(f"x {n}", "en") for n in range(20)], 15), without=[])
    with pytest.raises(UserError, match=r"index\.without: \[\], now"):
        build(tmp_path / "grown", fake(), NEW, without=["0.txt"])
    building = tmp_path / "grown.building"
    (tmp_path / "grown").rename(building / REPLACED)
    restore(tmp_path / "grown")
    assert same(tmp_path / "grown", tmp_path / "whole") and not (building / REPLACED).exists()


def test_a_change_that_fails_leaves_no_trace(tmp_path, fake):
    build(tmp_path / "i", fake(), OLD)
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(NEW, 3), without=[])
    assert [path.name for path in tmp_path.iterdir()] == ["i"], "there is nothing to go on from"
    build(tmp_path / "i", fake(), (), without=["0.txt"])
    assert open_index(tmp_path / "i").manifest.sentences == 26


def test_a_change_that_was_killed_while_it_tidied_up_is_finished(tmp_path, fake):
    build(tmp_path / "i", fake(), OLD)
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(NEW, 20), without=[])
    (tmp_path / "i.building" / REPLACED).mkdir()
    encoder = fake()
    build(tmp_path / "i", encoder, NEW[:5], without=[])
    assert encoder.encoded == 5 and [path.name for path in tmp_path.iterdir()] == ["i"]


def test_a_calibration_meanwhile_is_kept_and_another_change_is_not_overwritten(tmp_path, fake):
    build(tmp_path / "i", fake(), OLD)
    known = {"de": {"score": 0.5, "dropped": 0.25, "sentences": 10}}

    def calibrating():
        manifest = read_manifest(tmp_path / "i")
        change_manifest(tmp_path / "i", manifest, "calibration", lambda m: replace(m, thresholds=known))
        yield from NEW

    assert build(tmp_path / "i", fake(), calibrating(), without=[]).thresholds == known

    def replacing():
        build(tmp_path / "other", fake(), NEW)
        for path in (tmp_path / "other").iterdir():
            (tmp_path / "i" / path.name).write_bytes(path.read_bytes())
        yield Sentence("one more", "en")

    with pytest.raises(UserError, match="was replaced during its change"):
        build(tmp_path / "i", fake(), replacing(), without=[])


def test_a_finished_index_is_opened_while_another_process_tidies_up(tmp_path, fake):
    build(tmp_path / "i", fake(), OLD)
    with alone_in(tmp_path / "i.building", "another build"):
        (tmp_path / "i.building" / REPLACED).mkdir()
        restore(tmp_path / "i")
    assert open_index(tmp_path / "i")


def test_what_does_not_fit_is_refused(tmp_path, fake):
    with pytest.raises(UserError, match="does not exist"):
        build(tmp_path / "i", fake(), NEW, without=[])
    build(tmp_path / "i", fake(), OLD)
    with pytest.raises(UserError, match="other settings"):
        build(tmp_path / "i", fake("f2"), NEW, without=[])
    for other in ({"language": "de"}, {"retriever": "memory"}, {"terms": Bm25Settings()}):
        with pytest.raises(UserError, match="is a sentence index of English by now"):
            build(tmp_path / "i", fake(), NEW, without=[], **other)
    before = rows(tmp_path / "i")
    with pytest.raises(UserError, match="there is nothing to index"):
        build(tmp_path / "i", fake(), (), without=["0.txt", "1.txt", "2.txt"])
    assert rows(tmp_path / "i") == before
    assert np.array_equal(open_index(tmp_path / "i").spans(np.arange(40))[:, 0], np.arange(40))
