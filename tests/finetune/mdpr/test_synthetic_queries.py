"""Questions without annotation: titles, first sentences, and what a language model asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from finetune.mdpr.queries import main
from finetune.mdpr.relevance import Example, read_examples
from prompts.builder import query_prompt, question_of
from rag_mt.base.types import Completion, PromptQueue, Skips

TOPICS = ["Brücke", "Garten", "Markt", "Turm", "Brunnen", "Schule"]


class Asking:
    """A language model that asks for the rare word of a passage, or answers something useless."""

    id = fingerprint = "asking"
    context_length = 4096
    has_chat_template = False
    reserved: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.asked: list[str] = []

    def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
        for number, prompt in enumerate(queue.take(99)):
            self.asked.append(prompt.text)
            queue.finish(number, Completion(self.said(prompt.text.rpartition("Passage: ")[2]), 5, True))
            yield

    def said(self, passage: str) -> str:
        topic = next(t for t in TOPICS if t in passage)
        return f" Wo steht die alte {topic} heute?" if topic != "Turm" else " Ich weiß es nicht."


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """German documents below headings, one of which has a sentence of a test set."""
    rows = []
    for number, topic in enumerate(TOPICS):
        rows.append(f"The story of number {number}\tDie Geschichte: {topic}\tnews\tx")
        words = " ".join(f"wort{number}{n}" for n in range(15))
        rows += [f"Sentence {n} of {number}.\tSatz {n} über {topic} und {words}.\tnews\tx" for n in range(4)]
    for name in ("train", "dev", "test", "align", "retrieval"):
        (tmp_path / "data" / name).mkdir(parents=True)
    (tmp_path / "data" / "train" / "de-en.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    held = rows[-1].split("\t")[1]
    (tmp_path / "data" / "test" / "de-en.tsv").write_text(f"x\t{held}\n", encoding="utf-8")
    (tmp_path / "prepared" / "relevance").mkdir(parents=True)
    return tmp_path / "data"


def made(data: Path, method: str, *more: str) -> list[Example]:
    prepared = data.parent / "prepared"
    options = ["--language", "de", "--method", method, "--data", str(data), "--prepared", str(prepared)]
    assert main([*options, *more]) == 0
    path = prepared / "relevance" / f"{method}-de.jsonl"
    return list(read_examples("jsonl", str(path), "de", Skips()))


def test_titles_ask_for_their_document(data, capsys):
    found = made(data, "titles", "--negatives", "2")
    assert sorted(e.query for e in found) == sorted(f"Die Geschichte: {topic}" for topic in TOPICS[:-1])
    assert "1 documents that hold a sentence of a test set" in capsys.readouterr().out
    for example in found:
        topic = example.query.split()[-1]
        assert topic in example.positives[0].text
        assert example.positives[0].title == ""
        assert len(example.negatives) <= 2
        assert all(topic not in p.text for p in example.negatives), "parts of the same document are no negatives"


def test_first_sentences_are_not_in_their_passage(data):
    found = made(data, "first-sentences")
    assert len(found) == 5
    for example in found:
        assert example.query.startswith("Satz 0")
        assert example.positives[0].text.startswith("Satz 1")


def test_a_language_model_asks(data, monkeypatch, capsys):
    llm = Asking()
    monkeypatch.setattr("finetune.mdpr.queries.open_llm", lambda *a, **k: llm)
    found = made(data, "generated", "--rank", "1")
    assert sorted(e.query.split()[4] for e in found) == sorted(set(TOPICS[:-1]) - {"Turm"})
    assert "1 answers without a question of 3 to 40 words" in capsys.readouterr().out
    assert not list((data.parent / "prepared" / "relevance").glob("*.journal"))


def test_questions_that_do_not_find_their_passage_are_counted(data, monkeypatch, capsys):
    class Astray(Asking):
        def said(self, passage: str) -> str:
            return f" Wo steht die alte {'Garten' if 'Garten' in passage else 'Markt'} heute?"

    monkeypatch.setattr("finetune.mdpr.queries.open_llm", lambda *a, **k: Astray())
    assert len(made(data, "generated", "--rank", "1")) == 2
    assert "3 questions that do not find their passage among 1 by BM25" in capsys.readouterr().out


def test_generation_goes_on_where_it_stopped(data, monkeypatch):
    class Stopping(Asking):
        def answer(self, queue: PromptQueue, max_new_tokens: int = 256) -> Iterator[None]:
            if self.asked:
                raise KeyboardInterrupt
            return super().answer(queue, max_new_tokens)

    monkeypatch.setattr("finetune.mdpr.queries.AT_ONCE", 2)
    monkeypatch.setattr("finetune.mdpr.queries.open_llm", lambda *a, **k: Stopping())
    options = ["--language", "de", "--method", "generated", "--data", str(data)]
    assert main([*options, "--prepared", str(data.parent / "prepared")]) == 130
    llm = Asking()
    monkeypatch.setattr("finetune.mdpr.queries.open_llm", lambda *a, **k: llm)
    assert len(made(data, "generated")) == 4
    assert len(llm.asked) == 3


def test_answers_stay_until_the_questions_are_written(data, monkeypatch):
    monkeypatch.setattr("finetune.mdpr.queries.open_llm", lambda *a, **k: Asking())
    with monkeypatch.context() as patch:
        patch.setattr("finetune.mdpr.queries.findable", lambda *a: [])
        prepared = str(data.parent / "prepared")
        options = ["--language", "de", "--method", "generated", "--data", str(data), "--prepared", prepared]
        assert main(options) == 2
    llm = Asking()
    monkeypatch.setattr("finetune.mdpr.queries.open_llm", lambda *a, **k: llm)
    assert len(made(data, "generated")) == 4
    assert not llm.asked


def test_short_titles_scripts_without_blanks_and_what_is_left_unread(tmp_path, capsys):
    (tmp_path / "relevance").mkdir()
    rows = [
        {"title": "塔楼", "text": f"这座塔楼建于十九世纪末{n}年。它现在是城市博物馆的一部分，每天开放。" * 3}
        for n in range(3)
    ]
    (tmp_path / "wiki.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--language", "zh", "--prepared", str(tmp_path), "--documents", str(tmp_path / "wiki.jsonl")]
    assert main([*options, "--read", "2"]) == 0
    printed = capsys.readouterr()
    assert "2 questions from 2 of 2 documents" in printed.out
    assert "only the first 2 documents are read" in printed.err


def test_listed_documents(tmp_path, capsys):
    (tmp_path / "relevance").mkdir()
    text = "Der Turm ist hoch. " * 12
    rows = [{"title": f"Ein Turm Nummer {n}", "text": text + f"Zahl {n} ist anders."} for n in range(3)]
    (tmp_path / "wiki.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"title": "leer"}]))
    options = ["--language", "de", "--prepared", str(tmp_path), "--documents", str(tmp_path / "wiki.jsonl")]
    assert main(options) == 0
    out = capsys.readouterr().out
    assert "3 questions from 3 of 3 documents" in out
    assert "1 without title and text" in out
    assert main(options[:4]) == 2
    assert "no documents are named: give --data DIR or --documents FILE" in capsys.readouterr().err


def test_prompts_for_questions():
    llm = Asking()
    prompt = query_prompt("Der Turm\nist hoch.", "de", llm)
    assert prompt.text.endswith("Passage: Der Turm ist hoch.\nQuestion:")
    assert "Wann wurde der Leuchtturm" in prompt.text[: prompt.shared]
    assert query_prompt("x", "fr", llm).text.startswith("Passage: The lighthouse")
    llm.has_chat_template = True
    chat = query_prompt("Der Turm ist hoch.", "de", llm)
    assert chat.chat and "one question in German" in chat.text


@pytest.mark.parametrize(
    ("answer", "question"),
    [(" Wer kam?\nPassage: mehr", "Wer kam?"), ('Gern:\n"Wer  kam?"', "Wer  kam?"), ("Niemand kam.", ""), ("", "")],
)
def test_questions_in_answers(answer, question):
    assert question_of(answer) == question
