"""Systems from TOML: what they are, where their folders lie, and every mistake in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval.translation.systems import EXAMPLE, check_at, read_systems
from rag_mt import Index, Only
from rag_mt.base.errors import UserError
from rag_mt.base.settings import config_file
from rag_mt.base.types import Origin, Sentence
from rag_mt.models.weights import FOLDER


def written(folder: Path, text: str) -> Path:
    path = folder / "systems.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_likeness_and_places(tmp_path: Path) -> None:
    (tmp_path / "my-llm").mkdir()
    path = written(
        tmp_path,
        """
        [defaults]
        llm = "my-llm"
        batch_size = 3
        [systems.plain]
        retriever = "none"
        batch_size = 2
        [systems.ccpr]
        index = "indexes/{tgt}"
        encoder = "org/model"
        adapter = { to_en = "a/{src}", from_en = "/b/{group}" }
        [systems.upper]
        like = "ccpr"
        hints = "oracle"
        """,
    )
    plain, ccpr, upper = read_systems(path)
    assert (plain.name, plain.retriever, plain.batch_size, plain.llm) == ("plain", "none", 2, str(tmp_path / "my-llm"))
    assert (ccpr.batch_size, ccpr.encoder, ccpr.hints) == (3, "org/model", "retrieved")
    assert (upper.hints, upper.index) == ("oracle", ccpr.index)
    there, back = ccpr.at("de", "en"), ccpr.at("en", "ru")
    assert there.index == str(tmp_path / "indexes/en") and back.index == str(tmp_path / "indexes/ru")
    assert there.own_adapter == str(tmp_path / "a/de") and back.own_adapter == "/b/from_en"
    with pytest.raises(UserError, match=r"ccpr has no adapter for de-fr.*adapter.other"):
        ccpr.at("de", "fr")
    assert [s.name for s in read_systems(path, "upper,plain")] == ["upper", "plain"]
    assert str(tmp_path) not in json.dumps([s.at("de", "en").as_dict() for s in (plain, ccpr, upper)])


def test_the_shipped_adapter_is_chosen_by_direction(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        [defaults]
        adapter = "auto"
        [systems.plain]
        retriever = "none"
        [systems.ccpr]
        [systems.memory]
        retriever = "memory"
        [systems.bare]
        adapter = "none"
        [systems.mine]
        adapter = "mine.{group}"
        """,
    )
    systems = read_systems(path)
    for source, target, group in (("de", "en", "to_en"), ("en", "cs", "from_en")):
        *ours, bare, mine = (system.at(source, target).own_adapter for system in systems)
        assert ours == [str(FOLDER / "gemma-3-270m")] * 3
        assert (bare, mine) == (None, str(tmp_path / f"mine.{group}"))
    assert systems[1].at("de", "cs").own_adapter is None
    again = systems[1].at("de", "en")
    assert again.at("de", "en") == again and str(FOLDER) not in json.dumps(again.as_dict())


MISTAKES = [
    ("[systems.a]\nretreiver = 'none'", "retreiver"),
    ("[systems.a]\nplain_adapter = 'x'", "plain_adapter of a, which does not exist"),
    ("[systems.a]\nretriever = 'magic'", "'magic'"),
    ("[systems.a]\nbatch_size = 0", "at least 1"),
    ("[systems.a]\nbatch_size = '8'", "'8'"),
    ("[systems.a]\nbatch_size = true", "True"),
    ("[systems.a]\nhints = 'guessed'", "'guessed'"),
    ("[systems.a]\nretriever = 'ccpr'\nsegmentation = 'words'", "'words'"),
    ("[systems.a]\nretriever = 'sentence'\nsegmentation = 'ngrams'", "only ccpr"),
    ("[systems.a]\ndtype = 'float8'", "'float8'"),
    ("[systems.a]\nwrapper = 'paper'", "'paper'"),
    ("[systems.a]\nquantization = '3bit'", "'3bit'"),
    ("[systems.a]\nseed = -1", "seed of a to -1"),
    ("[systems.a]\nalign_layer = -2", "align_layer of a to -2"),
    ("[systems.a]\ncut_off = nan", "finite number"),
    ("defaults = 3\n[systems.a]", "defaults to 3"),
    ("[systems.a]\nadapter = { en = 'x' }", "adapter.en"),
    ("[systems.a]\nlike = 'b'", "'b'"),
    ("[systems.a]\nlike = 'b'\n[systems.b]\nlike = 'a'", "like each other"),
    ("[systems.'a/b']\nretriever = 'none'", "'a/b'"),
    ("[other]\nx = 1", r"\[other\]"),
    ("[defaults]\nllm = 'x'", "names no system"),
    ("systems = 3", "names no system"),
    ("[systems.a", "no TOML|not a TOML"),
]


