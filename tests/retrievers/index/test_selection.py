"""Searching the sentences of some files alone: what an index of these files finds, by every engine."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt.base.errors import NoSuchFileError, UserError
from rag_mt.base.only import Label, Only
from rag_mt.base.types import Origin, Sentence
from retrievers.index import search
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.labelling import label_files
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import open_index
from retrievers.index.search import Index
from retrievers.index.selection import selected
from tests.retrievers.index.stored import TERMS, build
from tests.retrievers.index.test_index import FixedUnits, unit_rows

pytestmark = pytest.mark.usefixtures("unsynced")
Fake = Callable[..., Any]
ENGINES = ("", "lance:", "qdrant:")
FILES = ("a/1.txt", "a/2.txt", "b/1.txt", "b/2.tmx")


def sentences(numbers: Any) -> list[Sentence]:
    """Sentences whose files alternate, so that those of a file are stretches with gaps; some phrases are in several."""
    return [Sentence(f"number {n} of {n % 3}", "en", Origin(FILES[n // 3 % 4], n)) for n in numbers]


def placed(engine: str, folder: Path) -> Path:
    """The index of a folder in an engine, which is tested if it is installed."""
    if not engine:
        return folder
    pytest.importorskip({"lance:": "lancedb", "qdrant:": "qdrant_client"}[engine])
    return Path(f"{engine}{folder}.copy")


def found(index: Index, queries: Any, k: int, without: Any = None) -> list[list[tuple[Any, ...]]]:
    """What is found for each query: texts, spans, origins and rounded scores, which both indexes may number as they
    like."""
    scores, ids = index.search(queries, k, without)
    hits = [
        [index.hit(i, s) for i, s in zip(*row, strict=True) if i >= 0]
        for row in zip(ids.tolist(), scores.tolist(), strict=True)
    ]
    return [[(h.sentence, h.span, pytest.approx(h.score, abs=1e-5)) for h in row] for row in hits]


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_finds_what_an_index_of_the_files_alone_finds(fake: Fake, engine: str, data: Any) -> None:
    """Also after files were added and taken out, with sentences left out, and with equal scores."""
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        kept = list(range(40))
        build(whole, fake(), sentences(kept))
        place = placed(engine, whole)
        if engine:
            copy_index(whole, place)
        for step in range(data.draw(st.integers(0, 1 if engine == "qdrant:" else 2))):
            gone = data.draw(st.sampled_from(FILES[:3]))
            new = list(range(40 + 20 * step, 60 + 20 * step))
            build(place, fake(), sentences(new), without=[gone])
            kept = [n for n in kept if FILES[n // 3 % 4] != gone] + new
        chosen = data.draw(st.sets(st.sampled_from(FILES), min_size=1))
        chosen &= {FILES[n // 3 % 4] for n in kept}
        if not chosen:
            return
        index = open_index(place).within(Only(tuple(chosen)))
        own = [n for n in kept if FILES[n // 3 % 4] in chosen]
        build(Path(folder) / "alone", fake(), sentences(own))
        alone = open_index(Path(folder) / "alone")
        assert index.searched == len(alone) and len(index) > 0
        queries = np.concatenate([unit_rows(np.random.default_rng(1), 5, 16), alone.reconstruct(np.arange(4))])
        for k in (1, 3, 40, len(alone) + 5):
            assert found(index, queries, k) == found(alone, queries, k)
        left_out = int(index.spans(index.search(queries[-1:], 1)[1][0])[0, 0])
        same_one = int(alone.spans(alone.search(queries[-1:], 1)[1][0])[0, 0])
        assert found(index, queries, 4, left_out) == found(alone, queries, 4, same_one)


def labels_after_changes(place: Path, fake: Fake) -> None:
    """Assert what an index of sentences 0 to 39 knows of its files as these come and go."""
    law, day = {"domain": "law"}, {"date": "2024-05-01"}
    assert read_manifest(place).labels == {}
    build(place, fake(), sentences(range(40, 45)), without=[FILES[1]], label=Label("law"))  # files 1 and 2
    assert read_manifest(place).labels == dict.fromkeys(FILES[1:3], law)
    build(place, fake(), sentences(range(48, 51)), without=[FILES[1]], label=Label("", "2024-05-01"))  # file 0
    assert read_manifest(place).labels == {FILES[0]: day, FILES[2]: law}  # file 1 is gone with what was known of it
    build(place, fake(), sentences(range(60, 63)), without=[FILES[0]], label=Label("news"))  # file 0 has a new text
    assert read_manifest(place).labels == {FILES[0]: day | {"domain": "news"}, FILES[2]: law}
    build(place, fake(), sentences(range(70, 72)), without=[])
    assert read_manifest(place).labels == {FILES[0]: day | {"domain": "news"}, FILES[2]: law}


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_follow_their_files(tmp_path: Path, fake: Fake, engine: str) -> None:
    build(tmp_path / "i", fake(), sentences(range(40)))
    place = placed(engine, tmp_path / "i")
    if engine:
        copy_index(tmp_path / "i", place)
    labels_after_changes(place, fake)
    manifest, names = label_files(place, read_manifest(place), FILES, ["*.tmx"], "", "2025-01-02")
    assert names == [FILES[3]] and manifest == read_manifest(place)
    assert manifest.labels[FILES[3]] == {"date": "2025-01-02"}
    manifest, _ = label_files(place, manifest, FILES, [FILES[2], "b/2.tmx"], "", "")
    assert list(manifest.labels) == [FILES[0]]
    assert open_index(place).within(Only(domains=("news",))).selection.files == (FILES[0],)


def test_what_is_said_during_a_change_stays(tmp_path: Path, fake: Fake) -> None:
    place = tmp_path / "i"
    build(place, fake(), sentences(range(40)))

    def read() -> Iterator[Sentence]:
        yield from sentences(range(48, 51))
        label_files(place, read_manifest(place), FILES, ["b/*"], "law", None)

    build(place, fake(), read(), without=[], label=Label("news"))
    assert {name: label["domain"] for name, label in read_manifest(place).labels.items()} == {
        FILES[0]: "news", FILES[2]: "law", FILES[3]: "law"
    }  # fmt: skip


def test_labels_go_along_with_a_copy_and_other_codes(tmp_path: Path, fake: Fake) -> None:
    build(tmp_path / "i", fake(), sentences(range(40)), label=Label("law", "2024-05-01"))
    labels = {name: {"domain": "law", "date": "2024-05-01"} for name in FILES}
    place = placed("lance:", tmp_path / "i")
    copy_index(tmp_path / "i", place)
    compress_index(tmp_path / "i", 8, False, None)
    assert read_manifest(place).labels == read_manifest(tmp_path / "i").labels == labels
    build(tmp_path / "i", fake(), sentences(range(9)), replace=True)
    assert read_manifest(tmp_path / "i").labels == {} and "labels" not in read_manifest(tmp_path / "i").as_dict()


def test_what_is_not_there_is_told_with_what_there_is(tmp_path: Path, fake: Fake) -> None:
    place = tmp_path / "i"
    build(place, fake(), sentences(range(40)))

    def said(*values: Any) -> str:
        with pytest.raises(UserError) as error:
            open_index(place).within(Only(*values))
        return str(error.value).removeprefix(f"index {place} has no file ")

    files = "it has files a/1.txt, a/2.txt, b/1.txt and 1 more"
    assert said(("c/*", "a/*")) == f"named c/*: {files}"
    label = f"`rag-mt index label {place} FILE"
    unknown = f"of the domain law: no domain of its files is known, which {label} --domain DOMAIN` tells"
    assert said((), ("law",)) == unknown
    assert said(("a/*",), (), "2024-01-01") == (
        f"named a/*, dated since 2024-01-01: no date of its files is known, which {label} --date DATE` tells"
    )
    label_files(place, read_manifest(place), FILES, ["a/*"], "law", "2024-05-01")
    label_files(place, read_manifest(place), FILES, ["b/1*"], "news", None)
    there = "domains law, news; dates 2024-05-01"
    assert said((), ("law", "lwa")) == f"of the domain lwa: {files}; {there}"
    assert said(("b/*",), ("law",)) == f"named b/*, of the domain law: it has files b/1.txt, b/2.tmx; {there}"
    assert said((), (), "2024-05-02") == f"dated since 2024-05-02: {files}; {there}"
    for patterns, domain, day, problem in (
        (["c"], "law", None, "has no file c: name one that it has, such as a/1.txt"),
        (["a/*"], None, None, "nothing is said of a/*: give --domain or --date"),
        (["a/*"], "law", "May", "'May' is no date"),
    ):
        with pytest.raises(UserError, match=problem.replace("*", r"\*")):
            label_files(place, read_manifest(place), FILES, patterns, domain, day)


def test_a_place_in_a_store_is_told_as_people_write_it() -> None:
    place = Path("lance:s3://bucket/i")
    for only in (Only("c"), Only(domains="law")):
        with pytest.raises(NoSuchFileError) as error:
            selected(place, only, pa.chunked_array([["a.txt"]]), {})
        told = str(error.value)
        assert told.count("lance:s3://bucket/i") == told.count("bucket") == (2 if only.domains else 1)
        assert (
            error.value.public == f"the index has no file {only}: ask for others, or leave out what is asked of files"
        )
        assert str(pickle.loads(pickle.dumps(error.value))) == told
    with pytest.raises(UserError, match=r"^index lance:s3://bucket/i has no file c: "):
        label_files(place, None, ["a.txt"], ["c"], "law", None)  # type: ignore[arg-type]


def test_sentences_without_a_unit_cannot_be_searched_alone(tmp_path: Path, fake: Fake) -> None:
    """An index of phrases has none of a line without letters."""
    build(tmp_path / "i", fake(), [*sentences(range(4)), Sentence("12 34", "en", Origin("numbers.txt", 1))])
    with pytest.raises(NoSuchFileError, match=r"has no phrase in its files named numbers\.txt") as error:
        open_index(tmp_path / "i").within(Only("numbers.txt"))
    assert error.value.public.startswith("the index has no phrase in its files named numbers.txt: ask")


@pytest.mark.parametrize(("bits", "rerank"), [(16, False), (8, False), (8, True)])
@pytest.mark.parametrize("few", [0, 1 << 16])
def test_lists_are_searched_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bits: int, rerank: bool, few: int
) -> None:
    """Of a few units all are compared; of more so many lists that as many vectors are compared as without a selection,
    and always more where those hold too little."""
    monkeypatch.setattr(search, "FEW", few)
    vectors = unit_rows(np.random.default_rng(4), 900, 8)
    texts = [Sentence(str(n), "en", Origin(f"{n // 30}.txt", n)) for n in range(900)]
    build_index(tmp_path / "i", texts, FixedUnits(vectors), retriever="x", language="en", show=False, form="ivf")
    if bits != 16:
        compress_index(tmp_path / "i", bits, rerank, None)
    whole = open_index(tmp_path / "i")
    index = whole.within(Only(("3.txt", "4.txt", "20.txt")))
    own = np.flatnonzero(np.isin(np.arange(900) // 30, [3, 4, 20]))
    assert index.searched == len(own) and len(index) == 900
    queries = unit_rows(np.random.default_rng(5), 20, 8)
    products = queries @ whole.reconstruct(own).T
    expected = own[np.argsort(-products, axis=1, kind="stable")]
    ids = index.search(queries, 90)[1]
    assert np.isin(ids, own).all() and ids.shape == (20, 90)
    np.testing.assert_array_equal(np.sort(ids, axis=1), np.sort(expected, axis=1))
    best = index.search(queries, 5)[1]
    if few and not (bits == 8 and not rerank):
        np.testing.assert_array_equal(best, expected[:, :5])
    assert (best[:, 0] == expected[:, 0]).mean() > 0.9
    assert (index.search(queries, 5, without=int(own[0]))[1] != own[0]).all()


def test_what_was_opened_before_searches_all(tmp_path: Path, fake: Fake) -> None:
    build(tmp_path / "i", fake(), sentences(range(40)), terms=TERMS)
    whole = open_index(tmp_path / "i")
    assert len(whole.terms.top([{"number": 1.0}], 50)[0][0]) == 50
    part = whole.within(Only("a/1.txt"))
    again = part.within(Only("b/*"))
    for index, files in ((part, {"a/1.txt"}), (again, {"b/1.txt", "b/2.tmx"}), (whole, set(FILES))):
        terms = index.terms.top(index.terms.queries(["number"], "en"), 300)[1][0]
        dense = index.search(unit_rows(np.random.default_rng(1), 1, 16), 300)[1][0]
        for units in (terms[terms >= 0], dense):
            assert {index.hit(int(unit), 0).sentence.source.file for unit in units} == files
