"""The suite `xpr` on a random encoder: what it finds, keeps, leaves out and refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel, BertTokenizerFast

from eval.data.phrase_sets import PhraseSet, as_examples
from eval.phrases.__main__ import main
from eval.xpr.baselines import WORD_TRAINING, Maps, States, Words, sentences_of
from eval.xpr.mapping import SelfLearning
from eval.xpr.plans import Models
from eval.xpr.suite import Cells, result, task
from rag_mt.base.errors import UserError
from rag_mt.base.types import Floats
from retrievers.ccpr.model import ENCODER
from retrievers.xpr.examples import ExampleSet, Side, open_examples, sentence_table, write_examples
from retrievers.xpr.model import XprHead, XprSettings, untrained_xpr

FIRST = ("old", "small", "green", "quiet", "broken", "wooden", "heavy", "empty")
SECOND = ("bridge", "garden", "letter", "window", "engine", "harbour", "ticket", "basket", "mirror")
PHRASES = [f"{a} {b}" for a in FIRST for b in SECOND]
TRAIN, DEV, TEST = 36, 12, 12
EXAMPLES = 3
SMALL_TRAINING = {**WORD_TRAINING, "dim": 12, "epoch": 3, "bucket": 200}
SMALL_LEARNING = SelfLearning(vocabulary=50, first=50, patience=2, most=20)


CIPHER = str.maketrans("abcdefghijklmnopqrstuvwxyz", "xkqzjwvybfghmnpcdrstlaeiou")


def ciphered(text: str) -> str:
    """The text in other letters."""
    return text.translate(CIPHER)


def side(language: str, phrases: list[str]) -> Side:
    """Each phrase in three sentences of its own."""
    texts, spans = [], []
    for n, phrase in enumerate(phrases):
        for k in range(EXAMPLES):
            before = f"in year {k} we found the "
            spans.append([n, len(texts), len(before), len(before) + len(phrase)])
            texts.append(f"{before}{phrase} again")
    return Side(language, tuple(phrases), sentence_table(texts), np.array(spans, np.int32))


@pytest.fixture(scope="module")
def phrases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """German that is English word for word, and Czech that is English in other letters."""
    folder = tmp_path_factory.mktemp("phrases")
    splits = np.repeat([0, 1, 2], [TRAIN, DEV, TEST])
    rows = np.stack([np.arange(len(splits)), np.arange(len(splits)), splits], axis=1).astype(np.int32)
    english = side("en", PHRASES)
    write_examples(folder / "de-en", "de-en", (side("de", PHRASES), english), rows, {})
    write_examples(folder / "cs-en", "cs-en", (side("cs", [ciphered(p) for p in PHRASES]), english), rows, {})
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text for word vectors: the phrases in changing company."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "train").mkdir()
    rng = np.random.default_rng(1)
    texts = [" and ".join(rng.choice(PHRASES, size=4)) for _ in range(150)]
    for language, change in (("de", str), ("cs", ciphered)):
        lines = [f"{text}\t{change(text)}\tnews\n" for text in texts]
        (folder / "train" / f"{language}-en.tsv").write_text("".join(lines))
    return folder


def training(phrases: Path, languages: list[str], seed: int = 1, sentences: int = 4) -> dict[str, Any]:
    """What `finetune.xpr` records of a training, as far as it is read."""
    settings = {
        "data": {"languages": languages, "sentences": sentences},
        "training": {"steps": 40, "seed": seed, "momentum": 0.99, "queue": 0},
        "model": {"layer": 2, "head": True},
    }
    sets = [
        {
            "name": name,
            "statistics": {"train": {"pairs": 36 * n}},
            "files": open_examples(phrases / name).manifest["files"],
        }
        for n, name in enumerate(languages, 1)
    ]
    return {"steps": 30, "phrase_pairs_seen": 1440, "training_seconds": 90, "settings": settings, "phrases": sets}


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT of two layers whose tokens are letters: it is loaded at once."""
    folder = tmp_path_factory.mktemp("letters") / "bert"
    folder.mkdir()
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *alphabet, *(f"##{c}" for c in alphabet)]
    BertTokenizerFast(vocab={token: n for n, token in enumerate(vocabulary)}).save_pretrained(folder)
    torch.manual_seed(1)
    size = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    BertModel(BertConfig(vocab_size=len(vocabulary), max_position_embeddings=128, **size)).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, phrases: Path, letters: Path) -> Path:
    """Models whose heads are random, some of them."""
    folder = tmp_path_factory.mktemp("models")
    for name, sentences in (
        ("supervised.de-en", 4),
        ("multilingual", 4),
        ("seed.2.de-en", 4),
        ("ablation.sentences.de-en", 0),
        ("layer.2.de-en", 4),
    ):
        torch.manual_seed(len(name))
        (folder / name).mkdir()
        (folder / name / ENCODER).symlink_to(letters)
        XprHead(XprSettings(ENCODER, layer=2, hidden=32, sentences=sentences)).save(folder / name)
        languages = ["de-en"] if "de" in name else ["de-en", "cs-en"]
        facts = training(phrases, languages, seed=2 if "seed" in name else 1, sentences=sentences)
        (folder / name / "training.json").write_text(json.dumps(facts))
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["--suite", "xpr", "--device", "cpu", "--dtype", "float32", *arguments])
    return code, *capsys.readouterr()


