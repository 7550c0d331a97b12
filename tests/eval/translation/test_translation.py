"""The evaluation command on tiny models: records, kills, refusals, tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sacrebleu.metrics.chrf import CHRF

from eval.data.suites import open_suite
from eval.translation.__main__ import QUICK_LIMIT, main
from eval.translation.records import (
    COMMANDS,
    FACTS,
    GENERATION,
    RECORDS,
    SCORES,
    TIMES,
    note_command,
    read_facts,
    read_records,
    read_scores,
    read_times,
)
from eval.translation.runs import JOURNAL, other_completions
from eval.translation.systems import read_systems
from eval.translation.translators import Run, in_order
from rag_mt.base.errors import UserError
from rag_mt.base.types import Prompt
from rag_mt.llm.opening import open_llm
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.translation.journal import pack
from rag_mt.translation.queue import TaskQueue
from retrievers.dense import DenseRetriever
from tests.rag_mt.llama_server import llama_server, save_tiny

ROOT = Path(__file__).parents[3]
KILLED = """
import os, signal, sys
from rag_mt.translation.journal import RecordJournal
add, calls = RecordJournal.add_records, []
def counted(*given):
    add(*given)
    calls.append(1)
    if len(calls) == 8:
        os.kill(os.getpid(), signal.SIGKILL)
RecordJournal.add_records = counted
from eval.translation.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


def note_prompts(patch: pytest.MonkeyPatch) -> list[str]:
    """The texts of the prompts that models take from now on."""
    texts: list[str] = []
    take = TaskQueue.take

    def noted(self: TaskQueue[Any], most: int) -> Sequence[Prompt]:
        prompts = take(self, most)
        texts.extend(prompt.text for prompt in prompts)
        return prompts

    patch.setattr(TaskQueue, "take", noted)
    return texts


@pytest.fixture(scope="module")
def command(parallel_data: Path, systems_file: Path) -> list[str]:
    return ["--suite", "wmt16", "--data", str(parallel_data), "--config", str(systems_file), "--quiet"]


