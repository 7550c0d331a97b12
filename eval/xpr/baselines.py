"""The baselines of XPR: mapped word vectors (CLWE) and a mapped sentence encoder (CLSE), section 5.2 of its paper.

Both have a vector for every phrase from the phrase alone, and an orthogonal map of the other language's vectors to the
English ones: learnt from the training pairs of one or several sets, or without pairs. The words of CLWE have vectors of
fastText's skip-gram with character 5-grams (as in Grave et al. 2018, "Learning word vectors for 157 languages"), which
the package `floret` (extra `eval`) trains on text of one language.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.significance import SEED
from eval.xpr.mapping import SelfLearning, centre, normalised, procrustes, self_learned, unit
from rag_mt.base.errors import DamagedFileError, UserError
from rag_mt.base.files import remembered_sha256, settings_hash, whole_file
from rag_mt.base.types import Floats, Skips
from rag_mt.formats.opening import read_lines
from rag_mt.text.words import word_texts
from retrievers.xpr.examples import ExampleSet
from retrievers.xpr.model import XprEncoder

log = logging.getLogger("rag_mt")

SENTENCES = 400_000
"""Sentences of a language that word vectors are trained on, at most: about eight minutes of one core."""
FREQUENT = 4_000
"""Vectors of a language from which a map is learnt without pairs. VecMap takes 20,000, of far more text."""
LEAST = 100
"""Phrases of a language without which no map is learnt without pairs."""
LEARNING = SelfLearning(vocabulary=FREQUENT, patience=20, most=300)

WORD_TRAINING = {"dim": 100, "epoch": 5, "ws": 5, "neg": 5, "minCount": 2, "minn": 5, "maxn": 5, "bucket": 200_000}
"""Settings of floret: dimension, epochs, window, negative samples, and that words that occur once have no vector of
their own, only those of their 5-grams, which are kept in so many rows."""

Numbers = NDArray[np.int64]
"""The numbers of phrases in their side of a set."""


def words_of(text: str) -> list[str]:
    """The words of a text, casefolded."""
    return [word.casefold() for word in word_texts(text)]


def train_words(texts: Iterable[str], path: Path, training: Mapping[str, int]) -> None:
    """Train vectors of the words of `texts` and write them to `path`, in fastText's own format.

    Equal texts give equal vectors. Raises UserError where floret is not installed and for texts without a word that is
    frequent enough.
    """
    floret = _floret()
    with TemporaryDirectory() as folder:
        text = Path(folder) / "text"
        with text.open("w", encoding="utf-8") as file:
            file.writelines(" ".join(words_of(line)) + "\n" for line in texts)
        fixed = {"model": "skipgram", "mode": "fasttext", "verbose": 0, "thread": 1}
        try:
            model = floret.train_unsupervised(str(text), **fixed, **training)
        except ValueError as error:  # what fastText says of an empty vocabulary
            least = training["minCount"]
            raise UserError(f"the text has no word that occurs {least} times ({error}): give more text") from None
    with whole_file(path) as part:
        model.save_model(str(part))


class WordVectors:
    """The vectors that `train_words` wrote, centred over the frequent words and of length 1. Words that are rarer than
    any of the text are made of their letters. Raises DamagedFileError."""

    def __init__(self, path: Path) -> None:
        try:
            self._model = _floret().load_model(str(path))
        except ValueError as error:
            raise DamagedFileError(f"{path} is no file of word vectors any more ({error}): delete it") from None
        frequent = self._plain([word for word in self._model.words if word != "</s>"][:FREQUENT])
        self._mean = centre(frequent)
        self.frequent = normalised(frequent, self._mean)

    def _plain(self, words: Sequence[str]) -> Floats:
        vectors = [self._model.get_word_vector(word) for word in words]
        return np.array(vectors, dtype=np.float32).reshape(len(words), self._model.get_dimension())

    def of_phrases(self, phrases: Sequence[str]) -> Floats:
        """The mean vector of the words of each phrase, (phrases, dimension); zeros for one without words."""
        words = [words_of(phrase) for phrase in phrases]
        rows = {word: row for row, word in enumerate(dict.fromkeys(chain.from_iterable(words)))}
        vectors = normalised(self._plain(list(rows)), self._mean)
        counts = np.array([len(own) for own in words], np.int64)
        sums = np.zeros((len(phrases), vectors.shape[1]), np.float32)
        owners = np.repeat(np.arange(len(words)), counts)
        np.add.at(sums, owners, vectors[[rows[word] for word in chain.from_iterable(words)]])
        sums /= np.maximum(counts, 1)[:, None].astype(np.float32)
        return sums


def _floret() -> Any:
    try:
        import floret
    except ImportError:
        raise UserError("word vectors need floret: `pip install -c constraints.txt floret`") from None
    return floret


def sentences_of(data: Path, language: str) -> list[str]:
    """Different sentences of one language in `data`/train, drawn by a fixed seed, at most `SENTENCES` of them."""
    skips = Skips(shown=0)
    texts: dict[str, None] = {}
    for path in _training_files(data, language):
        for line in read_lines(path, skips):
            columns = (line.text or "").split("\t")
            if len(columns) > 1:
                texts[columns[0 if language == "en" else 1]] = None
    if skips.total:
        log.warning("%s", skips.summary())
    sentences = list(texts)
    drawn = np.random.default_rng(SEED).permutation(len(sentences))[:SENTENCES]
    return [sentences[n] for n in np.sort(drawn)]


def _training_files(data: Path, language: str) -> list[Path]:
    """The training files that have sentences of a language."""
    code = "*" if language == "en" else language
    files = sorted((data / "train").glob(f"{code}-en.tsv*"))
    if not files:
        name = code.replace("*", "XX")
        raise UserError(f"there is no {name}-en.tsv in {data / 'train'}: give --data the folder that holds train/")
    return files


class Words:
    """The mean of word vectors that are trained on the sentences of `data`/train and kept in `folder`. They are centred
    over the language's frequent words before the mean is taken. `key` says all that changes the vectors."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._data, self._folder = data, folder
        files = {path.name: remembered_sha256(path) for path in _training_files(data, "en")}
        self.key = {"words": WORD_TRAINING, "sentences": SENTENCES, "files": files}
        self.language = cache(self._language)

    def _language(self, language: str) -> WordVectors:
        path = self._folder / f"{language}-{settings_hash(self.key)}.bin"
        if not path.is_file():
            log.info("training word vectors of %s", language)
            train_words(sentences_of(self._data, language), path, WORD_TRAINING)
        return WordVectors(path)

    def normal(self, examples: ExampleSet, side: int, phrases: Numbers) -> Floats:
        """The vectors (phrases, dimension) of phrases of a side, centred and of length 1."""
        own = examples.sides[side]
        return unit(self.language(own.language).of_phrases([own.phrases[n] for n in phrases.tolist()]))

    def sample(self, examples: ExampleSet, side: int) -> Floats:
        """Vectors, centred and of length 1, from which a map is learnt without pairs: the most frequent words."""
        return self.language(examples.sides[side].language).frequent


