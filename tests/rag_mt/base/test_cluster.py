"""Work on a Ray cluster: the results of one process, in whatever order and whoever is lost meanwhile."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray
from ray.cluster_utils import Cluster as Machines

from rag_mt.base.cluster import Cluster, cluster_of
from rag_mt.base.console import add_cluster_options, add_model_options
from rag_mt.base.errors import UserError
from rag_mt.base.types import Origin, Sentence
from retrievers.index.build import build_index
from retrievers.index.far import far_writer
from retrievers.index.manifest import Manifest
from retrievers.index.unfinished import SHARDS
from retrievers.units.unit import UnitMaker
from tests.waiting import until_while_running

ROOT = Path(__file__).parents[3]
CORPUS = [Sentence(f"sentence {n} of {n % 7}", "en", Origin("c.txt", n + 1)) for n in range(120)]
SLOW = 0.15
"""Seconds of a shard where somebody is killed meanwhile."""


class Numbers:
    """Units (a UnitMaker) with vectors that the text gives, each portion of which takes some time."""

    unit, dimension, block = "sentence", 8, 10

    def __init__(self, seconds: float = 0.0, fingerprint: str = "f") -> None:
        self.seconds, self.settings = seconds, {"encoder": "numbers", "fingerprint": fingerprint}

    def units(self, texts: Any, kind: str) -> Any:
        import numpy as np

        if not texts[0]:
            raise UserError("a text is empty: give another one")
        time.sleep(self.seconds)
        spans = np.array([(n, 0, len(text)) for n, text in enumerate(texts)], dtype=np.int32)
        vectors = [np.random.default_rng(list(text.encode())).normal(size=8) for text in texts]
        return np.array(vectors, dtype=np.float32), spans


def opened(seconds: float, fingerprint: str = "f") -> UnitMaker:
    return Numbers(seconds, fingerprint)  # type: ignore[return-value]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def build(folder: Path, cluster: Cluster | None = None, seconds: float = 0.0, advance: Any = None) -> Manifest:
    maker = opened(seconds)
    writer = far_writer(cluster, opened, (seconds,), maker.settings) if cluster else None
    options: dict[str, Any] = {"advance": advance} if advance else {}
    options |= {"writer": writer, "shard": 10, "show": False}
    return build_index(folder, CORPUS, maker, retriever="x", language="en", **options)


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    """Three machines with a core each, on this one; the first has the cluster's records."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, *sys.path)))
    started = Machines(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        started.add_node(num_cpus=1)
    yield started
    ray.shutdown()
    started.shutdown()
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "index"
    build(folder)
    return contents(folder)


@pytest.mark.slow
def test_the_machines_make_what_one_process_makes(machines: Machines, whole: dict[str, bytes], tmp_path: Path) -> None:
    told: list[int] = []
    build(tmp_path / "index", Cluster(machines.address), advance=told.append)
    assert contents(tmp_path / "index") == whole and told == [10] * 12
    assert not ray.is_initialized()


def test_a_mistake_there_is_told_here(machines: Machines, tmp_path: Path) -> None:
    cluster = Cluster(machines.address)
    with pytest.raises(UserError, match=r"a machine of the Ray cluster failed \(Expecting .*\): give all of them"):
        list(cluster.spread(json.loads, [("key", ("{",))]))
    maker = opened(0.0, "other")
    writer = far_writer(cluster, opened, (0.0,), maker.settings)
    with pytest.raises(UserError, match=r"another version or encoder \(fingerprint: other, now f\)"):
        build_index(tmp_path / "i", CORPUS, maker, retriever="x", language="en", writer=writer, show=False)
    with pytest.raises(UserError, match=r"none of 3 machines of the Ray cluster at .* has 2 cores: give fewer"):
        list(Cluster(machines.address, threads=2).spread(opened, [("key", (0.0,))]))  # all have three together


def test_where_no_cluster_is_the_next_command_is_named() -> None:
    with pytest.raises(UserError, match=r"no Ray cluster answers at 127.0.0.1:1 .*`ray start --head`"):
        list(Cluster("127.0.0.1:1").spread(opened, []))


def test_arguments_mean_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    assert Cluster("1.2.3.4:5").everywhere("de", None, "cuda:1", str(tmp_path)) == ("de", None, "cuda", str(tmp_path))
    assert Cluster("local").everywhere("model") == ("model",)
    with pytest.raises(UserError, match="folder model means another one on other machines: give its full path"):
        Cluster("1.2.3.4:5").everywhere("model")


def test_the_options_of_commands_make_a_cluster() -> None:
    parser = argparse.ArgumentParser()
    add_cluster_options(parser)
    add_model_options(parser)
    assert cluster_of(parser.parse_args([])) is None
    asked = parser.parse_args(["--ray", "auto", "--workers", "3", "--threads", "2", "--device", "cpu"])
    assert cluster_of(asked) == Cluster("auto", 3, 2, gpu=False)
    with pytest.raises(UserError, match="give --ray, or leave them out"):
        cluster_of(parser.parse_args(["--workers", "3"]))


def killing(kill: Callable[[], None]) -> Callable[[int], None]:
    """Told of finished sentences, kills once after the third shard."""
    told: list[int] = []

    def advance(sentences: int) -> None:
        told.append(sentences)
        if len(told) == 3:
            kill()

    return advance


@pytest.mark.slow
def test_a_worker_that_is_killed_is_made_up_for(machines: Machines, whole: dict[str, bytes], tmp_path: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        for process in psutil.process_iter(["cmdline"]):
            if "ray::shard_files" in " ".join(process.info["cmdline"] or ()):
                os.kill(process.pid, signal.SIGKILL)
                killed.append(process.pid)

    build(tmp_path / "index", Cluster(machines.address), SLOW, killing(kill))
    assert killed and contents(tmp_path / "index") == whole


@pytest.mark.slow
def test_a_machine_that_is_lost_is_made_up_for(machines: Machines, whole: dict[str, bytes], tmp_path: Path) -> None:
    lost = machines.add_node(num_cpus=1)
    machines.wait_for_nodes()
    build(
        tmp_path / "index",
        Cluster(machines.address),
        SLOW,
        killing(lambda: machines.remove_node(lost, allow_graceful=False)),
    )
    assert contents(tmp_path / "index") == whole


@pytest.mark.slow
def test_a_driver_that_is_killed_goes_on(machines: Machines, whole: dict[str, bytes], tmp_path: Path) -> None:
    command = [sys.executable, "-m", __name__, machines.address, str(tmp_path / "index")]
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        until_while_running(process, lambda: len(list((tmp_path / "index.building").glob(SHARDS))) >= 3, 120)
    finally:
        process.kill()
        process.wait()
    there = len(list((tmp_path / "index.building").glob(SHARDS)))
    assert 3 <= there < 12
    manifest = build(tmp_path / "index", Cluster(machines.address), SLOW)
    assert manifest.resumed >= 10 * there and contents(tmp_path / "index") == whole


if __name__ == "__main__":
    from tests.rag_mt.base import test_cluster

    test_cluster.build(Path(sys.argv[2]), Cluster(sys.argv[1]), 0.5)
