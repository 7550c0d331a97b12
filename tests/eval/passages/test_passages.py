"""Passage retrieval: cells of one pool, hybrids by cross-validation, and the whole command on a small collection."""

from __future__ import annotations

import json
import lzma
import sys
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

from eval.data.xquad import LANGUAGES, part_of
from eval.passages.__main__ import main, named
from eval.passages.report import CROSS, Report, System, markdown
from eval.passages.runs import (
    ALPHAS,
    ANY,
    Record,
    Rm3Settings,
    cells_of,
    cross_validated,
    evaluated,
    ranked,
    run_scorer,
    term_scorers,
)
from eval.passages.sets import Collection, Query, cached_collection, own_collection, read_run, xquad_collection
from eval.significance import over_seeds
from rag_mt.base.errors import UserError
from retrievers.bm25 import Bm25Settings
from retrievers.passage import Rankings, weighted

WORDS = {"en": "river bridge council budget hospital", "de": "Fluss Brücke Stadtrat Haushalt Krankenhaus"}


@pytest.fixture
def files(tmp_path):
    """Five passages in each of two languages, and a question on each."""
    rows = [(f"{code}-{n}", f"{w} {w} {code}", code) for code in WORDS for n, w in enumerate(WORDS[code].split())]
    asked = [(f"q-{key}", text.split()[0], code) for key, text, code in rows]
    judged = [f"q-{code}-{n} 0 {other}-{n} 1" for code in WORDS for other in WORDS for n in range(5)]
    for name, lines in (("p", rows), ("q", asked)):
        (tmp_path / f"{name}.tsv").write_text("".join("\t".join(line) + "\n" for line in lines), encoding="utf-8")
    (tmp_path / "qrels").write_text("\n".join(judged))
    return tmp_path


@pytest.fixture
def collection(files):
    return own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")


def test_cells_take_out_the_answers_in_other_languages(collection):
    _, english_german, alone, english_any, *_ = cells_of(collection)
    assert (english_german.name, english_any.name) == ("en-de", f"en-{ANY}")
    assert english_german.relevant[1].nonzero()[0].tolist() == [6]
    assert english_german.out[1].nonzero()[0].tolist() == [1]
    assert alone.name == "en>de" and alone.relevant.tolist() == english_german.relevant.tolist()
    assert alone.out[1].nonzero()[0].tolist() == [0, 1, 2, 3, 4]
    assert english_any.relevant[1].nonzero()[0].tolist() == [1, 6]
    assert not english_any.out.any()


def test_bm25_asks_another_language_alone_for_what_languages_share(tmp_path):
    """ "in" is an English word here and a German one there: only the name is asked for, and only German text found."""
    (tmp_path / "p.tsv").write_text("e\tborn in Berlin\ten\nd0\tin der Stadt\tde\nd1\tBerlin ist alt\tde\n")
    (tmp_path / "q.tsv").write_text("q\tin Berlin\ten\n")
    (tmp_path / "qrels").write_text("q 0 d1 1\n")
    found = own_collection(tmp_path / "p.tsv", tmp_path / "q.tsv", tmp_path / "qrels", "en")
    for scores in term_scorers(found, Bm25Settings(), Rm3Settings()).values():
        assert (scores("en", "") > 0).tolist() == [[True, True, True]]
        assert (scores("en", "de") > 0).tolist() == [[False, False, True]]


def test_ranked_leaves_out_what_is_out_or_too_low():
    scores = np.array([[0.5, 0.9, 0.0, 0.9, 0.7]], np.float32)
    out = np.array([[False, False, False, False, True]])
    assert ranked(scores, out, 0.0, depth=4).ids.tolist() == [[1, 3, 0, -1]]
    assert ranked(scores, np.zeros_like(out), depth=2).ids.tolist() == [[1, 3]]


