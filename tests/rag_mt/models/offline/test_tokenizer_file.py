"""Tokenizer files that load quickly: no text is tokenized otherwise, and only what never happens is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE, WordLevel

from rag_mt.models.loading import resolve_model
from rag_mt.models.offline.tokenizer_file import happening, make_quick

VOCABULARY = {token: i for i, token in enumerate(("a", "b", "c", "ab", "bc", "abc", "aa", "aaa", "cab", "bca"))}
MERGES = [
    ("a", "b"),
    ("a", "a"),
    ("b", "c"),
    ("ab", "c"),
    ("a", "bc"),
    ("aa", "a"),
    ("a", "aa"),
    ("c", "ab"),
    ("bc", "a"),
]


def test_a_merge_that_another_forestalls_is_left_out() -> None:
    # "abc" is always made of "ab", which is merged before "bc", and "aaa" of the first two a's.
    assert happening(MERGES, VOCABULARY) == [pair for pair in MERGES if pair not in [("a", "bc"), ("a", "aa")]]


@given(st.text("abcx ", max_size=30))
def test_no_text_is_tokenized_otherwise(text: str) -> None:
    vocabulary = {**VOCABULARY, "<unk>": len(VOCABULARY)}
    before = Tokenizer(BPE(vocab=vocabulary, merges=MERGES, unk_token="<unk>"))
    after = Tokenizer(BPE(vocab=vocabulary, merges=happening(MERGES, VOCABULARY), unk_token="<unk>"))
    assert before.encode(text).tokens == after.encode(text).tokens


def saved(tokenizer: Tokenizer, file: Path) -> Tokenizer:
    tokenizer.save(str(file))
    make_quick(file)
    return Tokenizer.from_file(str(file))


@pytest.mark.parametrize("blank", [False, True])
def test_a_file_is_written_smaller_and_means_the_same(tmp_path: Path, blank: bool) -> None:
    tokenizer = Tokenizer(
        BPE(vocab={**VOCABULARY, " ": 10, " a": 11}, merges=[*MERGES, *([(" ", "a")] if blank else [])])
    )
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Punctuation(), decoders.Fuse()
    tokenizer.add_special_tokens(["<end>"])
    quick = saved(tokenizer, tmp_path / "tokenizer.json")
    text = "abcabca,aaaa aab<end>cab"
    assert quick.encode(text).ids == tokenizer.encode(text).ids
    assert quick.get_vocab() == tokenizer.get_vocab()
    merges = json.loads((tmp_path / "tokenizer.json").read_text("utf-8"))["model"]["merges"]
    assert len(merges) == len(MERGES) - 2 + blank and ("a b" in merges) is not blank


def test_tokenizers_without_merges_stay(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    assert saved(tokenizer, tmp_path / "tokenizer.json").to_str() == tokenizer.to_str()


def test_an_embedded_model_still_has_all_tokens_that_merging_gives() -> None:
    model = json.loads((resolve_model("embedded:smollm2-135m") / "tokenizer.json").read_text("utf-8"))["model"]
    made = {merge.replace(" ", "") for merge in model["merges"]}
    assert len(model["merges"]) == len(made) > 10_000  # no token can be made in two ways
