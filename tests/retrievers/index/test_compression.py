"""Vectors in fewer bits: smaller, nearly the same hits, the same ones where they are re-ranked, and an index in all
else."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256
from rag_mt.base.types import Origin, Sentence
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.manifest import ROWS, VECTORS, read_manifest, write_manifest
from retrievers.index.opening import open_index
from retrievers.index.vectors import turned
from retrievers.index.verifying import verify_index
from tests.retrievers.index.test_ivf import DIMENSION, FixedUnits, build_fixed, clustered

BITS = (8, 4, 2)


def sentences(rows, start=0):
    return [Sentence(str(n), "en", Origin(f"{n // 100}.txt", n % 100 + 1)) for n in range(start, start + rows)]


@pytest.fixture(scope="module")
def more():
    """The vectors of an index and, behind them, 200 of the same clusters that it grows by."""
    return clustered(2200, centres=60)


@pytest.fixture(scope="module")
def vectors(more):
    return more[:2000]


@pytest.fixture(scope="module")
def built(tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("built")
    for form in ("exact", "ivf"):
        build_fixed(folder / form, vectors, form, sentences=sentences(len(vectors)))
    return folder


@pytest.fixture(params=["exact", "ivf"])
def folder(request, built, tmp_path):
    shutil.copytree(built / request.param, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture(scope="module")
def queries(vectors):
    return turned(vectors[::7], 0.8, np.random.default_rng(3))


def compressed(folder, bits, rerank=False):
    compress_index(folder, bits, rerank, None)
    return open_index(folder)


def grow(folder, made, **options):
    """Let an index go on with these sentences of all `made` vectors, or without files."""
    options = {"sentences": (), "without": (), "form": "auto", **options}
    build_index(folder, maker=FixedUnits(made), retriever="x", language="en", show=False, **options)
    return open_index(folder)


@pytest.mark.parametrize("bits", BITS)
def test_vectors_take_fewer_bytes_and_find_nearly_the_same(folder, vectors, queries, bits):
    before = open_index(folder)
    wanted = before.search(queries, 1, probes=10**6)
    index = compressed(folder, bits)
    assert verify_index(folder)[-1].endswith("are finite")
    if (before.manifest.ivf is None) == (index.manifest.ivf is None):
        saved = before.manifest.files[VECTORS]["size"] - index.manifest.files[VECTORS]["size"]
        codec = 256 * 4 * DIMENSION + 2000
        assert saved >= len(vectors) * DIMENSION * (16 - bits) // 8 - codec
    scores, ids = index.search(queries, 8, probes=10**6)
    agree, least = {8: (0.95, 0.01), 4: (0.8, 0.15), 2: (0.3, 0.5)}[bits]
    assert (ids[:, :1] == wanted[1]).mean() >= agree
    assert np.abs(scores[:, 0] - wanted[0][:, 0]).max() < least
    products = np.einsum("qkd,qd->qk", index.reconstruct(ids.ravel()).reshape(*ids.shape, -1), queries)
    np.testing.assert_allclose(scores, products, atol=1e-4)


@pytest.mark.parametrize("bits", BITS)
def test_reranked_hits_and_scores_are_those_of_whole_vectors(folder, queries, bits):
    before = open_index(folder)
    wanted = before.search(queries, 3, probes=10**6)
    index = compressed(folder, bits, rerank=True)
    assert verify_index(folder)[-1].endswith("have length 1")
    scores, ids = index.search(queries, 3, probes=10**6)
    assert (ids == wanted[1]).mean() > 0.999
    np.testing.assert_allclose(scores, wanted[0], atol=2e-3)
    rows = np.arange(len(index))
    np.testing.assert_array_equal(index.reconstruct(rows), before.reconstruct(rows))
    one = index.search(queries[5:6], 3)
    for alone, together in zip(one, index.search(queries, 3), strict=True):
        np.testing.assert_array_equal(alone[0], together[5])


def test_units_are_left_out_of_reranked_search(folder, queries):
    index = compressed(folder, 4, rerank=True)
    first = index.search(queries[:1], 1, probes=10**6)[1][0, 0]
    assert first not in index.search(queries[:1], 5, without=int(first), probes=10**6)[1]
    few = index.search(queries[:3], 60, without=list(range(1990)), probes=10**6)[1]
    assert [sorted(set(row)) for row in few.tolist()] == [[-1, *range(1990, 2000)]] * 3
    assert (few[:, 10:] == -1).all()
    small = index.search(queries[:2], len(index), probes=10**6)
    assert [sorted(row) for row in small[1].tolist()] == [list(range(len(index)))] * 2


def test_whole_vectors_come_back_where_they_are_kept(folder, queries):
    before = open_index(folder)
    compressed(folder, 2, rerank=True)
    again = compressed(folder, 16)
    assert again.manifest.codes is None
    rows = np.arange(len(before))
    np.testing.assert_array_equal(again.reconstruct(rows), before.reconstruct(rows))
    assert not (folder / ROWS).exists()
    verify_index(folder)


def test_what_is_lost_is_not_claimed_back(folder):
    compressed(folder, 4)
    for bits, rerank in ((8, False), (16, False), (4, True), (2, True)):
        with pytest.raises(UserError, match=r"in 4 bits a number alone.*build --replace"):
            compress_index(folder, bits, rerank, None)
    assert compressed(folder, 2).manifest.bits == 2


@pytest.mark.parametrize("rerank", [False, True])
@pytest.mark.parametrize("bits", BITS)
def test_a_compressed_index_grows_and_shrinks_without_a_further_loss(folder, more, bits, rerank):
    first = compressed(folder, bits, rerank)
    stored = first.reconstruct(np.arange(len(first)))
    form = "ivf" if first.manifest.ivf else "exact"
    grown = grow(folder, more, sentences=sentences(200, 2000), form=form)
    assert grown.manifest.codes == {"bits": bits, "rerank": rerank}
    assert len(grown) == 2200
    np.testing.assert_array_equal(grown.reconstruct(np.arange(2000)), stored)
    found = grown.search(more[2000:], 1, probes=10**6)[1][:, 0]
    assert (found == np.arange(2000, 2200)).mean() >= (1 if rerank else {8: 0.95, 4: 0.85, 2: 0.3}[bits])
    shrunk = grow(folder, more, without=["3.txt", "20.txt"], form=form)
    verify_index(folder)
    assert len(shrunk) == 2000
    np.testing.assert_array_equal(shrunk.reconstruct(np.arange(300)), stored[:300])


def test_cut_offs_and_lists_stay(folder):
    before = read_manifest(folder)
    write_manifest(folder, replace(before, thresholds={"de": {"score": 0.5}}))
    after = compressed(folder, 4).manifest
    assert after.thresholds == {"de": {"score": 0.5}}
    assert after.ivf == before.ivf or before.ivf is None
    assert (after.units, after.sentences, after.counts) == (before.units, before.sentences, before.counts)
    assert "4 bits a number;" in after.describe()
    assert "8 bits a number, re-ranked" in replace(after, codes={"bits": 8, "rerank": True}).describe()


def test_a_compressed_index_stays_one_when_it_becomes_small(folder, vectors):
    compressed(folder, 4)
    gone = [f"{n}.txt" for n in range(18)]
    index = grow(folder, vectors, without=gone)
    assert index.manifest.bits == 4
    verify_index(folder)
    assert (index.search(vectors[1800:], 1, probes=10**6)[1][:, 0] == np.arange(200)).mean() > 0.8
    with pytest.raises(UserError, match="has 200 phrase vectors, of which 2 bits a number cannot be made: choose 8"):
        compress_index(folder, 2, False, None)


def recall(index, vectors):
    """The share of vectors that are found by themselves."""
    return (index.search(vectors, 1)[1][:, 0] == np.arange(len(vectors))).mean()


@pytest.mark.parametrize("rerank", [pytest.param(False, marks=pytest.mark.slow), True])
def test_an_index_that_has_become_much_larger_has_new_lists_and_codes(tmp_path, rerank):
    made = clustered(9000, seed=9, centres=400)
    small, large = tmp_path / "small", tmp_path / "large"
    build_fixed(small, made[:300], "ivf", sentences=sentences(300))
    before = len(compressed(small, 4, rerank).centroids)
    grown = grow(small, made, sentences=sentences(8700, 300), form="ivf")
    build_fixed(large, made, "ivf", sentences=sentences(9000))
    anew = compressed(large, 4, rerank)
    assert before < len(grown.centroids) == len(anew.centroids)
    assert grown.manifest.ivf["measured"] and recall(grown, made) > recall(anew, made) - 0.03
    verify_index(small)


def test_an_interrupted_change_comes_first(folder, vectors):
    maker = FixedUnits(np.concatenate([vectors, vectors]))
    maker.block = 50
    stream = sentences(200, 2000)
    stream[120] = None  # what reading a file may come to
    options = {"retriever": "x", "language": "en", "show": False, "shard": 50, "without": ()}
    with pytest.raises(AttributeError):
        build_index(folder, stream, maker, **options)
    with pytest.raises(UserError, match=r"has a change that was interrupted: give that `rag-mt index add`"):
        compress_index(folder, 8, False, None)


@pytest.mark.parametrize("rerank", [False, True])
def test_a_copy_in_lancedb_has_the_vectors_that_are_there(folder, tmp_path, rerank):
    pytest.importorskip("lancedb")
    index = compressed(folder, 4, rerank)
    target = Path(f"lance:{tmp_path / 'copy'}")
    copy = copy_index(folder, target, form="exact")
    assert copy.codes == (None if rerank else {"bits": 4, "rerank": False})
    verify_index(target)
    rows = np.arange(50)
    np.testing.assert_allclose(open_index(target).reconstruct(rows), index.reconstruct(rows), atol=1e-3)


def test_whole_and_compressed_vectors_must_belong_together(folder):
    index = compressed(folder, 8, rerank=True)
    rows = np.fromfile(folder / ROWS, "<f2").reshape(len(index), -1)
    for wrong, told in ((rows[::-1], "does not hold the vectors of rows.f16"), (rows * np.nan, "rows.f16 has vectors")):
        wrong.tofile(folder / ROWS)
        files = dict(index.manifest.files) | {ROWS: {"size": rows.nbytes, "sha256": file_sha256(folder / ROWS)}}
        write_manifest(folder, replace(index.manifest, files=files))
        with pytest.raises(UserError, match=told):
            verify_index(folder)


def test_what_is_there_already_is_not_made_again(folder):
    compressed(folder, 8)
    before = (folder / VECTORS).stat().st_ino
    assert compressed(folder, 8).manifest.bits == 8
    assert (folder / VECTORS).stat().st_ino == before


def test_users_mistakes(folder, tmp_path):
    with pytest.raises(UserError, match="3 bits a number are not possible: choose one of 16, 8, 4, 2"):
        compress_index(folder, 3, False, None)
    with pytest.raises(UserError, match="does not exist"):
        compress_index(tmp_path / "none", 8, False, None)
    with pytest.raises(UserError, match="LanceDB"):
        compress_index("lance:somewhere", 8, False, None)
    for dimension, bits, fewest in ((15, 4, 8), (14, 2, 4)):
        odd = build_fixed(tmp_path / f"odd.{dimension}", clustered(300)[:, :dimension] * 1.0, "exact")
        with pytest.raises(UserError, match=f"{dimension} dimensions do not go into {bits} .*: choose {fewest}"):
            compress_index(odd.folder, bits, False, None)


def test_another_form_than_the_manifest_tells_of_is_damage(folder):
    index = compressed(folder, 4)
    write_manifest(folder, replace(index.manifest, codes={"bits": 8, "rerank": False}))
    with pytest.raises(UserError, match="does not hold vectors of 8 bits a number"):
        open_index(folder)
