"""Shared set-up: no hub, and the embedded models loaded once for the whole run."""

from __future__ import annotations

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when the hub client is imported, which transformers does
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Workers of `pytest -n` share the cores; read when torch is imported, here and in the programs that tests start. Not
# set in the process that starts the workers, which would inherit it: more threads than cores are ten times as slow.
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    workers = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))

from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from rag_mt.base.defaults import INT8
from rag_mt.base.files import SAMPLE_CORPUS

# A loaded machine draws slowly: that says nothing about the code.
settings.register_profile("rag_mt", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rag_mt")

if find_spec("playwright") is None:  # `make test` installs no browser; `make test-browser` does
    collect_ignore = ["browser"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The commands of the manual first: they take minutes, for which no worker shall wait at the end."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


def pytest_collection_finish() -> None:
    """Half a million objects have been imported that stay: looking through them for what can be freed, again and again,
    took a fifth of the time of some files. Later objects are looked through less often than Python does by itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, *gc.get_threshold()[1:])


@pytest.fixture(scope="session", autouse=True)
def encoders_loaded_once() -> Iterator[None]:
    """What comes with rag_mt is loaded once for the tests of a worker that follow each other, but for what is changed
    after it was loaded."""
    from finetune.adapt import request
    from rag_mt.translation import index
    from retrievers import registry

    load = registry.encoder_for
    shared = lru_cache(4)(load)

    def opened(
        retriever: str, name: str | None = None, device: str = "auto", dtype: str = "auto"
    ) -> registry.ModelEncoder:
        of_a_test = dtype == INT8 or (name is not None and Path(name).exists())
        return (load if of_a_test else shared)(retriever, name, device, dtype)

    with pytest.MonkeyPatch.context() as patch:
        for module in (registry, index, request):
            patch.setattr(module, "encoder_for", opened)
        yield


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT of three layers and a tokenizer of 4,000 pieces, of the kind and with the special
    tokens of XLM-R's."""
    folder = tmp_path_factory.mktemp("tiny") / "bert"
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(
        vocab_size=4000, special_tokens=special, unk_token="<unk>", show_progress=False, n_sub_iterations=1
    )
    tokenizer.train_from_iterator((path.read_text(encoding="utf-8") for path in SAMPLE_CORPUS.glob("*.txt")), trainer)
    ends = [(token, special.index(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    names = dict(zip(("bos_token", "pad_token", "eos_token", "unk_token", "mask_token"), special, strict=True))
    more = {"cls_token": "<s>", "sep_token": "</s>", "model_max_length": 64}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names, **more)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=66,
        pad_token_id=1,
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def quick_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random BERT of two layers and a tokenizer of bytes, which opens in no time."""
    folder = tmp_path_factory.mktemp("quick") / "bert"
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<pad>", "<s>", "</s>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([], trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet))
    ends = [(token, special.index(token)) for token in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(fast),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=130,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder
