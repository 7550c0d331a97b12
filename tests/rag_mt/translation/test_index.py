"""The class Index: build, open, search, calibrate, and what is wrong in one sentence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from threading import Event

import pytest

from rag_mt import Index, Only, Translator, UserError
from rag_mt.base.types import Origin, Retriever, Sentence
from rag_mt.translation.index import RETRIEVERS
from tests.ui.conftest import RuleLLM

TEXTS = ["The old house stands on the hill. A dog sleeps in the garden.", "12 %", "The train leaves at noon."]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, quick_encoder: Path) -> Index:
    folder = tmp_path_factory.mktemp("index") / "own"
    return Index.build(folder, texts=TEXTS, language="English", retriever="sentence", encoder=str(quick_encoder))


def test_an_index_that_is_built_is_the_one_that_is_opened(index: Index) -> None:
    assert (index.language, index.retriever, index.sentences) == ("en", "sentence", 3)
    assert index.skips.counts == {"no letters": 1}
    opened = Index.open(index.folder)
    assert (opened.manifest, opened.encoder) == (index.manifest, index.encoder)
    assert "sentence index of English" in opened.describe()
    (hint,) = opened.search("The train leaves at noon.", "de")
    assert hint.phrase == "The train leaves at noon." and str(hint.hit.sentence.source) == "texts:3"
    assert opened.search(["The train leaves at noon."], source="German") == [[hint]]
    assert opened.search("Half \ud83d a pair.", "de"), "half a surrogate pair is searched as U+FFFD"


def test_files_and_sentences_keep_their_origin(tmp_path: Path, quick_encoder: Path) -> None:
    file = tmp_path / "news.txt"
    file.write_text("The bridge is new.\n", "utf-8")
    options = {"language": "en", "retriever": "sentence", "encoder": str(quick_encoder)}
    of_file = Index.build(tmp_path / "one", file, **options)  # type: ignore[arg-type]
    assert str(of_file.search("Brücke", "de")[0].hit.sentence.source) == f"{file}:1"
    sentence = Sentence("The bridge is new.", "en", Origin("memo", 7))
    of_text = Index.build(tmp_path / "two", texts=[sentence], **options)  # type: ignore[arg-type]
    assert str(of_text.search("Brücke", "de")[0].hit.sentence.source) == "memo:7"
    with pytest.raises(UserError, match="replace=True"):
        Index.build(tmp_path / "two", file, **options)  # type: ignore[arg-type]


def test_passages_of_texts(tmp_path: Path) -> None:
    index = Index.build(
        tmp_path / "i", texts=["The bank of the town raised its rates."], language="en", retriever="bm25"
    )
    assert "bank" in index.search("Die Bank", "de")[0].phrase


def test_a_translator_shares_the_encoder_of_its_index(index: Index) -> None:
    translator = Translator("de", "en", index=index, llm=RuleLLM(), wrapper="compact")
    assert translator.retriever.maker.encoder is index.opened_encoder()  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="the target language is German"):
        Translator("en", "de", index=index, llm=RuleLLM())


def test_a_cut_off_is_stored_and_holds_from_then_on(index: Index) -> None:
    texts = [*TEXTS[::2], "Something else."]
    scores = [hint.hit.score for hints in index.search(texts, "fi") for hint in hints]
    cut_off = index.calibrate("Finnish", texts=texts, drop=0.9)
    assert min(scores) < cut_off <= max(scores)
    assert all(hint.hit.score >= cut_off for hints in index.search(texts, "fi") for hint in hints)
    assert Index.open(index.folder).manifest.cut_off("fi") == cut_off


def test_threads_open_a_retriever_once_and_none_keeps_an_old_cut_off(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, opened = [*TEXTS[::2], "Something else."], list[str]()
    opening, go_on = Event(), Event()

    def slowly(source: str, only: Only | None = None) -> Retriever:
        opened.append(source)
        retriever = Index.open_retriever(index, source)  # with the cut-off of now
        opening.set()
        assert go_on.wait(10)
        return retriever

    monkeypatch.setattr(index, "open_retriever", slowly)
    with ThreadPoolExecutor(3) as pool:
        searches = [pool.submit(index.search, TEXTS[0], "tr") for _ in range(2)]
        assert opening.wait(10)
        calibrated = pool.submit(index.calibrate, "tr", texts=texts, drop=0.9)
        wait([calibrated], 0.3)
        go_on.set()
        cut_off = calibrated.result(10)
        for search in searches:
            search.result(10)
    assert len(opened) <= 2, "once, and if a search comes after the calibration once more"
    assert all(hint.hit.score >= cut_off for hints in index.search(texts, "tr") for hint in hints)


def test_mistakes_are_one_sentence(index: Index, tmp_path: Path) -> None:
    for texts, files in ((None, ()), (TEXTS, ["a.txt"])):
        with pytest.raises(UserError, match="files or texts"):
            Index.build(tmp_path / "x", files, texts=texts, language="en")
    with pytest.raises(UserError, match="texts is one text"):
        Index.build(tmp_path / "x", texts="One.", language="en")
    with pytest.raises(UserError, match="nowhere"):
        Index.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="exactly one"):
        index.calibrate("de")
    with pytest.raises(UserError, match="no confidence model"):
        index.calibrate("de", confidence=0.5)
    with pytest.raises(UserError, match="a list of sentences"):
        index.calibrate("de", texts="Ein Satz.")
    assert not (tmp_path / "x").exists()


def test_an_index_grows_and_shrinks(tmp_path: Path, quick_encoder: Path) -> None:
    files = {name: tmp_path / f"{name}.txt" for name in ("first", "second")}
    files["first"].write_text("The bridge is new.\nThe river is deep.\n", "utf-8")
    files["second"].write_text("The river is deep.\nThe tower is old.\n", "utf-8")
    options = {"language": "en", "retriever": "sentence", "encoder": str(quick_encoder)}
    index = Index.build(tmp_path / "index", files["first"], **options)  # type: ignore[arg-type]
    assert index.search("Der Turm ist alt.", "de")
    index.add(files["second"])
    assert index.files == {str(files["first"]): 2, str(files["second"]): 1} and index.sentences == 3
    (hint,) = index.search("The tower is old.", "de")
    assert hint.phrase == "The tower is old." and str(hint.hit.sentence.source) == f"{files['second']}:2"
    files["first"].write_text("The bridge is closed.\n", "utf-8")
    index.add([files["first"]])
    assert index.files == {str(files["second"]): 1, str(files["first"]): 1}, "a file gives way to its new text"
    index.add(texts=["A boat waits."])
    index.add([tmp_path / "index" / ".." / "first.txt"])
    assert sum("first" in name for name in index.files) == 1, "one file, however it is called"
    index.remove(str(files["second"]))
    assert list(index.files.values()) == [1, 1] and "texts" in index.files
    assert Index.open(index.folder).manifest == index.manifest
    with pytest.raises(UserError, match="no file to take out"):
        index.remove([])
    with pytest.raises(UserError, match=r"has no file first.txt: name one that it has, such as .*first\.txt"):
        index.remove("first.txt")
    with pytest.raises(UserError, match="nothing would be left"):
        index.remove([*index.files])


def test_what_was_opened_goes_on_with_the_old_index(tmp_path: Path) -> None:
    texts = [
        Sentence("The bank is closed.", "en", Origin("a", 1)),
        Sentence("A ship in the harbour.", "en", Origin("b", 1)),
    ]
    index = Index.build(tmp_path / "index", texts=texts, language="en", retriever="bm25")
    retriever = index.open_retriever("de")
    index.remove("a")
    (hint,) = retriever.retrieve([Sentence("harbour", "de")])[0]
    assert hint.phrase == "A ship in the harbour."


def test_some_files_are_searched(tmp_path: Path, quick_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        Sentence(text, "en", Origin(f"{n}.txt", 1))
        for n, text in enumerate(("The bridge is new.", "The bridge is old."))
    ]
    index = Index.build(
        tmp_path / "i", texts=texts, language="en", retriever="sentence", encoder=str(quick_encoder), domain="law"
    )
    index.add(texts=[Sentence("A new bridge.", "en", Origin("2.txt", 1))], date="2024-05-01")
    assert index.labels == {"0.txt": {"domain": "law"}, "1.txt": {"domain": "law"}, "2.txt": {"date": "2024-05-01"}}

    def files(only: Only | None) -> set[str]:
        found = index.search([text.text for text in texts], "de", only)
        return {hint.hit.sentence.source.file for hints in found for hint in hints}

    assert files(None) == files(Only()) == {"0.txt", "1.txt"} and files(Only(["2*"])) == {"2.txt"}
    assert index.label("1.txt", domain="news") == ["1.txt"] and files(Only(domains=["news"])) == {"1.txt"}
    with pytest.raises(UserError, match="no file dated since 2025-01-01"):
        files(Only(since="2025-01-01"))
    assert files(None) == {"0.txt", "1.txt"}
    opened: list[Only | None] = []
    real = index.open_retriever
    monkeypatch.setattr(index, "open_retriever", lambda code, only: opened.append(only) or real(code, only=only))
    for number in (0, 1, 0):
        files(Only(f"{number}.txt"))
    assert opened == [Only("0.txt"), Only("1.txt")]
    for number in range(RETRIEVERS + 3):
        assert files(Only("2.txt", since=f"20{number:02d}-01-01")) == {"2.txt"}
    assert len(index._retrievers) == RETRIEVERS


@pytest.mark.parametrize("engine", ["", "lance:"])
def test_a_file_added_again_by_another_name_keeps_its_label(
    tmp_path: Path, quick_encoder: Path, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b.txt"):
        Path(name).write_text(f"The bridge of {name} is new.\n", "utf-8")
    options = {"language": "en", "retriever": "sentence", "encoder": str(quick_encoder)}
    index = Index.build(tmp_path / "i", ["a.txt", "b.txt"], **options)  # type: ignore[arg-type]
    index.label("a.txt", domain="law", date="2024-05-01")
    if engine:
        pytest.importorskip("lancedb")
        index = index.copy(f"{engine}{tmp_path / 'copy'}")
    Path("a.txt").write_text("The river is deep.\n", "utf-8")
    again = str(tmp_path / "a.txt")
    index.add(again)
    assert set(index.files) == {again, "b.txt"}
    assert index.labels == {again: {"domain": "law", "date": "2024-05-01"}}
    index.add("./a.txt", domain="news")
    assert index.labels == {"a.txt": {"domain": "news", "date": "2024-05-01"}}


def test_a_translator_looks_at_some_files(tmp_path: Path) -> None:
    texts = [Sentence(f"The bank of the town number {n}.", "en", Origin(f"{n}.txt", 1)) for n in range(3)]
    index = Index.build(tmp_path / "i", texts=texts, language="en", retriever="bm25")
    plain, some = (
        Translator("de", "en", index=given, llm=RuleLLM(), wrapper="compact", only=only)
        for given, only in ((index, None), (index.folder, Only("2.txt")))
    )
    (translation,) = some.translate("Die Bank number").sentences
    assert [hint.hit.sentence.source.file for hint in translation.hints] == ["2.txt"]
    assert some.settings != plain.settings
    with pytest.raises(UserError, match="but no index is given"):
        Translator("de", "en", llm=RuleLLM(), only=Only("2.txt"))
    with pytest.raises(UserError, match="is open already: leave only out"):
        Translator("de", "en", llm=RuleLLM(), retriever=some.retriever, only=Only("2.txt"))
