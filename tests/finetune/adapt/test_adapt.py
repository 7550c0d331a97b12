"""`rag-mt adapt` from an index to an adapter beside it, with a tiny model and a server that translates back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from finetune.adapt import run
from finetune.adapt.check import Scores
from finetune.adapt.hints import OtherBlocks, OtherMemory
from finetune.adapt.run import Adaptation
from finetune.adapt.training import AdaptTrainer
from finetune.lora.config import Config
from finetune.lora.data import Data
from rag_mt.base.console import INTERRUPTED
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Recalled, Sentence
from rag_mt.cli.main import main
from rag_mt.models.adapter_files import WEIGHTS
from rag_mt.translation.index import Index
from rag_mt.translation.index_adapters import REPORT
from rag_mt.translation.journal import RecordJournal
from rag_mt.translation.opening import chosen_adapter
from tests.rag_mt.llm_server import Handler, serving

LINES, HELD_OUT, USED = 80, 14, 60


def shortest(lines: int = LINES) -> list[tuple[str, str]]:
    """The shortest English and German sentences of the sample corpus."""
    texts = [(SAMPLE_CORPUS / f"{code}.txt").read_text(encoding="utf-8").splitlines() for code in ("en", "de")]
    return sorted(zip(*texts, strict=True), key=lambda row: (len(row[1]), row))[:lines]


ROWS = shortest()


class BackTranslating(Handler):
    """Answers a prompt with the English of the German sentence in it; some badly."""

    window = 4096

    def text(self, body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        number = max((n for n, row in enumerate(ROWS) if row[1] in prompt), key=lambda n: len(ROWS[n][1]))
        if number % 10 == 5:
            return ROWS[number][1]  # not translated
        return ROWS[number - 1 if number % 10 == 7 else number][0]


@pytest.fixture(scope="module")
def back_llm() -> Iterator[str]:
    with serving(BackTranslating) as address:
        yield f"openai:tiny@{address}"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of German sentences in files of ten."""
    place = tmp_path_factory.mktemp("built")
    (place / "text").mkdir()
    for begin in range(0, LINES, 10):
        lines = "".join(row[1] + "\n" for row in ROWS[begin : begin + 10])
        (place / "text" / f"{begin:03}.txt").write_text(lines, encoding="utf-8")
    Index.build(place / "index", place / "text", language="de", retriever="sentence", split=False, dtype="float32")
    return place / "index"


@pytest.fixture
def index(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "index")
    return tmp_path / "index"


@pytest.fixture
def arguments(index: Path, back_llm: str, tiny_llm: Callable[..., Path]) -> list[str]:
    """The command for a run of some seconds."""
    sets = {
        "model.modules": '["q_proj", "v_proj", "gate_proj", "up_proj", "down_proj"]',
        "text.fewest_held_out": HELD_OUT,
        "text.fewest_pairs": 20,
        "text.most_held_out": HELD_OUT,
        "text.block": 5,
        "text.passes": 1,
        "text.replay": 0.0,
        "training.batch": 4,
        "training.learning_rate": 1e-2,
        "training.wrapper": '"alpaca"',
        "training.checkpoint_every": 2,
    }
    own = ["adapt", str(index), "--src", "en", "--llm", str(tiny_llm()), "--back-llm", back_llm]
    own += ["--sentences", str(USED), "--minutes", "900", "--device", "cpu", "--dtype", "float32"]
    return own + [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]


def told(report: Path) -> dict[str, Any]:
    """A report without what differs from run to run."""
    facts: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return {key: value for key, value in facts.items() if key not in ("key", "seconds")}


