"""Systems with a memory: records of drafts and decisions, shuffled recalls, runs that go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval.data.suites import open_suite
from eval.translation.__main__ import main
from eval.translation.records import FACTS, RECORDS, TIMES, Record, read_facts, read_records, read_times
from eval.translation.systems import read_systems
from eval.translation.translators import Models, Run, ShuffledMemory, open_translator
from rag_mt.base.console import INTERRUPTED
from rag_mt.base.errors import UserError
from rag_mt.base.types import Hint, Hit, Recalled, Sentence, Span
from rag_mt.translation.journal import RecordJournal
from retrievers import registry
from retrievers.registry import RetrieverSpec, build_for, encoder_for
from retrievers.units.unit import SentenceUnits
from tests.eval.conftest import ENGLISH
from tests.eval.translation.test_translation import note_prompts
from tests.ui.conftest import RuleMemory

ALL = "plain,memory,together,shuffled,dropped"
SYSTEMS = """
[systems.plain]
retriever = "none"

[systems.memory]
retriever = "memory"
index = "{folder}"

[systems.together]
like = "memory"
consensus = false

[systems.shuffled]
like = "memory"
hints = "shuffled"

[systems.dropped]
like = "memory"
hints = "none"
"""


class EvenMemory(RuleMemory):
    """Shows what it has for sentences of an even length."""

    def __init__(self) -> None:
        super().__init__(lambda text: len(text) % 2 == 0)


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> list[EvenMemory]:
    """The memories that are opened from now on, for the retriever `memory`."""
    opened: list[EvenMemory] = []
    monkeypatch.setitem(registry.RETRIEVERS, "memory", RetrieverSpec("memory", "memory", SentenceUnits))
    real = registry.open_retriever

    def open_retriever(name: str, *rest: Any, **more: Any) -> Any:
        if name != "memory":
            return real(name, *rest, **more)
        opened.append(EvenMemory())
        return opened[-1]

    monkeypatch.setattr(registry, "open_retriever", open_retriever)
    return opened


@pytest.fixture
def command(
    memories: list[EvenMemory], parallel_data: Path, random_llm: Path, tiny_encoder: Path, tmp_path: Path
) -> list[str]:
    folder, path = tmp_path / "index", tmp_path / "systems.toml"
    encoder = encoder_for("sentence", str(tiny_encoder))
    build_for("memory", folder, [Sentence(text, "en") for text in ENGLISH], encoder, "en", show=False)
    defaults = f"""[defaults]
