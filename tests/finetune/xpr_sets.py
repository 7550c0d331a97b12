"""Phrase sets of invented languages, every word an English one spelled backwards; and an encoder that is read once."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from rag_mt.models.adapters import merge_adapter
from rag_mt.models.loading import LoadedEncoder, choose_dtype, load_encoder
from retrievers.xpr.examples import ExampleSet, Side, sentence_table, write_examples
from tests.finetune.conftest import WORDS


def phrase_set(folder: Path, name: str, pairs: int = 40, seed: int = 3) -> ExampleSet:
    """A set with `pairs` pairs, three of five to train on, one known pair and two other candidates a side."""
    rng = random.Random(seed)
    phrases = rng.sample([f"{a} {b}" for a in WORDS for b in WORDS if a != b], pairs + 2)
    sides = []
    for backwards, language in ((True, name.split("-")[0]), (False, "en")):
        texts: list[str] = []
        examples = []
        for number, phrase in enumerate(phrases):
            said = phrase[::-1] if backwards else phrase
            for _ in range(rng.randint(1, 6)):
                before, after = (" ".join(rng.choices(WORDS, k=rng.randint(1, 4))) for _ in range(2))
                examples.append((number, len(texts), len(before) + 1, len(before) + 1 + len(said)))
                texts.append(f"{before} {said} {after}")
        own = tuple(p[::-1] if backwards else p for p in phrases)
        sides.append(Side(language, own, sentence_table(texts), np.array(examples, np.int32)))
    splits = [0] * (3 * pairs // 5) + [1] * (pairs // 5) + [2] * (pairs - 3 * pairs // 5 - pairs // 5)
    rows = np.array([(n, n, split) for n, split in enumerate(splits)] + [(0, pairs, 3)], np.int32)
    facts = {"files": {"by hand": str(seed)}, "statistics": {}}
    return write_examples(folder / name, name, (sides[0], sides[1]), rows, facts)


def loader_of(loaded: LoadedEncoder) -> Callable[..., LoadedEncoder]:
    """A stand-in for `load_encoder` that copies an encoder instead of reading its files again, tokenizer and all."""

    def load(name: str, device: str = "auto", dtype: str = "auto", adapter: str | None = None) -> LoadedEncoder:
        if name != loaded.name:
            return load_encoder(name, device, dtype, adapter)
        model = copy.deepcopy(loaded.model)
        model = merge_adapter(model, name, adapter).eval() if adapter else model
        return replace(loaded, model=model, dtype=choose_dtype(dtype, loaded.device))

    return load
