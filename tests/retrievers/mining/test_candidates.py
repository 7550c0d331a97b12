"""Candidates of bitext mining, their features, and the classifier that judges them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Kind, TokenStates
from retrievers.ccpr.confidence import Confidence
from retrievers.mining.candidates import (
    ALIGNED,
    FEATURES,
    LEAST_RATIO,
    NEAR,
    TEXTS,
    VECTORS,
    Candidates,
    candidates,
    coverage,
    described,
    text_features,
    token_features,
)
from retrievers.mining.classifier import FILE, chances, fit_classifier, held_out_chances, known_classifier
from retrievers.mining.margin import STRATEGIES, Neighbours, nearest

LETTERS = "abcdefghij"


class LetterEncoder:
    """A token for each word, the same for the same first letter; a text is the sum of its tokens."""

    id, fingerprint, dimension, hidden, layers = "letters", "1", 10, 10, 3

    def _tokens(self, text: str) -> Floats:
        return np.array([[word[0] == letter for letter in LETTERS] for word in text.split()], np.float32).reshape(
            -1, 10
        )

    def encode(self, texts: Sequence[str], kind: Kind = "query") -> Floats:
        sums = np.array([self._tokens(text).sum(axis=0) for text in texts])
        return np.asarray(sums / np.linalg.norm(sums, axis=1, keepdims=True), np.float32)

    def states(self, texts: Sequence[str], layer: int) -> Iterator[TokenStates]:
        assert layer == 2, "two thirds up"
        for text in texts:
            tokens = self._tokens(text)
            yield TokenStates(tokens, np.zeros((len(tokens), 2), np.int32))


def neighbours(scores: list[list[float]], ids: list[list[int]]) -> Neighbours:
    return Neighbours(np.array(scores, np.float32), np.array(ids, np.int64))


def test_features_of_vectors_are_those_of_the_search() -> None:
    """Two sources and two targets; source 1 and target 1 are each other's second choice, below the margin."""
    ahead = neighbours([[0.9, 0.5], [0.8, 0.4]], [[0, 1], [0, 1]])
    back = neighbours([[0.9, 0.8], [0.5, 0.4]], [[0, 1], [0, 1]])
    found = candidates(ahead, back)
    pairs = list(zip(found.sources.tolist(), found.targets.tolist(), strict=True))
    assert pairs == [(0, 0), (1, 0)]
    assert found.features.keys() == set(VECTORS)
    first = {name: float(values[0]) for name, values in found.features.items()}
    assert first["ratio"] == pytest.approx(0.9 / ((0.7 + 0.85) / 2))
    assert first["difference"] == pytest.approx(0.9 - (0.7 + 0.85) / 2)
    assert (first["lead ahead"], first["lead back"]) == (pytest.approx(0.4), pytest.approx(0.1))
    assert (first["first ahead"], first["first back"], first["first both"]) == (1, 1, 1)
    second = {name: float(values[1]) for name, values in found.features.items()}
    assert (second["first ahead"], second["first back"], second["first both"]) == (1, 0, 0)
    assert second["rank back"] == pytest.approx(np.log(2))
    assert second["lead back"] == pytest.approx(-0.1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_says_which_side_proposes(strategy: str) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((2, 40, 8)).astype(np.float32) + 1
    vectors /= np.linalg.norm(vectors, axis=2, keepdims=True)
    ahead, back = nearest(vectors[0], vectors[1], NEAR), nearest(vectors[1], vectors[0], NEAR)
    found = candidates(ahead, back, strategy)  # type: ignore[arg-type]
    codes = set(zip(found.sources.tolist(), found.targets.tolist(), strict=True))
    assert len(codes) == len(found) > 0
    proposed = {(a, b) for a, row in enumerate(ahead.ids.tolist()) for b in row}
    proposed_back = {(a, b) for b, row in enumerate(back.ids.tolist()) for a in row}
    allowed = {
        "max": proposed | proposed_back,
        "intersection": proposed & proposed_back,
        "forward": proposed,
        "backward": proposed_back,
    }
    assert codes <= allowed[strategy]
    assert float(found.features["ratio"].min()) >= LEAST_RATIO


def test_neighbours_that_were_not_found_are_no_candidates() -> None:
    ahead = neighbours([[0.9, -np.inf]], [[0, -1]])
    found = candidates(ahead, neighbours([[0.8]], [[0]]))
    assert (found.sources.tolist(), found.targets.tolist()) == ([0], [0])
    assert float(found.features["lead ahead"][0]) == pytest.approx(0), "there is no other one"
    nothing = candidates(neighbours([[-np.inf]], [[-1]]), neighbours([[-np.inf]], [[-1]]))
    assert len(nothing) == 0


def test_features_of_texts() -> None:
    sources = ["Am 12. Mai kam Путин.", "Was?", "Ja, 7."]
    targets = ["Putin came on 12 May.", "What is it, then?", "Yes 8."]
    found = text_features(sources, targets, np.array([True, True, True]))
    assert found.keys() == set(TEXTS)
    assert found["numbers shared"].tolist() == [1, 0, 0]
    assert found["numbers unlike"].tolist() == [0, 0, 1]
    assert found["numbers alone"].tolist() == [0, 0, 2]
    assert found["same end"].tolist() == [1, 1, 1]
    assert found["alike"][0] > found["alike"][1]
    assert found["length gap"][1] == max(found["length gap"])


def test_tokens_cover_each_other_as_far_as_they_are_alike() -> None:
    cosines = np.array([[0.9, 0.2, 0.1], [0.3, 0.8, 0.4]], np.float32)
    named = dict(zip(ALIGNED, coverage(cosines), strict=True))
    assert named["covered ahead"] == pytest.approx(0.85)
    assert named["covered back"] == pytest.approx((0.9 + 0.8 + 0.4) / 3)
    assert (named["least ahead"], named["least back"]) == (pytest.approx(0.8), pytest.approx(0.4))
    assert named["two least back"] == pytest.approx(0.6)
    assert named["covered"] == pytest.approx(0.7)
    assert named["mutual"] == pytest.approx((0.9 + 0.8) * 2 / 5)
    assert coverage(np.zeros((0, 3), np.float32)) == (0.0,) * len(ALIGNED)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 99))
