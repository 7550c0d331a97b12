"""Phrase pairs of two invented language pairs, and tiny random language models."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, PreTrainedTokenizerFast

import rag_mt
from finetune.lora.examples import Example, Pair
from finetune.mdpr.relevance import Example as Question
from finetune.mdpr.relevance import Passage
from finetune.mdpr.relevance import write_examples as write_questions
from prompts.wording import template
from rag_mt.base.types import Hint, Hit, Sentence, Span
from rag_mt.text.words import word_spans

WORDS = [
    "stone",
    "river",
    "mountain",
    "garden",
    "window",
    "doctor",
    "market",
    "winter",
    "letter",
    "bridge",
    "teacher",
    "island",
    "kitchen",
    "summer",
    "engine",
    "forest",
    "village",
    "ticket",
    "captain",
    "weather",
    "shoulder",
    "question",
    "minister",
    "hospital",
]


def sentence_pair(rng: random.Random) -> tuple[str, str, list[int]]:
    """A source sentence of spelled-backwards words, its target in the same order, and all spans of one or two words."""
    target = rng.sample(WORDS, rng.randint(3, 7))
    source = [word[::-1] for word in target]
    spans: list[int] = []
    for size in (1, 2):
        for first in range(len(target) - size + 1):
            for words in (source, target):
                start = len(" ".join(words[:first])) + (first > 0)
                spans += [start, start + len(" ".join(words[first : first + size]))]
    return " ".join(source), " ".join(target), spans


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Phrase pairs of two language pairs in two domains, as `eval.data.phrase_pairs` writes them."""
    folder = tmp_path_factory.mktemp("pairs")
    rng = random.Random(5)
    for name in ("xa-en", "xb-en"):
        rows = [sentence_pair(rng) for _ in range(60)]
        columns = {
            "line": pa.array(range(1, 61), pa.int32()),
            "domain": ["news", "ui"] * 30,
            "source": [row[0] for row in rows],
            "target": [row[1] for row in rows],
            "spans": pa.array([row[2] for row in rows], pa.list_(pa.int32())),
        }
        table = pa.table(columns)
        (folder / name).mkdir()
        for number, part in enumerate((table.slice(0, 40), table.slice(40))):
            with pa.ipc.new_file(str(folder / name / f"pairs-{number:05}.arrow"), part.schema) as file:
                file.write_table(part)
        (folder / name / "manifest.json").write_text('{"aligner": "by hand"}')
        (folder / name / "frequent.json").write_text(json.dumps({name.split("-")[0]: [], "en": ["stone"]}))
        dev = []
        for line in range(1, 31):
            source, target, _ = sentence_pair(rng)
            links = [[n, n] for n in range(len(source.split()))]
            dev.append(json.dumps({"line": line, "source": source, "target": target, "links": links}))
        (folder / f"{name}.dev.jsonl").write_text("\n".join(dev) + "\n")
    return folder


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Questions that are two words of their passage, and sentence pairs of words spelled backwards."""
    folder = tmp_path_factory.mktemp("prepared")
    rng = random.Random(3)
    for name in ("relevance", "dev", "pairs", "texts"):
        (folder / name).mkdir()
    passages = [Passage(str(n), " ".join(rng.sample(WORDS, 6)), "") for n in range(30)]

    def example(n: int) -> Question:
        query = " ".join(rng.sample(passages[n].text.split(), 2))
        return Question(f"q{n}", query, (passages[n],), (passages[(n + 1) % 30], passages[(n + 2) % 30]))

    write_questions(folder / "relevance" / "own.jsonl", [example(n) for n in range(20)])
    write_questions(folder / "dev" / "en.jsonl", [example(n) for n in range(20, 30)])
    backwards = [
        Question(f"q{n}", passages[n].text[::-1][:11], (Passage(str(n), passages[n].text[::-1]),), (), "xa")
        for n in range(20, 30)
    ]
    write_questions(folder / "dev" / "xa.jsonl", backwards)
    (folder / "dev" / "en.passages.jsonl").write_text('{"docid": "99", "text": "stone river"}\n')
    for name in ("xa-en", "xb-en"):
        rows = [" ".join(rng.sample(WORDS, 5)) for _ in range(25)]
        (folder / "pairs" / f"{name}.tsv").write_text("".join(f"{row[::-1]}\t{row}\n" for row in rows))
    (folder / "texts" / "xc.txt").write_text("".join(" ".join(rng.sample(WORDS, 5)).upper() + "\n" for _ in range(9)))
    return folder


SPECIAL = ["<pad>", "<s>", "</s>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] | trim }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 1024,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS: dict[str, Callable[..., Any]] = {
    "llama": lambda **sizes: LlamaConfig(num_hidden_layers=2, tie_word_embeddings=False, **sizes),
    "gemma3": lambda **sizes: Gemma3TextConfig(
        num_hidden_layers=2,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention"],
        final_logit_softcapping=12.0,
        query_pre_attn_scalar=8,
        **sizes,
    ),
}


def trained_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows the prompts' wording: any text, and few tokens for a prompt."""
    corpus = Path(rag_mt.__file__).parent / "sample_corpus"
    texts = [template(name) for name in ("alpaca", "task.plain", "task.phrase", "task.sentence")]
    texts = 20 * texts + [(corpus / f"{code}.txt").read_text(encoding="utf-8") for code in ("de", "en")]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=SPECIAL, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|user|>", "<|assistant|>"],
    )


@pytest.fixture(scope="session")
def tiny_llm(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Makes (once each) the folder of a tiny random `llama` or `gemma3` (with a logit cap), for chats or not."""
    made: dict[tuple[str, bool], Path] = {}
    tokenizer = trained_tokenizer()

    def make(family: str = "llama", chat: bool = False) -> Path:
        if (family, chat) not in made:
            folder = made[family, chat] = tmp_path_factory.mktemp(family)
            torch.manual_seed(7)
            config = MODELS[family](vocab_size=len(tokenizer), **SIZES)
            AutoModelForCausalLM.from_config(config).save_pretrained(folder)
            tokenizer.chat_template = TEMPLATE if chat else None
            tokenizer.save_pretrained(folder)
        return made[family, chat]

    return make


def sample_lines(code: str) -> list[str]:
    """The sample corpus in one language."""
    return (Path(rag_mt.__file__).parent / "sample_corpus" / f"{code}.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def examples() -> Callable[..., list[Example]]:
    """Makes so many short German-English examples, those of unit phrase with up to three hints from other sentences."""
    rows = sorted(zip(sample_lines("de"), sample_lines("en"), strict=True), key=lambda row: (len(row[0]), row))

    def make(count: int, unit: str = "phrase") -> list[Example]:
        made = []
        for number, (source, target) in enumerate(rows[:count]):
            other = rows[number + 1][1]
            words = word_spans(source)[: number % 4].tolist()
            spans = [Span(*span) for span in word_spans(other)[:4].tolist()]
            hits = [Hit(Sentence(other, "en"), span, 0.9) for span in spans]
            hints = tuple(Hint(Span(*own), hit) for own, hit in zip(words, hits, strict=False))
            if unit == "sentence":
                hints = (Hint(Span(0, len(source)), Hit(Sentence(other, "en"), Span(0, len(other)), 0.9)),)
            made.append(Example(Pair("de", "en", source, target), unit, hints))
        return made

    return make