@pytest.mark.slow
def test_an_adapter_goes_on_after_each_interruption_and_is_used(
    index: Path,
    arguments: list[str],
    tiny_llm: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Stopped in the middle of every part, it comes out as one that was not; its drops are counted. What a tiny model
    says is no language, so that the check's judgement is not asked here."""
    monkeypatch.setattr(Scores, "better", True)
    shutil.copytree(index, tmp_path / "other")
    average, trained = run.averaged, []

    def watched(start: str, tuned: Path, change: float, folder: Path) -> None:
        trained.append((load_file(tuned / WEIGHTS), change))
        average(start, tuned, change, folder)

    monkeypatch.setattr(run, "averaged", watched)
    assert main(arguments) == 0
    adapter = index / "adapters" / "en"
    (weights, change), kept = trained[0], load_file(adapter / WEIGHTS)
    for name, weight in weights.items():  # that of a new adapter: B began with 0
        expected = weight if "lora_A" in name else change * weight
        torch.testing.assert_close(kept[name].float(), expected.float(), atol=1e-3, rtol=1e-2)
    assert change == 0.7 and json.loads((adapter / "training.json").read_text())["average"] == {"change": 0.7}
    report = told(adapter / REPORT)
    assert report["scores"]["chrf"] != report["scores"]["chrf_before"]
    assert report["loss"]["after"] < report["loss"]["before"]
    assert report["dropped"]["with equal sides"] > 0
    assert report["dropped"]["with a similarity of both sides below 0.82"] > 0
    counts = report["examples"]
    assert counts["held-out pairs"] + counts["back-translated pairs"] + sum(report["dropped"].values()) == USED
    assert 0 < counts["of them with hints"] < counts["back-translated pairs"]
    assert not (index / "adapt.en").exists()

    # The same with an interruption of every part.
    add, step = RecordJournal.add_records, AdaptTrainer.run_step
    waiting = ["back-translation", "hints.train", "check, before", "check, after"]

    def interrupted_add(self: RecordJournal, *records: Any) -> None:
        add(self, *records)
        if waiting and self.path.name.startswith(waiting[0]) and (self.finished > 5 or "hints" in waiting[0]):
            waiting.pop(0)
            raise KeyboardInterrupt

    def interrupted_step(self: AdaptTrainer, *batch: Any) -> dict[str, float]:
        if self.step == 5 and "training" not in done:
            done.append("training")
            raise KeyboardInterrupt
        return step(self, *batch)

    done: list[str] = []
    monkeypatch.setattr(RecordJournal, "add_records", interrupted_add)
    monkeypatch.setattr(AdaptTrainer, "run_step", interrupted_step)
    again = [str(tmp_path / "other") if part == str(index) else part for part in arguments]
    codes = [main(again)]
    while codes[-1] == INTERRUPTED and len(codes) < 9:
        codes.append(main(again))
    assert codes == [INTERRUPTED] * 5 + [0]
    assert not waiting and done
    other = tmp_path / "other" / "adapters" / "en"
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        assert (other / name).read_bytes() == (adapter / name).read_bytes()
    assert told(other / REPORT) == report

    # It is found, told and used, but for other models and directions.
    llm = str(tiny_llm())
    assert chosen_adapter("auto", llm, "en", "de", index) == str(adapter)
    assert chosen_adapter("auto", llm, "en-GB", "de", index) == str(adapter)
    for other_way in (("auto", "another", "en"), ("auto", llm, "cs"), ("none", llm, "en")):
        assert chosen_adapter(*other_way, "de", index) is None
    capsys.readouterr()
    assert main(["index", "info", str(index)]) == 0
    assert "adapter from en: chrF" in capsys.readouterr().out
    assert main(["index", "verify", str(index)]) == 0
    assert main(["translate", "Hello", "--src", "en", "--tgt", "de", "--index", str(index), "--llm", llm]) in (0, 1)
    assert f"translating with the adapter {adapter}" in capsys.readouterr().err
    assert main(arguments) == 2
    assert "give --replace" in capsys.readouterr().err
    text = index.parent / "new.txt"
    text.write_text("".join(row[1] + "\n" for row in ROWS[:9]), encoding="utf-8")
    Index.build(index, text, language="de", retriever="sentence", replace=True)
    assert (adapter / REPORT).is_file(), "a new index of the language keeps them"


@pytest.mark.slow
def test_a_memory_is_adapted_with_its_hints(
    built: Path, index: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check drafts, recalls and asks again, and never sees the block of the sentence itself."""
    monkeypatch.setattr(Scores, "better", True)
    options: dict[str, Any] = {"language": "de", "retriever": "memory", "split": False, "dtype": "float32"}
    Index.build(index, built.parent / "text", replace=True, **options)
    recall, shown = OtherMemory.recall, []

    def watched(self: OtherMemory, sentences: Sequence[Sentence], drafts: Sequence[str]) -> list[Recalled]:
        recalled = recall(self, sentences, drafts)
        for sentence, own in zip(sentences, recalled, strict=True):
            origins = [hint.hit.sentence.source for hint in own.hints]
            asked = self.targets[sentence.source.line].origin
            shown.append([(o.file, (o.line - 1) // 5) != (asked.file, (asked.line - 1) // 5) for o in origins])
        return recalled

    monkeypatch.setattr(OtherMemory, "recall", watched)
    assert main(arguments) == 0
    report = told(index / "adapters" / "en" / REPORT)
    assert report["examples"]["of them with hints"] > 5
    assert len(shown) == 2 * report["examples"]["held-out pairs"]
    assert any(shown) and all(all(others) for others in shown)


@pytest.mark.slow
def test_many_pairs_of_ones_own_are_checked_on(
    index: Path, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked is learnt from in no way, and its place in the index is not looked at, also after a stop."""
    monkeypatch.setattr(Scores, "better", True)
    pairs = [row for row in shortest(LINES + 60) if row not in ROWS[:40]]
    (tmp_path / "own.tsv").write_text("en\tde\n" + "".join(f"{e}\t{d}\n" for e, d in pairs), encoding="utf-8")
    scored, known = run.scores, {german for _, german in pairs}
    checked, learnt, left_out, stops = [], [], {}, ["check, after"]

    def compared(before: Sequence[str], after: Sequence[str], references: Sequence[str]) -> Scores:
        checked.extend(references)
        return scored(before, after, references)

    def seen(config: Config, data: Data, *rest: Any) -> dict[str, Any]:
        learnt.extend(example.pair.target for example in data.train)
        return trained(config, data, *rest)

    def without(self: OtherBlocks, number: int) -> list[int]:
        rows = own_rows(self, number)
        left_out[self.targets[number].text] = [t.text for row in rows for t in self.text.targets(row)]
        return rows

    def stopped(self: Adaptation, opened: Any, sentences: Any, part: str) -> Any:
        if part in stops:
            stops.remove(part)
            left_out.clear()
            raise KeyboardInterrupt
        return translated(self, opened, sentences, part)

    trained, translated, own_rows = run.trained, Adaptation.translated, OtherBlocks.left_out
    monkeypatch.setattr(run, "scores", compared)
    monkeypatch.setattr(run, "trained", seen)
    monkeypatch.setattr(OtherBlocks, "left_out", without)
    monkeypatch.setattr(Adaptation, "translated", stopped)
    own = ["--pairs", str(tmp_path / "own.tsv")]
    assert main([*arguments, *own]) == INTERRUPTED
    assert main([*arguments, *own]) == 0
    examples = told(index / "adapters" / "en" / REPORT)["examples"]
    assert examples["held-out pairs"] == examples["of them your own"] == len(checked) == HELD_OUT
    assert set(checked) <= known and not set(checked) & set(learnt)
    assert known - set(checked) <= set(learnt)
    in_index = {row[1] for row in ROWS} & set(checked)
    assert 0 < len(in_index) < len(checked)
    assert all((text in left_out[text]) == (text in in_index) for text in checked)
    assert "of your own pairs" in (index / "adapters" / "en" / "report.md").read_text(encoding="utf-8")


def test_an_adapter_that_is_not_better_is_not_kept(
    index: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--set", "training.learning_rate=1e-9"]) == 1
    assert "is not better and is not kept: chrF" in capsys.readouterr().err
    assert sorted(path.name for path in index.iterdir()) == sorted(
        ["manifest.json", "sentences.arrow", "spans.npy", "vectors.faiss"]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--src", "de"], "holds German text itself: --src is the language that is translated from"),
        (["--src", "cs", "--back-llm", "embedded:gemma-3-270m"], "has no adapter from German to Czech"),
        (["--llm", "openai:x@http://localhost:1/v1"], "cannot be tuned here"),
        (["--llm", "model.gguf"], "cannot be tuned here"),
        (["--sentences", "30"], "sentences can be used"),
        (["--set", "text.fewest_held_out=200"], "an adaptation needs at least 220"),
        (["--minutes", "1"], "--minutes 1 is too short"),
        (["--pairs", "nowhere.tsv"], "nowhere.tsv"),
        (["--set", "text.hints=2"], "expected a share from 0 to 1"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(
    index: Path, arguments: list[str], changes: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, *changes]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error and error.startswith("rag-mt: ")
    assert not (index / "adapters").exists() and not list(index.glob("adapt.*"))


def test_changed_options_do_not_go_on(
    index: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RecordJournal, "add_records", interrupted)
    assert main(arguments) == INTERRUPTED
    assert main([*arguments, "--minutes", "800"]) == 2
    assert "belongs to a job with another minutes" in capsys.readouterr().err
