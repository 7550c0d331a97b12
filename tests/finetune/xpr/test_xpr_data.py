"""From a lexicon and text to phrase pairs with example sentences."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.data.phrase_pairs import concept
from finetune.xpr.build import (
    Chosen,
    Entry,
    Limits,
    assemble,
    choose,
    common_subsequence,
    is_time,
    read_lexicon,
    split_of,
    too_alike,
    unfit,
)
from finetune.xpr.data import main
from finetune.xpr.sentences import LONGER_BY, SentenceIndex, apart, linked_rows, other_phrases, phrase_place, window
from rag_mt.base.types import Origin, Sentence, Skips
from rag_mt.text.words import surface
from retrievers.xpr.examples import open_examples

WORDS = st.lists(st.sampled_from("abcd"), max_size=6)


@given(WORDS, WORDS)
def test_common_subsequence_is_the_longest(a: list[str], b: list[str]) -> None:
    def slow(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        if a[i] == b[j]:
            return 1 + slow(i + 1, j + 1)
        return max(slow(i + 1, j), slow(i, j + 1))

    assert common_subsequence(a, b) == slow(0, 0)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Hong Kong", "Hong Kong", True),
        ("Berliner Mauer", "Berlin Wall", False),
        ("Donald Trump Tower", "Donald Trump", True),  # two of three words one way, all the other
        ("Big Data Analyse", "Big Apple", False),  # a third one way, a half the other
        ("HOTEL", "hotel", True),
        ("Radnabe", "wheel hub", False),
    ],
)
def test_rouge(one: str, other: str, alike: bool) -> None:
    assert too_alike(one, other) is alike


@pytest.mark.parametrize(
    ("phrase", "time"),
    [
        ("every other week", True),
        ("12 May 2014", True),
        ("Black Friday", True),
        ("two years ago", True),
        ("in the 1990s", True),
        ("may", False),
        ("day laborer", False),
        ("light year", False),
        ("first aid", False),
    ],
)
def test_time_expressions(phrase: str, time: bool) -> None:
    assert is_time(phrase) is time


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("Radnabe", "wheel hub", ""),
        ("Kran (Technik)", "crane", "brackets"),
        ("…", "and so on", "without a phrase"),
        ("eins zwei drei vier fünf sechs sieben", "many", "more than 6 words"),
        ("vor zwei Jahren", "two years ago", "time"),
        ("Hotel", "hotel", "ROUGE-L"),
    ],
)
def test_unfit_entries(source: str, target: str, reason: str) -> None:
    found = unfit(Entry(source, target))
    assert reason in found and bool(found) == bool(reason)


def test_lexicon_lines_are_cleaned_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "words.de-en.tsv"
    path.write_text("to adopt\tannehmen\nto adopt\tAnnehmen\nto\tzu\nonly one column\nhotel\tHotel\n", "utf-8")
    skips = Skips(shown=0)
    found = read_lexicon([path], skips)
    assert [(e.target, e.source) for e in found if e.asked] == [("adopt", "annehmen"), ("to", "zu")]
    assert [(e.target, e.source) for e in found if not e.asked] == [("hotel", "Hotel")]
    assert skips.counts == {"without a phrase on each side": 1, "with ROUGE-L above 0.5 both ways": 1}


@pytest.mark.parametrize(
    ("text", "phrase", "place"),
    [
        ("The new town hall opened.", "town hall", (8, 17)),
        ("Town hall opened.", "town hall", (0, 9)),
        ("“Town hall opened.”", "town hall", (1, 10)),
        ("They polish it.", "Polish", None),
        ("Polish it.", "polish", (0, 6)),
        ("Nobody speaks Polish.", "polish", None),
        ("in a new town", "New Town", (5, 13)),
        ("the well-known man", "known", None),
        ("the concatenated cat", "cat", (17, 20)),
        ("example.com is example", "example", (15, 22)),
        ("Ankara'nın merkezi", "Ankara", None),
        ("", "cat", None),
        ("İstanbul büyük.", "istanbul", (0, 8)),
        ("Işık var.", "ışık", (0, 4)),
        ("bir ışık yılı uzakta", "Işık Yılı", (4, 13)),
        ("burada iki kişi var", "İki Kişi", (7, 15)),
        ("İki kişi var.", "iki kişi", (0, 8)),
        ("他在北京大学学习", "北京大学", (2, 6)),
        ("在TV上看", "TV", (1, 3)),
        ("在TVs上看", "TV", None),
        ("ทุกโรงเรียนมีครู", "โรงเรียน", (3, 11)),
    ],
)
def test_phrases_are_found_as_whole_words(text: str, phrase: str, place: tuple[int, int] | None) -> None:
    assert phrase_place(text, phrase) == place


@given(st.text(st.sampled_from("ab c"), min_size=1, max_size=60), st.data(), st.integers(1, 40))
def test_window_keeps_the_phrase(text: str, data: st.DataObject, most: int) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    cut, first, last = window(text, start, end, most)
    assert cut[first:last] == text[start:end] and cut in text
    assert len(cut) <= max(most, end - start)


def index(language: str, lines: list[str]) -> SentenceIndex:
    return SentenceIndex(language, [Sentence(line, language, Origin("f", n)) for n, line in enumerate(lines, 1)])


def test_index_finds_phrases_in_longer_sentences() -> None:
    lines = [
        "A wheel hub broke on the road.",
        "Wheel hub is a word here.",
        "The hub of a wheel is not it.",
        "wheel hub, a part",
        "A wheel hub broke on the road!",
        "short one",
    ]
    found = index("en", lines)
    assert len(found) == 3  # one is too short for an example, one is too short beside the phrase, one says the same
    places = [(found.sentences[row].text, start, end) for row, start, end in found.places("wheel hub", 5)]
    assert sorted(places) == [(lines[0], 2, 11), (lines[1], 0, 9)]
    assert found.places("wheel hub", 1)[0] in found.places("wheel hub", 5)
    assert found.ceiling("wheel hub") == 3 and found.ceiling("wheel axle") == 0
    assert all(len(text) >= len("wheel hub") + LONGER_BY for text, *_ in places)


def test_index_knows_the_letters_of_turkish() -> None:
    lines = ["İstanbul çok büyük bir şehirdir.", "Bugün İstanbul yağmurlu olacak.", "Burada yalnızca iki kişi vardı."]
    found = index("tr", lines)
    for phrase, count in (("İstanbul", 2), ("İki Kişi", 1), ("istanbul", 2), ("Yağmur", 0)):
        assert found.ceiling(phrase) == count, phrase
    assert len(found.places("İstanbul", 5)) == 2
    assert len(found.places("İki Kişi", 5)) == 1
    assert [found.sentences[row].text for row, *_ in found.places("istanbul", 5)] == lines[:1], "as a first word"


def test_index_knows_scripts_without_blanks() -> None:
    found = index(
        "zh", ["他说他明年秋天会去北京大学学习历史和经济学。", "北京的大学很多,学生也很多,你知道吗?真的很多。"]
    )
    for phrase, count in (("北京大学", 1), ("北京", 2), ("大学", 2), ("上海", 0)):
        assert len(found.places(phrase, 5)) == count <= found.ceiling(phrase), phrase
    ((row, start, end),) = found.places("北京大学", 5)
    assert found.sentences[row].text[start:end] == "北京大学"
    found = index("th", ["เด็กนักเรียนทุกคนไปโรงเรียนแต่เช้าทุกวัน"])
    assert len(found.places("โรงเรียน", 5)) == 1 <= found.ceiling("โรงเรียน")


def test_examples_of_both_sides_are_no_translations_of_each_other() -> None:
    ours = [(0, 0, 1), (1, 0, 1), (2, 0, 1)]
    theirs = [(10, 0, 1), (11, 0, 1)]
    linked = {0: frozenset({10}), 1: frozenset({11, 99}), 5: frozenset({10})}
    kept = apart(ours, theirs, linked)
    assert all(kept)
    assert not any(b[0] in linked.get(a[0], ()) for a in kept[0] for b in kept[1])
    assert apart([(0, 0, 1)], [(10, 0, 1)], linked) == ([], [(10, 0, 1)])  # both cannot stay


def test_linked_rows_are_those_of_parallel_text() -> None:
    source, target = index("xx", ["aaaaaaaaaa bbbbbbbbbb cc", "dddddddddd eeeeeeeeee ff"]), index("en", ["A" * 30])
    pairs = [("Aaaaaaaaaa, bbbbbbbbbb cc!", "A" * 30), ("not there at all, in no index", "A" * 30)]
    row = source.row("aaaaaaaaaa bbbbbbbbbb cc")
    assert linked_rows(source, target, pairs) == {row: frozenset({0})}


def test_concepts_share_a_split_whatever_their_form() -> None:
    assert concept("a wheel hub") == concept("Wheel hubs") != concept("wheel axle")
    phrases = [f"{a} {b}" for a in ("red", "blue", "tall", "cold") for b in ("house", "tree", "river", "door", "cup")]
    shares = [split_of(f"{p} {n}x") for p in phrases for n in range(50)]
    assert 0.55 < shares.count("train") / len(shares) < 0.65
    assert 0.16 < shares.count("test") / len(shares) < 0.24


def test_other_candidates_are_phrases_of_the_same_sentences() -> None:
    lines = [f"the {a} {b} stands near, the {b} {a} of old stone" for a in ("red", "blue") for b in ("house", "tree")]
    found = other_phrases([Sentence(t, "en") for t in lines], range(4), {"red house", "old"}, {"blue tree"}, 50, 3)
    assert "red house" in found and "old" in found
    assert "blue tree" not in found and not any("blue tree" in said for said in found)
    for said, places in found.items():
        assert 1 <= len(places) <= 3
        for row, start, end in places:
            assert surface(lines[row][start:end]) == said
        assert "," not in said and len({row for row, *_ in places}) == len(places)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a lexicon and parallel text in which every noun has an adjective, in an invented language."""
    folder = tmp_path_factory.mktemp("data")
    rng = random.Random(3)
    adjectives = ["red", "old", "tall", "cold", "quiet", "heavy", "narrow", "golden", "broken", "empty"]
    nouns = ["house", "river", "garden", "window", "bridge", "market", "island", "kitchen", "engine", "forest"]
    entries = [(f"{a} {n}", f"{n[::-1]} {a[::-1]}") for a in adjectives for n in nouns]
    entries += [(n, n[::-1]) for n in nouns]
    (folder / "lexicon").mkdir()
    (folder / "train").mkdir()
    (folder / "dev").mkdir()
    rows = [f"{e}\t{x}" for e, x in entries] + ["two weeks\teilen owt", "house\tgnilleb"]
    (folder / "lexicon" / "made.de-en.tsv").write_text("\n".join(rows) + "\n", "utf-8")
    lines = []
    for n in range(500):
        (e1, x1), (e2, x2) = rng.sample(entries, 2)
        lines.append(f"Yesterday {n} we saw the {e1} and a {e2}.\t{n} yadretsey was ew {x1} dna {x2} yllaer.\tnews")
    lines.append("The red house of the dev set is here.\tesuoh der yes yes yes yes.\tnews")
    (folder / "train" / "de-en.tsv").write_text("\n".join(lines) + "\n", "utf-8")
    (folder / "dev" / "de-en.tsv").write_text("The red house of the dev set is here.\tanything\n", "utf-8")
    return folder