class States:
    """The mean token state of the phrase alone in a layer of an encoder, centred over the training phrases of the side;
    otherwise as `Words`."""

    def __init__(self, encoder: XprEncoder, layer: int) -> None:
        self._encoder, self.layer = encoder, layer
        self.key = {"states": encoder.fingerprint, "layer": layer}
        self._means: dict[tuple[str, int], Floats] = {}
        self._states: dict[tuple[str, int], tuple[NDArray[np.bool_], Floats]] = {}

    def plain(self, examples: ExampleSet, side: int, phrases: Numbers) -> Floats:
        """The states (phrases, hidden) as they are. Each phrase is encoded once and remembered."""
        count = len(examples.sides[side].phrases)
        empty = np.zeros(count, np.bool_), np.zeros((count, self._encoder.hidden), np.float32)
        known, states = self._states.setdefault((examples.name, side), empty)
        new = np.unique(phrases[~known[phrases]])
        if len(new):
            states[new] = self._encoder.side_states(examples.sides[side], new, 0, self.layer)
            known[new] = True
        return states[phrases]

    def normal(self, examples: ExampleSet, side: int, phrases: Numbers) -> Floats:
        """As `Words.normal`."""
        if (examples.name, side) not in self._means:
            self._means[examples.name, side] = centre(self.plain(examples, side, _training_phrases(examples, side)))
        return normalised(self.plain(examples, side, phrases), self._means[examples.name, side])

    def sample(self, examples: ExampleSet, side: int) -> Floats:
        """As `Words.sample`, of `sampled_phrases`."""
        return self.normal(examples, side, sampled_phrases(examples)[side][:FREQUENT])


