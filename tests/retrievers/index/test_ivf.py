"""The IVF form: the same vectors and scores as the exact one, found in lists; chosen by size, tuned, never trusted
when damaged."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256
from rag_mt.base.types import Sentence
from retrievers.calibration import calibrate
from retrievers.index import build
from retrievers.index import vectors as ivf
from retrievers.index.build import build_index
from retrievers.index.manifest import SENTENCES, SPANS, VECTORS, read_manifest, write_manifest
from retrievers.index.opening import open_index
from retrievers.index.vectors import OWN, OWN_COSINE, form_for, lists_for, tune_nprobe, turned
from retrievers.index.verifying import verify_index
from retrievers.units.unit import SentenceUnits

DIMENSION = 16
FILES = (VECTORS, SPANS, SENTENCES)


class FixedUnits:
    """Units with given vectors, `per_text` for each text."""

    unit = "phrase"
    block = 7

    def __init__(self, vectors, per_text=1, **settings):
        self.settings = {"encoder": "fixed", "fingerprint": "x", **settings}
        self.vectors, self.per_text, self.dimension = vectors, per_text, vectors.shape[1]

    def units(self, texts, kind):
        rows = np.array([int(t) * self.per_text + i for t in texts for i in range(self.per_text)])
        spans = [(n, 0, len(t)) for n, t in enumerate(texts) for _ in range(self.per_text)]
        return self.vectors[rows], np.array(spans, np.int32).reshape(-1, 3)


def build_fixed(folder, vectors, form="ivf", shard=64, per_text=1, sentences=None, retriever="x", **maker_settings):
    sentences = sentences or [Sentence(str(n), "en") for n in range(len(vectors) // per_text)]
    maker = FixedUnits(vectors, per_text, **maker_settings)
    maker.block = shard
    options = {"retriever": retriever, "language": "en", "show": False, "form": form}
    build_index(folder, sentences, maker, **options)
    return open_index(folder)


def clustered(rows, seed=0, centres=40, spread=0.4):
    rng = np.random.default_rng(seed)
    made = rng.standard_normal((centres, DIMENSION))[rng.integers(0, centres, rows)]
    made += spread * rng.standard_normal(made.shape)
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


@pytest.fixture(scope="module")
def vectors():
    return clustered(1200)


@pytest.fixture(scope="module")
def queries(vectors):
    return turned(vectors[::9], 0.8, np.random.default_rng(3))


@pytest.fixture(scope="module")
def pair(tmp_path_factory, vectors):
    """The exact and the IVF index of the same vectors, three units per sentence; never changed."""
    folder = tmp_path_factory.mktemp("pair")
    return [build_fixed(folder / form, vectors, form, per_text=3) for form in ("exact", "ivf")]


@pytest.fixture
def copy(pair, tmp_path):
    shutil.copytree(pair[1].folder, tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def unparsed(monkeypatch):
    """FAISS must not see the file."""

    def parse(*_):
        raise AssertionError("a damaged file was parsed")

    monkeypatch.setattr(faiss, "read_index", parse)


@pytest.mark.parametrize("k", [1, 4, 5000])
@pytest.mark.parametrize("without", [None, 7])
def test_all_lists_are_exact_search(pair, queries, k, without):
    exact, lists = pair
    wanted = exact.search(queries, k, without)
    found = lists.search(queries, k, without, probes=lists.manifest.ivf["nlist"])
    np.testing.assert_array_equal(found[1], wanted[1])
    np.testing.assert_array_equal(found[0], wanted[0])


def test_a_few_lists_find_nearly_all(pair, vectors):
    exact, lists = pair
    stored = lists.manifest.ivf
    assert 1 <= stored["nprobe"] < stored["nlist"]
    assert stored["measured"][OWN]["recall"] >= 0.99
    queries = turned(vectors, OWN_COSINE, np.random.default_rng(8))
    wanted, found = exact.search(queries, 1), lists.search(queries, 1)
    same = found[1] == wanted[1]
    assert same.mean() >= 0.99
    np.testing.assert_array_equal(found[0][same], wanted[0][same])
    assert (lists.search(queries, 1, probes=1)[1] == wanted[1]).mean() < same.mean()


def test_short_lists_are_filled_from_others(pair, queries):
    scores, ids = pair[1].search(queries, 300, probes=1)
    assert ids.shape == (len(queries), 300)
    assert (ids >= 0).all()
    assert (np.diff(scores, axis=1) <= 0).all()
    assert all(len(set(row)) == 300 for row in ids.tolist())


def test_a_query_does_not_depend_on_the_others(pair, queries):
    together = pair[1].search(queries, 3)
    alone = [pair[1].search(q[None], 3) for q in queries]
    np.testing.assert_array_equal(np.concatenate([ids for _, ids in alone]), together[1])
    np.testing.assert_array_equal(np.concatenate([scores for scores, _ in alone]), together[0])


def test_search_without_a_sentence(pair):
    index = pair[1]
    first, last = index.units_of(7)
    own = index.reconstruct(np.arange(first, last))
    assert index.search(own, 1)[1][:, 0].tolist() == list(range(first, last))
    ids = index.search(own, 5, without=7)[1]
    assert ((ids >= 0) & ((ids < first) | (ids >= last))).all()


def test_nothing_is_left(tmp_path):
    index = build_fixed(tmp_path / "i", clustered(2), per_text=2)
    assert index.search(index.reconstruct(np.arange(2)), 1, without=0)[1].tolist() == [[-1], [-1]]


@settings(max_examples=25, deadline=None)
@given(
    numbers=st.lists(st.lists(st.integers(-3, 3), min_size=4, max_size=4), min_size=1, max_size=90),
    shard=st.integers(1, 40),
    k=st.integers(1, 9),
)
def test_round_trip(numbers, shard, k):
    """Few and repeated values: lists that stay empty, vectors of length 0, many equal scores."""
    vectors = np.array(numbers, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        index = build_fixed(Path(folder) / "i", vectors, shard=shard, normalised=False)
        np.testing.assert_array_equal(index.reconstruct(np.arange(len(vectors))), vectors)
        assert verify_index(Path(folder) / "i")
        products = vectors @ vectors.T
        best = np.argsort(-products, axis=1, kind="stable")[:, :k]
        scores, ids = index.search(vectors, k, probes=index.manifest.ivf["nlist"])
        np.testing.assert_array_equal(ids, best)
        np.testing.assert_array_equal(scores, np.take_along_axis(products, best, 1))


def test_the_file_is_what_faiss_writes(pair):
    path = pair[1].folder / "vectors.faiss"
    index = faiss.read_index(str(path))
    assert index.ntotal == 1200
    assert faiss.serialize_index(index).tobytes() == path.read_bytes()


def test_files_are_mapped(copy):
    index = open_index(copy)
    maps = Path("/proc/self/maps")
    if not maps.exists():
        pytest.skip("reads /proc")
    assert all(str(copy / name) in maps.read_text() for name in FILES)
    assert len(index)


def test_many_lists_are_filled_in_groups(tmp_path, monkeypatch, vectors, queries):
    monkeypatch.setattr(ivf, "GROUPED_FROM", 16)
    monkeypatch.setattr(ivf, "GROUPS_SEARCHED", 1)
    monkeypatch.setattr(ivf, "BLOCK_BYTES", 4 * DIMENSION * 10)
    index = build_fixed(tmp_path / "i", vectors)
    assert verify_index(tmp_path / "i")
    np.testing.assert_array_equal(index.reconstruct(np.arange(1200)), vectors.astype(np.float16))
    found = index.search(queries, 1, probes=index.manifest.ivf["nlist"])[1][:, 0]
    np.testing.assert_array_equal(found, (queries @ vectors.astype(np.float16).astype(np.float32).T).argmax(1))


def test_the_same_vectors_give_the_same_bytes(pair, tmp_path, vectors):
    build_fixed(tmp_path / "i", vectors, per_text=3)
    assert contents(tmp_path / "i") == contents(pair[1].folder)


@pytest.mark.parametrize("stop", ["_view", "with_ivf", "write_manifest"])
def test_a_stop_while_lists_are_written_is_resumed(pair, tmp_path, vectors, monkeypatch, stop):
    """Trained centroids and the lists of vectors are not computed again, and the bytes are the same."""

    def die(*_):
        raise StopHereError

    with monkeypatch.context() as patch:
        patch.setattr(ivf if stop == "_view" else build, stop, die)
        with pytest.raises(StopHereError):
            build_fixed(tmp_path / "i", vectors, per_text=3)
    assert not (tmp_path / "i").exists()
    monkeypatch.setattr(ivf, "_centroids", die)
    monkeypatch.setattr(ivf, "_nearest", lambda *_: die)
    build_fixed(tmp_path / "i", vectors, per_text=3)
    assert contents(tmp_path / "i") == contents(pair[1].folder)
    assert not (tmp_path / "i.building").exists()


class StopHereError(Exception):
    pass


def test_damaged_work_is_done_again(pair, tmp_path, vectors, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(build, "with_ivf", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_fixed(tmp_path / "i", vectors, per_text=3)
    work = [p for p in (tmp_path / "i.building").glob("lists-*/*") if p.suffix in (".faiss", ".npy")]
    assert len(work) == 2
    for path in work:
        path.write_bytes(path.read_bytes()[:-7])
    build_fixed(tmp_path / "i", vectors, per_text=3)
    assert contents(tmp_path / "i") == contents(pair[1].folder)


def test_an_interrupted_build_may_take_the_other_form(pair, tmp_path, vectors, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(build, "with_ivf", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            build_fixed(tmp_path / "i", vectors, per_text=3)
    build_fixed(tmp_path / "i", vectors, "exact", per_text=3)
    assert contents(tmp_path / "i") == contents(pair[0].folder)


def test_the_form_goes_by_size(tmp_path, vectors, monkeypatch):
    assert form_for("auto", 10_000, "phrase") == form_for("auto", 500_000, "sentence") == "exact"
    assert form_for("auto", 1_000_000, "phrase") == form_for("auto", 10_000_000, "sentence") == "ivf"
    monkeypatch.setitem(ivf.IVF_FROM, "phrase", 1000)
    assert build_fixed(tmp_path / "many", vectors, "auto").manifest.ivf is not None
    assert build_fixed(tmp_path / "few", vectors[:999], "auto").manifest.ivf is None
    with pytest.raises(UserError, match="unknown form 'tree' of an index: choose one of auto, exact, ivf"):
        build_fixed(tmp_path / "other", vectors, "tree")
    assert not (tmp_path / "other.building").exists()


def test_the_number_of_lists():
    assert lists_for(1, 128) == lists_for(31, 128) == 1
    assert lists_for(1_000_000, 128) == 16384
    assert lists_for(10_000_000, 128) == lists_for(100_000_000, 128) == 32768
    assert lists_for(1_000_000, 1024) == 4096  # what a bounded sample can train


def test_manifests(pair):
    exact, lists = (json.loads((i.folder / "manifest.json").read_text()) for i in pair)
    assert exact["format"] == lists["format"] == 4
    assert exact["ivf"] is None
    assert lists["ivf"]["nlist"] == lists_for(1200, DIMENSION)
    assert lists["ivf"]["measured"][OWN]["nprobe"] == lists["ivf"]["nprobe"]
    assert "exact search" in pair[0].manifest.describe()
    assert f"IVF search of {lists['ivf']['nprobe']} of {lists['ivf']['nlist']} lists" in pair[1].manifest.describe()


def test_tuning(copy, pair, vectors):
    index = open_index(copy)
    before = contents(copy)
    near, far = (turned(vectors[::2], cosine, np.random.default_rng(5)) for cosine in (1, 0.4))
    few = tune_nprobe(index, near, source="de")
    assert few < index.manifest.ivf["measured"][OWN]["nprobe"]
    assert open_index(copy).manifest.ivf["nprobe"] == index.manifest.ivf["nprobe"] == few
    many = tune_nprobe(index, far, source="cs")
    assert few < many
    other = turned(vectors[1::2], 0.4, np.random.default_rng(6))
    assert (index.search(other, 1)[1] == pair[0].search(other, 1)[1]).mean() >= 0.985
    assert tune_nprobe(index, far, 0.8, source="tr") < many
    tune_nprobe(index, near, source="de")
    stored = open_index(copy).manifest.ivf
    assert stored["nprobe"] == many  # enough for all of them
    assert {name: m["nprobe"] for name, m in stored["measured"].items() if name in ("de", "cs")} == {
        "de": few,
        "cs": many,
    }
    assert all(contents(copy)[name] == before[name] for name in FILES)
    assert verify_index(copy)


def test_what_cannot_be_tuned(pair, queries):
    for index, given_, recall in ((pair[0], queries, 0.9), (pair[1], queries[:0], 0.9), (pair[1], queries, 1.5)):
        with pytest.raises(ValueError, match="expected queries for an IVF index"):
            tune_nprobe(index, given_, recall)


def test_calibration_tunes(tmp_path, fake):
    sentences = [Sentence(f"sentence {n}", "en") for n in range(200)]
    maker = SentenceUnits(fake())
    build_index(tmp_path / "i", sentences, maker, retriever="sentence", language="en", show=False, form="ivf")
    index = open_index(tmp_path / "i")
    calibrate(index, maker, [s.text for s in sentences[:50]] + [" "], "de")
    stored = open_index(tmp_path / "i").manifest
    assert stored.thresholds.keys() == {"de"}
    assert stored.ivf["measured"]["de"]["queries"] == 50
    assert stored.ivf["nprobe"] == stored.ivf["measured"]["de"]["nprobe"] == index.manifest.ivf["nprobe"]
    assert stored.ivf["nprobe"] < stored.ivf["measured"][OWN]["nprobe"]


def test_on_a_gpu(pair, queries, monkeypatch):
    """A stand-in for the GPU: what can be searched there is, the rest stays on the CPU."""
    index = open_index(pair[1].folder)
    there = faiss.clone_index(faiss.read_index(str(index.folder / "vectors.faiss")))
    calls = []

    class Gpu:
        def search(self, vectors, k, params):
            assert params.sel is None
            calls.append(params.nprobe)
            return there.search(vectors, k, params=params)

    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 1, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_gpu", lambda *_: Gpu(), raising=False)
    before = index.search(queries, 2), index.search(queries, 2, without=3), index.reconstruct(np.arange(9))
    assert index.to_gpu()
    after = index.search(queries, 2), index.search(queries, 2, without=3), index.reconstruct(np.arange(9))
    assert calls == [index.manifest.ivf["nprobe"]]
    for old, new in zip((*before[0], *before[1], before[2]), (*after[0], *after[1], after[2]), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize("name", ["vectors.faiss"])
def test_damaged_bytes_are_refused(pair, tmp_path, unparsed, name):
    size = (pair[1].folder / name).stat().st_size
    for place in {*range(0, 96, 9), *np.linspace(0, size - 1, 9).astype(int).tolist()}:
        folder = tmp_path / f"{place}"
        shutil.copytree(pair[1].folder, folder)
        data = bytearray((folder / name).read_bytes())
        data[place] ^= 1 << place % 8
        (folder / name).write_bytes(data)
        with pytest.raises(UserError, match=rf"^index \S+ is damaged: {name} [^\n]*; build it again with \S+"):
            open_index(folder)


@pytest.mark.parametrize("place", ["kind", "units", "metric", "centroid count", "list count", "a size", "two sizes"])
def test_wrong_headers_are_refused_even_with_matching_hashes(copy, place):
    """A file that was made to crash a parser: counts in the header that do not fit."""
    data = bytearray((copy / "vectors.faiss").read_bytes())
    lists = read_manifest(copy).ivf["nlist"]
    sizes = len(data) - 1200 * (2 * DIMENSION + 8) - 8 * lists
    begin = {"kind": 0, "units": 8, "metric": 33, "centroid count": data.index(b"IxSQ") + 8, "list count": sizes - 8}
    at = begin.get(place, sizes)
    data[at : at + 8] = (int.from_bytes(data[at : at + 8], "little") + 1).to_bytes(8, "little")
    if place == "two sizes":  # they still add up, to one list of a negative size
        more = int.from_bytes(data[sizes + 8 : sizes + 16], "little")
        data[sizes : sizes + 8] = (int.from_bytes(data[sizes : sizes + 8], "little") - 1 + 2 * more).to_bytes(
            8, "little"
        )
        data[sizes + 8 : sizes + 16] = (-more).to_bytes(8, "little", signed=True)
    (copy / "vectors.faiss").write_bytes(data)
    forge(copy, "vectors.faiss")
    with pytest.raises(UserError, match=r"is damaged: vectors\.faiss"):
        open_index(copy)


def test_verify_checks_that_every_unit_is_there_once(copy):
    data = bytearray((copy / "vectors.faiss").read_bytes())
    index = open_index(copy)
    first = index._vectors.invlists
    own = next(n for n in range(first.nlist) if first.list_size(n))
    ids = faiss.rev_swig_ptr(first.get_ids(own), first.list_size(own)).tobytes()
    place = data.index(ids)
    data[place : place + 8] = (int.from_bytes(ids[:8], "little") ^ 1).to_bytes(8, "little")
    (copy / "vectors.faiss").write_bytes(data)
    forge(copy, "vectors.faiss")
    with pytest.raises(UserError, match=r"vectors\.faiss does not hold every unit once"):
        verify_index(copy)


def test_an_index_that_lost_its_lists_is_refused(copy):
    manifest = read_manifest(copy)
    write_manifest(copy, replace(manifest, ivf={**manifest.ivf, "nlist": manifest.ivf["nlist"] + 1}))
    with pytest.raises(UserError, match=r"does not hold 1200 vectors in \d+ lists"):
        open_index(copy)
    write_manifest(copy, replace(manifest, ivf=None))
    with pytest.raises(UserError, match="does not hold 1200 vectors of 16 dimensions"):
        open_index(copy)


def forge(folder, name):
    """Make the manifest fit the changed file."""
    manifest = read_manifest(folder)
    stamp = {"size": (folder / name).stat().st_size, "sha256": file_sha256(folder / name)}
    write_manifest(folder, replace(manifest, files={**manifest.files, name: stamp}))
