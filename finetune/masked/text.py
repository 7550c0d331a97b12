"""The texts of a masked language model: sentences in an order of their own, and the pieces of words made of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines

log = logging.getLogger("rag_mt")

START, PAD, END, UNKNOWN, MASK = SPECIAL = "<s>", "<pad>", "</s>", "<unk>", "<mask>"


@dataclass(frozen=True)
class Text:
    """The sentences of a file, mixed, without those that are left out of the training to measure with."""

    name: str
    sentences: Sequence[str]
    dev: Sequence[str]


def read_texts(paths: Sequence[Path], dev_sentences: int, seed: int) -> list[Text]:
    """The different sentences of each file, one a line. Raises UserError for a file that holds no more of them than are
    to be left out, and for two files of one name, by which texts are told apart."""
    names = [path.name for path in paths]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"two texts are called {twice}: give files with different names")
    texts: list[Text] = []
    for path in paths:
        skips = Skips()
        lines = (" ".join((line.text or "").split()) for line in read_lines(path, skips))
        sentences = list(dict.fromkeys(filter(None, lines)))
        if summary := skips.summary():
            log.warning("%s: %s", path, summary)
        if len(sentences) <= dev_sentences:
            raise UserError(
                f"{path} has {len(sentences)} different sentences, of which data.dev_sentences = {dev_sentences} are "
                "to be left out: give a longer text, or a smaller number"
            )
        mixed = np.random.default_rng([seed, len(texts)]).permutation(len(sentences)).tolist()
        chosen = [sentences[n] for n in mixed]
        texts.append(Text(path.name, chosen[dev_sentences:], chosen[:dev_sentences]))
    return texts


def shares(texts: Sequence[Text], exponent: float) -> NDArray[np.float64]:
    """How often a sentence of each text is drawn (texts,), of 1."""
    sizes = np.array([len(text.sentences) for text in texts], dtype=np.float64) ** exponent
    drawn: NDArray[np.float64] = sizes / sizes.sum()
    return drawn


def draw(texts: Sequence[Text], weights: NDArray[np.float64], count: int, rng: np.random.Generator) -> list[str]:
    """So many sentences, each of a text by `weights` and of any place in it."""
    owners = rng.choice(len(texts), count, p=weights)
    places = rng.random(count)
    return [
        texts[owner].sentences[int(place * len(texts[owner].sentences))]
        for owner, place in zip(owners.tolist(), places.tolist(), strict=True)
    ]


def make_tokenizer(sentences: Sequence[str], pieces: int) -> Tokenizer:
    """A tokenizer of at most so many pieces of words, as XLM-R has one: the likeliest split (Kudo 2018), a word's
    beginning marked."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=pieces, special_tokens=list(SPECIAL), unk_token=UNKNOWN, show_progress=False
    )
    tokenizer.train_from_iterator(sentences, trainer)
    marks = [(mark, tokenizer.token_to_id(mark)) for mark in (START, END)]
    tokenizer.post_processor = processors.TemplateProcessing(f"{START} $A {END}", special_tokens=marks)
    return tokenizer


def wrapped(tokenizer: Tokenizer, max_tokens: int) -> PreTrainedTokenizerFast:
    """The same as transformers uses and saves it."""
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=START,
        cls_token=START,
        eos_token=END,
        sep_token=END,
        pad_token=PAD,
        unk_token=UNKNOWN,
        mask_token=MASK,
        model_max_length=max_tokens,
    )
