"""The baselines of XPR: mapped word vectors (CLWE) and a mapped sentence encoder (CLSE), section 5.2 of its paper.

Both have a vector for every phrase from the phrase alone, and an orthogonal map of the other language's vectors to the
English ones: learnt from the training pairs of one or several sets, or without pairs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eval.significance import SEED
from eval.xpr.mapping import SelfLearning, centre, nearest_rotation, normalised, self_learned, unit
from eval.xpr.word_vectors import WordTraining, WordVectors, load_words, train_words
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import remembered_sha256, settings_hash
from rag_mt.base.types import Floats, Skips
from rag_mt.formats.opening import read_lines
from retrievers.xpr.examples import ExampleSet
from retrievers.xpr.model import XprEncoder

log = logging.getLogger("rag_mt")

SENTENCES = 400_000
"""Sentences of a language that word vectors are trained on, at most: about eight minutes of one core."""
FREQUENT = 4_000
"""Vectors of a language from which a map is learnt without pairs. VecMap takes 20,000, of far more text."""
LEAST = 100
"""Vectors of a language without which no map is learnt without pairs."""
LEARNING = SelfLearning(vocabulary=FREQUENT, patience=20, most=300)

Rows = NDArray[np.int64]


class Base(Protocol):
    """Vectors of phrases before any map. `key` says all that changes them."""

    key: Mapping[str, Any]

    def plain(self, own: ExampleSet, side: int, rows: Rows) -> Floats:
        """The vectors (rows, dimension) of phrases of a side as they come."""
        ...

    def normal(self, own: ExampleSet, side: int, rows: Rows) -> Floats:
        """The same, centred and of length 1: what a map is learnt from and put to."""
        ...

    def sample(self, own: ExampleSet, side: int) -> Floats:
        """Vectors, centred and of length 1, from which a map is learnt without pairs."""
        ...

    def has_sample(self, own: ExampleSet) -> bool:
        """Whether both sides of a set have enough for `sample`."""
        ...


class Words:
    """The mean of word vectors that are trained on the sentences of `data`/train (a Base).

    Words are centred over the language's frequent ones before the mean is taken. The vectors stay in `folder`; `sets`
    are all sets whose phrases will be asked for, so that their words have vectors however rare they are.
    """

    def __init__(self, data: Path, folder: Path, sets: Sequence[ExampleSet], training: WordTraining) -> None:
        self._data, self._folder, self._sets, self._training = data, folder, tuple(sets), training
        files = {path.name: remembered_sha256(path) for path in _files(data, "en")}
        self.key: Mapping[str, Any] = {"words": asdict(training), "sentences": SENTENCES, "files": files}
        self._found: dict[str, WordVectors] = {}

    def plain(self, own: ExampleSet, side: int, rows: Rows) -> Floats:
        """See `Base`."""
        words = self.language(own.sides[side].language)
        return words.of_phrases([own.sides[side].phrases[row] for row in rows.tolist()])

    def normal(self, own: ExampleSet, side: int, rows: Rows) -> Floats:
        """See `Base`."""
        return unit(self.plain(own, side, rows))

    def sample(self, own: ExampleSet, side: int) -> Floats:
        """See `Base`: the most frequent words."""
        return self.language(own.sides[side].language).vectors[:FREQUENT]

    def has_sample(self, own: ExampleSet) -> bool:
        """See `Base`: any text has enough words."""
        return True

    def language(self, language: str) -> WordVectors:
        """The vectors of a language, centred and of length 1."""
        if language not in self._found:
            path = self._folder / f"{language}-{settings_hash(self.key)}.bin"
            if not path.is_file():
                log.info("training word vectors of %s", language)
                train_words(sentences_of(self._data, language), path, self._training)
            sides = [side for own in self._sets for side in own.sides if side.language == language]
            words = load_words(path, (phrase for side in sides for phrase in side.phrases))
            mean = centre(words.vectors[:FREQUENT])
            self._found[language] = replace(words, vectors=normalised(words.vectors, mean))
        return self._found[language]


def _files(data: Path, language: str) -> list[Path]:
    """The training files that have sentences of a language."""
    found = sorted((data / "train").glob("*-en.tsv*" if language == "en" else f"{language}-en.tsv*"))
    if not found:
        name = "XX" if language == "en" else language
        raise UserError(f"there is no {name}-en.tsv in {data / 'train'}: give --data the folder that holds train/")
    return found


def sentences_of(data: Path, language: str) -> list[str]:
    """Different sentences of one language in `data`/train, drawn by a fixed seed, at most `SENTENCES` of them."""
    skips = Skips(shown=0)
    texts: dict[str, None] = {}
    for path in _files(data, language):
        for line in read_lines(path, skips):
            columns = (line.text or "").split("\t")
            if len(columns) > 1:
                texts[columns[0 if language == "en" else 1]] = None
    if skips.total:
        log.warning("%s", skips.summary())
    every = list(texts)
    drawn = np.random.default_rng(SEED).permutation(len(every))[:SENTENCES]
    return [every[n] for n in np.sort(drawn)]


class States:
    """The mean token state of the phrase alone in a layer of an encoder (a Base), centred over the training phrases
    of the side."""

    def __init__(self, encoder: XprEncoder, layer: int) -> None:
        self._encoder, self.layer = encoder, layer
        self.key: Mapping[str, Any] = {"states": encoder.fingerprint, "layer": layer}
        self._means: dict[tuple[str, int], Floats] = {}
        self._made: dict[tuple[str, int], tuple[NDArray[np.bool_], Floats]] = {}

    def plain(self, own: ExampleSet, side: int, rows: Rows) -> Floats:
        """See `Base`. Each phrase is encoded once and remembered: all maps ask for the same ones."""
        place, phrases = (own.name, side), len(own.sides[side].phrases)
        if place not in self._made:
            empty = np.zeros((phrases, self._encoder.hidden), np.float32)
            self._made[place] = np.zeros(phrases, np.bool_), empty
        known, states = self._made[place]
        new = np.unique(rows[~known[rows]])
        if len(new):
            states[new] = self._encoder.side_states(own.sides[side].alone(), new, 1, [self.layer])[0]
            known[new] = True
        made: Floats = states[rows]
        return made

    def normal(self, own: ExampleSet, side: int, rows: Rows) -> Floats:
        """See `Base`."""
        if (own.name, side) not in self._means:
            train = np.unique(own.pairs("train")[:, side]).astype(np.int64)
            self._means[own.name, side] = centre(self.plain(own, side, train))
        return normalised(self.plain(own, side, rows), self._means[own.name, side])

    def sample(self, own: ExampleSet, side: int) -> Floats:
        """See `Base`: phrases that belong to no pair, so that the two sides are not translations. Where they are too
        few it is the training phrases, each side's in an order of its own."""
        return self.normal(own, side, _sampled(own)[side][:FREQUENT])

    def has_sample(self, own: ExampleSet) -> bool:
        """See `Base`."""
        return min(map(len, _sampled(own))) >= LEAST


