"""Word vectors: what is trained, and phrases as means of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eval.xpr.baselines import WORD_TRAINING, WordVectors, train_words, words_of
from rag_mt.base.errors import UserError

pytest.importorskip("floret")

TINY = {**WORD_TRAINING, "dim": 12, "epoch": 15, "bucket": 500}
LETTERS = np.random.default_rng(0)
THEMES = [["".join(LETTERS.choice(list("abcdefghijklmnopqrstuvwxyz"), size=8)) for _ in range(60)] for _ in range(2)]


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
    return WordVectors(path)


def test_words_of_a_theme_lie_together(vectors: WordVectors) -> None:
    rows = vectors.of_phrases([word for theme in THEMES for word in theme])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert len(vectors.frequent) == 120
    similarities = rows @ rows.T
    np.fill_diagonal(similarities, -1)
    assert (similarities.argmax(1) // 60 == np.arange(120) // 60).mean() > 0.9


def test_rare_words_have_vectors_of_their_letters(vectors: WordVectors) -> None:
    first, second = (theme[0] for theme in THEMES)
    plural, own, other = vectors.of_phrases([f"{first}s", first, second])
    assert plural @ own > plural @ other


def test_equal_text_gives_equal_vectors(texts: list[str], path: Path, tmp_path: Path) -> None:
    train_words(iter(texts), tmp_path / "again.bin", TINY)
    assert (tmp_path / "again.bin").read_bytes() == path.read_bytes()


def test_phrases_are_means_of_their_words(vectors: WordVectors) -> None:
    a, b, c = THEMES[0][:3]
    one, two, three = vectors.of_phrases([a, b, c])
    means = vectors.of_phrases([f"{a.title()} {b}", f"{b}, {b}: {c.upper()}", ""])
    np.testing.assert_allclose(means, [(one + two) / 2, (2 * two + three) / 3, np.zeros(12)], atol=1e-6)
    assert vectors.of_phrases([]).shape == (0, 12)
    assert words_of("Well-known STRASSE, 3.5 %") == ["well-known", "strasse", "3.5"]


def test_text_without_words_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no word that occurs 2 times"):
        train_words(["one two three"], tmp_path / "en.bin", TINY)
    assert not list(tmp_path.iterdir())


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "en.bin").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"en\.bin is no file of word vectors any more"):
        WordVectors(tmp_path / "en.bin")
