"""A tiny random language model, tiny indexes, and a data folder of a made-up language: all that a run needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from rag_mt.base.types import Origin, Sentence
from retrievers.registry import build_for, encoder_for

SPECIAL = ["<pad>", "<s>", "</s>"]
LETTERS = "abcdefghijklmnopqrstuvwxyz .,#:\n"
ENGLISH = [
    "the old bridge stands in the small village",
    "a doctor came to the market in winter",
    "the teacher reads a long letter",
    "snow fell on the mountain and the river",
    "the minister asks a question",
    "we open the window of the kitchen",
    "the captain sees an island",
    "the garden is green in summer",
    "the forest is dark",
    "a ticket for the hospital tour",
    "the engine is too loud for the night",
    "my shoulder hurts",
]


def spelled_backwards(text: str) -> str:
    """The made-up language, called German here: every English word from its end to its beginning."""
    return " ".join(word[::-1] for word in text.split())


@pytest.fixture(scope="session")
def random_llm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random Llama whose tokens are characters and whose window takes a long prompt."""
    folder = tmp_path_factory.mktemp("llm") / "tiny-llama"
    vocabulary = {token: n for n, token in enumerate([*SPECIAL, *LETTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="#"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    torch.manual_seed(11)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=4096,
        initializer_range=0.6,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def parallel_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`test/de-en.tsv` and `dev/de-en.tsv` of the made-up language."""
    folder = tmp_path_factory.mktemp("data")
    for name in ("test", "dev"):
        (folder / name).mkdir()
        rows = [f"{text}\t{spelled_backwards(text)}\n" for text in ENGLISH]
        (folder / name / "de-en.tsv").write_text("".join(rows))
    return folder


def _index(folder: Path, retriever: str, encoder: Path, texts: Sequence[str]) -> Path:
    sentences = [Sentence(text, "en", Origin("news.txt", n)) for n, text in enumerate(texts, 1)]
    build_for(retriever, folder, sentences, encoder_for(retriever, str(encoder)), "en", show=False)
    return folder


@pytest.fixture(scope="session")
def systems_file(tmp_path_factory: pytest.TempPathFactory, random_llm: Path, tiny_encoder: Path) -> Path:
    """A TOML file of systems over the tiny models, beside the indexes that it names."""
    folder = tmp_path_factory.mktemp("systems")
    _index(folder / "phrases-en", "phrases", tiny_encoder, ENGLISH[::2])
    _index(folder / "sentence-en", "sentence", tiny_encoder, ENGLISH[::2])
    path = folder / "systems.toml"
    path.write_text(
        f"""
[defaults]
llm = "{random_llm}"
wrapper = "alpaca"
max_new_tokens = 12
batch_size = 4

[systems.plain]
retriever = "none"

[systems.sentence]
retriever = "sentence"
index = "sentence-{{tgt}}"

[systems.phrases]
retriever = "phrases"
index = "phrases-{{tgt}}"

[systems.wrong]
retriever = "phrases"
index = "sentence-en"

[systems.strict]
like = "phrases"
cut_off = 2.0

[systems.dropped]
like = "phrases"
hints = "none"

[systems.shuffled]
like = "phrases"
hints = "shuffled"

[systems.oracle]
like = "phrases"
hints = "oracle"
align_encoder = "{tiny_encoder}"
align_layer = 2
""",
        encoding="utf-8",
    )
    return path
