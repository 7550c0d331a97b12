"""Word vectors: what is trained, and phrases as means of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eval.xpr.baselines import WordTraining, WordVectors, load_words, train_words, words_of
from rag_mt.base.errors import UserError

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
def path(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("words") / "en.bin"
    train_words(texts, path, TINY)
    return path


@pytest.fixture(scope="module")
def vectors(path: Path) -> WordVectors:
    return load_words(path, ALSO)


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


def test_equal_text_gives_equal_vectors(texts: list[str], path: Path, tmp_path: Path) -> None:
    train_words(iter(texts), tmp_path / "again.bin", TINY)
    assert (tmp_path / "again.bin").read_bytes() == path.read_bytes()


def test_phrases_are_means_of_the_words_that_are_known() -> None:
    own = WordVectors(("a", "b", "c"), np.array([[1, 0], [0, 1], [4, 4]], np.float32))
    found = own.of_phrases(["A b", "b, b: C", "unknown", "", "a unknown"])
    np.testing.assert_allclose(found, [[0.5, 0.5], [4 / 3, 2], [0, 0], [0, 0], [1, 0]], atol=1e-6)
    assert own.of_phrases([]).shape == (0, 2)
    assert words_of("Well-known STRASSE, 3.5 %") == ["well-known", "strasse", "3.5"]


def test_text_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no word that occurs 2 times"):
        train_words(["one two three"], tmp_path / "en.bin", TINY)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "en.bin").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"en\.bin is no file of word vectors any more"):
        load_words(tmp_path / "en.bin")