def test_sets_are_clean(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "phrases"
    given = ["--data", str(data), "--pairs", "de-en", "--output", str(output), "--least", "2", "--limit", "60"]
    assert main([*given, "--report", str(tmp_path / "report.md")]) == 0
    found = open_examples(output / "de-en")
    splits = {name: found.pairs(name) for name in ("train", "dev", "test")}
    assert all(len(rows) for rows in splits.values()) and len(splits["train"]) > len(splits["test"])
    for name, rows in splits.items():
        for s, t in rows.tolist():
            source, target = found.source.phrases[s], found.target.phrases[t]
            assert " ".join(w[::-1] for w in reversed(target.split())) == source  # the lexicon's translation
            assert split_of(target) == name
    # No translation of a held-out phrase is trained on, in any form.
    held = {concept(found.target.phrases[t]) for name in ("dev", "test") for _, t in splits[name].tolist()}
    assert not held & {concept(found.target.phrases[t]) for _, t in splits["train"].tolist()}
    lines = [line.split("\t") for line in (data / "train" / "de-en.tsv").read_text("utf-8").splitlines()]
    partner = {other: english for english, other, *_ in lines}
    for rows in splits.values():
        for s, t in rows.tolist():
            ours, theirs = (
                side.texts(side.examples_of([phrase], 99)[:, 1])
                for side, phrase in ((found.source, s), (found.target, t))
            )
            assert 2 <= len(ours) <= 32 and 2 <= len(theirs) <= 32
            assert not {partner[text] for text in ours} & set(theirs)
            assert "The red house of the dev set is here." not in theirs
    for side in found.sides:
        for phrase, sentence, start, end in side.examples.tolist():
            assert surface(side.texts([sentence])[0][start:end]) == surface(side.phrases[phrase])
            assert side.sentences.column("file")[sentence].as_py() == "de-en.tsv"
    assert len(found.unpaired(1))
    assert found.manifest["lexicon"]["skips"]["in fewer than 2 sentences of either side"] == 1  # house, gnilleb
    report = (tmp_path / "report.md").read_text("utf-8")
    assert f"| Test | {len(splits['test'])} |" in report and "time expression" in report
    # What is there is kept, and other data is not read for it.
    again = ["--data", str(tmp_path), *given[2:]]
    assert main(again) == 0
    assert main([*again, "--others", "5"]) == 2
    assert "was made with other settings (others): give another --output" in capsys.readouterr().err
    assert main(["--wikixpr", str(tmp_path), *given[2:6]]) == 2
    assert "was made with other settings (builder, enough, " in capsys.readouterr().err


def english_of(split: str, count: int, *words: str) -> list[str]:
    """English words of a split, none of them in `words`."""
    made = (
        f"{a}{b}" for a in ("sun", "moon", "fire", "hill", "lake") for b in ("ward", "stone", "mark", "field", "gate")
    )
    return [word for word in made if split_of(word) == split and word not in words][:count]


def chosen_of(entries: list[Entry], language: str = "tr") -> tuple[list[Chosen], SentenceIndex, SentenceIndex, Skips]:
    """What is chosen of entries that all stand in a sentence."""
    sources = index(language, [f"{n} burada {entry.source} duruyor" for n, entry in enumerate(entries)])
    targets = index("en", [f"{n} here stands the {entry.target} today" for n, entry in enumerate(entries)])
    skips = Skips(shown=0)
    limits = Limits(pairs=30, enough=1, others=0)
    return choose(entries, (sources, targets), {}, limits, lambda _: None, skips), sources, targets, skips


def test_no_translation_of_a_held_out_phrase_is_trained_on() -> None:
    tested, other, again = english_of("test", 3)
    trained, rare = english_of("train", 2)
    entries = [
        Entry("aaa", tested),
        Entry("bbb", other),
        Entry("bbb", trained),  # is trained on in some language pair
        Entry("ccc", trained),
        Entry("Stühle", again),
        Entry("Stuhl", rare),  # another form of a phrase that is held out
    ]
    found, *_, skips = chosen_of(entries, "de")
    assert {(f.split, f.entry.source, f.entry.target) for f in found} == {
        ("test", "aaa", tested),
        ("test", "Stühle", again),
        ("train", "ccc", trained),
    }
    assert skips.counts["to be held out, with a translation that may be trained on"] == 1
    assert skips.counts["for training, a form of a translation of a held-out phrase"] == 1


def test_further_translations_are_right_answers() -> None:
    first, second, alike = english_of("test", 3)
    entries = [Entry("aaa", first), Entry("aaa", second), Entry("bbb", second), Entry(alike, first, asked=False)]
    found, sources, targets, _ = chosen_of([*entries, Entry(alike, alike)])
    sides, rows = assemble(entries, found, (sources, targets), Limits(others=9))
    asked = {(f.entry.source, f.entry.target) for f in found}
    assert {("bbb", second), (alike, alike)} <= asked
    known = {(sides[0].phrases[s], sides[1].phrases[t]) for s, t, split in rows.tolist() if split == 3}
    assert known == {(e.source, e.target) for e in entries} - asked


def test_a_candidate_does_not_say_what_a_query_of_the_other_language_says() -> None:
    lines = [Sentence(f"the old house number {n} stands near the old river", "en") for n in "abc"]
    found, rest = (other_phrases(lines, range(3), {"old", "old house"}, {}, 9, 3, foreign) for foreign in ((), {"old"}))
    assert {"old", "old house"} <= set(found)
    assert "old house" in rest and "old" not in rest


def test_one_own_lexicon_and_text(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [line.split("\t") for line in (data / "train" / "de-en.tsv").read_text("utf-8").splitlines()]
    for column, name in enumerate(("en.txt", "de.txt")):
        (tmp_path / name).write_text("\n".join(line[column] for line in lines) + "\n", "utf-8")
    lexicon = str(data / "lexicon" / "made.de-en.tsv")
    texts = ["--text", f"German={tmp_path / 'de.txt'}", "--text", f"en={tmp_path / 'en.txt'}"]
    output = ["--pairs", "de-en", "--output", str(tmp_path / "out"), "--others", "0"]
    assert main(["--lexicon", lexicon, *texts, *output]) == 0
    assert len(open_examples(tmp_path / "out" / "de-en").pairs("train"))
    names = {name.rpartition("/")[2] for name in open_examples(tmp_path / "out" / "de-en").manifest["inputs"]}
    assert names == {"made.de-en.tsv", "de.txt", "en.txt"}
    assert main(["--lexicon", lexicon, *texts, *output]) == 0, "the same again is kept"
    other = tmp_path / "other.tsv"
    other.write_text(Path(lexicon).read_text("utf-8") + "one more\teno erom\n", "utf-8")
    assert main(["--lexicon", str(other), *texts, *output]) == 2
    assert "was made with other settings (files)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--pairs", "german"], "no pair of a language with English"),
        ([], "give --data DIR, or --lexicon"),
        (["--data", "nowhere"], "no train/de-en.tsv"),
        (["--wikixpr", "nowhere"], "folder of WikiXPR"),
        (["--others", "-1"], "--others -1 is below 0"),
        (["--least", "5", "--most", "3"], "--least 5 is above --most 3"),
        (["--data", "x", "--lexicon", "y"], "--data and --lexicon are different things to read"),
        (["--wikixpr", "x", "--limit", "5"], "--limit is for sets made of a lexicon"),
        (["--pairs", "de-en,cs-en", "--lexicon", "x"], "--lexicon is of one language pair, not of de-en,cs-en"),
        (["--data", "x", "--text", "de=y"], "--text goes with --lexicon and is not read with --data"),
        (["--wikixpr", "x", "--text", "de=y"], "--text goes with --lexicon and is not read with --wikixpr"),
        (["--lexicon", "x", "--text", "words.txt"], "names no language"),
        (["--lexicon", "x", "--text", "de=words.txt"], "needs text of en"),
    ],
)
def test_wrong_use_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], message: str) -> None:
    pairs = [] if "--pairs" in given else ["--pairs", "de-en"]
    assert main(["--output", str(tmp_path / "out"), *pairs, *given]) == 2
    assert message in capsys.readouterr().err


