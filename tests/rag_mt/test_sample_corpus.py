"""The sample corpus: parallel by line, varied, and apart from the texts that the examples translate."""

from __future__ import annotations

import re
import unicodedata
from importlib import resources
from itertools import combinations

import pytest

from rag_mt.base.files import EXAMPLES

LANGUAGES = ("en", "de", "cs", "fi", "ru", "ro", "tr")


def lines(code: str) -> list[str]:
    return (resources.files("rag_mt") / "sample_corpus" / f"{code}.txt").read_text(encoding="utf-8").splitlines()


def trigrams(text: str) -> set[str]:
    text = " ".join(re.findall(r"\w+", text.casefold()))
    return {text[i : i + 3] for i in range(len(text) - 2)}


def similarity(a: set[str], b: set[str]) -> float:
    return len(a & b) / max(1, len(a | b))


def example_sentences(code: str) -> list[str]:
    from rag_mt.text.splitting import split

    texts = [p.read_text(encoding="utf-8") for p in sorted(EXAMPLES.glob(f"*.{code}.txt"))]
    return [span.of(t) for t in texts for span in split(t, code)]


def test_parallel_by_line_and_clean() -> None:
    sizes = {code: len(lines(code)) for code in LANGUAGES}
    assert len(set(sizes.values())) == 1
    assert sizes["en"] >= 300
    for code in LANGUAGES:
        for line in lines(code):
            assert line == line.strip() == unicodedata.normalize("NFC", line)
            assert line
            assert "\t" not in line
    assert not any(set("şţŞŢ") & set(line) for line in lines("ro")), "cedilla in Romanian"
    assert all(re.search("[а-яё]", line) for line in lines("ru"))


@pytest.mark.parametrize("code", LANGUAGES)
def test_no_templates(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Near-duplicates: share of sentences with a twin of character-trigram Jaccard > 0.5; and types per token."""
    text = lines(code)
    grams = [trigrams(t) for t in text]
    twins = {
        i for pair in combinations(range(len(text)), 2) if similarity(*(grams[i] for i in pair)) > 0.5 for i in pair
    }
    words = [w for t in text for w in re.findall(r"\w+", t.casefold())]
    ratio = len(set(words)) / len(words)
    starts = len({" ".join(t.split()[:2]).casefold() for t in text}) / len(text)
    with capsys.disabled():
        print(
            f"\nsample corpus {code}: {len(text)} sentences, {len(words)} words, "
            f"near-duplicates {len(twins) / len(text):.1%}, "
            f"type/token {ratio:.2f}, distinct first two words {starts:.0%}"
        )
    assert len(twins) / len(text) < 0.01
    assert ratio > 0.28
    assert starts > 0.75


@pytest.mark.parametrize("code", LANGUAGES)
def test_examples_share_no_sentence(code: str) -> None:
    corpus = [trigrams(t) for t in lines(code)]
    sentences = example_sentences(code)
    assert len(sentences) >= 50
    for sentence in sentences:
        grams = trigrams(sentence)
        assert max(similarity(grams, c) for c in corpus) < 0.5, sentence