def _sampled(own: ExampleSet) -> list[Rows]:
    """The phrases of both sides for `States.sample`."""
    unpaired = [own.candidates("test", n)[len(np.unique(own.pairs("test")[:, n])) :] for n in (0, 1)]
    if min(map(len, unpaired)) >= LEAST:
        return unpaired
    train = [np.unique(own.pairs("train")[:, n]).astype(np.int64) for n in (0, 1)]
    return [np.random.default_rng([SEED, n]).permutation(rows) for n, rows in enumerate(train)]


class Maps:
    """A base whose vectors of side 0 are mapped to those of side 1. Maps are learnt when they are needed, once."""

    def __init__(self, base: Base, sets: Mapping[str, ExampleSet]) -> None:
        self._base, self._sets = base, sets
        self._products: dict[str, NDArray[np.float64]] = {}
        self._maps: dict[tuple[str, ...], Floats] = {}

    def key(self, trained_on: Sequence[str]) -> dict[str, Any]:
        """All that changes the vectors that `vectors` gives."""
        files = [self._sets[name].manifest["files"] for name in trained_on]
        return {**self._base.key, "map": files or asdict(LEARNING)}

    def vectors(self, own: ExampleSet, trained_on: Sequence[str], side: int, rows: Rows) -> Floats:
        """The vectors (rows, dimension) of phrases of a side, those of both sides in one space.

        `trained_on` names the sets from whose training pairs the map is learnt; if there is none it is learnt from the
        vectors of the set itself.
        """
        made = self._base.normal(own, side, rows)
        return made if side else made @ self._map(own, tuple(trained_on))

    def can_map(self, own: ExampleSet, trained_on: Sequence[str]) -> bool:
        """Whether there is enough to learn a map from."""
        return bool(trained_on) or self._base.has_sample(own)

    def _map(self, own: ExampleSet, trained_on: tuple[str, ...]) -> Floats:
        name = trained_on or ("", own.name)
        if name not in self._maps:
            if trained_on:
                self._maps[name] = nearest_rotation(np.sum([self._product(n) for n in trained_on], axis=0))
            else:
                learned = self_learned(self._base.sample(own, 0), self._base.sample(own, 1), LEARNING)
                told = "%s: a map was learnt without pairs in %d rounds, mean similarity %.3f"
                log.info(told, own.name, learned.rounds, learned.similarity)
                self._maps[name] = learned.map
        return self._maps[name]

    def _product(self, name: str) -> NDArray[np.float64]:
        """The sum over the training pairs of a set of the outer products of their vectors."""
        if name not in self._products:
            own = self._sets[name]
            pairs = own.pairs("train").astype(np.int64)
            source, target = (self._base.normal(own, side, pairs[:, side]) for side in (0, 1))
            self._products[name] = source.T.astype(np.float64) @ target
        return self._products[name]
