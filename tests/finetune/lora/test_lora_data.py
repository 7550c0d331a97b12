"""Examples as files: the same pairs for every method, resumed byte for byte, with a manifest."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import rag_mt
from finetune.held_out import held_out
from finetune.lora import hints as lora_hints
from finetune.lora.config import DataConfig
from finetune.lora.data import main
from finetune.lora.examples import Pair, manifest_path, read_examples
from finetune.lora.hints import Retrieved, examples_of
from finetune.lora.references import nearly_equal
from rag_mt.base.errors import UserError
from rag_mt.base.types import Hint, Hit, Sentence, Span
from retrievers.dense import DenseRetriever
from retrievers.registry import build_for, encoder_for

CONFIG = """
[data]
languages = ["de", "cs"]
pairs = 12
fewest_words = 3
"""
SPANS = Span(0, 4), Span(0, 9), Span(10, 14)
CORPUS = Path(rag_mt.__file__).parent / "sample_corpus"


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_encoder):
    """Training data, a configuration, and indexes of the held-out targets among other sentences."""
    folder = tmp_path_factory.mktemp("lora_data")
    lines = {code: (CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in ("en", "de", "cs")}
    (folder / "data" / "train").mkdir(parents=True)
    for code in ("de", "cs"):
        rows = [f"{e}\t{o}\tnews\tx" for e, o in zip(lines["en"], lines[code], strict=True)]
        (folder / "data" / "train" / f"{code}-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (folder / "config.toml").write_text(CONFIG)
    encoder = encoder_for("sentence", str(tiny_encoder), "cpu", "float32")
    own = [n for n, text in enumerate(lines["en"]) if held_out(text)]
    rows = sorted({*own, *range(0, 336, 6)})
    for name, language in (("sentence", "en"), ("phrases", "en"), ("sentence", "de"), ("sentence", "cs")):
        sentences = [Sentence(lines[language][n], language) for n in rows]
        build_for(name, folder / f"{name}.{language}", sentences, encoder, language, show=False)
    return folder


def arguments(place, method, output, *more, group="to-en"):
    name = {"sentence": "sentence", "phrase": "phrases"}.get(method)
    indexes = [f"--index=en={place}/{name}.en"] if name else []
    return [
        *("--config", f"{place}/config.toml", "--data", f"{place}/data", "--group", group, "--method", method),
        *(indexes if group == "to-en" else []),
        *("--output", str(output), "--device", "cpu", "--dtype", "float32", *more),
    ]


def made(place, method, output, *more, **group):
    assert main(arguments(place, method, output, *more, **group)) == 0
    return read_examples([output])


def test_the_methods_get_the_same_pairs_and_their_own_hints(place, tmp_path, capsys):
    found = {method: made(place, method, tmp_path / f"{method}.jsonl") for method in ("plain", "sentence", "phrase")}
    told = capsys.readouterr()
    assert len(found["plain"]) == 24
    for method, own in found.items():
        assert [e.pair for e in own] == [e.pair for e in found["plain"]]
        for example in own:
            assert held_out(example.pair.target)
            assert len(example.hints) <= {"plain": 0, "sentence": 1, "phrase": 32}[method]
            for hint in example.hints:
                assert hint.phrase == hint.hit.span.of(hint.hit.sentence.text)
                assert not nearly_equal(hint.hit.sentence.text, example.pair.target)
    assert all(len(e.hints) == 1 for e in found["sentence"])
    assert sum(len(e.hints) for e in found["phrase"]) > 40
    manifest = json.loads(manifest_path(tmp_path / "phrase.jsonl").read_text())
    assert manifest["settings"]["languages"] == ["de", "cs"]
    assert manifest["examples"] == 24
    assert manifest["indexes"]["en"]["retriever"] == "phrases"
    assert manifest["directions"]["de-en"]["pairs"] == 12
    assert manifest["directions"]["de-en"]["near_equal_sentences"] >= 12
    assert f"{manifest['directions']['cs-en']['hints']} hints" in told.out
    assert "near-equal sentences of the index left out" in told.out


def test_a_stopped_run_ends_like_one_in_one_piece(place, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lora_hints, "BLOCK", 5)
    whole, parts = tmp_path / "whole.jsonl", tmp_path / "parts.jsonl"
    made(place, "phrase", whole)
    retrieve, calls = DenseRetriever.retrieve, 0

    def stops(self, *given):
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return retrieve(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(DenseRetriever, "retrieve", stops)
        assert main(arguments(place, "phrase", parts)) == 130
    assert not parts.exists()
    made(place, "phrase", parts)
    assert "kept the hints of 12 of 24 pairs" in capsys.readouterr().err  # the German ones, in blocks of 5
    assert parts.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        [f"{name}.jsonl{end}" for name in ("parts", "whole") for end in ("", ".manifest.json")]
    )


def test_what_is_there_is_kept_or_refused(place, tmp_path, capsys):
    output = tmp_path / "plain.jsonl"
    made(place, "plain", output)
    before = output.stat().st_mtime_ns
    made(place, "plain", output)
    assert output.stat().st_mtime_ns == before
    assert "is finished already" in capsys.readouterr().err
    assert main(arguments(place, "plain", output, "--pairs", "3")) == 2
    assert "is there already and has another pairs, settings: give another --output" in capsys.readouterr().err
    assert len(made(place, "plain", output, "--pairs", "3", "--restart")) == 6


def test_some_examples_lose_their_hints(place, tmp_path):
    every = made(place, "sentence", tmp_path / "all.jsonl")
    some = made(place, "sentence", tmp_path / "some.jsonl", "--set", "data.no_hints=0.5")
    assert [e.pair for e in some] == [e.pair for e in every]
    assert 4 < sum(not e.hints for e in some) < 20
    assert all(e.hints in ((), full.hints) for e, full in zip(some, every, strict=True))
    fewer = made(place, "sentence", tmp_path / "few.jsonl", "--set", "data.no_hints=0.5", "--pairs", "6")
    hidden = {e.pair.source for e in some if not e.hints}
    assert {e.pair.source for e in fewer if not e.hints} <= hidden


def test_right_hints_stand_beside_the_retrieved_ones():
    """For parts of the sentence without a hint; none for the examples that are shown no hints."""
    pairs = [Pair("de", "en", f"eins zwei drei {n}", f"one two three {n}") for n in range(300)]
    own, over, free = (Hint(span, Hit(Sentence("one", "en"), Span(0, 3), 0.6)) for span in SPANS)
    found = Retrieved([(own,)] * 300, [0] * 300, {}, [(over, free)] * 300)
    made = examples_of(pairs, "phrase", found, DataConfig(no_hints=0.2, right_hints=0.5))
    counts = Counter(e.hints for e in made)
    assert set(counts) == {(), (own,), (own, free)}
    assert 40 <= counts[()] <= 80 and 40 <= counts[own, free] <= 80  # 20 %, and half of half of the others
    none = examples_of(pairs, "phrase", found, DataConfig(no_hints=0.2))
    assert {e.hints for e in none} == {(), (own,)}
    assert [bool(e.hints) for e in none] == [bool(e.hints) for e in made]


def test_from_english_takes_an_index_of_each_language(place, tmp_path, capsys):
    indexes = [f"--index={place}/sentence.de", f"--index=cs={place}/sentence.cs"]
    found = made(place, "sentence", tmp_path / "x.jsonl", *indexes, group="from-en")
    assert {e.pair.direction for e in found} == {"en-de", "en-cs"}
    assert all(hint.hit.sentence.language == e.pair.target_language for e in found for hint in e.hints)
    assert main(arguments(place, "sentence", tmp_path / "y.jsonl", indexes[0], group="from-en")) == 2
    assert "has no index of Czech: give --index cs=DIR" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "more", "message"),
    [
        ("plain", ["--index=x"], "the method plain shows no hints, but there is --index x: leave it out"),
        ("phrase", ["--index=en={place}/sentence.en"], "needs one of the kind phrase, built with `rag-mt index build"),
        ("phrase", ["--set", "data.pairs=0"], "sets data.pairs to 0: expected at least 1"),
        ("plain", ["--data", "nowhere"], "there is no train/de-en.tsv"),
        ("plain", ["--part", "dev"], "dev/de-en.tsv"),
    ],
)
def test_mistakes_are_one_sentence(place, tmp_path, capsys, method, more, message):
    more = [text.format(place=place) for text in more]
    assert main(arguments(place, method, tmp_path / "x.jsonl", *more)) == 2
    told = capsys.readouterr().err
    assert message in told
    assert len(told.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_no_examples(tmp_path):
    with pytest.raises(UserError, match=r"no examples .*: make them with `python -m finetune.lora.data`"):
        read_examples([tmp_path / "none.jsonl"])
    (tmp_path / "bad.jsonl").write_text('{"source": "x"}\n')
    with pytest.raises(UserError, match="has no example in line 1"):
        read_examples([tmp_path / "bad.jsonl"])
