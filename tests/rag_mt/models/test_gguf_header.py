"""The head of a GGUF file is read as the library `gguf` reads it, in no time, and no damaged file does harm."""

from __future__ import annotations

import os
import shutil
import struct
import time
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.models import gguf_header
from rag_mt.models.gguf_header import read_header
from tests.rag_mt.models.gguf_files import tiny_model, write_gguf


def write(path: Path, tokens: list[str], kinds: list[int]) -> Path:
    """A GGUF file with settings of all types, a vocabulary and two tensors."""
    writer = gguf.GGUFWriter(path, "gemma3")
    writer.add_uint8("a.uint8", 200)
    writer.add_int8("a.int8", -3)
    writer.add_uint16("a.uint16", 60_000)
    writer.add_int16("a.int16", -300)
    writer.add_block_count(2)
    writer.add_int32("a.int32", -70_000)
    writer.add_uint64("a.uint64", 1 << 63)
    writer.add_int64("a.int64", -(1 << 40))
    writer.add_float32("a.float32", 0.5)
    writer.add_float64("a.float64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.text", "ža\n")
    writer.add_array("a.list", [1, 2, 3])
    writer.add_array("a.long", list(range(gguf_header.LIST + 1)))
    writer.add_array("a.texts", ["one", "two"])
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types(kinds)
    writer.add_tensor("blk.0.attn_q.weight", np.zeros((6, 4), np.float32))
    writer.add_tensor("output_norm.weight", np.zeros(4, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("gguf") / "small.gguf", ["<bos>", "ä", "<x>", "<eos>"], [3, 1, 4, 3])


def test_settings_shapes_and_control_tokens(small: Path) -> None:
    header = read_header(small)
    assert header.metadata == {
        "general.architecture": "gemma3",
        "a.uint8": 200,
        "a.int8": -3,
        "a.uint16": 60_000,
        "a.int16": -300,
        "gemma3.block_count": 2,
        "a.int32": -70_000,
        "a.uint64": 1 << 63,
        "a.int64": -(1 << 40),
        "a.float32": 0.5,
        "a.float64": 0.1,
        "a.bool": True,
        "a.text": "ža\n",
        "a.list": [1, 2, 3],
        "tokenizer.ggml.scores": [0.0] * 4,
        "tokenizer.ggml.token_type": [3, 1, 4, 3],
    }
    assert header.tensors == {"blk.0.attn_q.weight": (6, 4), "output_norm.weight": (4,)}
    assert header.control_tokens == {"<bos>", "<eos>"}
    assert (header.path, header.architecture, header.number("block_count")) == (small, "gemma3", 2)
    assert header.number("head_count") is None


@pytest.mark.parametrize("architecture", ["gemma3", "llama", "qwen2"])
def test_models_are_read_as_by_the_library(tmp_path: Path, architecture: str) -> None:
    path = write_gguf(tiny_model(architecture), architecture, tmp_path / "model.gguf")
    header, reader = read_header(path), gguf.GGUFReader(path)
    assert header.tensors == {tensor.name: tensor.data.shape for tensor in reader.tensors}
    scalars = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    expected = {name: value for name, value in scalars.items() if not isinstance(value, list)}
    assert expected.items() <= header.metadata.items()
    assert header.metadata.keys() - expected.keys() == {
        "tokenizer.ggml.scores",
        "tokenizer.ggml.token_type",
    }


def test_a_large_vocabulary_takes_no_time(tmp_path: Path) -> None:
    number = 262_144
    path = write(
        tmp_path / "large.gguf", [f"token{i}" for i in range(number)], [1 + 2 * (i < 9) for i in range(number)]
    )
    start = time.process_time()
    assert read_header(path).control_tokens == {f"token{i}" for i in range(9)}
    assert time.process_time() - start < 0.5


def test_every_cut_is_noticed_up_to_the_last_tensor(small: Path, tmp_path: Path) -> None:
    last = gguf.GGUFReader(small).tensors[-1].data_offset
    cut = Path(shutil.copy(small, tmp_path / "cut.gguf"))
    os.truncate(cut, last + 1)
    assert read_header(cut).tensors
    for end in range(last, -1, -1):
        os.truncate(cut, end)
        with pytest.raises(UserError, match=r"cut\.gguf") as caught:
            read_header(cut)
        assert "\n" not in str(caught.value)


@given(st.data())
def test_no_changed_byte_does_harm(small: Path, data: st.DataObject) -> None:
    """A damaged file gives a UserError or a header, quickly."""
    content = bytearray(small.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(4, len(content) - 1))] = data.draw(st.sampled_from([0, 1, 8, 9, 127, 128, 255]))
    path = small.with_name("changed.gguf")
    path.write_bytes(content)
    start = time.process_time()
    try:
        read_header(path)
    except UserError as error:
        assert "changed.gguf" in str(error)
    assert time.process_time() - start < 0.5


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


def head(*entries: bytes, version: int = 3, tensors: int = 0, count: int | None = None) -> bytes:
    number = len(entries) if count is None else count
    return b"GGUF" + struct.pack("<IQQ", version, tensors, number) + b"".join(entries)


HUGE = (1 << 63) + 1
HOSTILE = {
    "nothing": b"",
    "another format": b"PK\x03\x04" * 20,
    "version 1": head(version=1),
    "big-endian": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "countless settings": head(count=HUGE) + bytes(1000),
    "countless tensors": head(tensors=HUGE) + bytes(1000),
    "a text without end": head(entry("a", 8, struct.pack("<Q", HUGE))),
    "a key without end": head(struct.pack("<Q", HUGE)),
    "no UTF-8": head(entry("a", 8, struct.pack("<Q", 2) + b"\xff\xfe")),
    "an unknown type": head(entry("a", 77, bytes(8))),
    "arrays in arrays": head(entry("a", 9, struct.pack("<IQ", 9, HUGE))),
    "countless numbers": head(entry("a", 9, struct.pack("<IQ", 12, HUGE))),
    "countless texts": head(entry("a", 9, struct.pack("<IQ", 8, HUGE)), bytes(1000)),
    "texts that jump away": head(entry("a", 9, struct.pack("<IQQQ", 8, 2, (1 << 64) - 1, 0))),
    "an alignment of zero": head(entry("general.alignment", 4, bytes(4))),
    "an alignment of words": head(entry("general.alignment", 8, struct.pack("<Q", 1) + b"x")),
    "a control token that is none": head(entry("tokenizer.ggml.token_type", 9, struct.pack("<IQi", 5, 1, 3))),
    "too many dimensions": head(tensors=1) + struct.pack("<QcI", 1, b"t", 1 << 30) + bytes(1000),
    "weights elsewhere": head(tensors=1) + struct.pack("<QcIQIQ", 1, b"t", 1, 4, 0, HUGE) + bytes(1000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_at_once(tmp_path: Path, name: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(HOSTILE[name])
    start = time.process_time()
    with pytest.raises(UserError, match=r"model\.gguf"):
        read_header(path)
    assert time.process_time() - start < 1


def test_texts_are_not_stepped_over_for_ever(tmp_path: Path) -> None:
    number = gguf_header.MOST_STRINGS // 2 + 1
    (tmp_path / "model.gguf").write_bytes(head(*[entry("a", 9, struct.pack("<IQ", 8, number)) + bytes(8 * number)] * 2))
    start = time.process_time()
    with pytest.raises(UserError, match="texts"):
        read_header(tmp_path / "model.gguf")
    assert time.process_time() - start < 1


def test_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.gguf"):
        with pytest.raises(UserError, match=r"cannot be read \(.+\): check the path"):
            read_header(path)
