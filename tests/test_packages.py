"""The two wheels hold every file of the tree that code reads, each in one of them, and say which version they are."""

from __future__ import annotations

import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

import rag_mt
from rag_mt.models.weights import shipped_models, tell_if_left_out

ROOT = Path(__file__).parents[1]
GEMMA = "gemma-3-270m"


def setuptools_of(folder: str) -> dict[str, Any]:
    """What a project says to setuptools."""
    project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))
    settings: dict[str, Any] = project["tool"]["setuptools"]
    return settings


def matched(globs: dict[str, list[str]]) -> set[str]:
    """The files of the tree that belong to packages by such globs."""
    files = chain(*((ROOT / package.replace(".", "/")).glob(glob) for package in globs for glob in globs[package]))
    return {path.relative_to(ROOT).as_posix() for path in files if path.is_file()}


MAIN, ADAPTERS = setuptools_of("."), setuptools_of("packaging/gemma")
ROOMS = [pattern.removesuffix("*") for pattern in MAIN["packages"]["find"]["include"]]
"""The top packages."""


def test_every_file_of_the_packages_is_in_one_wheel() -> None:
    code = matched({room: ["**/*.py"] for room in ROOMS})
    for file in code:
        assert (ROOT / file).with_name("__init__.py").is_file(), f"{file} is in no package, which setuptools leaves out"
    first = code | (matched(MAIN["package-data"]) - matched(MAIN["exclude-package-data"]))
    second = matched(ADAPTERS["package-data"])
    files = {file for file in matched({room: ["**/*"] for room in ROOMS}) if "/__pycache__/" not in file}
    assert not first & second
    assert first | second == files
    assert second == {
        f"rag_mt/models/weights/{name}/{f}" for name in gemma_models() for f in shipped_models()[name].sha256
    }


def gemma_models() -> list[str]:
    """The adapters of the second wheel, by the table of weights."""
    return [name for name in shipped_models() if name.startswith(GEMMA)]


def test_one_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert citation["version"] == rag_mt.__version__
    assert f"\n## [{rag_mt.__version__}] " in changes
    assert changes.count("\n## [") == 1 or changes.index(f"## [{rag_mt.__version__}]") == changes.index("## [")
    assert MAIN["dynamic"]["version"] == ADAPTERS["dynamic"]["version"] == {"attr": "rag_mt.__version__"}


def test_whoever_lacks_the_adapters_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tell_if_left_out.cache_clear()
    tell_if_left_out("embedded:gemma-3-270m")
    assert not caplog.text
    tell_if_left_out.cache_clear()
    monkeypatch.setattr("rag_mt.models.weights.FOLDER", tmp_path)
    for base in ("embedded:gemma-3-270m", "embedded:gemma-3-270m", "embedded:smollm2-135m"):
        tell_if_left_out(base)
    tell_if_left_out.cache_clear()
    assert caplog.text.count("rag_mt_gemma") == 1 and "untuned" in caplog.text
