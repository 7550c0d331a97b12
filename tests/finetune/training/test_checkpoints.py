"""Checkpoints are read by the version and with the settings that wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from finetune.training import trainer
from finetune.training.trainer import load_checkpoint, save_checkpoint
from rag_mt.base.errors import UserError


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    assert load_checkpoint(tmp_path, "key") is None
    save_checkpoint(tmp_path, "key", {"weight": torch.arange(6).reshape(2, 3).T}, {"step": 3})
    loaded = load_checkpoint(tmp_path, "key")
    assert loaded is not None
    assert torch.equal(loaded[0]["weight"], torch.arange(6).reshape(2, 3).T) and loaded[1] == {"step": 3}


def test_other_settings_and_versions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, "key", {}, {})
    with pytest.raises(UserError, match="other settings or data"):
        load_checkpoint(tmp_path, "other")
    monkeypatch.setattr(trainer, "FORMAT", "1")
    with pytest.raises(UserError, match="another version of rag_mt: remove it to start again"):
        load_checkpoint(tmp_path, "key")