llm = "{random_llm}"
wrapper = "compact"
max_new_tokens = 12
batch_size = 4
encoder = "{tiny_encoder}"
"""
    path.write_text(defaults + SYSTEMS.format(folder=folder))
    options = ["--suite", "wmt16", "--data", str(parallel_data), "--config", str(path), "--quiet"]
    return [*options, "--directions", "de-en", "--limit", "9"]


def recalled(record: Record) -> Recalled:
    assert record.translation.recalled is not None
    return record.translation.recalled


def test_runs_have_drafts_decisions_and_nothing_asked_twice(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = note_prompts(monkeypatch)
    assert main([*command, "--systems", ALL, "--output", str(tmp_path / "runs")]) == 0
    plain, memory, together, mixed, dropped = (
        read_records(tmp_path / "runs" / name / f"de-en{RECORDS}") for name in ALL.split(",")
    )
    assert [r.text for r in dropped] == [r.text for r in plain]
    shown = [len(r.source) % 2 == 0 for r in memory]
    assert True in shown and False in shown
    for records in (memory, together, mixed):
        assert [recalled(r).shown for r in records] == shown
        for r, own in zip(records, plain, strict=True):
            assert r.translation.draft == (own.text if own.translation.ok else "")
            assert recalled(r).shown or r.text == own.text
            assert [h.hit.stored_score for h in recalled(r).hints] == [0.8]
            assert len(r.translation.hints) <= recalled(r).shown
    assert any(r.text != r.translation.draft for r in memory)
    for r, own in zip(mixed, memory, strict=True):
        assert (recalled(r).hints != recalled(own).hints) == recalled(r).shown, "those shown have each other's"
    assert len(asked) == len(set(asked)), "what a system has asked no other asks again: drafts, and answers with hints"
    facts = read_facts(tmp_path / "runs" / "memory" / f"de-en{FACTS}")
    times = read_times(tmp_path / "runs" / "memory" / f"de-en{TIMES}")
    assert facts["taken_over"] == 9 - sum(shown)
    assert facts["tokens"] == sum(r.completion.tokens for r in memory if recalled(r).shown)
    assert times["retrieval"]["sentences"] == 9 and times["retrieval"]["seconds"] > 0


@pytest.mark.parametrize("system", ["memory", "shuffled"])
def test_a_run_that_was_interrupted_goes_on_with_equal_bytes(
    command: list[str], memories: list[EvenMemory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    whole, parts = (tmp_path / name / system / f"de-en{RECORDS}" for name in ("whole", "parts"))
    assert main([*command, "--systems", system, "--output", str(tmp_path / "whole")]) == 0
    add: Callable[..., None] = RecordJournal.add_records
    kept: list[int] = []

    def interrupted(self: RecordJournal, numbers: Sequence[int], records: Sequence[Any]) -> None:
        if len(kept) == 5:
            raise KeyboardInterrupt
        kept.extend(numbers)
        add(self, numbers, records)

    with monkeypatch.context() as patch:
        patch.setattr(RecordJournal, "add_records", interrupted)
        with pytest.raises(SystemExit) as end:
            main([*command, "--systems", system, "--output", str(tmp_path / "parts")])
    assert end.value.code == INTERRUPTED
    assert not parts.exists()
    assert main([*command, "--systems", system, "--output", str(tmp_path / "parts")]) == 0
    assert parts.read_bytes() == whole.read_bytes()
    again = sum(map(len, memories[-1].asked))
    assert again == (9 if system == "shuffled" else 4), "hints are shuffled among all sentences"


def test_settings_tell_the_systems_apart(command: list[str], tmp_path: Path, parallel_data: Path) -> None:
    suite = open_suite("wmt16", parallel_data)
    part = suite.part("de", "en")
    systems = read_systems(tmp_path / "systems.toml")
    made = {s.name: open_translator(Run(s, part, tmp_path), suite, Models(), show=False) for s in systems}
    assert len({str(translator.settings) for translator in made.values()}) == 5
    assert [made[name].memory is not None for name in made] == [False, True, True, True, False]
    assert made["memory"].settings["consensus"] and "consensus" not in made["together"].settings


def test_what_is_shuffled_are_shown_hits_of_one_kind() -> None:
    """Phrases stay phrases, sentences stay sentences, and the own decision stays."""

    class Fixed(RuleMemory):
        def recall(self, sentences: Sequence[Sentence], drafts: Sequence[str]) -> list[Recalled]:
            return own

    def hit(text: str, whole: bool, score: float) -> Hint:
        end = len(text) if whole else 2
        return Hint(Span(0, 3), Hit(Sentence(text, "en"), Span(0, end), score))

    own = [Recalled((hit(f"{n} whole", True, 0.9), hit(f"{n} part", False, 0.3)), shown=n != 2) for n in range(5)]
    before = [replace(r) for r in own]
    sentences = [Sentence(str(n), "de") for n in range(5)]
    mixed = ShuffledMemory(Fixed(), 7).recall(sentences, [""] * 5)
    assert own == before, "the memory's own list is left alone"
    assert [r.shown for r in mixed] == [r.shown for r in own]
    assert mixed[2] == own[2]
    for n in (0, 1, 3, 4):
        whole, part = mixed[n].hints
        assert whole.hit.whole and not part.hit.whole
        assert whole.hit.sentence.text[0] not in (str(n), "2") and part.hit.sentence.text[0] not in (str(n), "2")


def test_mistakes_are_told(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "systems.toml"
    text = path.read_text()
    path.write_text(text + "\n[systems.other]\nretriever = 'sentence'\nconsensus = false\n")
    with pytest.raises(UserError, match="sets consensus of other, whose retriever is 'sentence': only a memory"):
        read_systems(path)
    path.write_text(text + "\n[systems.bare]\nretriever = 'memory'\n")
    (system,) = read_systems(path, "bare")
    quick = open_suite("sample")
    with pytest.raises(UserError, match="the sample index, which holds the references of the suite sample"):
        open_translator(Run(system, quick.part("de", "en", 2), tmp_path), quick, Models(), show=False)
