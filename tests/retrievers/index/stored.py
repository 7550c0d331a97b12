"""What the tests of engines that keep indexes share: small indexes, and comparing a copy with its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.types import Encoder, Origin, Sentence
from rag_mt.cli.main import main
from retrievers.bm25 import Bm25Settings
from retrievers.index.build import build_index
from retrievers.index.compression import compress_index
from retrievers.index.copying import copy_index
from retrievers.index.manifest import read_manifest
from retrievers.index.opening import map_sentences, open_index
from retrievers.index.places import kind_of, name_of
from retrievers.registry import build_for, open_retriever
from retrievers.units.unit import NgramUnits
from tests.retrievers.index.test_index import unit_rows

OLD = [Sentence(f"word{n} follows word{n % 7} here", "en", Origin(f"f'{n % 3}.txt", n, n % 5)) for n in range(30)]
NEW = [Sentence(f"text {n} of {n % 5}", "en", Origin("new.txt", n + 1)) for n in range(11)]
TERMS = Bm25Settings()


def build(folder: Path, encoder: Any, sentences: Any, **options: Any) -> Any:
    maker = NgramUnits(encoder)
    maker.block = 10
    options = {"retriever": "phrases", "language": "en", "show": False, **options}
    return build_index(folder, sentences, maker, **options)


def same(one: Path, other: Path, seed: int = 1) -> bool:
    """Whether two indexes hold and find the same under the same numbers."""
    ours, theirs = open_index(one), open_index(other)
    units = np.arange(len(ours))
    assert len(ours) == len(theirs) and ours.manifest.counts == theirs.manifest.counts
    assert theirs.sentences.to_pylist() == ours.sentences.to_pylist() and theirs.files() == ours.files()
    np.testing.assert_array_equal(theirs.spans(units), ours.spans(units))
    np.testing.assert_array_equal(theirs.reconstruct(units[::-1]), ours.reconstruct(units[::-1]))
    queries = unit_rows(np.random.default_rng(seed), 9, ours.manifest.dimension)
    queries = np.concatenate([queries, ours.reconstruct(units[:4])])
    sentences = ours.manifest.sentences
    for k, without in ((1, None), (3, 0), (12, [sentences - 1, 0]), (len(ours), [0]), (3, []), (10**6, None)):
        scores, ids = ours.search(queries, k, without)
        their_scores, their_ids = theirs.search(queries, k, without)
        np.testing.assert_array_equal(their_ids, ids)
        np.testing.assert_allclose(their_scores[ids >= 0], scores[ids >= 0], rtol=1e-5, atol=1e-6)
    for unit in (0, len(ours) // 2, len(ours) - 1):
        assert theirs.hit(unit, 0.5) == ours.hit(unit, 0.5)
        number = int(ours.spans(np.array([unit]))[0, 0])
        assert theirs.units_of(number) == ours.units_of(number)
    assert theirs.texts(units) == ours.texts(units)
    return True


class Textless:
    """Units without vectors."""

    unit, block, dimension, settings = "passage", 10, 0, {"encoder": "none", "fingerprint": "none"}

    def units(self, texts: list[str], kind: str) -> tuple[Any, Any]:
        spans = np.array([(n, 0, len(t)) for n, t in enumerate(texts)], np.int32)
        return np.zeros((len(texts), 0), np.float32), spans


def same_hints(tmp_path: Path, prefix: str, e5: Encoder, parallel: dict[str, list[Sentence]]) -> None:
    """Assert that retrievers show the same hints from a folder and from an engine, also when both have grown."""
    for name in ("sentence", "memory", "hybrid"):
        places = (tmp_path / name, Path(f"{prefix}{tmp_path / name}.copy"))
        build_for(name, places[0], parallel["en"][:9], e5, "en", show=False)
        copy_index(*places)
        hints = []
        for folder in places:
            build_for(name, folder, parallel["en"][9:], e5, "en", show=False, without=[])
            retriever = open_retriever(name, folder, e5, source_language="de", target_language="en")
            hints.append(retriever.retrieve(parallel["de"]))
        for ours, theirs in zip(*hints, strict=True):
            assert [(h.source_span, h.hit.sentence) for h in ours] == [(h.source_span, h.hit.sentence) for h in theirs]
            np.testing.assert_allclose([h.hit.score for h in ours], [h.hit.score for h in theirs], atol=1e-5)


def refuses(index: Path, copy: Path, tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Assert that what no engine can do is refused in a sentence; `copy` is a copy of the folder `index`."""
    name, kind = str(name_of(copy)), kind_of(copy)
    assert kind is not None
    with pytest.raises(UserError, match="exists already: give another place, or --replace"):
        copy_index(index, copy)
    with pytest.raises(UserError, match="is the folder of another index"):
        copy_index(index, Path(f"{name}:{index}"))
    with pytest.raises(UserError, match="is no place in LanceDB or Qdrant: expected lance:FOLDER"):
        copy_index(index, tmp_path / "plain")
    with pytest.raises(UserError, match=f"does not exist: copy one there with `rag-mt index copy DIR {name}:"):
        read_manifest(Path(f"{name}:{tmp_path}/none"))
    assert not (tmp_path / "none").exists()
    with pytest.raises(UserError, match=f"not built in {kind.title}: build it in a folder"):
        build(Path(f"{name}:{tmp_path}/new"), fake(), OLD)
    with pytest.raises(UserError, match=f"is in {kind.title}, which stores vectors in its own way"):
        compress_index(copy, 8, False, None)
    with pytest.raises(UserError, match="give the folder that it is a copy of"):
        map_sentences(copy)
    assert main(["adapt", str(copy), "--src", "de"]) == 2
    with pytest.raises(UserError, match="other settings"):
        open_index(copy, {"encoder": "another", "fingerprint": "x"})
    with pytest.raises(UserError, match="by now: open it again"):
        build(copy, fake(), NEW, without=[], language="de")
    with pytest.raises(UserError, match=f"nothing to index for {copy}:"):
        build(copy, fake(), (), without=[f"f'{n}.txt" for n in range(3)])
    assert same(index, copy)
    build_index(tmp_path / "t", OLD, Textless(), retriever="bm25", language="en", show=False, terms=TERMS)
    with pytest.raises(UserError, match=f"without vectors, which are what {kind.title} searches"):
        copy_index(tmp_path / "t", Path(f"{name}:{tmp_path}/t.copy"))
    monkeypatch.setitem(sys.modules, kind.package, None)
    with pytest.raises(UserError, match=rf"not installed .*: pip install 'rag-mt\[{name}\]'"):
        read_manifest(copy)
