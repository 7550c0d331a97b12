"""Relevance data in its published formats, hard negatives, sentence pairs, and the command that prepares them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from finetune.mdpr.batches import TrainingData
from finetune.mdpr.config import DataConfig, TrainingConfig
from finetune.mdpr.data import joined_pairs, main, split_pair
from finetune.mdpr.relevance import Example, Passage, read_examples, with_bm25_negatives, write_examples
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips


def read(form: str, path: Path) -> list[Example]:
    return list(read_examples(form, str(path), "en", Skips(shown=0)))


PASSAGES = (Passage("7", "The tower is 300 m high.", "Eiffel Tower"), Passage("8", "A bridge.", ""))


def test_natural_questions_as_dpr_publishes_them(tmp_path):
    rows = [
        {
            "dataset": "nq_train_psgs_w100",
            "question": "how high is the tower",
            "answers": ["300 m"],
            "positive_ctxs": [{"title": "Eiffel Tower", "text": "The tower is 300 m high.", "passage_id": "7"}],
            "negative_ctxs": [{"title": "", "text": "not used", "passage_id": "9"}],
            "hard_negative_ctxs": [{"title": "", "text": "A bridge.", "psg_id": 8}],
        },
        {"question": "no answer?", "positive_ctxs": [], "hard_negative_ctxs": []},
    ]
    path = tmp_path / "train.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows, indent=4).encode()))
    skips = Skips(shown=0)
    (example,) = read_examples("dpr", str(path), "en", skips)
    assert (example.query, example.positives, example.negatives) == (rows[0]["question"], PASSAGES[:1], PASSAGES[1:])
    assert skips.total == 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dpr")


@settings(max_examples=30)
@given(
    texts=st.lists(st.text(min_size=1).filter(str.strip), min_size=1, max_size=4),
    chunk=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
)
def test_a_json_array_is_read_in_pieces(folder, texts, chunk, indent):
    path = folder / "x.json"
    rows = [{"question": t, "positive_ctxs": [{"text": t, "title": "", "passage_id": 1}]} for t in texts]
    path.write_text(json.dumps(rows, indent=indent, ensure_ascii=False), encoding="utf-8", newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("finetune.mdpr.relevance.CHUNK", chunk)
        assert [e.query for e in read("dpr", path)] == texts


@pytest.mark.parametrize(
    ("form", "text", "message"),
    [
        ("dpr", '{"question": 1}', "is no JSON array of questions"),
        ("dpr", '[{"question": "a", "positive_ctxs": [', "breaks off or is no JSON"),
        ("dpr", '[{"question": "a", "positive_ctxs": [{"title": "b"}]}]', "question 1 is not of format dpr"),
        ("jsonl", '{"query": "a"}', ":1 is no question of format jsonl"),
        ("jsonl", "query\n", ":1 is no JSON object"),
        ("tsv", "", "unknown format 'tsv' of relevance data: choose one of dpr, jsonl, trec"),
    ],
)
def test_other_contents(tmp_path, form, text, message):
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read(form, path)


def test_mr_tydi_and_miracl_lines_are_also_what_is_written(tmp_path):
    row = {
        "query_id": "1",
        "query": "how high?",
        "positive_passages": [{"docid": "7", "text": "The tower is 300 m high.", "title": "Eiffel Tower"}],
        "negative_passages": [{"docid": "8", "text": "A bridge.", "title": ""}],
    }
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps(row) + "\n")
    expected = Example("1", "how high?", PASSAGES[:1], PASSAGES[1:], "en")
    assert read("jsonl", path) == [expected]
    assert write_examples(tmp_path / "again.jsonl", [expected]) == 1
    assert read("jsonl", tmp_path / "again.jsonl") == [expected]


@pytest.mark.parametrize("collection", ["collection.tsv", "docs.jsonl", "collection/docs.jsonl.gz"])
def test_topics_judgements_and_collection(tmp_path, collection):
    (tmp_path / "queries.train.tsv").write_text("1\thow high?\n2\tunjudged\n")
    (tmp_path / "qrels.train.tsv").write_text("1\t0\t7\t1\n1\t0\t8\t0\n3\t0\t7\t1\n")
    if collection.endswith("tsv"):
        (tmp_path / collection).write_text("7\tThe tower is 300 m high.\n8\tA bridge.\n9\tother\n")
    else:
        rows = [{"docid": p.id, "title": p.title, "text": p.text} for p in PASSAGES]
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / collection).parent.mkdir(exist_ok=True)
        (tmp_path / collection).write_bytes(gzip.compress(text) if collection.endswith("gz") else text)
    (example,) = read("trec", tmp_path)
    assert [p.text for p in example.positives] == [PASSAGES[0].text]
    assert [p.text for p in example.negatives] == [PASSAGES[1].text]
    (tmp_path / "qrels.dev.tsv").write_text("")
    with pytest.raises(UserError, match=r"has qrels.dev.tsv, qrels.train.tsv for qrels\*: expected one file"):
        read("trec", tmp_path)


def test_hard_negatives_share_terms_and_are_not_relevant():
    texts = ["the tower is high", "a high tower stands here", "bread and butter", "the tower fell"]
    collection = [Passage(str(n), text, "A" if n in (0, 3) else "") for n, text in enumerate(texts)]
    examples = [Example("q", "how high is the tower", (collection[0],))]
    (found,) = with_bm25_negatives(examples, collection, "en", 5)
    assert sorted(p.id for p in found.negatives) == ["1", "3"]
    (found,) = with_bm25_negatives(examples, collection, "en", 5, related=False)
    assert [p.id for p in found.negatives] == ["1"]


def test_pairs_without_english_come_from_equal_english_sides():
    german = [("Es regnet.", "It rains."), ("Gute Nacht.", "Good night.")]
    turkish = [("Yağmur yağıyor.", "it rains"), ("Evet.", "Yes.")]
    assert joined_pairs(german, turkish) == [("Es regnet.", "Yağmur yağıyor.")]
    assert split_pair("ru-tr") == ("ru", "tr")
    with pytest.raises(UserError, match="'de' is no pair of languages"):
        split_pair("de")


ENGLISH = [
    "It is raining in the garden today",
    "The old bridge is closed until spring",
    "We bought bread and fresh milk",
]
GERMAN = ["Heute regnet es im schönen Garten", "Die alte Brücke ist bis Mai gesperrt", "Wir kauften Brot und Milch"]
TURKISH = ["Bugün bahçede çok yağmur yağıyor gibi", "Eski köprü ilkbahara kadar kapalı", "Ekmek ve taze süt aldık"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder of three sentence pairs, one of which is in a test set, and an XQuAD of one word per passage."""
    folder = tmp_path / "data"
    for name in ("train", "dev", "test", "align", "retrieval"):
        (folder / name).mkdir(parents=True)
    for code, texts in (("de", GERMAN), ("tr", TURKISH)):
        lines = [f"{a}\t{b}\tnews\tx" for a, b in zip(ENGLISH, texts, strict=True)]
        (folder / "train" / f"{code}-en.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "test" / "de-en.tsv").write_text(f"{ENGLISH[2]}!\tanders\n", encoding="utf-8")
    for code in ("en", "de", "tr"):
        passages = "".join(f"{n}\tword{n} garden. other{n % 7} text\n" for n in range(240))
        questions = "".join(f"q{n}\t{n}\twhere is word{n} garden?\tthere\n" for n in range(240))
        (folder / "retrieval" / f"xquad.passages.{code}.tsv").write_text(passages)
        (folder / "retrieval" / f"xquad.questions.{code}.tsv").write_text(questions)
    return folder


def prepared(data: Path, output: Path, *more: str) -> int:
    languages = ["--languages", "de,tr", "--connections", "de-tr", "--pairs", "1", "--texts", "1"]
    return main(["--data", str(data), "--output", str(output), *languages, *more])


def test_preparing_and_batches(tmp_path, data):
    output = tmp_path / "prepared"
    assert prepared(data, output) == 0
    facts = json.loads((output / "manifest.json").read_text())
    assert facts["relevance"] == {"xquad-en": 100}
    assert facts["dev"] == {"en": 40, "de": 40, "tr": 40}
    assert facts["pairs"] == {"de-en": 1, "tr-en": 1, "de-tr": 1}
    assert facts["skipped"]["that test sets hold"] == 2
    (pair,) = (output / "pairs" / "de-en.tsv").read_text(encoding="utf-8").splitlines()
    text = (output / "texts" / "de.txt").read_text(encoding="utf-8").strip()
    assert {pair.split("\t")[0], text} == set(GERMAN[:2])
    assert len((output / "texts" / "xquad-tr.txt").read_text().splitlines()) == 100
    training = TrainingConfig(batch=12, hard_negatives=2, pair_batch=4, text_batch=4, language_weight=1.0)
    found = TrainingData(output, DataConfig(pairs=("de-en", "tr-en"), texts=("de", "tr")), training)
    first = found.retrieval(0)
    assert len(first.queries) == len(set(first.queries)) == 12
    for query, column in zip(first.queries, first.relevant, strict=True):
        assert query.split()[2] in first.passages[column].split()
    assert len(first.passages) == len(set(first.passages)) > 12
    assert not first.left_out.any()
    again = TrainingData(output, DataConfig(pairs=("de-en", "tr-en"), texts=("de", "tr")), training)
    assert again.retrieval(3).passages == found.retrieval(3).passages
    assert again.fingerprint == found.fingerprint
    pairs, others = found.sentences(0)
    assert len({text for pair in pairs for text in pair} | set(others)) == 2 * len(pairs) + len(others)


def test_several_relevant_passages_are_no_negatives_of_each_other(tmp_path):
    for name in ("relevance", "pairs"):
        (tmp_path / name).mkdir()
    both = Example("1", "a question", PASSAGES)
    one = Example("2", "another", PASSAGES[1:])
    write_examples(tmp_path / "relevance" / "own.jsonl", [both, one])
    training = TrainingConfig(batch=2, semantic_weight=0, language_weight=0)
    batches = [TrainingData(tmp_path, DataConfig(relevance=("own",)), training).retrieval(n) for n in range(8)]
    seen = set()
    for batch in batches:
        rows = {query: row for row, query in enumerate(batch.queries)}
        column = batch.relevant[rows["a question"]]
        other = batch.relevant[rows["another"]]
        assert batch.left_out[rows["another"]].sum() == 0
        assert batch.left_out[rows["a question"]].sum() == (column != other)
        seen.add(column == other)
    assert seen == {True, False}


def test_ids_of_different_sets_are_different_passages(tmp_path):
    (tmp_path / "relevance").mkdir()
    for code in ("de", "ru"):
        own = [Example(str(n), f"{code} {n}", (Passage(str(n), f"passage {code} {n}"),)) for n in range(3)]
        write_examples(tmp_path / "relevance" / f"{code}.jsonl", own)
    training = TrainingConfig(batch=6, semantic_weight=0, language_weight=0)
    batch = TrainingData(tmp_path, DataConfig(relevance=("de", "ru")), training).retrieval(0)
    for query, column in zip(batch.queries, batch.relevant, strict=True):
        assert batch.passages[column] == f"passage {query}"


def test_excluded_sentences_are_in_no_pair(tmp_path, data, capsys):
    (tmp_path / "gold.tsv").write_text(f"de-1\t{GERMAN[0]}\n", encoding="utf-8")
    assert prepared(data, tmp_path / "prepared", "--exclude", str(tmp_path / "gold.tsv")) == 0
    pairs = (tmp_path / "prepared" / "pairs" / "de-en.tsv").read_text(encoding="utf-8")
    texts = (tmp_path / "prepared" / "texts" / "de.txt").read_text(encoding="utf-8")
    assert GERMAN[0] not in pairs + texts


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--relevance", "nq"], "--relevance 'nq' names no data: expected NAME=FORMAT:PATH"),
        (["--connections", "de-ru"], "--connections 'de-ru' needs --languages with ru too"),
        (["--languages", "fi"], "there is no train/fi-en.tsv"),
    ],
)
def test_wrong_options(tmp_path, data, capsys, more, message):
    if more[0] == "--languages":
        more = [*more, "--connections", ""]
    assert prepared(data, tmp_path / "prepared", *more) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "prepared").exists()


def test_named_development_data(tmp_path, data):
    write_examples(tmp_path / "dev.jsonl", [Example("1", "how high?", PASSAGES[:1], PASSAGES[1:])])
    assert prepared(data, tmp_path / "prepared", "--dev", f"en=jsonl:{tmp_path / 'dev.jsonl'}") == 0
    assert [p.name for p in (tmp_path / "prepared" / "dev").iterdir()] == ["en.jsonl"]
