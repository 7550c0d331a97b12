"""Word vectors: what is trained, and phrases as means of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rag_mt.errors import UserError
from retrievers.word_vectors import WordTraining, WordVectors, load_word_vectors, trained_word_vectors, words_of

pytest.importorskip("floret")

TINY = WordTraining(dimension=12, epochs=15, buckets=500, least=2)
LETTERS = np.random.default_rng(0)
THEMES = [["".join(LETTERS.choice(list("abcdefghijklmnopqrstuvwxyz"), size=8)) for _ in range(60)] for _ in range(2)]
ALSO = [f"{THEMES[0][0].title()}s, {THEMES[0][0]}", "zzz"]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Sentences whose words come from one theme each."""
    rng = np.random.default_rng(1)
    return [" ".join(rng.choice(theme, size=8)) for _ in range(800) for theme in THEMES]


@pytest.fixture(scope="module")
def vectors(texts: list[str]) -> WordVectors:
    return trained_word_vectors(texts, ALSO, TINY)


def test_words_of_a_theme_lie_together(vectors: WordVectors) -> None:
    rows = vectors.of_phrases([word for theme in THEMES for word in theme])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    similarities = rows @ rows.T
    np.fill_diagonal(similarities, -1)
    assert (similarities.argmax(1) // 60 == np.arange(120) // 60).mean() > 0.9


def test_rare_words_have_vectors_of_their_letters(vectors: WordVectors) -> None:
    first, second = (theme[0] for theme in THEMES)
    assert set(vectors.words) == {f"{first}s", "zzz"} | {word for theme in THEMES for word in theme}
    assert set(vectors.words[-2:]) == {f"{first}s", "zzz"}, "behind the frequent ones"
    plural, own, other = vectors.of_phrases([f"{first}s", first, second])
    assert plural @ own / np.linalg.norm(own) > plural @ other / np.linalg.norm(other)


def test_equal_text_gives_equal_vectors(texts: list[str], vectors: WordVectors) -> None:
    again = trained_word_vectors(iter(texts), ALSO, TINY)
    np.testing.assert_array_equal(again.vectors, vectors.vectors)


def test_phrases_are_means_of_the_words_that_are_known() -> None:
    own = WordVectors(("a", "b", "c"), np.array([[1, 0], [0, 1], [4, 4]], np.float32))
    found = own.of_phrases(["A b", "b, b: C", "unknown", "", "a unknown"])
    np.testing.assert_allclose(found, [[0.5, 0.5], [4 / 3, 2], [0, 0], [0, 0], [1, 0]], atol=1e-6)
    assert own.of_phrases([]).shape == (0, 2)
    assert words_of("Well-known STRASSE, 3.5 %") == ["well-known", "strasse", "3.5"]


def test_they_are_read_as_they_were_written(tmp_path: Path, vectors: WordVectors) -> None:
    vectors.save(tmp_path / "en")
    found = load_word_vectors(tmp_path / "en")
    assert found.words == vectors.words
    np.testing.assert_array_equal(found.vectors, vectors.vectors)


def test_text_without_words_is_refused() -> None:
    with pytest.raises(UserError, match="no word that occurs 2 times"):
        trained_word_vectors(["one two three"], training=TINY)