@pytest.fixture(scope="module")
def common(phrases: Path, letters: Path) -> list[str]:
    return ["--phrases", str(phrases), "--encoder", str(letters), "--examples", "2"]


@pytest.fixture(autouse=True)
def quick_learning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Word vectors and maps of a few rounds."""
    monkeypatch.setattr("eval.xpr.baselines.WORD_TRAINING", SMALL_TRAINING)
    monkeypatch.setattr("eval.xpr.baselines.LEARNING", SMALL_LEARNING)
    monkeypatch.setattr("eval.xpr.baselines.LEAST", 10)
    monkeypatch.setattr("eval.xpr.plans.TRAINED_LAYERS", (1, 2, 12))


def test_the_whole_suite(common, data, models, capsys, tmp_path) -> None:
    runs, out = tmp_path / "runs", tmp_path / "report"
    arguments = [*common, "--data", str(data), "--models", str(models), "--runs", str(runs)]
    files = [str(out.with_suffix(end)) for end in (".json", ".md")]
    code, text, notes = run(capsys, *arguments, "--output", *files)
    assert code == 0, notes
    report = json.loads(Path(files[0]).read_text())
    rows = {(row["part"], row["name"]): row for row in report["rows"]}
    for part, name in (
        ("unsupervised", "XPR, untrained"),
        ("unsupervised", "CLSE, no map"),
        ("supervised", "CLSE"),
        ("supervised", "XPR"),
    ):
        assert rows[part, name]["sets"]["de-en"]["value"] == 1, f"equal text has equal vectors: {part} {name}"
    assert rows["unsupervised", "XPR, untrained"]["sets"]["cs-en"]["value"] < 0.5
    assert rows["supervised", "CLWE"]["sets"].keys() == {"de-en", "cs-en"}
    assert rows["zero-shot", "CLSE"]["sets"].keys() == {"cs-en"}
    assert rows["supervised", "XPR"]["missing"] == ["cs-en"] and rows["supervised", "XPR"]["average"] is None
    assert rows["multilingual", "XPR"]["missing"] == []
    assert report["source"] == "de-en", "the first in the usual order"
    assert rows["matrix", "de-en"]["sets"].keys() == {"de-en", "cs-en"}
    assert ("matrix", "cs-en") not in rows
    assert rows["ablations", "without example sentences"]["sets"]["de-en"]["value"] == 1
    assert "ablations: without momentum; without projection head; MoCo queue; head on each token" in report["missing"]
    assert "seeds: seed.3.de-en" in report["missing"]
    assert rows["layers, trained", "XPR, trained on de-en@2"]["sets"]["de-en"]["value"] == 1
    assert "layers, trained: XPR, trained on de-en@1" in report["missing"]
    assert report["differences"]["XPR supervised less untrained"]["sets"] == ["de-en"]
    assert {name for part, name in rows if part == "examples"} >= {"XPR, untrained@1", "XPR, trained on de-en@32"}
    assert len([name for part, name in rows if part == "layers"]) == 3 * 3, "three systems, embeddings and two layers"
    markdown = Path(files[1]).read_text()
    lines = markdown.splitlines(keepends=True)
    picture = next(n for n, line in enumerate(lines) if line.startswith("The same as a picture"))
    assert "".join([*lines[:picture], *lines[picture + 2 :]]) == text, "what is printed has no picture"
    for shown in (
        "83.9",
        "12 test pairs (12 with several words, 12 concepts), searched among 24 of de and 24 of en; 0 of 24 queries",
        "avg",
        "report.svg",
        "| 30 | 40 | 1,440 | de-en 480, cs-en 960 | 1.5 |",
    ):
        assert shown in markdown
    assert out.with_suffix(".svg").read_text().startswith("<?xml")

    again = run(capsys, *arguments, "--parts", "none")
    assert again[0] == 0
    assert again[1] == text, "the same report from what is kept"
    assert "0 results were computed" in again[2]


def test_layers_and_seeds_of_every_language_with_all_sentences(common, models, phrases, capsys, tmp_path) -> None:
    folder = tmp_path / "models"
    shutil.copytree(models, folder, symlinks=True)
    for kind, seed in (("supervised", 1), ("seed.2", 2), ("layer.2", 1), ("layer.1", 1)):
        made = folder / f"{kind}.cs-en"
        shutil.copytree(models / "supervised.de-en", made, symlinks=True)
        facts = training(phrases, ["cs-en"], seed=seed)
        facts["settings"]["model"]["layer"] = 1 if kind == "layer.1" else 2
        (made / "training.json").write_text(json.dumps(facts))
    arguments = [*common, "--models", str(folder), "--runs", str(tmp_path / "runs"), "--examples", "32"]
    output = tmp_path / "r.json"
    code, text, notes = run(capsys, *arguments, "--parts", "models", "--output", str(output))
    assert code == 0, notes
    rows = [(row["part"], row["name"], list(row["sets"])) for row in json.loads(output.read_text())["rows"]]
    assert [row[1:] for row in rows if row[0] == "seeds"] == [
        (f"{kind}.{name}", [name]) for name in ("de-en", "cs-en") for kind in ("supervised", "seed.2")
    ]
    assert [row[1:] for row in rows if row[0] == "layers, trained"] == [
        ("XPR, trained on de-en@2", ["de-en"]),
        ("XPR, trained on cs-en@1", ["cs-en"]),
        ("XPR, trained on cs-en@2", ["cs-en"]),
    ]
    assert "Mean of de-en: 100.0, standard deviation 0.0." in text and "Mean of cs-en: " in text
    assert "at most 32 example sentences" in text
    cells = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "cells").iterdir()]
    assert {cell["key"]["examples"] for cell in cells} == {32, 0}, "0 is the model without sentences"
    code, text, notes = run(capsys, *arguments, "--parts", "none", "--languages", "de")
    assert "Mean 100.0, standard deviation 0.0." in text, "as before, where one language is asked"


def test_what_is_not_run_is_named(common, capsys, tmp_path) -> None:
    code, text, notes = run(capsys, *common, "--runs", str(tmp_path), "--parts", "untrained", "--languages", "de")
    assert code == 0, notes
    assert "without --data DIR there are no word vectors" in notes
    assert "| XPR, untrained | 100.0 | 100.0 | 100.0 to 100.0 |" in text
    assert "unsupervised: CLWE; CLSE, no map; CLSE, map without pairs" in text
    assert "multilingual: CLWE; CLSE; XPR" in text
    assert "the encoder's usual one" in text, "no sweep, no choice"


def test_a_set_without_development_pairs_chooses_nothing(letters: Path, capsys, tmp_path) -> None:
    """As of a lexicon without phrases of several words."""
    splits = np.repeat([0, 2], [TRAIN + DEV, TEST])
    rows = np.stack([np.arange(len(splits)), np.arange(len(splits)), splits], axis=1).astype(np.int32)
    write_examples(tmp_path / "p" / "de-en", "de-en", (side("de", PHRASES), side("en", PHRASES)), rows, {})
    arguments = ["--phrases", str(tmp_path / "p"), "--encoder", str(letters), "--examples", "2"]
    output = tmp_path / "r.json"
    parts = ["--parts", "layers,untrained,examples", "--runs", str(tmp_path / "runs"), "--output", str(output)]
    code, text, notes = run(capsys, *arguments, *parts)
    assert code == 0, notes
    assert "without development pairs, so that nothing is chosen on them: de-en" in text
    assert "the encoder's usual one" in text and "| XPR, untrained | 100.0 |" in text
    report = json.loads(output.read_text())
    assert report["layers"]["XPR, untrained"] == 1, "two thirds of two layers"
    assert not [row for row in report["rows"] if row["part"] in ("layers", "examples")]


def test_fewer_others_are_read_from_more(phrases: Path, tmp_path: Path) -> None:
    own = open_examples(phrases / "de-en")
    cells = Cells(tmp_path)
    rng = np.random.default_rng(0)
    noise = [rng.standard_normal((len(PHRASES), 4)).astype(np.float32) for _ in range(2)]
    found = result(task(own, "test", 12), lambda side, rows: noise[side][rows])
    made = cells.kept("noise", {"n": 1}, task(own, "test", 12), 12, lambda: found)
    assert made is not None
    np.testing.assert_array_equal(made.right, found.among_all)
    without = cells.kept("noise", {"n": 1}, task(own, "test", 0), 0, None)
    assert without is not None
    np.testing.assert_array_equal(without.right, found.among_own)
    assert cells.kept("noise", {"n": 1}, task(own, "test", 5), 5, None) is None
    five = result(task(own, "test", 5), lambda side, rows: noise[side][rows])
    cells.kept("noise", {"n": 1}, task(own, "test", 5), 5, lambda: five)
    again = cells.kept("noise", {"n": 1}, task(own, "test", 12), 12, None)
    assert again is not None, "another number of others leaves it there"
    np.testing.assert_array_equal(again.right, found.among_all)
    assert cells.kept("noise", {"n": 2}, task(own, "test", 0), 0, None) is None


def test_nothing_is_begun_after_the_deadline(tmp_path: Path) -> None:
    assert Cells(tmp_path, deadline=0).kept("x", {"n": 3}, None, 0, lambda: 1 / 0) is None


def test_maps_and_what_they_are_learnt_from(phrases, data, letters, tmp_path) -> None:
    """Maps differ by the sets that they are learnt from, and equal sides stay equal."""
    sets = {name: open_examples(phrases / name) for name in ("cs-en", "de-en")}
    maps = Maps(States(untrained_xpr(str(letters), device="cpu", dtype="float32"), 1), sets)
    own = sets["de-en"]
    asked = task(own, "test", 12)
    found = result(asked, lambda side, rows: maps.vectors(own, ("de-en",), side, rows))
    assert found.among_all.all()
    both = maps.vectors(own, ("de-en", "cs-en"), 0, asked.candidates[0])
    assert not np.allclose(both, maps.vectors(own, ("de-en",), 0, asked.candidates[0]), atol=1e-3)
    assert maps.key(("de-en",)) != maps.key(("cs-en",)) != maps.key(())
    words = Words(data, tmp_path)
    rows = words.normal(own, 1, np.arange(4))
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert len(words.language("en").frequent) >= len({*FIRST, *SECOND})


def test_phrases_alone_are_encoded_once(phrases: Path, letters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, encoder = open_examples(phrases / "cs-en"), untrained_xpr(str(letters), device="cpu", dtype="float32")
    states, encoded, states_of = States(encoder, 1), [], encoder.example_states
    wanted = encoder.side_states(own.target, np.array([5, 2, 2, 7]), 0, 1)

    def counting(texts, spans, layer):
        encoded.extend(texts)
        return states_of(texts, spans, layer)

    monkeypatch.setattr(encoder, "example_states", counting)
    found = [states.plain(own, 1, np.array(rows, np.int64)) for rows in ([5, 2, 2], [2, 7], [])]
    np.testing.assert_allclose(np.concatenate(found), wanted[[0, 1, 2, 1, 3]], atol=1e-5)
    assert sorted(encoded) == sorted(own.target.phrases[row] for row in (2, 5, 7))
    assert not np.array_equal(states.plain(own, 0, np.array([5])), found[0][:1]), "sides are kept apart"


class Turned:
    """Vectors of side 0 that are those of side 1, turned by a matrix."""

    def __init__(self, vectors: Floats, turn: Floats) -> None:
        self.key = {"turned": 1}
        self.sides = vectors @ turn.T, vectors

    def plain(self, own: ExampleSet, side: int, rows: NDArray[np.int64]) -> Floats:
        return self.sides[side][rows]

    normal = plain

    def sample(self, own: ExampleSet, side: int) -> Floats:
        return self.sides[side]


@pytest.mark.parametrize("trained_on", [("de-en",), ()])
def test_a_map_turns_the_first_side_into_the_space_of_the_second(phrases: Path, trained_on: tuple[str, ...]) -> None:
    own = open_examples(phrases / "de-en")
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((len(PHRASES), 8)).astype(np.float32) * np.linspace(1, 4, 8, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    turn = np.linalg.qr(rng.standard_normal((8, 8)))[0].astype(np.float32)
    base = Turned(vectors, turn)
    maps, rows = Maps(base, {"de-en": own}), np.arange(TRAIN, len(PHRASES))
    assert np.abs(base.plain(own, 0, rows) - vectors[rows]).max() > 0.3
    np.testing.assert_allclose(maps.vectors(own, trained_on, 0, rows), vectors[rows], atol=1e-3)
    np.testing.assert_array_equal(maps.vectors(own, trained_on, 1, rows), vectors[rows])


def test_a_set_without_others_is_mapped_by_its_training_phrases(
    phrases: Path, letters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = open_examples(phrases / "de-en")
    count = TRAIN + DEV + TEST
    sides = [Side(s.language, s.phrases[:count], s.sentences, s.examples[: EXAMPLES * count]) for s in whole.sides]
    own = write_examples(tmp_path / "de-en", "de-en", (sides[0], sides[1]), whole.rows, {})
    states = States(untrained_xpr(str(letters), device="cpu", dtype="float32"), 1)
    maps = Maps(states, {"de-en": own})
    samples = [states.sample(own, side) for side in (0, 1)]
    assert len(samples[0]) == TRAIN
    assert not np.allclose(*samples), "the orders of the sides say nothing of what belongs together"
    found = maps.vectors(own, (), 0, np.arange(3))
    assert found.shape == (3, 32) and maps.can_map(own, ())
    monkeypatch.setattr("eval.xpr.baselines.LEAST", TRAIN + 1)
    assert not maps.can_map(own, ()) and maps.can_map(own, ("de-en",))


def test_aligned_phrases_become_a_set(tmp_path: Path) -> None:
    """The set of the quick form: every phrase in one pair with all its sentences, further translations known."""
    sources, targets = ("alt haus", "haus alt", "haus neu"), ("old house", "home old", "new house")
    spans = [(0, 0, 3, 0, 3), (0, 4, 8, 4, 9), (1, 0, 4, 0, 4), (1, 5, 8, 5, 8), (2, 0, 4, 4, 9), (2, 5, 8, 0, 3)]
    aligned = PhraseSet("x", "de", "one", sources, targets, (1, 2, 3), np.array(spans, np.int32), len(spans))
    own = as_examples(aligned, tmp_path / "de-en")
    assert own.source.phrases == ("alt", "haus", "neu") and own.target.phrases == ("old", "house", "home", "new")
    assert own.source.examples.tolist() == [
        [0, 0, 0, 3],
        [0, 1, 5, 8],
        [1, 0, 4, 8],
        [1, 1, 0, 4],
        [1, 2, 0, 4],
        [2, 2, 5, 8],
    ]
    known = own.rows[own.rows[:, 2] == 3, :2].tolist()
    assert known == [[1, 2]] and len(own.rows) == 4


def test_without_phrases_the_sample_corpus_is_tried(common, phrases, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("eval.xpr.suite.sample_phrases", lambda *_: phrases)
    code, text, notes = run(capsys, *common, "--phrases", "", "--runs", str(tmp_path), "--parts", "none")
    assert code == 0, notes
    assert "measures nothing" in notes and "quick form on the sample corpus" in text


def test_sentences_of_a_language(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    english = sentences_of(data, "en")
    assert len(english) == len(set(english)) == 150, "the same English stands in both files"
    assert ciphered(english[0]) in sentences_of(data, "cs")
    monkeypatch.setattr("eval.xpr.baselines.SENTENCES", 40)
    assert len(sentences_of(data, "en")) == 40
    with pytest.raises(UserError, match=r"no fi-en\.tsv"):
        sentences_of(data, "fi")


MISTAKES = [
    (("--phrases", "/nowhere"), "no phrase sets in /nowhere"),
    (("--languages", "fi"), "no set fi-en"),
    (("--models", "/nowhere"), "no folder /nowhere"),
    (("--parts", "layers,soup"), "no part soup"),
    (("--others", "-1"), "--others -1 is below 0"),
    (("--output", "x.csv"), "neither in .json nor in .md"),
    (("--model", "ccpr-e5-small", "--dev-report", "x.json"), "suite xpr does not read --model, --dev-report"),
    (("--suite", "gold"), "suite gold does not read --phrases"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_sentence(arguments, message, common, capsys, tmp_path) -> None:
    code, _, error = run(capsys, *common, "--runs", str(tmp_path), *arguments)
    assert code == 2
    assert message in error
    assert "Traceback" not in error


def test_a_model_of_another_name_is_refused(common, models, capsys, tmp_path) -> None:
    folder = tmp_path / "models" / "supervised.cs-en"
    shutil.copytree(models / "supervised.de-en", folder, symlinks=True)
    code, _, error = run(capsys, *common, "--models", str(folder.parent), "--runs", str(tmp_path / "runs"))
    assert code == 2
    assert "was trained on de-en: name its folder for that" in error


def test_a_model_of_other_pairs_or_settings_is_refused(common, phrases, models, capsys, tmp_path) -> None:
    folder = tmp_path / "models" / "seed.2.de-en"
    shutil.copytree(models / "seed.2.de-en", folder, symlinks=True)
    facts = json.loads((folder / "training.json").read_text())
    arguments = (*common, "--models", str(folder.parent), "--runs", str(tmp_path / "runs"), "--parts", "none")
    assert run(capsys, *arguments)[0] == 0
    facts["phrases"][0]["files"]["pairs.npy"]["sha256"] = "0"
    (folder / "training.json").write_text(json.dumps(facts))
    code, _, error = run(capsys, *arguments)
    assert code == 2 and "was trained on another version of the set de-en: train it again" in error
    (folder / "training.json").write_text(json.dumps(training(phrases, ["de-en"], seed=3)))
    code, _, error = run(capsys, *arguments)
    assert code == 2 and "trained with training.seed = 3, which its name does not say" in error
    others = {
        "data": {"sentences": 0},
        "training": {"momentum": 0, "queue": 64},
        "model": {"head": False, "head_on": "tokens"},
    }
    for group, settings in others.items():
        for key, value in settings.items():
            facts = training(phrases, ["de-en"], seed=2)
            facts["settings"][group][key] = value
            (folder / "training.json").write_text(json.dumps(facts))
            code, _, error = run(capsys, *arguments)
            assert code == 2 and f"trained with {group}.{key} = {value}, which its name" in error
    shutil.rmtree(folder)
    shutil.copytree(models / "multilingual", folder.parent / "multilingual", symlinks=True)
    (folder.parent / "multilingual" / "training.json").write_text(json.dumps(training(phrases, ["de-en"])))
    code, _, error = run(capsys, *arguments)
    assert code == 2 and "was not trained on cs-en" in error
    shutil.copytree(models / "supervised.de-en", folder.parent / "ablation.queue.de-en", symlinks=True)
    (folder.parent / "multilingual").rename(tmp_path / "elsewhere")
    code, _, error = run(capsys, *arguments)
    assert code == 2 and "trained with training.queue = 0, which its name" in error


def test_models_are_told_apart_by_what_makes_their_vectors(models: Path, tmp_path: Path) -> None:
    shutil.copytree(models / "supervised.de-en", tmp_path / "one", symlinks=True)
    own = Models(tmp_path)
    before = own.key("one", 8)
    (tmp_path / "one" / "training.json").write_text("{}")
    (tmp_path / "one" / "checkpoint").mkdir()
    (tmp_path / "one" / "checkpoint" / "checkpoint.safetensors").write_bytes(b"moments")
    assert own.key("one", 8) == before
    for name in ("xpr.json", "head.safetensors"):
        (tmp_path / "one" / name).write_bytes((tmp_path / "one" / name).read_bytes() + b" ")
        assert own.key("one", 8) != before
        before = own.key("one", 8)
    (tmp_path / "one" / ENCODER).unlink()
    shutil.copytree(models / "supervised.de-en" / ENCODER, tmp_path / "one" / ENCODER)
    assert own.key("one", 8) == before
    (tmp_path / "one" / ENCODER / "model.safetensors").write_bytes(b"other")
    assert own.key("one", 8) != before


def test_data_without_a_language_is_refused(common, data, capsys, tmp_path) -> None:
    (tmp_path / "train").mkdir()
    arguments = ("--data", str(tmp_path), "--parts", "baselines", "--runs", str(tmp_path / "runs"))
    code, _, error = run(capsys, *common, *arguments)
    assert code == 2
    assert "there is no en-en.tsv" not in error
    assert "give --data the folder that holds train/" in error