def _training_phrases(examples: ExampleSet, side: int) -> Numbers:
    return np.unique(examples.pairs("train")[:, side]).astype(np.int64)


def sampled_phrases(examples: ExampleSet) -> list[Numbers]:
    """Phrases of both sides from which a map is learnt without pairs: those that belong to no pair, so that the two
    sides are not translations. Where they are too few it is the training phrases, each side's in an order of its
    own."""
    unpaired = [examples.unpaired(side) for side in (0, 1)]
    if min(map(len, unpaired)) >= LEAST:
        return unpaired
    return [np.random.default_rng([SEED, n]).permutation(_training_phrases(examples, n)) for n in (0, 1)]


class Maps:
    """A base whose vectors of side 0 are mapped to those of side 1. Maps are learnt when they are needed, once."""

    def __init__(self, base: Words | States, sets: Mapping[str, ExampleSet]) -> None:
        self._base, self._sets = base, sets
        self._products = cache(self._products_of)
        self._from_pairs = cache(self._learnt_from_pairs)
        self._without_pairs = cache(self._learnt_without_pairs)

    def key(self, trained_on: Sequence[str]) -> dict[str, Any]:
        """All that changes the vectors that `vectors` gives."""
        files = [self._sets[name].manifest["files"] for name in trained_on]
        return {**self._base.key, "map": files or asdict(LEARNING)}

    def can_map(self, examples: ExampleSet, trained_on: Sequence[str]) -> bool:
        """Whether there is enough to learn a map from."""
        return bool(trained_on) or min(map(len, sampled_phrases(examples))) >= LEAST

    def vectors(self, examples: ExampleSet, trained_on: tuple[str, ...], side: int, phrases: Numbers) -> Floats:
        """The vectors (phrases, dimension) of phrases of a side, those of both sides in one space.

        `trained_on` names the sets from whose training pairs the map is learnt; if there is none it is learnt from the
        vectors of the set itself.
        """
        vectors = self._base.normal(examples, side, phrases)
        if side:
            return vectors
        return vectors @ (self._from_pairs(trained_on) if trained_on else self._without_pairs(examples.name))

    def _learnt_from_pairs(self, trained_on: tuple[str, ...]) -> Floats:
        return procrustes(np.sum([self._products(name) for name in trained_on], axis=0))

    def _products_of(self, name: str) -> NDArray[np.float64]:
        """The sum of the outer products of the training pairs of a set, (dimension, dimension)."""
        pairs = self._sets[name].pairs("train").astype(np.int64)
        source, target = (self._base.normal(self._sets[name], n, pairs[:, n]) for n in (0, 1))
        products: NDArray[np.float64] = source.T.astype(np.float64) @ target
        return products

    def _learnt_without_pairs(self, name: str) -> Floats:
        source, target = (self._base.sample(self._sets[name], n) for n in (0, 1))
        rotation, similarity, rounds = self_learned(source, target, LEARNING)
        log.info("%s: a map was learnt without pairs in %d rounds, mean similarity %.3f", name, rounds, similarity)
        return rotation