def test_files_of_ones_own_are_read_as_they_are(files, capsys):
    """A mark at the beginning is no part of an id, a line separator inside a text ends no row."""
    mark, separator = "\ufeff", "\u2028"
    text = (files / "p.tsv").read_text(encoding="utf-8").replace(" ", separator, 1)
    (files / "p.tsv").write_text(mark + text, encoding="utf-8")
    with (files / "q.tsv").open("a", encoding="utf-8") as more:
        more.write("q99\tnobody has an answer\n")
    found = own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")
    assert not found.ids[0].startswith(mark) and separator in found.texts[0]
    assert "queries of" in capsys.readouterr().err and "q99" not in {query.id for query in found.queries}
    (files / "q.tsv").write_bytes("q1\tcaf\u00e9\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"q.tsv:1 cannot be read: expected UTF-8"):
        own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")


def test_alpha_is_chosen_on_the_other_folds(collection):
    """BM25 is right for the queries of fold 0 and dense for all others: fold 0 must get the alpha of the others."""
    ids = np.array([[0, 1]] * 5)
    queries = [Query(str(n), "", "en", str(n)) for n in range(5)]
    relevant = np.zeros((5, 10), dtype=bool)
    relevant[0, 0] = relevant[np.arange(1, 5), 1] = True
    cell = cells_of(collection)[0]
    cell = type(cell)("en", "en", queries, relevant, np.zeros_like(relevant))
    terms = Rankings(np.array([[2.0, 1.0]] * 5, np.float32), ids)
    dense = Rankings(np.array([[0.9, 0.8]] * 5, np.float32), ids[:, ::-1])
    found, chosen = cross_validated([terms], dense, cell)
    assert len(chosen) == 5 and set(chosen) <= set(ALPHAS)
    assert all(alpha < 0.5 for alpha in chosen)
    assert found.ids[:, :2].tolist() == weighted(terms, dense, 0.4, 2).ids.tolist()


def test_alpha_is_not_chosen_on_the_own_fold(collection):
    """BM25 is right for the two queries of fold 0, dense for the one of fold 1: each fold gets the other's alpha."""
    queries = [Query("0", "", "en", "a"), Query("1", "", "en", "a"), Query("2", "", "en", "b")]
    relevant = np.zeros((3, 10), dtype=bool)
    relevant[:2, 0] = relevant[2, 1] = True
    cell = type(cells_of(collection)[0])("en", "en", queries, relevant, np.zeros_like(relevant))
    ids = np.array([[0, 1]] * 3)
    terms = Rankings(np.array([[2.0, 1.0]] * 3, np.float32), ids)
    _, (first, second) = cross_validated([terms], Rankings(np.array([[0.9, 0.8]] * 3, np.float32), ids[:, ::-1]), cell)
    assert first < 0.5 <= second


def test_alpha_is_chosen_by_all_answers_of_a_query(collection):
    """Both rankings have an answer first; only the dense one has the second answer behind it."""
    queries = [Query(str(n), "", "en", str(n)) for n in range(2)]
    relevant = np.zeros((2, 10), dtype=bool)
    relevant[:, [0, 5]] = True
    cell = type(cells_of(collection)[0])("en", ANY, queries, relevant, np.zeros_like(relevant))
    scores = np.array([[3.0, 2.0, 1.0]] * 2, np.float32)
    terms, dense = Rankings(scores, np.array([[0, 1, 5]] * 2)), Rankings(scores, np.array([[0, 5, 1]] * 2))
    found, chosen = cross_validated([terms], dense, cell)
    assert all(alpha < 0.5 for alpha in chosen) and found.ids[:, :2].tolist() == [[0, 5]] * 2


def test_the_side_of_terms_is_chosen_on_the_other_folds(collection):
    """The second side finds what the first 20 of the first one lack, but for the query of fold 0."""
    queries = [Query(str(n), "", "en", str(n)) for n in range(5)]
    relevant = np.zeros((5, 60), dtype=bool)
    relevant[np.arange(1, 5), 40] = relevant[0, 0] = True
    cell = type(cells_of(collection)[0])("en", "en", queries, relevant, np.zeros_like(relevant))
    scores = np.linspace(3, 1, 30, dtype=np.float32)[None].repeat(5, axis=0)
    first, second = (Rankings(scores, np.arange(low, low + 30)[None].repeat(5, axis=0)) for low in (0, 30))
    dense = Rankings(scores[:, :1], np.full((5, 1), 59))
    found, chosen = cross_validated([first, second], dense, cell)
    alone, alphas = cross_validated([second], dense, cell)
    assert chosen == alphas and len(chosen) == 5
    np.testing.assert_array_equal(found.ids, alone.ids)
    relevant[2:, 40], relevant[2:, 0] = False, True  # the first side is better for most
    assert cross_validated([first, second], dense, cell)[0].ids[1].tolist() != alone.ids[1].tolist()


def record(name, value, seed=0):
    rng = np.random.default_rng(seed)
    values = {
        f"{a}-{b}": {"MRR@100": np.clip(value + rng.normal(0, 0.01, 40), 0, 1).tolist()}
        | {m: [value] * 40 for m in ("Recall@20", "Recall@100", "AP@100", "P@20", "nDCG@20")}
        for a in ("en", "de", "ru")
        for b in ("en", "de", "ru", ANY)
    }
    return Record(name, values, {code: {"first 20": 0.1, "own first": 0.2} for code in ("en", "de", "ru")}, {})


def test_the_table_averages_languages_with_and_without_parallel_data():
    base, better = System("A", [record("A", 0.5)]), System("B", [record("B", 0.7, s) for s in (1, 2, 3)], ("A",))
    facts = {"name": "x", "fingerprint": "f"}
    report = Report(facts, ["en", "de", "ru"], ["ru"], [base, better], ["a note"], "command")
    assert list(report.columns) == ["en", "de", "Avg parallel", "ru", "Avg no parallel", "Avg"]
    text = markdown(report)
    assert "| system | en | de | Avg parallel | ru | Avg no parallel | Avg |" in text
    assert "**+0.2" in text and "±" in text and "Mr. TyDi" in text


def test_differences_between_trainings_count_in_the_test():
    """Three seeds on both sides of the baseline are no gain, however sure each is of its own difference; where the
    baseline has as many, which vary alike, it is the differences that count."""
    base = System("A", [record("A", 0.5)])
    values = [0.54, 0.52, 0.49]
    mixed = System("B", [record("B", value, n) for n, value in enumerate(values)], ("A",))
    alone = System("C", [record("C", sum(values) / 3)], ("A",))
    report = Report({"name": "x", "fingerprint": "f"}, ["en", "de"], [], [base, mixed, alone], [], "command")
    many, one = (report.gains[CROSS, name, "A"]["Avg"] for name in "BC")
    assert one.p < 0.001 and many.p > 0.05 and abs(many.value - one.value) < 0.01
    lower = System("D", [record("D", value - 0.05, n) for n, value in enumerate(values)])
    systems = [lower, replace(mixed, baselines=("D",))]
    paired = Report({"name": "x", "fingerprint": "f"}, ["en", "de"], [], systems, [], "command")
    assert paired.gains[CROSS, "B", "D"]["Avg"].p < 0.01


def test_intervals_over_seeds():
    assert over_seeds([0.5]) == (0.5, None)
    mean, width = over_seeds([0.4, 0.5, 0.6])
    assert (mean, width) == pytest.approx((0.5, 4.30265 * 0.1 / 3**0.5), abs=1e-5)


class Hashed:
    """Vectors of the hashes of words: a text is near what shares its words."""

    id = fingerprint = "hashed"
    dimension, dtype = 64, "float32"

    def encode(self, texts, kind="query"):
        made = np.zeros((len(texts), self.dimension), np.float32)
        for n, text in enumerate(texts):
            for word in text.split():
                made[n] += np.random.default_rng(crc32(word.encode())).standard_normal(self.dimension)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


@pytest.fixture
def opened(monkeypatch):
    names = []

    def opens(name, device, dtype):
        names.append(name)
        return Hashed()

    monkeypatch.setattr("eval.passages.__main__.open_mdpr", opens)
    return names


def command(files, *more):
    own = ["--passages", files / "p.tsv", "--queries", files / "q.tsv", "--qrels", files / "qrels", "--lang", "en"]
    return [*map(str, own), "--output", str(files / "runs"), "--quiet", *more]


def test_the_command_writes_tables_runs_and_judgements_and_goes_on(files, opened, capsys, monkeypatch):
    report = files / "report.json"
    assert main(command(files, "--report", str(report), str(files / "report.md"), "--model", "hash=a,b")) == 0
    found = json.loads(report.read_text(encoding="utf-8"))
    by_name = {system["name"]: system for system in found["systems"]}
    assert list(by_name) == ["BM25", "BM25 + RM3", "hash", "hash + BM25 (hybrid)", "hash + BM25 (RRF)"]
    assert by_name["BM25"]["seeds"][0]["cells"]["en-en"]["MRR@100"] == 1.0
    assert by_name["BM25"]["seeds"][0]["cells"]["en-de"]["MRR@100"] == 0.0
    assert by_name["BM25"]["seeds"][0]["cells"]["en-any"]["Recall@100"] == 0.5
    assert by_name["BM25"]["seeds"][0]["cells"]["en>de"]["MRR@100"] == 0.0
    assert by_name["hash + BM25 (hybrid)"]["seeds"][0]["alphas"].keys() == {
        f"{a}{sign}" for a in WORDS for sign in ("-en", "-de", "-any", ">de" if a == "en" else ">en")
    }
    assert by_name["hash"]["seeds"][0]["cells"]["de-de"]["MRR@100"] == 1.0
    assert by_name["BM25"]["seeds"][0]["bias"]["en"]["own first"] == 0.5
    assert len(by_name["hash"]["seeds"]) == 2
    assert str(files) not in report.read_text(encoding="utf-8") + (files / "report.md").read_text(encoding="utf-8")
    assert found["command"].endswith("--qrels qrels --lang en --model hash=a,b --output RUNS")
    first = read_run(files / "runs" / "p.hash.0.dense.en.run")
    assert max(first["q-en-2"], key=first["q-en-2"].__getitem__) == "en-2"

    def fail(*arguments):
        raise AssertionError("what is finished is not made again")

    monkeypatch.setattr("eval.passages.__main__.evaluated", fail)
    printed = capsys.readouterr().out
    assert main(command(files, "--model", "hash=a,b")) == 0
    again = capsys.readouterr().out
    assert [line for line in again.splitlines() if "report" not in line] == [
        line for line in printed.splitlines() if "report" not in line
    ]


def test_a_run_is_scored_like_the_ranking_it_was_written_from(files, opened, collection):
    assert main(command(files, "--model", "hash=a")) == 0
    texts = [(files / "runs" / f"p.hash.0.dense.{code}.run").read_text(encoding="utf-8") for code in WORDS]
    (files / "both.run").write_text("".join(texts), encoding="utf-8")
    kept = json.loads((files / "runs" / "p.hash.0.json").read_text())["records"][0]["values"]
    (scored,) = evaluated(collection, {"run": run_scorer(collection, files / "both.run")}, None, alone=False)
    assert scored.values == {name: own for name, own in kept.items() if ">" not in name}


def test_models_are_compared_as_asked(files, opened, capsys):
    models = ["--model", "a=x", "b=x", "c=x"]
    report = files / "report.json"
    assert main(command(files, *models, "--against", "c=b", "--report", str(report))) == 0
    by_name = {s["name"]: s["differences"] for s in json.loads(report.read_text(encoding="utf-8"))["systems"]}
    assert {key.rpartition(" ")[2] for key in by_name["c"]} == {"BM25", "a", "b"}
    assert {key.rpartition(" ")[2] for key in by_name["b"]} == {"BM25", "a"}
    assert main(command(files, *models, "--against", "c=d")) == 2
    assert "--against names 'd', which is no model: choose among a, b, c" in capsys.readouterr().err


def test_the_primary_comparison_is_tested_alone(files, opened, capsys):
    report = files / "report.json"
    models = ["--model", "a=x", "b=x", "--report", str(report)]
    assert main(command(files, *models, "--primary", "b=a")) == 0
    printed = capsys.readouterr().out
    assert "MRR@100, cross-language, Avg: b less a is +0.000, 95 % interval [+0.000, +0.000], p 1.0000" in printed
    assert json.loads(report.read_text(encoding="utf-8"))["primary"] == ["cross-language", "b", "a", "Avg"]
    assert main(command(files, *models, "--primary", "b=a", "--without", "de")) == 0
    assert "MRR@100, cross-language, Avg no parallel: b less a is" in capsys.readouterr().out
    for wrong, words in {"b=c": "--primary names 'c'", "b=b": "not one comparison", "b=a,b": "not one"}.items():
        assert main(command(files, *models, "--primary", wrong)) == 2
        assert words in capsys.readouterr().err


def test_the_primary_comparison_is_within_a_language_that_no_other_one_answers(files, opened, capsys):
    """Questions in English find German passages, and none in German find English ones."""
    (files / "qrels").write_text("\n".join(f"q-{code}-0 0 {code}-0 1" for code in WORDS) + "\nq-en-0 0 de-0 1")
    models = ["--model", "a=x", "b=x", "--primary", "b=a"]
    assert main(command(files, *models, "--without", "de")) == 0
    assert "MRR@100, same language, Avg no parallel: b less a is" in capsys.readouterr().out


def test_the_primary_comparison_is_left_out_of_the_correction():
    base, better = System("A", [record("A", 0.5)]), System("B", [record("B", 0.52)], ("A",))
    plain = Report({"name": "x", "fingerprint": "f"}, ["en", "de"], [], [base, better], [], "command")
    p = plain.gains[CROSS, "B", "A"]["Avg"].p
    cell = f"({p:.4f})"
    assert markdown(plain).count(cell) < markdown(replace(plain, primary=("B", "A"))).count(cell)


def test_terms_alone_need_no_model(files, opened, capsys):
    assert main(command(files, "--model", "none")) == 0
    out = capsys.readouterr().out
    assert "| BM25 + RM3 |" in out and "(hybrid)" not in out and "--model none" in out
    assert not opened


def test_the_lack_of_the_library_is_one_sentence(files, opened, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)
    assert main(command(files, "--model", "none")) == 2
    assert "rankings are measured by ir-measures: `pip install" in capsys.readouterr().err


@pytest.mark.slow
def test_the_quick_form_asks_the_sample_corpus(tmp_path, opened, capsys):
    assert main(["--output", str(tmp_path), "--quiet"]) == 0
    printed = capsys.readouterr()
    assert "which measures nothing" in printed.err and "quick form: measures nothing" in printed.out
    assert "## MRR@100, cross-language" in printed.out


def test_passages_in_one_language_have_no_tables_across_languages(files, opened, capsys):
    for name in ("p.tsv", "q.tsv"):
        lines = (files / name).read_text(encoding="utf-8").splitlines()
        (files / name).write_text("\n".join(line for line in lines if line.endswith("\ten")), encoding="utf-8")
    (files / "qrels").write_text("\n".join(f"q-en-{n} 0 en-{n} 1" for n in range(5)))
    report = files / "report.json"
    assert main(command(files, "--report", str(report))) == 0
    out = capsys.readouterr().out
    assert "## MRR@100, same language" in out and "cross-language |" not in out and "Language bias" not in out
    found = json.loads(report.read_text(encoding="utf-8"))
    assert list(found["systems"][1]["differences"]) == ["same language, less BM25"]


def test_a_run_without_one_of_the_languages(files, opened, capsys):
    (files / "a.run").write_text("q-en-0 Q0 en-0 1 0.5 x\n")
    assert main(command(files, "--model", "none", "--run", f"dense={files / 'a.run'}")) == 0
    assert "| dense |" in capsys.readouterr().out
    (files / "b.run").write_text("7 Q0 en-0 1 0.5 x\n")
    assert main(command(files, "--model", "none", "--run", f"own={files / 'b.run'}")) == 2
    assert "ranks passages for no query of p" in capsys.readouterr().err


def test_the_signature_tells_settings_apart(files, opened, capsys):
    signatures = []
    for b in ("0.4", "0.5"):
        assert main(command(files, "--model", "none", "--b", b)) == 0
        signatures += [line for line in capsys.readouterr().out.splitlines() if line.startswith("- signature")]
    assert len(set(signatures)) == 2


def test_mistakes_are_one_sentence(files, capsys):
    assert main(command(files, "--without", "fr")) == 2
    assert "which no query is in" in capsys.readouterr().err
    assert main(command(files, "--report", "x.txt")) == 2
    assert "ends neither in .json nor in .md" in capsys.readouterr().err
    with pytest.raises(UserError, match="not of the form NAME=FOLDER"):
        named(["folder"], "--model")
    with pytest.raises(UserError, match="given twice"):
        named(["a=x", "a=y"], "--model")


def test_files_that_do_not_fit(files):
    (files / "qrels").write_text("q-en-0 0 lost 1")
    with pytest.raises(UserError, match="'lost'"):
        own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")
    (files / "qrels").write_text("other 0 en-0 1")
    with pytest.raises(UserError, match="has a relevant passage"):
        own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")
    (files / "p.tsv").write_text("a\ttext\nb\n")
    with pytest.raises(UserError, match=r"p\.tsv:2"):
        own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")
    (files / "p.tsv").write_text("a\ttext\na\tother\n")
    with pytest.raises(UserError, match="'a' twice"):
        own_collection(files / "p.tsv", files / "q.tsv", files / "qrels", "en")


def test_a_collection_is_known_by_all_that_is_in_it(collection):
    other = Collection(**{**vars(collection), "texts": [*collection.texts[:-1], "changed"]})
    assert other.fingerprint != collection.fingerprint


@pytest.fixture
def data(tmp_path):
    """XQuAD's first ten passages, made up, and documents of 40 words in training files."""
    (tmp_path / "retrieval").mkdir()
    (tmp_path / "train").mkdir()
    for code in LANGUAGES:
        rows = [f"{n}\tpassage {n} {code}" for n in range(10)]
        (tmp_path / "retrieval" / f"xquad.passages.{code}.tsv").write_text("\n".join(rows))
        rows = [f"id{n}\t{n}\tquestion {n} {code}\tanswer" for n in range(10)]
        (tmp_path / "retrieval" / f"xquad.questions.{code}.tsv").write_text("\n".join(rows))
        if code != "en":
            body = [f"{a} one two three four five six seven eight nine." for a in range(12)]
            lines = ["A Fine Heading\tA Fine Heading\tnews\tx"]
            lines += [f"English {code} {text}\tOther {text}\tnews\tx" for text in body]
            with lzma.open(tmp_path / "train" / f"{code}-en.tsv.xz", "wt", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
    return tmp_path


def test_the_pool_holds_all_passages_and_documents_of_each_language(data):
    part = part_of("0")
    made = xquad_collection(data, part, 1, show=False)
    assert set(made.counts()) == set(LANGUAGES)
    assert all(10 < count <= 11 for count in made.counts().values())
    assert len(set(made.ids)) == len(made.ids)
    assert len(made.queries) >= 5 * len(LANGUAGES) and {part_of(query.id[5:]) for query in made.queries} == {part}
    for query in made.queries:
        number = query.id[5:]
        assert made.qrels[query.id] == {f"{code}-{number}": 1 for code in LANGUAGES}
    assert len(xquad_collection(data, "train", 0, show=False).ids) == 50


def test_a_collection_is_kept_with_its_settings(data, tmp_path):
    settings = {"part": "train", "distractors": 1}
    first = cached_collection(tmp_path / "c.json", settings, data, "train", 1, False)
    (data / "train" / "de-en.tsv.xz").unlink()
    again = cached_collection(tmp_path / "c.json", settings, data, "train", 1, False)
    assert again.fingerprint == first.fingerprint
    with pytest.raises(UserError, match="--distractors 0"):
        cached_collection(tmp_path / "c.json", {**settings, "distractors": 2}, data, "train", 2, False)
