"""Word vectors of one language, trained on its text alone, and phrases as the mean of their words.

fastText's skip-gram with vectors of character 5-grams (as in Grave et al. 2018, "Learning word vectors for 157
languages"), by the package `floret` (extra `eval`). Words are those of `rag_mt.text.words`, casefolded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rag_mt.base.errors import DamagedFileError, UserError
from rag_mt.base.paths import whole_file
from rag_mt.base.types import Floats
from rag_mt.text.words import word_spans


@dataclass(frozen=True)
class WordTraining:
    """How word vectors are trained. Words that occur less than `least` times have no vector of their own, only those of
    their `letters`-grams, kept in `buckets` rows. With one thread equal text gives equal vectors."""

    dimension: int = 100
    epochs: int = 5
    window: int = 5
    negatives: int = 5
    least: int = 2
    letters: int = 5
    buckets: int = 200_000
    threads: int = 1


@dataclass(frozen=True)
class WordVectors:
    """Vectors float32 (words, dimension), frequent words first."""

    words: tuple[str, ...]
    vectors: Floats

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {word: row for row, word in enumerate(self.words)}

    def of_phrases(self, phrases: Sequence[str]) -> Floats:
        """The mean vector of the words of each phrase, (phrases, dimension); zeros where none is known."""
        rows = [[self._rows[w] for w in words_of(phrase) if w in self._rows] for phrase in phrases]
        sums = np.zeros((len(phrases), self.vectors.shape[1]), np.float32)
        owners = np.repeat(np.arange(len(rows)), [len(own) for own in rows])
        np.add.at(sums, owners, self.vectors[[row for own in rows for row in own]])
        counts = np.bincount(owners, minlength=len(phrases))
        sums /= np.maximum(counts, 1)[:, None].astype(np.float32)
        return sums


def words_of(text: str) -> list[str]:
    """The words of a text, casefolded."""
    return [text[a:b].casefold() for a, b in word_spans(text).tolist()]


def train_words(texts: Iterable[str], path: Path, training: WordTraining | None = None) -> None:
    """Train vectors of the words of `texts` and write them to `path`, in fastText's own format.

    Raises UserError where floret is not installed and for texts without a word that is frequent enough.
    """
    own, floret = training or WordTraining(), _floret()
    with TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        with text.open("w", encoding="utf-8") as file:
            file.writelines(" ".join(words_of(line)) + "\n" for line in texts)
        try:
            model = floret.train_unsupervised(
                str(text),
                model="skipgram",
                mode="fasttext",
                dim=own.dimension,
                epoch=own.epochs,
                ws=own.window,
                neg=own.negatives,
                minCount=own.least,
                minn=own.letters,
                maxn=own.letters,
                bucket=own.buckets,
                thread=own.threads,
                verbose=0,
            )
        except ValueError as error:  # what fastText says of an empty vocabulary
            raise UserError(f"the text has no word that occurs {own.least} times ({error}): give more text") from None
    with whole_file(path) as part:
        model.save_model(str(part))


def load_words(path: Path, also: Iterable[str] = ()) -> WordVectors:
    """The vectors that `train_words` wrote, and those of the words of the phrases `also`, which may be rarer: these are
    made of their letters."""
    try:
        model = _floret().load_model(str(path))
    except ValueError as error:
        raise DamagedFileError(f"{path} is no file of word vectors any more ({error}): delete it") from None
    frequent = [word for word in model.words if word != "</s>"]
    rare = {word for phrase in also for word in words_of(phrase)} - set(frequent)
    words = [*frequent, *sorted(rare)]
    vectors = np.array([model.get_word_vector(word) for word in words], dtype=np.float32)
    return WordVectors(tuple(words), vectors.reshape(len(words), -1))


def _floret() -> Any:
    try:
        import floret
    except ImportError:
        raise UserError("word vectors need floret: `pip install -c constraints.txt floret`") from None
    return floret
