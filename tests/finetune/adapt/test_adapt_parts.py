"""The parts of an adaptation by themselves: blocks, choice, filter, plan, check."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from finetune.adapt import far
from finetune.adapt.check import scores
from finetune.adapt.config import AdaptConfig, TextConfig
from finetune.adapt.far import translate_far
from finetune.adapt.pairs import PairFilter, answered, general_pairs, kept_for_check, own_pairs, replayed
from finetune.adapt.plan import FIXED, Plan, Speeds, planned
from finetune.adapt.sentences import IndexText, Target, blocks_of, chosen
from finetune.adapt.training import averaged
from finetune.lora.examples import Pair
from rag_mt.base.cluster import Cluster
from rag_mt.base.errors import UserError
from rag_mt.base.settings import config_file
from rag_mt.base.types import Floats, Origin, Sentence, Skips, Translation
from rag_mt.translation.index import Index
from rag_mt.translation.journal import Journal

FEW = TextConfig(block=4, fewest_held_out=8, most_held_out=8, fewest_pairs=4, fewest_words=2)


def test_none_of_the_change_is_no_adapter() -> None:
    with pytest.raises(UserError, match=r"average.change.*a share above 0, to 1"):
        AdaptConfig.read(config_file("adapt"), {"average.change": "0.0"})


def test_the_shipped_settings_are_read() -> None:
    config = AdaptConfig.read(config_file("adapt"))
    assert config.model.llm.startswith("embedded:")
    assert config.text.limits.longest_ratio == config.text.longest_ratio


def test_blocks_end_with_files_and_their_size() -> None:
    assert blocks_of(np.array([0, 0, 0, 1, 1, 0, 2]), 2).tolist() == [0, 0, 1, 2, 2, 3, 4]
    assert blocks_of(np.array([], dtype=np.int64), 2).tolist() == []


def test_whole_blocks_are_held_out(tmp_path: Path) -> None:
    lines = [f"Sentence {word} of the text." for word in "abcdefghijklmnopqrstuvwxyz"]
    texts = [Sentence(line, "en", Origin(f"{n // 10}.txt", n)) for n, line in enumerate([*lines, "Menu", "OK"])]
    index = Index.build(tmp_path / "index", texts=texts, language="en", retriever="bm25", split=False)
    text, skips = IndexText(index.folder, index.manifest, FEW.block), Skips(shown=0)
    choice = chosen(text, FEW, 20, skips)
    assert len(choice.held_out) + len(choice.train) == 20
    blocks = {target.blocks for target in choice.held_out}
    assert len(choice.held_out) >= 8 and not blocks & {target.blocks for target in choice.train}
    for (block,) in blocks:
        there = {t.text for row in text.rows(block) for t in text.targets(row)} - {"Menu", "OK"}
        assert there <= {target.text for target in choice.held_out}
    more = chosen(text, FEW, 26, Skips(shown=0))
    assert more.held_out == choice.held_out and more.train[: len(choice.train)] == choice.train
    everything = chosen(text, FEW, 99, skips)
    assert len(everything.held_out) + len(everything.train) == len(lines)
    assert skips.counts["with fewer than 2 words"] > 0
    with pytest.raises(UserError, match="an adaptation needs at least 1008"):
        chosen(text, TextConfig(fewest_held_out=8, fewest_pairs=1000), 99, Skips(shown=0))


def test_a_sentence_is_found_in_all_its_places(tmp_path: Path) -> None:
    lines = [
        "Press the button, then wait.",
        *(f"Sentence {n} of it." for n in range(30)),
        "Press the button then wait!",
    ]
    texts = [Sentence(line, "en", Origin("a.txt", n)) for n, line in enumerate(lines, 1)]
    index = Index.build(tmp_path / "index", texts=texts, language="en", retriever="bm25", split=False)
    text = IndexText(index.folder, index.manifest, 8)
    twice, once, nowhere = text.placed(["PRESS THE BUTTON: THEN WAIT", "Sentence 9 of it", "Elsewhere."])
    assert twice.blocks == (0, 3) and once.blocks == (1,) and nowhere.blocks == ()


class Letters:
    """An encoder of texts by the letters that they begin with."""

    def encode(self, texts: list[str], kind: str = "query") -> Floats:
        return np.eye(26, dtype=np.float32)[[ord(text[0].lower()) - ord("a") for text in texts]]


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Alle Kinder spielen im Garten.", "All children play in the garden.", ""),
        ("Alle Kinder spielen.", "Zebras and lions eat the children.", "with a similarity of both sides below 0.82"),
        ("Alle Kinder.", "All children play in the garden.", "with fewer than 3 words"),
        ("All children play outside.", "All children play outside.", "with equal sides"),
        ("All the children play outside now.", "All children play outside.", "whose source is not in German"),
        ("Alle Kinder hier.", "All children " + "play " * 20, "with a side more than 2.5 times as long as the other"),
    ],
)
def test_pairs_are_dropped_for_a_reason(source: str, target: str, reason: str) -> None:
    skips = Skips(shown=0)
    pair_filter = PairFilter("de", "en", TextConfig(), Letters())  # type: ignore[arg-type]
    pair = Pair("de", "en", source, target)
    assert pair_filter.kept([pair], skips) == ([] if reason else [pair])
    assert skips.counts == ({reason: 1} if reason else {})
    if not reason:
        assert pair_filter.kept([pair, pair], skips) == [pair]
        assert skips.counts == {"with a source that was seen before": 1}


def test_failed_answers_are_no_pairs() -> None:
    targets = [Target("One sentence.", Origin("a", 7), 0), Target("Another one.", Origin("a", 8), 0)]
    answers = [Translation(Sentence("", "en"), "Ein Satz.", ok=False), Translation(Sentence("", "en"), "Ein anderer.")]
    skips = Skips(shown=0)
    pairs = answered(targets, answers, "de", "en", skips)
    assert [(pair.source, pair.target, pair.origin.line) for pair in pairs] == [("Ein anderer.", "Another one.", 1)]
    assert skips.counts == {"whose back-translation failed": 1}


def test_own_and_general_pairs(tmp_path: Path) -> None:
    (tmp_path / "own.tsv").write_text("Ein Satz.\tOne sentence.\n", encoding="utf-8")
    own = own_pairs([str(tmp_path / "own.tsv")], "de", "en")
    assert [(pair.source, pair.target) for pair in own] == [("Ein Satz.", "One sentence.")]
    general = general_pairs([], "de", "en")
    assert len(general) > 300 and general_pairs([], "de", "ja") == []
    replay = replayed(general, 90, TextConfig(replay=0.1))
    assert len(replay) == 10 and replay == replayed(general, 90, TextConfig(replay=0.1))
    assert len(replayed(own, 90, TextConfig(replay=0.1))) == 1


@pytest.mark.parametrize(("pairs", "kept"), [(0, 0), (399, 0), (400, 100), (3000, 150), (9000, 250)])
def test_some_of_many_own_pairs_are_for_the_check(pairs: int, kept: int) -> None:
    own = [Pair("en", "de", f"a {n}", f"b {n}") for n in range(pairs)]
    train, check = kept_for_check(own, TextConfig())
    assert len(check) == kept and sorted(map(str, train + check)) == sorted(map(str, own))
    assert kept_for_check(own, TextConfig()) == (train, check)


def test_the_plan_fills_the_time() -> None:
    speeds, settings = Speeds(0.5, 0.1, 0.3), TextConfig(passes=3)
    plan = planned(speeds, 60, 100, 10_000, 0, settings)
    total = sum(plan.seconds(speeds, 0, settings).values())
    assert plan.passes == 1 and 3600 - 2 < total <= 3600
    assert planned(speeds, 60, 100, 10_000, 500, settings).train < plan.train
    small = planned(speeds, 60, 100, 1000, 0, settings)
    assert (small.train, small.passes) == (1000, 3)
    with pytest.raises(UserError, match="--minutes 2 is too short: 100 sentences"):
        planned(speeds, 2, 100, 1000, 0, settings)
    assert Plan(100, 0, 1).seconds(Speeds(0, 0, 0), 0, settings)["loading"] == FIXED


@pytest.mark.parametrize("start", [True, False])
def test_the_adapter_lies_between_what_it_began_with_and_what_it_became(tmp_path: Path, start: bool) -> None:
    a, b = "base.layers.0.q_proj.lora_A.weight", "base.layers.0.q_proj.lora_B.weight"
    for name, scale in (("start", 1.0), ("tuned", 3.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text('{"r": 2}', encoding="utf-8")
        weights = {a: torch.full((2, 3), scale), b: torch.full((3, 2), 2 * scale)}
        save_file(
            {key: weight.half() for key, weight in weights.items()}, tmp_path / name / "adapter_model.safetensors"
        )
    averaged(str(tmp_path / "start") if start else "", tmp_path / "tuned", 0.5, tmp_path / "averaged")
    found = load_file(tmp_path / "averaged" / "adapter_model.safetensors")
    values = {name: set(weight.flatten().tolist()) for name, weight in found.items()}
    # A new adapter began with B = 0 and with A as it was drawn: half of B is half of the product.
    assert values == ({a: {2.0}, b: {4.0}} if start else {a: {3.0}, b: {3.0}})
    assert all(weight.dtype == torch.float16 for weight in found.values())
    assert (tmp_path / "averaged" / "adapter_config.json").read_text(encoding="utf-8") == '{"r": 2}'


def test_only_a_significant_gain_of_chrf_is_better() -> None:
    references = [f"The committee of village {n} has decided to build a bridge." for n in range(60)]
    poor = [text.replace("committee", "people").replace("bridge", "way") for text in references]
    assert scores(poor, references, references).better
    assert not scores(references, poor, references).better
    assert not scores(poor, poor, references).better
    assert not scores(poor, [references[0], *poor[1:]], references).better
    assert "chrF" in scores(poor, references, references).describe()


def test_a_cluster_translates_what_the_journal_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = [Sentence(f"Satz {n}", "de", Origin("t.txt", n)) for n in range(300)]
    asked: list[int] = []

    class Here(Cluster):
        def spread(self, task, jobs):  # type: ignore[no-untyped-def]
            for key, (arguments, part) in reversed(list(jobs)):
                assert arguments == ("de", "en")
                asked.append(len(part))
                yield key, [Translation(sentence, sentence.text.upper()) for sentence in part]

    journal = Journal(tmp_path / "journal", {})
    journal.add([1, 3], [Translation(sentences[n], "known") for n in (1, 3)])
    journal.close()
    journal = Journal(tmp_path / "journal", {})
    translate_far(Here("here"), ("de", "en"), sentences, journal)
    journal.close()
    assert asked == [298 - 2 * far.BATCH, far.BATCH, far.BATCH]
    journal = Journal(tmp_path / "journal", {})
    texts = [journal.take(n, sentence).text for n, sentence in enumerate(sentences)]  # type: ignore[union-attr]
    assert texts == ["known" if n in (1, 3) else f"SATZ {n}" for n in range(300)]
    journal.close()