def test_wikixpr_is_read_in_its_published_form(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "wikixpr"
    for name in ("train", "dev", "test", "sentences"):
        (folder / name).mkdir(parents=True)
    for split, rows in {
        "train": "Eiffel Tower\tTour Eiffel\nno sentences\tsans phrases\nno tab\n",
        "dev": "Red Cross\tCroix-Rouge\n",
        "test": "free will\tlibre arbitre\n",
    }.items():
        (folder / split / f"{split}-en-fr-32-entity.txt").write_text(rows, "utf-8")
    long = "word " * 100
    (folder / "sentences" / "en-fr-entity-sentences.32.tsv").write_text(
        "no tab here\n"
        "eiffel tower\ttour eiffel\tThe Eiffel Tower is tall.\tWe saw the EIFFEL TOWER.\n"
        f"red cross\tcroix-rouge\t{long}Red Cross {long}\tNothing here.\n"
        "free will\tlibre arbitre\tHe has free will, they say.\n",
        "utf-8",
    )
    (folder / "sentences" / "fr-entity-sentences.32.tsv").write_text(
        "tour eiffel\teiffel tower\tLa tour Eiffel est haute.\n"
        "Croix-Rouge\tred cross\tLa Croix-Rouge aide.\tLa croix rouge aide.\n"
        "libre arbitre\tfree will\tIl a son libre arbitre.\n\n",
        "utf-8",
    )
    assert main(["--wikixpr", str(folder), "--pairs", "fr-en", "--output", str(tmp_path / "out")]) == 0
    found = open_examples(tmp_path / "out" / "fr-en")
    assert found.source.phrases == ("Tour Eiffel", "Croix-Rouge", "libre arbitre")
    assert [found.pairs(split).tolist() for split in ("train", "dev", "test")] == [[[0, 0]], [[1, 1]], [[2, 2]]]
    for side, wanted in zip(found.sides, ((1, 2, 1), (2, 1, 1)), strict=True):
        assert tuple(np.diff(side.bounds).tolist()) == wanted
        for phrase, sentence, start, end in side.examples.tolist():
            said = side.texts([sentence])[0][start:end]
            assert said.lower().replace("-", " ") == side.phrases[phrase].lower().replace("-", " ")
    assert max(len(text) for text in found.target.texts(range(len(found.target.sentences)))) <= 300
    assert found.manifest["skips"] == {
        "without example sentences": 1,
        "sentence without its phrase": 1,
        "without a phrase and its translation": 3,
    }


def test_pairs_with_few_other_translations_come_first() -> None:
    clear = [Entry(f"kelime{n}", f"word{n}") for n in range(60)]
    vague = [Entry(f"terim{n}", f"{sense}{n}") for n in range(60) for sense in ("chief", "main")]
    entries = vague + clear
    sources = index("tr", [f"{n} burada {entry.source} duruyor" for n, entry in enumerate(entries)])
    targets = index("en", [f"{n} here stands the {entry.target} today" for n, entry in enumerate(entries)])
    limits = Limits(pairs=30, enough=1, others=0)
    found = choose(entries, (sources, targets), {}, limits, lambda _: None, Skips(shown=0))
    assert {f.split for f in found} == {"test", "train"}  # dev has no more of one word than of several
    assert len(found) == 24 and all(f.entry in clear for f in found)