@pytest.fixture(scope="module")
def runs(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of four systems in one direction."""
    folder = tmp_path_factory.mktemp("runs")
    options = ["--directions", "de-en", "--limit", "9", "--systems", "plain,sentence,phrases,oracle"]
    assert main([*command, *options, "--output", str(folder)]) == 0
    return folder


def test_records_hold_what_a_report_needs(runs: Path) -> None:
    part = open_suite_part(runs)
    for system in ("plain", "sentence", "phrases", "oracle"):
        records = read_records(runs / system / f"de-en{RECORDS}")
        facts = read_facts(runs / system / f"de-en{FACTS}")
        assert [(r.source, r.reference) for r in records] == part
        assert len({r.line for r in records}) == 9
        assert facts["sample"]["sentences"] == 9 and facts["sample"]["available"] == 12
        assert facts["tokens"] == sum(r.completion.tokens for r in records) > 0
        generation = read_times(runs / system / f"de-en{TIMES}")[GENERATION]
        assert (generation["sentences"], generation["tokens"]) == (9, facts["tokens"])
        assert facts["seconds"]["generation"] == generation["seconds"] > 0
        for r in records:
            assert r.completion.tokens <= 12
            assert r.text == r.source if not r.translation.ok else r.text.strip() in r.completion.text
            assert len(r.translation.used) == len(r.translation.hints)
    assert not any(r.translation.hints for r in read_records(runs / "plain" / f"de-en{RECORDS}"))
    hinted = read_records(runs / "phrases" / f"de-en{RECORDS}")
    assert any(r.translation.hints for r in hinted)
    for hint in (hint for r in hinted for hint in r.translation.hints):
        assert hint.hit.sentence.source.file == "news.txt" and hint.phrase in hint.hit.sentence.text


def open_suite_part(runs: Path) -> list[tuple[str, str]]:
    """The pairs that every system of the folder translated."""
    return [(r.source, r.reference) for r in read_records(runs / "plain" / f"de-en{RECORDS}")]


def test_scores_are_printed_and_kept(runs: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--directions", "de-en", "--limit", "9", "--systems", "plain,phrases", "--output", str(runs)]
    assert main([*command, *options, "--score-only", "--metrics", "chrf"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines[0] == ["chrF", "de-en"]
    for name, value in lines[1:]:
        records = read_records(runs / name / f"de-en{RECORDS}")
        expected = CHRF().corpus_score([r.text for r in records], [[r.reference for r in records]]).score
        assert float(value) == pytest.approx(expected, abs=0.005)
    kept = read_scores(runs / "plain" / f"de-en{SCORES}", read_facts(runs / "plain" / f"de-en{FACTS}")["outputs"])
    assert [own.name for own in kept] == ["BLEU", "chrF", "chrF++"]
    assert read_scores(runs / "plain" / f"de-en{SCORES}", "other outputs") == []
    text = (runs / "commands.json").read_text()
    assert str(ROOT) not in text and "/tmp" not in text and "--limit 9" in text


def test_finished_runs_are_not_made_again(
    runs: Path, command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--directions", "de-en", "--limit", "9", "--systems", "plain,phrases", "--output", str(runs)]
    before = {path: path.read_bytes() for path in runs.glob(f"*/*{RECORDS}")}
    monkeypatch.setattr(TransformersLLM, "answer", lambda *_: pytest.fail("it translates again"))
    assert main([*command, *options]) == 0
    assert {path: path.read_bytes() for path in runs.glob(f"*/*{RECORDS}")} == before


def test_other_settings_are_refused(runs: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--directions", "de-en", "--systems", "plain", "--output", str(runs)]
    assert main([*command, *options, "--limit", "8"]) == 2
    told = capsys.readouterr().err
    assert "another lines, sample" in told and "--restart" in told and "Traceback" not in told
    assert main([*command, *options, "--limit", "9", "--seed", "3"]) == 2
    assert "sample" in capsys.readouterr().err


def test_other_samples_are_not_scored(runs: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--directions", "de-en", "--systems", "plain", "--output", str(runs), "--score-only"]
    before = (runs / "commands.json").read_bytes()
    for other in (["--limit", "8"], ["--limit", "9", "--seed", "3"]):
        assert main([*command, *options, *other]) == 2
        assert "has 9 sentences and not the" in capsys.readouterr().err
    assert (runs / "commands.json").read_bytes() == before


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["--metrics", "chrf,comet"], "give them with --comet FILE"),
        (["--metrics", "bleu,soup"], "unknown metric 'soup'"),
        (["--metrics", "bertscore", "--bertscore-layer", "99"], "99"),
    ],
)
def test_what_cannot_be_scored_is_said_before_it_is_translated(
    command: list[str], tmp_path: Path, metrics: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--directions", "de-en", "--systems", "plain", "--limit", "2", "--output", str(tmp_path / "runs")]
    assert main([*command, *options, *metrics]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_restart_forgets(command: list[str], tmp_path: Path) -> None:
    options = ["--directions", "de-en", "--systems", "plain", "--output", str(tmp_path)]
    assert main([*command, *options, "--limit", "2"]) == 0
    assert main([*command, *options, "--limit", "3", "--restart"]) == 0
    assert len(read_records(tmp_path / "plain" / f"de-en{RECORDS}")) == 3
    assert read_facts(tmp_path / "plain" / f"de-en{FACTS}")["sample"]["sentences"] == 3


def test_changed_records_are_not_scored(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--directions", "de-en", "--systems", "plain", "--limit", "2", "--output", str(tmp_path)]
    assert main([*command, *options, "--score-only"]) == 2
    assert "1 runs are not finished (plain de-en)" in capsys.readouterr().err
    assert main([*command, *options]) == 0
    path = tmp_path / "plain" / f"de-en{RECORDS}"
    text = path.read_text()
    path.write_text(text.replace('"reference": "', '"reference": "changed ', 1))
    capsys.readouterr()
    assert main([*command, *options, "--score-only"]) == 2
    assert "was changed after its run" in capsys.readouterr().err


def kill_after_eight(arguments: list[str]) -> None:
    """Run the command in a process of its own, and kill it after eight sentences."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def test_a_killed_run_goes_on_with_equal_bytes(runs: Path, command: list[str], tmp_path: Path) -> None:
    """kill -9 after eight of nine sentences: they are in the journal, and there are no records yet."""
    options = ["--directions", "de-en", "--limit", "9", "--systems", "phrases", "--output", str(tmp_path)]
    kill_after_eight([*command, *options])
    path, whole = (folder / "phrases" / f"de-en{RECORDS}" for folder in (tmp_path, runs))
    assert path.with_suffix(JOURNAL).is_file()
    assert not path.exists()
    assert not path.with_suffix(FACTS).exists()
    retrieved: list[int] = []
    retrieve = DenseRetriever.retrieve

    def watched(self: DenseRetriever, sentences, *rest):  # type: ignore[no-untyped-def]
        retrieved.append(len(sentences))
        return retrieve(self, sentences, *rest)

    with pytest.MonkeyPatch.context() as patch:
        asked = note_prompts(patch)
        patch.setattr(DenseRetriever, "retrieve", watched)
        assert main([*command, *options]) == 0
    assert (len(asked), retrieved) == (1, [1])  # the sentence that was not kept
    assert not path.with_suffix(JOURNAL).exists()
    assert path.read_bytes() == whole.read_bytes()
    assert read_times(path.with_suffix(".times.jsonl"))[GENERATION]["sentences"] == 9


def test_a_killed_run_of_llama_cpp_goes_on_with_equal_bytes(command: list[str], tmp_path: Path) -> None:
    gguf, systems = save_tiny(tmp_path / "tiny"), tmp_path / "systems.toml"
    systems.write_text(
        f"[systems.own]\nretriever = 'none'\nengine = 'llamacpp'\nllm = '{gguf}'\nwrapper = 'alpaca'\n"
        "max_new_tokens = 24\n"
    )
    options = [*command, "--config", str(systems), "--directions", "de-en", "--limit", "9", "--output"]
    assert main([*options, str(tmp_path / "whole")]) == 0
    kill_after_eight([*options, str(tmp_path / "killed")])
    assert main([*options, str(tmp_path / "killed")]) == 0
    whole, killed = (tmp_path / folder / "own" / f"de-en{RECORDS}" for folder in ("whole", "killed"))
    assert killed.read_bytes() == whole.read_bytes()


def test_models_are_loaded_once(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    from eval.translation import translators

    real_llm, real_encoder = translators.open_llm, translators.encoder_for
    monkeypatch.setattr(translators, "open_llm", lambda *a, **k: (opened.append("llm"), real_llm(*a, **k))[1])
    monkeypatch.setattr(
        translators, "encoder_for", lambda *a, **k: (opened.append("encoder"), real_encoder(*a, **k))[1]
    )
    options = ["--directions", "de-en", "--limit", "2", "--systems", "plain,phrases,dropped,shuffled"]
    assert main([*command, *options, "--output", str(tmp_path)]) == 0
    assert sorted(opened) == ["encoder", "llm"]


def test_systems_with_one_model_share_its_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    from eval.translation import translators

    monkeypatch.setattr(translators, "encoder_for", lambda *_: object())
    models = translators.Models()
    passage = models.encoder("passage", None, "cpu", "auto")
    assert passage is models.encoder("hybrid", "", "cpu", "auto") is not models.encoder("ccpr", "", "cpu", "auto")
    models.encoder("passage", None, "cpu", "auto")  # used last: it stays
    for name in ("one", "two"):
        models.encoder("sentence", name, "cpu", "auto")
    assert models.encoder("passage", None, "cpu", "auto") is passage


def test_a_system_has_a_cut_off_of_its_own(command: list[str], tmp_path: Path) -> None:
    options = ["--directions", "de-en", "--limit", "3", "--systems", "phrases,strict"]
    assert main([*command, *options, "--output", str(tmp_path)]) == 0
    hints = [
        [r.translation.hints for r in read_records(tmp_path / name / f"de-en{RECORDS}")]
        for name in ("phrases", "strict")
    ]
    assert any(hints[0]) and not any(hints[1])


def test_what_another_system_asked_is_not_generated_again(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`strict` shows no hints, so that `dropped` asks the same; `phrases` asks something else where it has hints."""
    options = ["--directions", "de-en", "--limit", "9"]
    apart, together = tmp_path / "apart", tmp_path / "together"
    for system in ("strict", "phrases"):
        assert main([*command, *options, "--systems", system, "--output", str(apart / system)]) == 0
    assert main([*command, *options, "--systems", "dropped", "--output", str(together)]) == 0
    asked = note_prompts(monkeypatch)
    assert main([*command, *options, "--systems", "dropped,strict,phrases", "--output", str(together)]) == 0
    for system in ("strict", "phrases"):
        found, alone = (read_records(folder / system / f"de-en{RECORDS}") for folder in (together, apart / system))
        assert found == alone
    hinted = [r for r in read_records(together / "phrases" / f"de-en{RECORDS}") if r.translation.hints]
    assert len(asked) == len(hinted) > 0
    facts = read_facts(together / "strict" / f"de-en{FACTS}")
    assert (facts["taken_over"], facts["tokens"]) == (9, 0)
    assert read_facts(together / "phrases" / f"de-en{FACTS}")["taken_over"] == 9 - len(hinted)


def test_what_is_missing_in_answers_of_another_system_is_asked_for_again(
    parallel_data: Path, systems_file: Path, tmp_path: Path
) -> None:
    """Sentences with numbers, which a model that answers at random loses."""
    for name in ("test", "dev"):
        rows = (parallel_data / name / "de-en.tsv").read_text().splitlines()
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "de-en.tsv").write_text("".join(f"{row} {n}\n" for n, row in enumerate(rows, 501)))
    options = ["--suite", "wmt16", "--data", str(tmp_path / "data"), "--config", str(systems_file), "--quiet"]
    options += ["--directions", "de-en", "--limit", "9"]
    apart, together = tmp_path / "apart", tmp_path / "together"
    assert main([*options, "--systems", "strict", "--output", str(apart)]) == 0
    assert main([*options, "--systems", "dropped,strict", "--output", str(together)]) == 0
    alone, taken_over = (read_records(folder / "strict" / f"de-en{RECORDS}") for folder in (apart, together))
    assert alone == taken_over
    for r in alone:
        assert not r.translation.ok or r.text.strip() in r.completion.text
    facts = [read_facts(folder / "strict" / f"de-en{FACTS}") for folder in (apart, together)]
    assert facts[1]["taken_over"] > 0 and 0 < facts[1]["tokens"] < facts[0]["tokens"]


def test_completions_are_not_taken_from_another_model_or_in_bfloat16(
    command: list[str], tmp_path: Path, random_llm: Path
) -> None:
    options = ["--directions", "de-en", "--limit", "3", "--output", str(tmp_path)]
    assert main([*command, *options, "--systems", "plain"]) == 0
    own = tmp_path / "other" / f"de-en{RECORDS}"
    settings = json.loads((tmp_path / "plain" / own.name).read_text().splitlines()[0])["settings"]
    assert len(other_completions(own, settings)) == 3
    for change in ({"llm": "another"}, {"max_new_tokens": 13}):
        assert other_completions(own, settings | change) == {}
    (tmp_path / "plain" / own.name).open("a").write('{"done": [[0, {"asked": "torn')
    assert len(other_completions(own, settings)) == 3
    assert open_llm(str(random_llm), dtype="float32").repeatable
    assert not open_llm(str(random_llm), dtype="bfloat16").repeatable


def test_a_run_that_has_just_begun_is_no_harm(command: list[str], tmp_path: Path) -> None:
    """The file of another system may be empty: it is made before its first line is written."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / f"de-en{RECORDS}").touch()
    options = ["--directions", "de-en", "--limit", "2", "--systems", "plain", "--output", str(tmp_path)]
    assert main([*command, *options]) == 0


def test_eight_bit_weights_answer_by_their_batch(random_llm: Path) -> None:
    llm: Any = open_llm(str(random_llm), dtype="float32")
    llm.model.is_quantized = True
    assert not llm.repeatable


def test_a_server_translates(command: list[str], tmp_path: Path) -> None:
    options = ["--directions", "de-en", "--limit", "2", "--systems", "served", "--output", str(tmp_path / "runs")]
    with llama_server(save_tiny(tmp_path / "tiny"), window=4096) as url:
        systems = tmp_path / "systems.toml"
        systems.write_text(
            f"[systems.served]\nretriever = 'none'\nllm = 'openai:tiny@{url}'\nwrapper = 'alpaca'\nmax_new_tokens = 8\n"
            "llm_options = { seed = 1, chat_template_kwargs = { from = '{src}' } }\n"
        )
        assert main([*command, "--config", str(systems), *options]) == 0
    facts = read_facts(tmp_path / "runs" / "served" / f"de-en{FACTS}")
    assert facts["device"]["name"] == "server" and facts["sample"]["sentences"] == 2


def test_commands_that_end_at_once_are_all_kept(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: note_command(tmp_path, f"command {n}", n), range(24)))
    kept = json.loads((tmp_path / COMMANDS).read_text())
    assert sorted(entry["seconds"] for entry in kept) == list(range(24))


def test_runs_with_one_model_come_one_after_the_other(parallel_data: Path, tmp_path: Path) -> None:
    path = tmp_path / "systems.toml"
    path.write_text("[systems.a]\nllm='x'\n[systems.b]\nllm='y'\n[systems.c]\nllm='x'\n")
    part = open_suite("wmt16", parallel_data).part("de", "en", 2)
    runs = [Run(system, part, tmp_path) for system in read_systems(path)]
    assert [run.system.name for run in in_order(runs)] == ["a", "c", "b"]


def test_a_file_of_ones_own_and_the_other_direction(
    command: list[str], systems_file: Path, parallel_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = ["--suite", str(parallel_data / "test" / "de-en.tsv"), "--src", "en", "--tgt", "de", "--limit", "2"]
    options = ["--config", str(systems_file), "--systems", "plain", "--output", str(tmp_path), "--quiet"]
    assert main([*own, *options]) == 0
    records = read_records(tmp_path / "plain" / f"en-de{RECORDS}")
    assert all(r.reference == " ".join(w[::-1] for w in r.source.split()) for r in records)
    assert "--suite FILE" in (tmp_path / "commands.json").read_text()


MISTAKES = [
    (["--suite", "nothing"], "'nothing'"),
    (["--metrics", "bleu,meteor"], "'meteor'"),
    (["--systems", "magic"], "'magic'"),
    (["--directions", "de-xx"], "'de-xx'"),
    (["--limit", "0"], "'0'"),
    (["--directions", "fi-en"], "fi-en.tsv"),
    (["--directions", "en-de", "--systems", "phrases"], "phrases-de"),
    (["--config", "no-such.toml"], "no-such.toml"),
    (["--directions", "de-en", "--systems", "wrong"], "an index for 'sentence'"),
]


@pytest.mark.parametrize(("arguments", "told"), MISTAKES, ids=[told for _, told in MISTAKES])
def test_mistakes_are_one_sentence(
    arguments: list[str], told: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main([*command, "--systems", "plain", *arguments, "--output", str(tmp_path)])
    except SystemExit as stop:
        code = int(stop.code or 0)
    told_at = capsys.readouterr()
    assert code == 2 and told_at.out == ""
    last = told_at.err.strip().splitlines()[-1]
    assert told in last and "Traceback" not in told_at.err


def test_the_sample_corpus_says_that_it_measures_nothing(
    systems_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--config", str(systems_file), "--systems", "plain"]
    assert main([*options, "--output", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert "quick form: measures nothing" in said
    assert f"{2 * QUICK_LIMIT} sentences to translate: 1 systems, de-en, en-de; about 1 minute on two" in said
    assert sorted(path.name for path in (tmp_path / "plain").glob("*-*.scores.json")) == [
        "de-en.scores.json",
        "en-de.scores.json",
    ]
    facts = read_facts(tmp_path / "plain" / f"de-en{FACTS}")
    assert facts["label"] == "quick form: measures nothing" and facts["sample"]["sentences"] == QUICK_LIMIT


def test_damaged_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("no run\n")
    with pytest.raises(UserError, match=r"x\.jsonl is no run"):
        read_records(tmp_path / "x.jsonl")
    (tmp_path / "x.scores.json").write_text('{"outputs": "a"}')
    with pytest.raises(UserError, match=r"x\.scores\.json is damaged"):
        read_scores(tmp_path / "x.scores.json", "a")
    with pytest.raises(UserError, match="to its end"):
        read_facts(tmp_path / "none.json")
    (tmp_path / "x.times.jsonl").write_text('{"part": "retrieval", "batch": 0, "seconds": 2.5, "senten')
    assert not read_times(tmp_path / "x.times.jsonl")["retrieval"]


def test_packed_hints_come_back(runs: Path) -> None:
    path = runs / "phrases" / f"de-en{RECORDS}"
    stored = {n: own for line in path.read_text().splitlines()[1:] for n, own in json.loads(line)["done"]}
    for n, record in enumerate(read_records(path)):
        assert json.loads(json.dumps(pack(record.translation))).items() <= stored[n].items()
