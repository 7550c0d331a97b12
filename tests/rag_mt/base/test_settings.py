"""Settings that ship are named, others are files."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.settings import SHIPPED, config_file, folder_of_paths, shipped_configs


def test_a_bare_name_is_one_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wmt16").mkdir()  # a folder of the same name is no settings
    assert config_file("wmt16") == SHIPPED / "wmt16.toml" and config_file("wmt16").is_file()
    assert "lora-embedded" in shipped_configs()
    for path in ("wmt16.toml", "./wmt16", "own/lora-embedded", str(tmp_path / "x.toml")):
        assert config_file(path) == Path(path)


@pytest.mark.parametrize("name", ["wmt17", "", ".."])
def test_names_that_do_not_ship(name: str) -> None:
    with pytest.raises(UserError, match=rf"no settings called '{name}' .*, lora-embedded, .*, wmt16, "):
        config_file(name)


def test_paths_start_from_the_file_or_from_the_current_folder_for_what_ships(tmp_path: Path) -> None:
    assert folder_of_paths(config_file("wmt16")) == Path()
    assert folder_of_paths(tmp_path / "wmt16.toml") == tmp_path