def test_coverage_is_the_same_from_both_sides(rows: int, columns: int, seed: int) -> None:
    cosines = np.random.default_rng(seed).uniform(-1, 1, (rows, columns)).astype(np.float32)
    one, other = (dict(zip(ALIGNED, coverage(c), strict=True)) for c in (cosines, cosines.T))
    for name in ("covered", "least", "two least"):
        ahead, back = (name, name) if name == "covered" else (f"{name} ahead", f"{name} back")
        assert one[ahead] == pytest.approx(other[back], abs=1e-6)
    assert one["mutual"] == pytest.approx(other["mutual"], abs=1e-6)


def test_token_features_do_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, targets = ["ab cd", "ee", "gh aa bb", "ii"], ["a c", "e f", "g", "j"]
    whole = token_features(sources, targets, LetterEncoder())
    monkeypatch.setattr("retrievers.mining.candidates.BLOCK", 2)
    parts = token_features(sources, targets, LetterEncoder())
    assert all(np.allclose(whole[name], parts[name]) for name in ALIGNED)
    assert whole["covered"][0] > whole["covered"][3]


def made_candidates(seed: int, count: int = 300) -> tuple[Candidates, np.ndarray]:
    """Candidates whose ratio and coverage say, with noise, whether they are right."""
    rng = np.random.default_rng(seed)
    right = rng.random(count) < 0.3
    features = {name: rng.standard_normal(count).astype(np.float32) for name in FEATURES}
    for name in ("ratio", "covered"):
        features[name] += 2 * right
    return Candidates(rng.integers(0, count, count), rng.integers(0, count, count), features), right


def test_the_classifier_tells_right_ones_from_wrong_ones() -> None:
    learnt, other = made_candidates(1), made_candidates(2)
    classifier = fit_classifier([learnt], 0.5, {"encoder": "letters"})
    judged = chances(other[0], classifier)
    assert judged.min() >= 0
    assert judged.max() <= 1
    assert judged[other[1]].mean() > 0.7 > 0.2 > judged[~other[1]].mean()
    pairs = other[0].pairs(judged)
    assert len(set(pairs.sources.tolist())) == len(set(pairs.targets.tolist())) == len(pairs)


def test_held_out_chances_are_of_sentences_that_were_not_seen() -> None:
    """Marks drawn by chance cannot be learnt: seen they look learnt, held out they do not."""
    pairs, _ = made_candidates(3, 120)
    marks = np.random.default_rng(4).random(120) < 0.5
    seen = chances(pairs, fit_classifier([(pairs, marks)], 0.5, {}))
    (held_out,) = held_out_chances([(pairs, marks)])
    gap = {name: own[marks].mean() - own[~marks].mean() for name, own in (("seen", seen), ("held out", held_out))}
    assert gap["seen"] > 0.2
    assert gap["held out"] < gap["seen"] - 0.15


def test_all_features_come_of_two_sides() -> None:
    texts = ["aa bb cc", "dd ee", "ff gg hh ii", "jj aa"], ["ax bx cx", "dx ex", "fx gx hx ix", "jx bx"]
    encoder = LetterEncoder()
    source, target = (encoder.encode(side) for side in texts)
    found = candidates(nearest(source, target, NEAR), nearest(target, source, NEAR))
    sides = [[side[n] for n in numbers] for side, numbers in zip(texts, (found.sources, found.targets), strict=True)]
    full = described(found, sides[0], sides[1], encoder)
    assert full.features.keys() == set(FEATURES)
    assert all(values.shape == (len(found),) and np.isfinite(values).all() for values in full.features.values())


def test_the_shipped_classifier_is_for_the_default_encoder() -> None:
    classifier = known_classifier(DEFAULT_ENCODER)
    assert classifier is not None
    assert classifier.features == FEATURES
    assert 0 < classifier.minimum < 1
    assert classifier.fitted["command"].startswith("python -m eval.bitext --data")
    assert known_classifier("another") is None


def test_a_damaged_classifier_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "classifier.json"
    broken.write_text(FILE.read_text(encoding="utf-8").replace("weights", "wits"), encoding="utf-8")
    with pytest.raises(UserError, match=r"classifier\.json is no confidence model"):
        known_classifier(DEFAULT_ENCODER, broken)
    assert isinstance(Confidence.load(FILE), Confidence)
