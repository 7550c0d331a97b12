"""Human scores: tables of them, correlations, BERTScore by every layer, and the report."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval.metrics.bertscore import BASELINES, LAYERS, open_bertscore, read_baseline
from eval.quality_bertscore import baseline, layer_f1
from eval.quality_bertscore import main as make_baselines
from eval.quality_contrast import WORSE, contrast, preferred
from eval.quality_correlations import difference, kendall, pearson, spearman, within_sources
from eval.quality_damage import damaged
from eval.quality_data import Rated, main, part_of, read_tables
from eval.quality_report import sample
from eval.quality_scores import kept
from eval.quality_tables import Found, Layers, report
from eval.suites import Part
from rag_mt.errors import UserError
from rag_mt.models import load_encoder

few_values = st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 3)), min_size=3, max_size=30)


@settings(max_examples=60)
@given(few_values)
def test_correlations_are_those_of_scipy(rows: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    a, b = np.array(rows, np.float64).T
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert pearson(a, b) == spearman(a, b) == kendall(a, b) == 0
        return
    assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic, abs=1e-9)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic, abs=1e-9)
    assert kendall(a, b) == pytest.approx(stats.kendalltau(a, b).statistic, abs=1e-9)


def test_within_sources_leaves_differences_of_sources_out() -> None:
    human = np.array([0.0, 1, 10, 11, 5, 5])
    metric = np.array([2.0, 1, 30, 31, 7, 8])  # wrong on the first source, right on the second, nothing on the third
    assert within_sources(metric, human, ["a", "a", "b", "b", "c", "c"]) == 0
    assert within_sources(human, human, ["a", "a", "b", "b", "c", "c"]) == 1
    assert within_sources(human, human, list("abcdef")) == 0


def test_a_better_metric_differs_from_a_worse_one() -> None:
    rng = np.random.default_rng(0)
    human = rng.normal(size=400)
    good, bad = human + rng.normal(size=400), rng.normal(size=400)
    sources = [str(n // 2) for n in range(400)]
    value, low, high = difference(good, bad, human, sources, pearson)
    assert 0.5 < low < value < high < 1
    value, low, high = difference(bad, bad, human, sources, pearson)
    assert value == low == high == 0


@pytest.fixture
def rated(tmp_path: Path) -> Path:
    """A data folder with made-up direct assessments, penalties and references."""
    folder = tmp_path / "data"
    (folder / "quality").mkdir(parents=True)
    (folder / "train").mkdir()
    for part in ("train", "dev", "test21"):
        rows = [f'{part} "source" {n}\ttranslation, {n}\t{n / 10}\t50\n' for n in range(5)]
        (folder / "quality" / f"mlqe-da.ro-en.{part}.tsv").write_text("src\tmt\tz_mean\tmean\n" + "".join(rows))
    rows = [f"sentence {n}\tSatz {n} {penalty}\t{penalty}\t1\n" for n in range(40) for penalty in (0, 5, 40)]
    rows += ["sentence 3\tSatz 3\t1\t1\n", "unknown\tunbekannt\t0\t1\n"]
    (folder / "quality" / "mqm-2021_en-de.tsv").write_text("src\tmt\tmqm_penalty\tn_raters\n" + "".join(rows))
    pairs = [f"sentence {n}\tSatz {n}\tnews\tnewstest2021.eng-deu\n" for n in range(40)]
    pairs.append("unknown\tandersherum\tnews\tnewstest2021.deu-eng\n")
    (folder / "train" / "de-en.tsv").write_text("".join(pairs))
    return folder


def test_tables_of_human_scores(rated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "quality"
    assert main(["--data", str(rated), "--output", str(place)]) == 0
    tables = read_tables(place)
    assert len(tables["da", "dev", "ro-en"]) == 5
    assert tables["da", "dev", "ro-en"][2] == Rated('dev "source" 2', "translation, 2", "", 0.2)
    assert tables["da", "dev", "ro-en"][2].score == 0.2
    parts = {part: rows for (kind, part, pair), rows in tables.items() if (kind, pair) == ("mqm", "en-de")}
    assert sum(map(len, parts.values())) == 120  # neither the reference itself nor the source without one
    sources = [{row.source for row in rows} for rows in parts.values()]
    assert len(set.union(*sources)) == sum(map(len, sources)) == 40
    assert {(row.human, row.score) for rows in parts.values() for row in rows} == {(0, 1), (-5, 0.8), (-40, 0)}
    assert all(row.reference == " ".join(row.translation.split()[:2]) for rows in parts.values() for row in rows)
    first = (place / "mqm.train.en-de.csv").read_text().splitlines()[0]
    assert first == "src,mt,ref,score,human"
    assert main(["--data", str(rated), "--output", str(place)]) == 2
    assert "is there already" in capsys.readouterr().err
    with pytest.raises(UserError, match="quality_data"):
        read_tables(tmp_path)


def test_a_sample_has_all_translations_of_its_sources() -> None:
    rows = [Rated(f"source {n // 3}", f"translation {n}", "", 0.0) for n in range(60)]
    some = sample(rows, 10)
    assert len(some) == 12 and sample(rows, None) == rows and sample(rows, 10) == some
    assert all(row in some for row in rows if row.source in {r.source for r in some})


def test_the_split_goes_by_source_alone() -> None:
    parts = [part_of(f"sentence {n}", 1) for n in range(2000)]
    assert parts == [part_of(f"sentence {n}", 1) for n in range(2000)]
    assert 0.55 < parts.count("train") / 2000 < 0.65 and 0.2 < parts.count("test") / 2000 < 0.3
    assert parts != [part_of(f"sentence {n}", 2) for n in range(2000)]


PAIRS = [("The dog sleeps.", "The hound is asleep."), ("same text", "same text"), (" ", "blank"), ("a b c", "b")]


def test_all_layers_at_once_are_the_package_layer_by_layer(tiny_encoder: Path) -> None:
    pytest.importorskip("bert_score")
    found = layer_f1(load_encoder(str(tiny_encoder), "cpu", "float32"), PAIRS, show=False)
    assert found.shape == (4, 4)
    for layer in range(1, 4):
        metric = open_bertscore(str(tiny_encoder), layer, None, "de")
        theirs = metric.statistics([], [t for t, _ in PAIRS], [r for _, r in PAIRS])[:, 0]
        assert found[:, layer] == pytest.approx(theirs, abs=1e-3)


def test_baselines_are_means_over_unrelated_sentences(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = load_encoder(str(tiny_encoder), "cpu", "float32")
    texts = ["one house", "two small trees", "the river"]
    rows = baseline(encoder, texts)
    assert rows.shape == (4, 3)
    pairs = [(a, b) for a in texts for b in texts if a != b]
    assert 100 * rows[:, 2] == pytest.approx(layer_f1(encoder, pairs, show=False).mean(axis=0), abs=1e-3)
    (tmp_path / "train").mkdir()
    lines = [f"house {n}\tHaus {n}\tnews\tx\n" for n in range(5)] + ["menu\tMenü\tui\tx\n"]
    (tmp_path / "train" / "de-en.tsv").write_text("".join(lines))
    place = tmp_path / "baselines"
    command = ["--data", str(tmp_path), "--output", str(place), "--model", str(tiny_encoder), "--quiet"]
    assert make_baselines(command) == 0
    for language in ("de", "en"):
        name, value = read_baseline(place, language, 3) or ("", 0.0)
        assert name == f"{language}.tsv" and -1 < value < 1


def test_encoders_with_a_layer_have_baselines() -> None:
    for encoder, layer in LAYERS.items():
        for language in ("en", "de", "cs", "fi", "ru", "ro", "tr"):
            _, value = read_baseline(BASELINES[encoder], language, layer) or ("", 0.0)
            assert 0.5 < value < 1
        assert read_baseline(BASELINES[encoder], "fr", layer) is None


def test_contrasts() -> None:
    part = Part("de", "en", (1, 2), ("Quelle eins", "Quelle zwei"), ("one two three four five", "six"), 2)
    made = contrast(part)
    better, worse, copied, other = made.triples[:4]
    assert len(better[1].split()) == 4 and len(worse[1].split()) == 2
    assert copied == ("Quelle eins", "Quelle eins", "one two three four five") and other[1] == "six"
    assert len(made.triples) == 2 * (1 + len(WORSE))
    assert preferred(np.array([3.0, 1, 2, 3, 1, 1, 2, 0])) == (75, 50, 75)


@pytest.mark.parametrize(("reference", "worst"), [("r", -25), ("", -2.5)])
def test_damage_is_rated_below_what_it_was_made_of(reference: str, worst: float) -> None:
    rows = [Rated(f"s{n}", f"one two three four five{n}", reference, -0.5) for n in range(9)]
    made = damaged(rows, 3, 1)
    assert len(made) == 12 and made == damaged(rows, 3, 1)
    for light, heavy, copied, other in zip(*(made[n::4] for n in range(4)), strict=True):
        assert len(light.translation.split()) == 4 and len(heavy.translation.split()) == 2
        assert -0.5 > light.human > heavy.human >= copied.human == other.human == worst
        assert copied.translation == copied.source and other.translation[-1] != light.source[-1]


def test_scores_are_kept(tmp_path: Path) -> None:
    calls = []

    def lengths(triples: list[tuple[str, str, str]], target: str) -> np.ndarray:
        calls.append(target)
        return np.array([len(t) for _, t, _ in triples], np.float64)

    parts = [([("s", "aa", "r")], "de"), ([("s", "b", "r")], "ru"), ([("s", "ccc", "r"), ("s", "", "r")], "de")]
    for _ in range(2):
        assert [own.tolist() for own in kept(tmp_path, "length", lengths, parts)] == [[2], [1], [3, 0]]
    assert calls == ["de", "ru"]


def test_the_report_names_what_is_best_and_what_is_missing(tmp_path: Path) -> None:
    rows = [Rated(f"s{n // 2}", f"t{n}", "r", float(-n % 7)) for n in range(20)]
    human = np.array([row.human for row in rows])
    f1 = np.stack([np.zeros(20), human, -human], axis=1)
    layers = Layers({"en-de": rows}, {"en-de": f1})
    assert layers.best == 1
    made = contrast(Part("de", "en", (1, 2), ("eins", "zwei"), ("one two", "three"), 2))
    facts = {
        "command": "python -m eval.comet_train --config configs/comet-reference.toml",
        "settings": {"data": {"table": "mqm"}},
        "rows": {"train": {"en-de": 12}},
        "damaged": 8,
        "dev_scores": [{}],
        "best_dev_kendall": 0.31,
        "seconds": 60,
        "unbabel_comet": "2.2.7",
    }
    (tmp_path / "training.json").write_text(json.dumps(facts))
    text = report(
        Found(
            mqm={"en-de": rows},
            mqm_scores={"chrF": {"en-de": np.arange(20.0) % 3}, "COMET": {"en-de": human}},
            da={"ro-en, test21": rows},
            da_scores={"ro-en, test21": -human},
            contrasts=[made],
            contrast_scores={"chrF": [np.arange(8.0)]},
            layers=layers,
            rows={"mqm.test.en-de": 20},
            models={"COMET": tmp_path},
            limit=20,
        )
    )
    assert "Layer 1 is chosen." in text
    assert "| COMET | en-de | 20 | 100.0 | 100.0 | 100.0 | 100.0 |" in text
    assert "| ro-en, test21 | 20 | -100.0 | -100.0 | -100.0 |" in text
    assert "No human scores exist here for translations into Finnish, Romanian and Turkish" in text
    assert "at least 20 rows" in text and "--limit 20" in text and facts["command"] in text
