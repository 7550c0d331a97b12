"""Hints that are none of the sentence's own, or all right, or without the sentence's own translation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.data.suites import Part, open_suite
from eval.translation.systems import System, read_systems
from eval.translation.translators import (
    Fixed,
    Models,
    Run,
    open_translator,
    oracle_hints,
    shuffled,
    without_references,
)
from rag_mt.base.types import Hint, Hit, Origin, Sentence, Span
from rag_mt.text.words import word_spans
from retrievers.registry import build_for, encoder_for, open_retriever


def hints_of(sentence: int, count: int) -> tuple[Hint, ...]:
    """Hints whose hits say which sentence they were retrieved for."""
    return tuple(
        Hint(Span(3 * n, 3 * n + 2), Hit(Sentence(f"{sentence}.{n}", "en"), Span(0, 3), 1 / (n + 1)))
        for n in range(count)
    )


@given(st.lists(st.integers(0, 5), max_size=12), st.integers(0, 100))
def test_shuffled_hints_are_those_of_others(counts: list[int], seed: int) -> None:
    hints = [hints_of(n, count) for n, count in enumerate(counts)]
    made = shuffled(hints, seed)
    assert made == shuffled(hints, seed)
    for n, (own, others) in enumerate(zip(hints, made, strict=True)):
        assert len(others) == min(len(own), sum(counts) - len(own))
        assert [h.source_span for h in others] == [h.source_span for h in own[: len(others)]]
        assert all(not h.phrase.startswith(f"{n}.") for h in others)
        assert len({h.hit for h in others}) == len(others)


def test_seeds_shuffle_otherwise() -> None:
    hints = [hints_of(n, 2) for n in range(30)]
    assert shuffled(hints, 1) != shuffled(hints, 2)


def test_oracle_hints_are_cut_from_the_reference() -> None:
    links = np.array([(0, 1), (1, 0), (2, 2), (4, 4)], np.int32)
    (made,) = oracle_hints(["alt ist das rote Haus"], ["is old the big house now"], [links], "en", 2)
    source = "alt ist das rote Haus"
    assert [(h.source_span.of(source), h.phrase) for h in made] == [
        ("alt ist", "is old"),
        ("das", "the"),
        ("Haus", "house"),
    ]
    for hint in made:
        assert hint.context().text == hint.phrase, "the rest of the reference is not shown"
    (alone,) = oracle_hints(["alt ist"], ["is old"], [np.zeros((0, 2), np.int32)], "en", 4)
    assert alone == ()


def test_fixed_hints_go_by_the_line() -> None:
    fixed = Fixed({1: hints_of(1, 1), 2: ()})
    asked = [Sentence("b", "de", Origin("x", 2)), Sentence("a", "de", Origin("x", 1))]
    assert fixed.retrieve(asked) == [(), hints_of(1, 1)]
    assert fixed.unit == "phrase"


@pytest.fixture(scope="module")
def part(parallel_data: Path) -> Part:
    return open_suite("wmt16", parallel_data).part("de", "en")


def translator_of(systems_file: Path, name: str, part: Part, folder: Path):  # type: ignore[no-untyped-def]
    (system,) = read_systems(systems_file, name)
    return open_translator(Run(system, part, folder), open_suite("wmt16", folder), Models(), show=False)


def asked(part: Part) -> list[Sentence]:
    return [Sentence(text, part.source, Origin(part.name, n)) for n, text in enumerate(part.sources, 1)]


def test_systems_get_the_hints_that_they_name(systems_file: Path, part: Part, tmp_path: Path) -> None:
    made = {
        name: translator_of(systems_file, name, part, tmp_path) for name in ("phrases", "dropped", "shuffled", "oracle")
    }
    found = {name: translator.retriever.retrieve(asked(part)) for name, translator in made.items()}
    assert found["dropped"] == [()] * 12
    for own, others in zip(found["phrases"], found["shuffled"], strict=True):
        assert [h.source_span for h in own] == [h.source_span for h in others]
    assert found["phrases"] != found["shuffled"]
    assert any(found["oracle"])
    for hints, reference in zip(found["oracle"], part.references, strict=True):
        assert all(h.phrase in reference and h.hit.sentence.text == h.phrase for h in hints)
    fingerprints = [str(translator.settings) for translator in made.values()]
    assert len(set(fingerprints)) == 4, "a run of one cannot go on as a run of another"
    assert made["shuffled"].retriever.settings["shuffled"] == 12345


def test_the_segmentation_is_that_of_the_system(tmp_path: Path, random_llm: Path) -> None:
    """With the sample index and the model that comes with rag_mt, as in the quick form."""
    path = tmp_path / "own.toml"
    path.write_text(
        f'[defaults]\nllm = "{random_llm}"\nadapter = "none"\nwrapper = "alpaca"\ncut_off = 0.01\n[systems.learned]\n'
        '[systems.ngrams]\nsegmentation = "ngrams"\n'
    )
    quick = open_suite("sample")
    models, own = Models(), quick.part("de", "en", 4)
    made = [open_translator(Run(s, own, tmp_path), quick, models, show=False) for s in read_systems(path)]
    hints = [translator.retriever.retrieve(asked(own)) for translator in made]
    assert hints[0] != hints[1] and any(hints[1])
    assert all(len(word_spans(h.source_span.of(t))) <= 4 for t, o in zip(own.sources, hints[1], strict=True) for h in o)
    assert "segmentation" not in made[0].settings and made[1].settings["segmentation"] == "ngrams"


def test_own_references_are_left_out(part: Part, tiny_encoder: Path, tmp_path: Path) -> None:
    sentences = [Sentence(text, "en", Origin("sample", n)) for n, text in enumerate(part.references[:6], 1)]
    encoder = encoder_for("sentence", str(tiny_encoder))
    build_for("sentence", tmp_path / "index", sentences, encoder, "en", show=False)
    retriever = open_retriever("sentence", tmp_path / "index", encoder, source_language="de", target_language="en")
    references = [Sentence(text, "de", Origin("x", n)) for n, text in enumerate(part.references, 1)]
    plain = [hints[0].phrase for hints in retriever.retrieve(references)]
    assert plain[:6] == list(part.references[:6]), "each finds itself"
    left = without_references(retriever, part.references)  # type: ignore[arg-type]
    found = [hints[0].phrase for hints in left.retrieve(references)]
    assert all(phrase != own for phrase, own in zip(found, part.references, strict=True))
    assert found[6:] == plain[6:]


def test_the_sample_index_is_asked_without_the_references(
    systems_file: Path, tiny_encoder: Path, random_llm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_MT_CACHE", str(tmp_path / "cache"))
    suite = open_suite("sample")
    system = System(name="s", retriever="sentence", encoder=str(tiny_encoder), llm=str(random_llm), wrapper="alpaca")
    run = Run(system, suite.part("de", "en", 3), tmp_path)
    translator = open_translator(run, suite, Models(), show=False)
    assert "without" in translator.retriever.settings
    assert translator.settings["left out"] == "own reference"
