"""Index: what is built is what is found, and nothing damaged is read."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import faiss
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, settings_hash
from rag_mt.base.types import Origin, Sentence, Span
from retrievers.dense import search_each
from retrievers.index.build import build_index
from retrievers.index.manifest import SENTENCES, SPANS, VECTORS, read_manifest, write_manifest
from retrievers.index.opening import open_index
from retrievers.index.verifying import verify_index
from retrievers.units.unit import NgramUnits, SentenceUnits

FILES = (VECTORS, SPANS, SENTENCES)


class FixedUnits:
    """Units with given vectors, one per text."""

    unit = "sentence"
    block = 7

    def __init__(self, vectors):
        self.settings = {"encoder": "fixed", "fingerprint": "x"}
        self.vectors, self.dimension = vectors, vectors.shape[1]

    def units(self, texts, kind):
        rows = [int(t) for t in texts]
        spans = [(n, 0, len(t)) for n, t in enumerate(texts)]
        return self.vectors[rows], np.array(spans, np.int32).reshape(-1, 3)


def build_fixed(folder, vectors):
    sentences = [Sentence(str(n), "en") for n in range(len(vectors))]
    build_index(folder, sentences, FixedUnits(vectors), retriever="x", language="en", show=False)
    return folder


def fixed_index(folder, vectors):
    return open_index(build_fixed(folder, vectors))


def unit_rows(rng, rows, width):
    made = rng.standard_normal((rows, width)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory, fake):
    """A phrase index of 60 sentences in three shards; copied, never changed."""
    folder = tmp_path_factory.mktemp("indexes") / "built"
    sentences = [
        Sentence(f"word{n} follows word{n + 1} here", "en", Origin(f"f{n % 3}.txt", n, n % 7)) for n in range(60)
    ]
    maker = NgramUnits(fake())
    maker.block = 25
    build_index(folder, sentences, maker, retriever="phrases", language="en", show=False)
    return folder, maker


@pytest.fixture
def copy(built, tmp_path):
    shutil.copytree(built[0], tmp_path / "copy")
    return tmp_path / "copy"


@pytest.fixture
def unparsed(monkeypatch):
    """FAISS and Arrow must not see the file."""

    def parse(*_):
        raise AssertionError("a damaged file was parsed")

    monkeypatch.setattr(faiss, "read_index", parse)
    monkeypatch.setattr("retrievers.index.opening.pa.ipc.open_file", parse)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@pytest.mark.parametrize("kind", [SentenceUnits, NgramUnits])
@settings(max_examples=20, deadline=None)
@given(rows=st.lists(st.tuples(texts, st.text(max_size=5), st.integers(0, 2**40)), max_size=12), size=st.integers(1, 5))
def test_round_trip(fake, kind, rows, size):
    maker = kind(fake())
    maker.block = size
    kept = {}
    for text, file, line in rows:
        if text.strip():
            kept.setdefault(text, Sentence(text, "fi", Origin(file, line, 2 * line)))
    sentences = [Sentence(text, "fi", Origin(file, line, 2 * line)) for text, file, line in rows]
    vectors, spans = maker.units(list(kept), "passage")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "index"
        if not len(spans):
            with pytest.raises(UserError, match="nothing to index"):
                build_index(place, sentences, maker, retriever="r", language="fi", show=False)
            return
        made = build_index(place, sentences, maker, retriever="r", language="fi", show=False)
        index = open_index(place, maker.settings)
        assert index.manifest == made
        assert len(index) == len(spans)
        hits = [index.hit(n, 0.5) for n in range(len(index))]
        assert [h.sentence for h in hits] == [list(kept.values())[n] for n in spans[:, 0]]
        assert [h.span for h in hits] == [Span(*s) for s in spans[:, 1:].tolist()]
        np.testing.assert_array_equal(index.reconstruct(np.arange(len(index))), vectors.astype(np.float16))
        assert verify_index(place)


def test_search_is_exact(tmp_path):
    rng = np.random.default_rng(1)
    vectors, queries = unit_rows(rng, 500, 24), unit_rows(rng, 40, 24)
    index = fixed_index(tmp_path / "i", vectors)
    products = queries @ vectors.astype(np.float16).astype(np.float32).T
    best = np.argsort(-products, axis=1, kind="stable")
    for k in (1, 5):
        scores, ids = index.search(queries, k)
        np.testing.assert_array_equal(ids, best[:, :k])
        np.testing.assert_allclose(scores, np.take_along_axis(products, best[:, :k], 1), rtol=1e-5)
    assert scores.dtype == np.float32
    assert ids.dtype == np.int64
    alone = np.concatenate([index.search(q[None], 5)[0] for q in queries])
    np.testing.assert_array_equal(alone, scores)


def test_search_edges(tmp_path):
    vectors = unit_rows(np.random.default_rng(2), 20, 8)
    index = fixed_index(tmp_path / "i", vectors)
    assert index.search(vectors[:0], 3)[1].shape == (0, 3)
    assert sorted(index.search(vectors[:1], 99)[1][0]) == list(range(20))
    with pytest.raises(ValueError, match="expected"):
        index.search(vectors[:, :5], 1)
    with pytest.raises(ValueError, match="k is 0"):
        index.search(vectors, 0)


def test_equal_scores_come_by_number(tmp_path):
    rng = np.random.default_rng(3)
    different = unit_rows(rng, 4, 8)
    group = rng.integers(0, 4, 60)
    index = fixed_index(tmp_path / "i", different[group])
    for k in (1, 3, 10, 40):
        _, ids = index.search(different, k)
        for own, row in zip(range(4), ids, strict=True):
            same = np.flatnonzero(group == own)[:k]
            assert row[: len(same)].tolist() == same.tolist()


def test_search_without_a_sentence(built):
    index = open_index(built[0])
    vectors = index.reconstruct(np.arange(len(index)))
    first, last = index.units_of(7)
    assert [index.hit(n, 0).sentence.source.line for n in (first - 1, first, last - 1, last)] == [6, 7, 7, 8]
    _, ids = index.search(vectors[first:last], 3, without=7)
    assert ((ids < first) | (ids >= last)).all()
    _, ids = index.search(vectors[first:last], 1)
    assert (ids[:, 0] < last).all()


def test_search_without_several_sentences(built):
    index = open_index(built[0])
    vectors = index.reconstruct(np.arange(len(index)))[:40]
    assert np.array_equal(index.search(vectors, 3, without=[])[1], index.search(vectors, 3)[1])
    assert np.array_equal(index.search(vectors, 3, without=[0])[1], index.search(vectors, 3, without=0)[1])
    _, ids = index.search(vectors, 3, without=[7, 0, 2])
    assert not set(index.spans(ids.ravel())[:, 0].tolist()) & {0, 2, 7}
    bounds = np.array([0, 9, 9, 25, 40])
    for without in ([(), (1,), [0, 3], ()], [(), (), (), ()], [5, (), (2,), 0]):
        scores, ids = search_each(index, vectors, bounds, 3, without)
        for low, high, own in zip(bounds, bounds[1:], without, strict=False):
            expected = index.search(vectors[low:high], 3, own)
            assert np.array_equal(ids[low:high], expected[1])
            assert np.array_equal(scores[low:high], expected[0])


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_files_are_mapped(copy):
    index = open_index(copy)
    maps = Path("/proc/self/maps").read_text()
    assert all(str(copy / name) in maps for name in FILES)
    assert len(index)


def test_vectors_file_is_what_faiss_writes(tmp_path):
    vectors = unit_rows(np.random.default_rng(4), 33, 12)
    fixed_index(tmp_path / "i", vectors)
    index = faiss.IndexScalarQuantizer(12, faiss.ScalarQuantizer.QT_fp16, faiss.METRIC_INNER_PRODUCT)
    index.add(vectors)
    assert (tmp_path / "i" / "vectors.faiss").read_bytes() == faiss.serialize_index(index).tobytes()


@pytest.mark.parametrize("name", FILES)
def test_damaged_bytes_are_refused(built, tmp_path, unparsed, name):
    size = (built[0] / name).stat().st_size
    spread = np.linspace(0, size - 1, 25).astype(int).tolist()
    for place in {*range(0, 96, 5), *spread, size - 1}:
        folder = tmp_path / f"{place}"
        shutil.copytree(built[0], folder)
        data = bytearray((folder / name).read_bytes())
        data[place] ^= 1 << place % 8
        (folder / name).write_bytes(data)
        with pytest.raises(UserError, match=rf"is damaged: {name}"):
            open_index(folder)
        with pytest.raises(UserError, match=rf"is damaged: {name}"):
            verify_index(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("change", [lambda d: d[:-1], lambda d: d[: len(d) // 2], lambda d: d + b"\0", lambda d: b""])
def test_wrong_sizes_are_refused(copy, unparsed, name, change):
    (copy / name).write_bytes(change((copy / name).read_bytes()))
    with pytest.raises(UserError, match=rf"is damaged: {name} has \d+ bytes, not \d+"):
        open_index(copy)


@pytest.mark.parametrize("name", FILES)
def test_missing_files_are_refused(copy, unparsed, name):
    (copy / name).unlink()
    with pytest.raises(UserError, match=rf"is damaged: {name} is missing"):
        open_index(copy)


@pytest.mark.parametrize("name", FILES)
def test_wrong_headers_are_refused_even_with_matching_hashes(copy, name):
    """A file that was made to crash a parser: counts in the header that do not fit."""
    data = bytearray((copy / name).read_bytes())
    data[4:12] = b"\xff" * 8
    (copy / name).write_bytes(data)
    manifest = read_manifest(copy)
    files = {**manifest.files, name: {**manifest.files[name], "sha256": file_sha256(copy / name)}}
    write_manifest(copy, replace(manifest, files=files))
    with pytest.raises(UserError, match=rf"is damaged: {name}"):
        open_index(copy)


def test_damaged_manifests_are_refused(built, tmp_path, unparsed):
    data = (built[0] / "manifest.json").read_bytes()
    folder = tmp_path / "copy"
    shutil.copytree(built[0], folder)
    for place in range(0, len(data), 11):
        changed = bytearray(data)
        changed[place] ^= 1
        if changed.strip() == data.strip():
            continue
        (folder / "manifest.json").write_bytes(changed)
        with pytest.raises(UserError, match=r"damaged|format"):
            open_index(folder)
    (folder / "manifest.json").write_bytes(data[:-40])
    with pytest.raises(UserError, match="not JSON"):
        open_index(folder)
    (folder / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="not a manifest"):
        open_index(folder)
    (folder / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"no manifest\.json"):
        open_index(folder)


@pytest.fixture
def alike(tmp_path):
    """Two indexes of equal sizes."""
    rng = np.random.default_rng(5)
    return [build_fixed(tmp_path / n, unit_rows(rng, 20, 8)) for n in "ab"]


def test_swapped_manifest_is_refused(alike, copy, unparsed):
    one, two = alike
    shutil.copy(two / "manifest.json", one / "manifest.json")
    with pytest.raises(UserError, match=r"vectors\.faiss does not match its sha256"):
        open_index(one)
    shutil.copy(two / "manifest.json", copy / "manifest.json")
    with pytest.raises(UserError, match=r"has \d+ bytes"):
        open_index(copy)


@pytest.mark.parametrize("number", [1, 3, 5])
def test_other_formats_are_refused(copy, unparsed, number):
    contents = json.loads((copy / "manifest.json").read_text())
    del contents["hash"]
    contents["format"] = number
    contents["hash"] = settings_hash(contents)
    (copy / "manifest.json").write_text(json.dumps(contents))
    with pytest.raises(
        UserError,
        match=rf"has format {number} and this version reads format 4: build it again with `rag-mt index build",
    ):
        open_index(copy)


def test_other_settings_are_refused_by_name(built, unparsed):
    folder, maker = built
    with pytest.raises(UserError, match=r"fingerprint: f1, now w2\): use the encoder it was built with, or"):
        open_index(folder, {**maker.settings, "fingerprint": "w2"})
    with pytest.raises(UserError, match=r"by encoder fake .*layer: 2, now 3"):
        open_index(folder, {**maker.settings, "encoder": "other", "layer": 3})


def test_the_same_encoder_by_another_name_is_fine(built):
    folder, maker = built
    assert len(open_index(folder, {**maker.settings, "encoder": "a/folder"}))


def test_damage_after_the_first_open_is_noticed(copy):
    open_index(copy)
    data = bytearray((copy / "spans.npy").read_bytes())
    data[-1] ^= 1
    (copy / "new").write_bytes(data)
    (copy / "new").replace(copy / "spans.npy")
    with pytest.raises(UserError, match=r"spans\.npy does not match"):
        open_index(copy)


@pytest.mark.parametrize("name", FILES)
def test_damage_in_place_that_keeps_size_and_time_is_noticed(copy, name):
    open_index(copy)
    path = copy / name
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(stat.st_size // 2)
        byte = file.read(1)[0]
        file.seek(stat.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    for check in (open_index, verify_index):
        with pytest.raises(UserError, match=f"{name} does not match"):
            check(copy)


@pytest.mark.parametrize("name", FILES)
def test_files_that_no_library_reads_are_refused_in_a_sentence(copy, name):
    """Their hashes fit, as if a wrong file had been hashed, or one had decayed since: the libraries read nonsense."""
    whole = (copy / name).read_bytes()
    (copy / name).write_bytes(whole[:40] + bytes(len(whole) - 80) + whole[-40:])
    forge(copy, name)
    with pytest.raises(UserError, match="is damaged"):
        verify_index(copy)


@pytest.mark.parametrize("name", FILES)
def test_damage_that_leaves_no_trace_at_all_is_refused_in_one_sentence_where_it_cannot_be_parsed(
    built, tmp_path, monkeypatch, name
):
    """As if the disk had lost bytes after the hash was remembered."""
    shutil.copytree(built[0], tmp_path / "copy")
    files = read_manifest(built[0]).files
    monkeypatch.setattr("retrievers.index.opening.remembered_sha256", lambda path: files[path.name]["sha256"])
    size = (built[0] / name).stat().st_size
    refused = 0
    for place in {*range(0, 200, 7), *range(size - 60, size, 3), *np.linspace(0, size - 1, 40).astype(int).tolist()}:
        damage_in_place(tmp_path / "copy" / name, place)
        try:
            open_index(tmp_path / "copy")
        except UserError as error:
            refused += 1
            assert re.fullmatch(rf"index \S+ is damaged: {name} [^\n]*; build it again with `.*`", str(error))
        shutil.copy(built[0] / name, tmp_path / "copy" / name)
    assert refused >= 5


def damage_in_place(path, place):
    """Change a byte; size, inode and time of the last write stay."""
    times, data = path.stat(), bytearray(path.read_bytes())
    data[place] ^= 0xFF
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.mark.parametrize(
    ("row", "value", "reason"),
    [
        (0, (0, 5, 5), "outside"),
        (0, (0, -1, 5), "outside"),
        (3, (0, 1, 5000), "outside"),
        (9, (60, 0, 1), "not there"),
        (20, (0, 0, 1), "order"),
    ],
)
def test_verify_checks_the_spans(copy, row, value, reason):
    spans = np.load(copy / "spans.npy")
    spans[row] = value
    np.save(copy / "spans.npy", spans)
    forge(copy, "spans.npy")
    with pytest.raises(UserError, match=rf"spans\.npy .*{reason}"):
        verify_index(copy)


@pytest.mark.parametrize("value", [0x7E00, 0x0000])
def test_verify_checks_the_vectors(copy, value):
    data = (copy / "vectors.faiss").read_bytes()
    (copy / "vectors.faiss").write_bytes(data[:-32] + value.to_bytes(2, "little") * 16)
    forge(copy, "vectors.faiss")
    with pytest.raises(UserError, match="length is not 1"):
        verify_index(copy)


def forge(folder, name):
    """Make the manifest fit the changed file."""
    manifest = read_manifest(folder)
    stamp = {"size": (folder / name).stat().st_size, "sha256": file_sha256(folder / name)}
    write_manifest(folder, replace(manifest, files={**manifest.files, name: stamp}))


def test_what_is_no_index(tmp_path):
    with pytest.raises(UserError, match=r"does not exist: build one with `rag-mt index build"):
        open_index(tmp_path / "none")
    (tmp_path / "new.building").mkdir()
    with pytest.raises(UserError, match="interrupted: give the same"):
        open_index(tmp_path / "new")
