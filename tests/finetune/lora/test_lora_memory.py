"""Examples of a memory: what is similar elsewhere in the same text, never the pair's own neighbourhood or target."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from finetune.held_out import held_out
from finetune.lora import memory
from finetune.lora.config import DataConfig
from finetune.lora.context import own_translations
from finetune.lora.examples import Example, Pair, read_examples
from finetune.lora.phrases import PART, parts_of
from finetune.lora.similar import Similar, scale_of, similar_rows
from rag_mt.base.types import Neighbour, Sentence, Skips
from rag_mt.translation.translator import Translator

WORDS = ["alten", "neuen", "kleinen", "roten", "schnellen", "leeren"]
OTHERS = ["old", "new", "small", "red", "fast", "empty"]
SETTINGS = """
[model]
llm = "embedded:gemma-3-270m"
[data]
languages = ["de"]
pairs = 60
fewest_words = 3
no_hints = 0.2
both_sides = 0.5
[training]
wrapper = "compact"
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two texts of pairs that repeat after 36 lines with other objects, and a held-out block."""
    (tmp_path / "train").mkdir()
    (tmp_path / "domains").mkdir()
    lines = []
    for text, thing, ding in [("lohelp.de-en", "file", "Datei"), ("wesnoth.de-en", "sword", "Schwert")]:
        for n in range(240):
            a, b = n % 6, n // 6 % 6
            lines.append(
                f"Take the {OTHERS[a]} {thing} from the {OTHERS[b]} box {n // 36}\t"
                f"Nimm das {WORDS[a]} {ding} aus der {WORDS[b]} Kiste {n // 36}\ttech-docs\t{text}"
            )
    (tmp_path / "train" / "de-en.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for domain in memory.DOMAINS:
        (tmp_path / "domains" / f"{domain}.excluded.txt").write_text("take the old file from the old box 0\n")
    (tmp_path / "settings.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def test_examples_show_what_is_similar_in_their_own_text(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["--config", str(data / "settings.toml"), "--data", str(data), "--output", str(data / "out.jsonl")]
    assert memory.main(command) == 0
    examples = read_examples([data / "out.jsonl"])
    assert len(examples) == 60
    lines = (data / "train" / "de-en.tsv").read_text(encoding="utf-8").splitlines()
    line_of = {side: n for n, line in enumerate(lines) for side in line.split("\t")[:2]}
    hinted = [example for example in examples if example.hints]
    assert 30 < len(hinted) < 60
    assert {example.pair.direction for example in hinted} == {"de-en", "en-de"}
    originals = 0
    for example in hinted:
        row = line_of[example.pair.target]
        for hint in example.hints:
            other = line_of[hint.phrase]
            assert abs(other - row) >= 40
            assert other // 240 == row // 240, "a hint of another text"
            assert hint.hit.whole and 0.25 <= hint.hit.score <= 1
            originals += bool(hint.hit.original)
            assert not hint.hit.original or line_of[hint.hit.original] == other
        scores = [hint.hit.score for hint in example.hints]
        assert scores == sorted(scores, reverse=True)
    assert 0 < originals < sum(len(example.hints) for example in hinted)
    assert all(example.pair.target != "Take the old file from the old box 0" for example in examples)
    manifest = json.loads((data / "out.jsonl.manifest.json").read_text(encoding="utf-8"))
    assert manifest["examples"] == 60 and manifest["skipped"]["in a held-out block"] == 1
    shown = capsys.readouterr().out
    assert "tech-docs: 60 pairs" in shown
    again = data / "again.jsonl"
    assert memory.main([*command[:-1], str(again)]) == 0
    assert again.read_bytes() == (data / "out.jsonl").read_bytes()


def test_development_pairs_are_shown_the_rest_of_their_text(data: Path) -> None:
    rows = [f"Take the red file from the {word} box {n}\tNimm die Datei {n}" for n, word in enumerate(OTHERS)]
    (data / "domains" / "help.de-en.dev.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (data / "dev").mkdir()
    (data / "dev" / "de-en.tsv").write_text("".join(f"News {n} today\tNeues {n}\n" for n in range(9)))
    command = ["--config", str(data / "settings.toml"), "--data", str(data), "--dev", "4"]
    assert memory.main([*command, "--output", str(data / "dev.jsonl")]) == 0
    examples = read_examples([data / "dev.jsonl"])
    assert [sum(e.pair.domain == domain for e in examples) for domain in ("help", "news")] == [4, 4]
    for example in examples:
        assert bool(example.hints) == (example.pair.domain == "help")
        assert all(" file " in f" {hint.phrase} " or "Datei" in hint.phrase for hint in example.hints)
        assert all(example.pair.target != hint.phrase and not hint.hit.original for hint in example.hints)


def test_wrong_hints_are_those_of_another_pair(data: Path) -> None:
    pools = []
    for share in (0.0, 1.0):
        settings = DataConfig(languages=("de",), pairs=40, fewest_words=3, wrong_hints=share)
        pool = memory.pool_of(data, "de", settings, set(), Skips(shown=0))
        pools.append(memory.examples_for(pool, memory.drawn_rows(pool, Skips(shown=0))))
    right, wrong = pools
    assert [example.pair for example in right] == [example.pair for example in wrong]
    other = [a.hints != b.hints for a, b in zip(right, wrong, strict=True)]
    assert sum(other) > 35
    assert all(hint.hit.sentence.language == e.pair.target_language for e in wrong for hint in e.hints)


def test_similar_rows_are_ranked_by_equal_characters() -> None:
    sources = ["Open the file now", "Open the file", "Close the window", "Open the files now", "Open the file now"]
    targets = ["a", "b", "c", "d", "a"]
    found = similar_rows([0], range(5), sources, targets, "en", 1)
    assert [hit.row for hit in found[0]] == [3, 1, 2]  # 4 has the target of the pair itself
    assert found[0][0].likeness == pytest.approx(34 / 35)
    assert [hit.row for hit in similar_rows([0], range(5), sources, targets, "en", 2)[0]] == [3, 2]


def test_the_scale_is_the_mean_chrf_and_never_falls() -> None:
    likeness = np.linspace(0.1, 0.8, 48)
    hits = ["completely other" if x < 0.5 else "the very same" for x in likeness]
    scale = scale_of(likeness.tolist(), hits, ["the very same"] * 48)
    assert scale.of(0.75) == pytest.approx(1.0, abs=0.01)
    assert scale.of(0.2) < 0.3
    values = [scale.of(x) for x in np.linspace(0, 1, 50)]
    assert values == sorted(values)
    assert scale_of([], [], []).of(0.5) == pytest.approx(0.45)
    assert Similar(3, 0.5).row == 3


def test_phrases_come_from_elsewhere_in_the_same_part(data: Path) -> None:
    output = data / "phrases.jsonl"
    changes = ["--set", "data.phrase_texts=2", "--set", "data.least_confidence=[0.0, 0.3]", "--set", "data.related=0.5"]
    command = ["--config", str(data / "settings.toml"), "--data", str(data), "--output", str(output)]
    assert memory.main([*command, *changes]) == 0
    examples = read_examples([output])
    lines = (data / "train" / "de-en.tsv").read_text(encoding="utf-8").splitlines()
    rows_of: dict[str, list[int]] = {}
    for n, line in enumerate(lines):
        for side in line.split("\t")[:2]:
            rows_of.setdefault(side, []).append(n)
    phrases = [(example, hint) for example in examples for hint in example.hints if not hint.hit.whole]
    assert {example.unit for example, _ in phrases} == {"phrase", "memory"}
    assert {example.pair.direction for example, _ in phrases} == {"de-en", "en-de"}
    for example, hint in phrases:
        assert held_out(example.pair.target if example.pair.target_language == "en" else example.pair.source)
        row = rows_of[example.pair.target][0]
        others = rows_of[hint.hit.sentence.text]
        assert all(abs(other - row) >= 40 and other // 240 == row // 240 for other in others)
        assert hint.source_span.end <= len(example.pair.source) and hint.hit.score >= 0
    both = [e for e in examples if e.unit == "memory" and {hint.hit.whole for hint in e.hints} == {True, False}]
    related = [example for example in examples if example.unit == "sentence"]
    assert both and related and all(len(example.hints) <= 1 for example in related)


def test_parts_are_rows_of_different_texts() -> None:
    texts = {"a": range(10), "b": range(100, 100 + 2 * PART), "c": range(5000, 5010)}
    near_the_end = 100 + 2 * PART - 3
    parts = parts_of(texts, [near_the_end, 100, 4, 5003], 2)
    assert [list(part) for part in parts] == [list(range(100 + PART, 100 + 2 * PART)), list(range(10))]
    assert [len(part) for part in parts_of(texts, [100 + PART], 3)] == [PART]


def test_examples_show_what_stands_before_them(data: Path) -> None:
    file = data / "train" / "de-en.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    lines[300] = ""  # a line that is missing in the middle of the second text
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = ["--config", str(data / "settings.toml"), "--data", str(data)]
    outputs = [data / "without.jsonl", data / "with.jsonl"]
    for output, share in zip(outputs, ("0.0", "0.8"), strict=True):
        changes = ["--set", f"data.context={share}", "--pairs", "400"]
        assert memory.main([*command, *changes, "--output", str(output)]) == 0
    without, shown = (read_examples([output]) for output in outputs)
    assert [replace(example, context=()) for example in shown] == without, "what else is drawn stays as it is"
    rows = {tuple(line.split("\t")[:2]): n for n, line in enumerate(lines) if line}
    numbers = set()
    for example in (example for example in shown if example.context):
        into_english = example.pair.target_language == "en"

        def row_of(source: str, target: str, into_english: bool = into_english) -> int:
            return rows[(target, source) if into_english else (source, target)]

        row = row_of(example.pair.source, example.pair.target)
        offsets = [one.offset for one in example.context]
        numbers.add(len(offsets))
        assert offsets == list(range(-len(offsets), 0))
        assert [row_of(one.source, one.translation) for one in example.context] == [row + n for n in offsets]
        assert row not in (0, 1, 240, 301), "nothing stands before these that may be shown"
        assert not {0, 300} & set(range(row - len(offsets), row))
        assert (row - len(offsets)) // 240 == row // 240
    assert numbers == {1, 2, 3}
    assert 0.7 < sum(bool(example.context) for example in shown) / len(shown) < 0.85


def test_examples_show_the_model_s_own_translations_of_what_stands_before(
    data: Path, tiny_llm: Callable[..., Path], tmp_path: Path
) -> None:
    row = [
        Example(Pair("de", "en", text, "Good."), "memory", (), (Neighbour(-1, "Das ist gut.", "It is."),))
        for text in "abc"
    ]
    plain = Example(Pair("en", "de", "Good.", "Gut."), "memory")
    examples = [*row, plain]
    assert own_translations(examples, 0.0, 1, str(tiny_llm()), "none") == examples
    made = own_translations(examples, 1.0, 1, str(tiny_llm()), "none")
    translator = Translator("de", "en", llm=str(tiny_llm()), adapter="none", retriever="none", engine="transformers")
    (expected,) = translator.translate_sentences([Sentence("Das ist gut.", "de")])
    assert expected.ok and expected.text != "It is."
    own = (Neighbour(-1, "Das ist gut.", expected.text),)
    assert [example.context for example in made] == [own, own, own, ()]
    assert [replace(example, context=()) for example in made] == [replace(example, context=()) for example in examples]
