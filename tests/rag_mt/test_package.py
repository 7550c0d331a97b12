"""The names of the package, which load nothing before they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rag_mt


def _loaded(modules: str, heavy: set[str]) -> set[str]:
    """Which of the heavy packages a new interpreter loads with modules."""
    code = f"import {modules}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return heavy & set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not _loaded("rag_mt", {"torch", "transformers", "numpy", "faiss"})


def test_commands_start_without_the_engines() -> None:
    commands = "rag_mt.cli.main, rag_mt.cli.index, rag_mt.cli.translate"
    assert not _loaded(commands, {"qdrant_client", "grpc", "lancedb", "faiss", "torch"})
    assert not _loaded("rag_mt.translation.index", {"qdrant_client"})


def test_index_files_are_looked_at_with_faiss_alone() -> None:
    heavy = {"torch", "transformers", "scipy", "faiss"}
    assert _loaded("rag_mt.translation.index_files", heavy) == {"faiss"}


def test_every_name_is_there_and_no_other() -> None:
    for name in rag_mt.__all__:
        assert getattr(rag_mt, name) is not None and name in dir(rag_mt)
    assert rag_mt._HOMES.keys() | {"__version__"} == set(rag_mt.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = rag_mt.Translater  # type: ignore[attr-defined]
