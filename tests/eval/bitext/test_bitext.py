"""Sets for bitext mining, their scores and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.bitext.__main__ import main
from eval.bitext.runs import F1, above_cuts, best_threshold, length_thresholds, reach, scored, statistics
from eval.bitext.sets import (
    PARTS,
    BitextSet,
    build_sets,
    near_keys,
    read_corpora,
    read_set,
    sample_sets,
    words_of,
    write_set,
)
from eval.data.vectors import VectorCache
from eval.significance import Comparison, compare
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats, Kind
from retrievers.ccpr.confidence import Confidence
from retrievers.mining.candidates import FEATURES, Candidates
from retrievers.mining.margin import Neighbours, Pairs

WORDS = ("apple", "river", "stone", "cloud", "garden", "window", "silver", "market", "letter", "winter", "table")


def data_of(folder: Path, pairs: int = 400) -> Path:
    """Training files with known pairs: other sides are the English words with an ending, so that nothing is equal."""
    rng = np.random.default_rng(0)
    (folder / "train").mkdir(parents=True)
    for code in ("de", "ru"):
        rows = []
        for n in range(pairs):
            words = [f"{WORDS[w]}{rng.integers(1000)}x" for w in rng.integers(0, len(WORDS), 7)]
            words = [w.translate(str.maketrans("0123456789", "abcdefghij")) for w in words]
            domain = ("news", "ui")[n % 10 == 0]
            rows.append("\t".join([" ".join(words), " ".join(f"{w}{code}" for w in words), domain, "test"]))
        (folder / "train" / f"{code}-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return data_of(tmp_path_factory.mktemp("data"))


def truth(own: BitextSet) -> set[tuple[str, str]]:
    return {(own.sources[a], own.targets[b]) for a, b in own.gold.tolist()}


def test_sets_hide_true_pairs_and_nothing_else_is_parallel(data: Path) -> None:
    sets = build_sets(read_corpora(data), "de", 80, 160, seed=1)
    assert [own.part for own in sets] == list(PARTS)
    for own, size, true in zip(sets, (80, 160), (2, 4), strict=True):
        assert len(own.sources) == len(own.targets) == size
        assert len(own.gold) == true
        assert all(a == " ".join(f"{w}de" for w in b.split()) for a, b in truth(own))
        translations = {" ".join(w.removesuffix("de") for w in text.split()) for text in own.sources}
        assert translations & set(own.targets) == {b for _, b in truth(own)}, "what is parallel is marked"
    both = [set(own.sources) | set(own.targets) for own in sets]
    assert not both[0] & both[1], "the parts share nothing"


def test_other_known_translations_of_a_sentence_are_not_there(data: Path, tmp_path: Path) -> None:
    """Every German sentence has a second translation, each of these a Russian one, and that a third translation."""
    (tmp_path / "train").mkdir()
    german = (data / "train" / "de-en.tsv").read_text(encoding="utf-8").splitlines()
    russian = (data / "train" / "ru-en.tsv").read_text(encoding="utf-8").splitlines()

    def put(english: str, number: str) -> str:
        return " ".join(f"{word}{number}" for word in english.split())

    for row in list(german):
        english, other, *rest = row.split("\t")
        german.append("\t".join([put(english, "second"), other, *rest]))
        russian += ["\t".join([put(english, number), put(english, "russian"), *rest]) for number in ("second", "third")]
    for code, rows in (("de", german), ("ru", russian)):
        (tmp_path / "train" / f"{code}-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for own in build_sets(read_corpora(tmp_path), "de", 80, 160, seed=1):
        plain = [" ".join(word.removesuffix("de") for word in text.split()) for text in own.sources]
        known = {text for one in plain for text in (one, put(one, "second"), put(one, "third"))}
        assert len(known & set(own.targets)) == len(own.gold), "only the marked translation of each is there"


def test_sets_leave_out_domains_and_follow_the_seed(data: Path) -> None:
    rows = [line.split("\t") for line in (data / "train" / "de-en.tsv").read_text(encoding="utf-8").splitlines()]
    left_out = {text for english, other, domain, _ in rows if domain == "ui" for text in (english, other)}
    first, again, other = (build_sets(read_corpora(data), "de", 80, 160, seed)[1] for seed in (1, 1, 2))
    assert not left_out & {*first.sources, *first.targets}
    assert first.sha256 == again.sha256 != other.sha256
    assert truth(build_sets(read_corpora(data), "de", 80, 120, 1)[1]) < truth(first), (
        "a smaller set is a part of a larger one"
    )


def test_a_set_larger_than_the_data_is_refused(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has 3\d\d different de-en pairs for 1000 sentences"):
        build_sets(read_corpora(data), "de", 500, 500, 1)
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "de-en.tsv").write_bytes((data / "train" / "de-en.tsv").read_bytes())
    with pytest.raises(UserError, match=r"has \d+ English sentences beside the de-en pairs and 292 are needed"):
        build_sets(read_corpora(tmp_path), "de", 80, 220, 1)


@given(
    st.lists(st.sampled_from(WORDS), min_size=2, max_size=6), st.lists(st.sampled_from(WORDS), min_size=2, max_size=6)
)
def test_near_texts_are_those_one_word_apart(first: list[str], second: list[str]) -> None:
    def apart() -> bool:
        if abs(len(first) - len(second)) > 1:
            return False
        longer, shorter = (first, second) if len(first) >= len(second) else (second, first)
        cuts = [longer[:n] + longer[n + 1 :] for n in range(len(longer))]
        if len(first) != len(second):
            return shorter in cuts
        return first == second or any(cut in [second[:n] + second[n + 1 :] for n in range(len(second))] for cut in cuts)

    assert bool(near_keys(" ".join(first)) & near_keys(" ".join(second))) == apart()


def test_case_punctuation_and_digits_do_not_make_texts_different() -> None:
    keys = near_keys("On 12 May, 30 people came.")
    assert keys & near_keys("on 14 may 59 people CAME")
    assert keys & near_keys("On 12 May, 30 people stayed.")
    assert not keys & near_keys("On 12 May all the people stayed.")
    assert words_of("Page 7: 12%") == ("page", "0", "00")


def test_sets_are_written_as_bucc_has_them(tmp_path: Path, data: Path) -> None:
    own = build_sets(read_corpora(data), "ru", 80, 160, 1)[1]
    write_set(own, tmp_path / "ru-en")
    assert (tmp_path / "ru-en" / "ru-en.test.ru").read_text(encoding="utf-8").startswith("ru-000000001\t")
    assert read_set(tmp_path, "ru", "test").sha256 == own.sha256, "in a folder of the language pair as well"
    gold = tmp_path / "ru-en" / "ru-en.test.gold"
    gold.write_text(gold.read_text() + "ru-000000001\ten-999999999\n")
    with pytest.raises(UserError, match="gold:5: ru-000000001 en-999999999 are not ids of both sides"):
        read_set(tmp_path, "ru", "test")
    gold.write_text("ru-000000001 en-000000001\n")
    with pytest.raises(UserError, match="gold:1: expected two columns"):
        read_set(tmp_path, "ru", "test")
    with pytest.raises(UserError, match="expected a set in BUCC's format"):
        read_set(tmp_path, "ru", "training")


PAIRS = Pairs(np.array([3, 1, 0, 2]), np.array([3, 1, 2, 0]), np.array([1.4, 1.3, 1.2, 1.0], np.float32))
GOLD = np.array([[1, 1], [2, 0], [3, 3], [5, 5]])


def test_the_best_threshold_lies_behind_the_last_pair_that_is_worth_it() -> None:
    assert best_threshold(PAIRS, GOLD) == (pytest.approx(1.0), pytest.approx(2 * 3 / (4 + 4)))
    assert best_threshold(PAIRS, GOLD[[0, 2]]) == (pytest.approx(1.25), 1.0)
    equal = Pairs(PAIRS.sources, PAIRS.targets, np.array([1.4, 1.4, 1.4, 1.4], np.float32))
    assert best_threshold(equal, GOLD[[0, 2]]) == (pytest.approx(1.4), pytest.approx(2 * 2 / (4 + 2)))


def test_each_length_has_a_threshold_of_its_own() -> None:
    """Sentences of one word need 1.4, those of seven 1.2: each pair is measured by its own."""
    texts = ("one", "one", "one two three four five six seven", "one two three four five six seven")
    gold = np.array([[0, 0], [2, 2]])
    own = BitextSet("de", "training", texts, texts, gold)
    numbers = np.arange(4)
    scores = np.array([1.5, 1.3, 1.3, 1.1], np.float32)
    pairs = Pairs(numbers, numbers, scores)
    cuts = length_thresholds(pairs, own)
    assert cuts[:2] == [pytest.approx(1.4), pytest.approx(1.2)]
    assert cuts[2:] == [float("inf")] * 2, "no true pair, no threshold"
    above = above_cuts(pairs, own, cuts).at_least(1.0)
    assert sorted(above.sources.tolist()) == [0, 2]


def test_true_pairs_are_within_reach_or_not() -> None:
    """Of three true pairs the first is nearest, the second fifth from either side, the third nowhere."""
    ids = tuple(map(str, range(6)))
    own = BitextSet("de", "test", ids, ids, np.array([[0, 0], [1, 1], [2, 2]]))
    ahead = np.array([[0, 3, 4, 5, 2], [0, 3, 4, 5, 1], [0, 1, 3, 4, 5], *[[0, 1, 2, 3, 4]] * 3])
    back = np.array([[3, 4, 5, 0, 1]] * 6)
    searched = tuple(Neighbours(np.ones(side.shape, np.float32), side) for side in (ahead, back))
    seen = Candidates(np.array([0, 2]), np.array([0, 1]), {})
    found = reach(own, (searched[0], searched[1]), seen)
    assert found.astype(int).tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 0]]


def small_set() -> BitextSet:
    ids = tuple(map(str, range(6)))
    return BitextSet("de", "test", ids, ids, GOLD)


def test_scores_count_pairs() -> None:
    own = scored(statistics(PAIRS, small_set()))
    assert (own.found, own.true, own.right, own.precision, own.recall) == (4, 4, 3, 0.75, 0.75)
    assert own.f1.value == 0.75
    assert own.f1.low < 0.75 < own.f1.high <= 1
    nothing = scored(statistics(PAIRS.at_least(9), small_set()))
    assert (nothing.precision, nothing.recall, nothing.f1.value) == (0, 0, 0)


def test_a_difference_is_paired() -> None:
    rows = statistics(PAIRS, small_set())
    assert compare([rows], [rows], F1) == Comparison(0.0, 0.0, 0.0, 1.0)
    fewer = statistics(PAIRS.at_least(1.25), small_set())
    gap = compare([rows], [fewer], F1)
    assert gap.value == pytest.approx(0.75 - 2 * 2 / (2 + 4))


class CountingEncoder:
    """Vectors of two numbers, the length of the text and 1, and a count of the texts encoded."""

    id, fingerprint, dimension, hidden, layers = "counting", "1", 2, 2, 1

    def __init__(self, fails_after: int = 10**9) -> None:
        self.seen = 0
        self.fails_after = fails_after

    def encode(self, texts: list[str], kind: Kind = "query") -> Floats:
        if self.seen >= self.fails_after:
            raise KeyboardInterrupt
        self.seen += len(texts)
        return np.array([[len(text), 1] for text in texts], dtype=np.float32)


def test_vectors_are_encoded_once_even_if_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval.data.vectors.BLOCK", 4)
    texts = ["x" * n for n in range(1, 11)]
    with pytest.raises(KeyboardInterrupt):
        VectorCache(tmp_path, CountingEncoder(8), "query").vectors(texts, show=False)
    encoder = CountingEncoder()
    cache = VectorCache(tmp_path, encoder, "query")
    assert cache.vectors([*texts, "xx", "xx"], show=False)[:, 0].tolist() == [*range(1, 11), 2, 2]
    assert encoder.seen == 2
    assert VectorCache(tmp_path, encoder, "query").vectors(texts[::-1], show=False)[:, 0].tolist() == [
        *range(10, 0, -1)
    ]
    assert encoder.seen == 2
    VectorCache(tmp_path, encoder, "passage").vectors(texts[:1], show=False)
    assert encoder.seen == 3, "another kind has other vectors"


def test_the_sample_sets_hide_lines_of_the_sample_corpus() -> None:
    for own in sample_sets("de"):
        assert len(own.gold) > 20
        assert len(own.sources) > 2 * len(own.gold)


@pytest.mark.slow
def test_the_command_measures_the_sample_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = [tmp_path / name for name in ("report.md", "report.json")]
    arguments = ["--languages", "de", "--work", str(tmp_path / "work"), "--speed", "500"]
    arguments += ["--fit", str(tmp_path / "classifier.json")]
    assert main([*arguments, "--output", str(output[0]), "--output", str(output[1])]) == 0
    printed = capsys.readouterr()
    assert "measures nothing" in printed.err
    assert output[0].read_text(encoding="utf-8") in printed.out
    found = json.loads(output[1].read_text(encoding="utf-8"))
    margin = found["runs"][0]["results"][1]
    assert margin["way"]["score"] == "margin"
    assert margin["scores"]["f1"]["value"] > 0.9
    assert margin["threshold"] > 1
    assert found["runs"][0]["encoded"] > 100
    classifier = found["runs"][0]["results"][4]
    assert classifier["way"]["score"] == "classifier"
    for result in (margin, classifier):
        rows = [row for row in found["runs"][0]["lengths"] if row["way"] == result["way"]]
        assert [row["least"] for row in rows] == [0, 6, 11, 21]
        for name in ("found", "true", "right"):
            assert sum(row[name] for row in rows) == result["scores"][name]
    fitted = Confidence.load(tmp_path / "classifier.json")
    assert fitted.features == FEATURES
    assert fitted.fitted["command"].startswith("python -m eval.bitext --languages de")
    assert str(tmp_path) not in printed.out + output[1].read_text(encoding="utf-8")
    assert main([*arguments, "--output", str(output[1])]) == 0
    assert json.loads(output[1].read_text(encoding="utf-8"))["runs"][0]["encoded"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--output", "report.txt"], "ends neither in .json nor in .md"),
        (["--languages", "xx"], "there is no set of xx"),
        (["--sets", "nowhere"], "there is no nowhere/de-en.training.de"),
        (["--data", "nowhere"], "there is no train/de-en.tsv"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--work", str(tmp_path)]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert error.startswith("rag-mt: ")
