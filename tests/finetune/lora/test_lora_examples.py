"""The pairs that a language model is tuned on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from eval.data.phrase_sets import half_of
from finetune.held_out import held_out
from finetune.lora.config import DataConfig
from finetune.lora.examples import sampled_pairs
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips

SETTINGS = DataConfig(languages=("de", "fi"), pairs=20, fewest_words=3, most_words=12)
ENGLISH = ["stone", "river", "mountain", "garden", "window", "doctor", "market", "winter", "letter", "bridge"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """600 pairs per language, half of them news, and some that are unusable."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(3)
    for part in ("train", "dev"):
        (folder / part).mkdir()
        for code in ("de", "fi"):
            lines = []
            for number in range(600):
                words = [rng.choice(ENGLISH) for _ in range(5)]
                english = f"{' '.join(words)} {number}"
                other = f"{' '.join(code + word[::-1] for word in words)} {number}"
                columns = [english, other, "news" if number % 2 else "ui", "made up"]
                lines.append("\t".join(columns if part == "train" else columns[:2]))
            for n in range(60):  # unusable, and a tenth of them held out
                lines.append(f"two{n} words\tzwei{n} Worte\tnews\tx")
                lines.append(f"the same text in both {n}\tthe same text in both {n}\tnews\tx")
                lines.append(f"a short line {n}\tDonaudampfschifffahrtsgesellschaft {code} und mehr {n}\tnews\tx")
                lines.append(f"{'word ' * 13}{n}\t{'Wort ' * 13}{n}\tnews\tx")
                lines += [f"once and again {n}\t{code} noch einmal {n} {other}\tnews\tx" for other in "ab"]
            (folder / part / f"{code}-en.tsv").write_text("\n".join(lines) + "\n")
    return folder


def sample(data, **changes):
    part, group = changes.pop("part", "train"), changes.pop("group", "to-en")
    skips = Skips(shown=0)
    return sampled_pairs(data, part, group, replace(SETTINGS, **changes), skips), skips


def test_only_pairs_that_are_held_out_and_fit(data):
    pairs, skips = sample(data)
    assert {p.source_language for p in pairs} == {"de", "fi"}
    for pair in pairs:
        assert held_out(pair.target)
        assert 3 <= len(pair.source.split()) <= 12
        assert pair.source != pair.target
        assert pair.origin.file == f"train/{pair.source_language}-en.tsv"
        lines = (data / pair.origin.file).read_text().splitlines()
        assert lines[pair.origin.line - 1].split("\t")[:3] == [pair.target, pair.source, pair.domain]
    reasons = " ".join(skips.counts)
    for reason in (
        "fewer than 3 words",
        "more than 12 words",
        "times as long as the other",
        "equal sides",
        "seen before",
    ):
        assert reason in reasons


def test_a_side_is_never_seen_twice(data):
    for code in ("de", "fi"):
        pairs = [p for p in sample(data, pairs=1000)[0] if p.source_language == code]
        assert sum("once and again" in pair.target for pair in pairs) >= 2
        for side in ("source", "target"):
            assert len({getattr(pair, side) for pair in pairs}) == len(pairs)


def test_both_groups_and_every_number_begin_with_the_same_pairs(data):
    pairs, _ = sample(data)
    turned, _ = sample(data, group="from-en")
    assert [(p.source, p.target) for p in pairs] == [(p.target, p.source) for p in turned]
    assert {p.direction for p in turned} == {"en-de", "en-fi"}
    fewer, _ = sample(data, pairs=7)
    assert [p for p in pairs if p.source_language == "de"][:7] == fewer[:7]
    assert sample(data)[0] == pairs
    assert sample(data, seed=2)[0] != pairs


def test_the_pairs_that_are_not_held_out(data):
    pairs, _ = sample(data, held_out=False, pairs=1000)
    assert pairs
    assert not any(held_out(p.target) for p in pairs)
    assert not {p.target for p in pairs} & {p.target for p in sample(data, pairs=1000)[0]}


def test_domains_are_weighted(data):
    pairs, skips = sample(data, domain_weights={"news": 1.0, "ui": 0.0}, pairs=1000)
    assert pairs and all(p.domain == "news" for p in pairs)
    assert skips.counts["of a domain without weight (ui)"] > 10
    mostly = [p.domain == "news" for p in sample(data, domain_weights={"news": 9.0, "ui": 1.0}, pairs=12)[0]]
    assert sum(mostly) > 0.7 * len(mostly)


def test_development_pairs_are_those_of_half_a(data):
    pairs, _ = sample(data, part="dev")
    assert len(pairs) == 40
    assert all(half_of(p.target) == "A" for p in pairs)
    assert not all(held_out(p.target) for p in pairs)


def test_missing_data(data, tmp_path):
    with pytest.raises(UserError, match=r"there is no train/de-en.tsv"):
        sample(tmp_path)
    with pytest.raises(UserError, match=r"no usable pair .*of a domain without weight \(ui\)"):
        sample(data, domain_weights={"news": 0.0, "ui": 0.0})
    with pytest.raises(UserError, match=r"no usable pair \(skipped .*\): give more data"):
        sample(data, fewest_words=50)