@pytest.mark.parametrize(("text", "told"), MISTAKES, ids=[told for _, told in MISTAKES])
def test_mistakes(text: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=told) as caught:
        read_systems(written(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_defaults_are_for_the_systems_that_can_have_them(tmp_path: Path) -> None:
    text = "[defaults]\nsegmentation = 'ngrams'\ncut_off = 1\n[systems.a]\nretriever = 'none'\n[systems.b]\n"
    plain, ccpr = read_systems(written(tmp_path, text))
    assert (plain.retriever, ccpr.segmentation, ccpr.cut_off) == ("none", "ngrams", 1)


def test_missing_systems_and_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'b'"):
        read_systems(written(tmp_path, "[systems.a]\nretriever = 'none'"), "a,b")
    with pytest.raises(UserError, match="try --config systems"):
        read_systems(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("index = 'nowhere'", "nowhere"),
        ("retriever = 'none'\nadapter = 'nowhere'", "nowhere"),
    ],
)
def test_folders_are_looked_for_before_anything_is_loaded(text: str, told: str, tmp_path: Path) -> None:
    systems = read_systems(written(tmp_path, f"[systems.a]\n{text}"))
    with pytest.raises(UserError, match=told):
        check_at(systems, [("de", "en")])


def test_reports_name_folders_and_no_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("configs", "indexes/ccpr.en", "adapters/mine"):
        Path(name).mkdir(parents=True)
    text = "[systems.a]\nllm = 'some-hub/llm-hf'\nindex = '../indexes/ccpr.{tgt}'\nadapter = '../adapters/mine'"
    Path("configs/s.toml").write_text(text)
    made = read_systems(Path("configs/s.toml"))[0].at("de", "en").as_dict()
    assert (made["index"], made["adapter"]) == ("ccpr.en", {"to_en": "mine"})
    assert made["llm"] == "some-hub/llm-hf", "no folder"


def test_the_shipped_files_are_sound() -> None:
    names = [s.name for s in read_systems(config_file(EXAMPLE))]
    assert {"plain", "sentence", "ccpr"} <= set(names)
    bounds = read_systems(config_file("wmt16"))
    assert {s.hints for s in bounds} == {"retrieved", "none", "shuffled", "oracle"}
    assert {s.index for s in bounds} >= {"", "indexes/ccpr.{tgt}"}, "in the current folder"


def test_some_files_of_an_index_are_looked_at(tmp_path: Path) -> None:
    sentences = [
        Sentence("The bank.", "en", Origin("2024/law.txt", 1)),
        Sentence("A bank.", "en", Origin("news.txt", 1)),
    ]
    Index.build(tmp_path / "i", texts=sentences, language="en", retriever="bm25")
    text = "[systems.a]\nretriever = 'bm25'\nindex = 'i'\n"
    (plain,) = read_systems(written(tmp_path, text))
    assert not plain.only and not {"only_files", "since"} & plain.as_dict().keys()
    (some,) = read_systems(written(tmp_path, f"{text}only_files = ['2024/*']"))
    assert some.only == Only("2024/*") and some.as_dict()["only_files"] == ("2024/*",)
    check_at([plain, some], [("de", "en")])
    for line, told in (
        ("only_files = ['x']", r"has no file named x: it has files 2024/law\.txt, news\.txt"),
        ("since = '2024-01-01'", "no date of its files is known"),
        ("since = '1.1.24'", "system a: '1.1.24' is no date"),
        ("only_domain = 'law'", "sets only_domain of a to 'law'"),
        ("index = ''\nuntil = '2024-01-01'", "sets until of a, which has no index"),
    ):
        lines = text.replace("index = 'i'\n", "") if line.startswith("index") else text
        with pytest.raises(UserError, match=told):
            check_at(read_systems(written(tmp_path, lines + line)), [("de", "en")])
