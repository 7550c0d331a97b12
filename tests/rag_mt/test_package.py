"""The names of the package, which load nothing before they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

import rag_mt


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = "import rag_mt, sys; print(*sorted({'torch', 'transformers', 'numpy', 'faiss'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_name_is_there_and_no_other() -> None:
    for name in rag_mt.__all__:
        assert getattr(rag_mt, name) is not None and name in dir(rag_mt)
    assert rag_mt._HOMES.keys() | {"__version__"} == set(rag_mt.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = rag_mt.Translater  # type: ignore[attr-defined]
