"""Shards that other machines make, which here are this process: the index is that of one machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.cluster import Cluster
from rag_mt.base.errors import UserError
from rag_mt.base.files import EXAMPLES
from rag_mt.base.types import Sentence
from rag_mt.cli import mine
from rag_mt.cli.main import main
from rag_mt.translation.index import Index
from retrievers.encoders.encoder import NoEncoder
from retrievers.index import far
from retrievers.index.build import build_index
from retrievers.units.unit import SentenceUnits

TEXTS = [f"Sentence {n} of the text." for n in range(3000)]


@dataclass(frozen=True)
class Backwards(Cluster):
    """Does all jobs in this process, the last one first."""

    address: str = "here"

    def spread(self, task: Callable[..., Any], jobs: Iterable[Any]) -> Iterator[Any]:
        for key, arguments in reversed(list(jobs)):
            yield key, task(*arguments)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_an_index_of_a_cluster_is_that_of_one_machine(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"texts": TEXTS, "language": "en", "retriever": "bm25", "split": False}
    Index.build(tmp_path / "one", **settings)
    Index.build(tmp_path / "many", cluster=Backwards(), shard=512, **settings)
    assert contents(tmp_path / "many") == contents(tmp_path / "one")


def test_both_sides_of_mined_text_may_be_encoded_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["mine", *(str(EXAMPLES / f"travel.{code}.txt") for code in ("fi", "en")), "--src", "fi", "--tgt", "en"]
    command += ["--threshold", "0", "--quiet", "--dtype", "float32", "-o"]
    assert main([*command, str(tmp_path / "here.tsv")]) == 0
    asked: list[str] = []

    class There(Backwards):
        def everywhere(self, *arguments: Any) -> tuple[Any, ...]:
            asked.append(arguments[-1])
            return arguments

    monkeypatch.setattr(mine, "cluster_of", lambda options: There())
    assert main([*command, str(tmp_path / "there.tsv")]) == 0
    assert asked == ["float32"] * 2
    assert (tmp_path / "there.tsv").read_bytes() == (tmp_path / "here.tsv").read_bytes()


def test_what_arrives_damaged_is_not_taken(tmp_path: Path, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = SentenceUnits(fake())
    monkeypatch.setattr(far, "opened", lambda opener, arguments: maker)
    made = far.shard_files

    def damaged(*arguments: Any) -> far.Files:
        files = made(*arguments)
        files["vectors.f16"][3] ^= 1
        return files

    monkeypatch.setattr(far, "shard_files", damaged)
    writer = far.far_writer(Backwards(), NoEncoder, (), maker.settings)  # type: ignore[arg-type]
    sentences = [Sentence(text, "en") for text in TEXTS[:10]]
    with pytest.raises(UserError, match="shard-000000 did not arrive as it was sent: give the same command again"):
        build_index(tmp_path / "i", sentences, maker, retriever="x", language="en", writer=writer, show=False)
    assert not (tmp_path / "i").exists()


def test_a_machine_with_another_encoder_is_refused(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "opened", lambda opener, arguments: SentenceUnits(fake("f2")))
    with pytest.raises(UserError, match=r"another version or encoder \(fingerprint: f1, now f2.*\): give all"):
        far.shard_files(NoEncoder, (), SentenceUnits(fake()).settings, [])  # type: ignore[arg-type]
