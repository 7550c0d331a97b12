"""An index that does not answer: a server that is killed, halted, or speaks nothing, and files that are gone."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rag_mt import Index, Translator
from rag_mt.base.errors import AwayError, UserError
from rag_mt.base.only import Only
from rag_mt.base.types import Origin, Sentence
from rag_mt.cli.main import main
from rag_mt.formats.format import Segment
from rag_mt.formats.lines import added_fields
from rag_mt.translation import away
from rag_mt.translation.away import HintSource
from rag_mt.translation.jobs import Counts, split_segments, translate_segments
from rag_mt.translation.journal import Journal
from retrievers.index import places
from retrievers.index.copying import copy_index
from retrievers.index.qdrant import place
from retrievers.no_hints import NoHints
from tests.retrievers.index.qdrant_process import Process, free_port, serving_copy
from tests.ui.conftest import HintedLLM

pytest.importorskip("qdrant_client")

GERMAN = [
    "Das Museum ist an Feiertagen geschlossen.",
    "Der Stadtrat tagt am Montag.",
    "Die Bibliothek öffnet um neun.",
]
ENGLISH = [
    "The museum is closed on public holidays.",
    "The city council meets on Monday.",
    "The library opens at nine.",
]
SENTENCES = [Sentence(text, "de", Origin("a.txt", n)) for n, text in enumerate(GERMAN, 1)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Indexes of each retriever that is tried, by its name."""
    made = {name: tmp_path_factory.mktemp("away") / name for name in ("sentence", "memory")}
    for name, folder in made.items():
        Index.build(folder, texts=ENGLISH, language="en", retriever=name, show=False)
    return made


@pytest.fixture
def served(
    request: pytest.FixtureRequest, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Process]:
    """A process that serves a copy of an index, that of `sentence` if the test names none."""
    monkeypatch.setattr(away, "INDEX_PAUSE", 0.5)
    with serving_copy(folders[getattr(request, "param", "sentence")], tmp_path, monkeypatch) as process:
        yield process


def translator_of(index: str, index_away: str = "plain") -> Translator:
    return Translator("de", index=index, llm=HintedLLM(), wrapper="compact", max_new_tokens=24, index_away=index_away)


def until_hints(translator: Translator) -> None:
    """Translate until there are hints again, for as long as a connection takes to be made anew."""
    end = time.monotonic() + 20
    while (made := translator.translate_sentences(SENTENCES)[0]).hints_away:
        assert time.monotonic() < end and not made.hints
    assert made.recalled is not None or made.hints


@pytest.mark.parametrize("served", ["sentence", "memory"], indirect=True)
def test_a_server_that_is_killed_ends_the_work(served: Process) -> None:
    served.start()
    translator = translator_of(served.place, "stop")
    assert not any(made.hints_away for made in translator.translate_sentences(SENTENCES))
    served.kill()
    with pytest.raises(AwayError, match=rf"^index {served.place} does not answer \(.*\): see that"):
        translator.translate_sentences(SENTENCES)
    served.start()
    end = time.monotonic() + 20
    while translator.hint_source.reason:
        try:
            translator.translate_sentences(SENTENCES)
        except AwayError:
            assert time.monotonic() < end


@pytest.mark.parametrize("served", ["sentence", "memory"], indirect=True)
def test_sentences_are_translated_plainly_until_it_is_back(
    served: Process, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served.start()
    translator, counts = translator_of(served.place), Counts()
    segments = split_segments([Segment(text, Origin("a.txt", n)) for n, text in enumerate(GERMAN, 1)], "de")
    with closing(Journal(tmp_path / "journal", {})) as journal:
        texts = translate_segments(translator, segments, counts, journal, window=1)
        first = next(texts)
        served.kill()
        rest = list(texts)
    assert not first.hints_away and "hints_away" not in added_fields(GERMAN[0], first)
    for source, text in zip(GERMAN[1:], rest, strict=True):
        assert text.text == source.upper() and not text.sentences[0].hints
        assert served.place in text.hints_away and added_fields(source, text)["hints_away"] is True
    assert counts.without_hints.startswith(f"2 of 3 sentences were translated without hints, for index {served.place}")
    assert caplog.text.count("sentences are translated without hints until it answers") == 1
    with closing(Journal(tmp_path / "journal", {})) as journal:
        kept = [journal.take(n, sentence) for n, sentence in enumerate(SENTENCES)]
    assert [made is not None and bool(made.hints_away) for made in kept] == [False, True, True]
    served.start()
    until_hints(translator)
    assert "the index answers again" in caplog.text


def test_a_server_that_says_nothing_is_asked_once_in_a_while(served: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    served.start()
    translator = translator_of(served.place)
    monkeypatch.setattr(away, "INDEX_PAUSE", 60)
    served.halt()
    begin = time.monotonic()
    for _ in range(10):
        assert all(made.hints_away for made in translator.translate_sentences(SENTENCES))
    assert 0.9 < time.monotonic() - begin < 5  # of ten times a second
    served.go_on()
    assert translator.translate_sentences(SENTENCES)[0].hints_away  # the pause is not over
    translator.hint_source._answering.again = 0.0
    until_hints(translator)


@pytest.mark.parametrize("served", ["sentence", "memory"], indirect=True)
def test_an_index_that_is_away_from_the_start_is_opened_later(
    served: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AwayError, match="does not answer"):
        translator_of(served.place, "stop")
    assert main(["translate", "--src", "de", "--index", served.place, GERMAN[0]]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert f"index {served.place} does not answer" in said and "Traceback" not in said
    translator = translator_of(served.place)
    styled = translator.with_context(1)
    assert [made.text for made in translator.translate_sentences(SENTENCES)] == [text.upper() for text in GERMAN]
    assert all(made.hints_away for made in styled.translate_sentences(SENTENCES))
    served.start()
    until_hints(translator)
    until_hints(styled)
    known = translator_of(served.place)
    assert translator.settings["retrieval"] == known.settings["retrieval"]
    assert translator.settings["prompts"] == known.settings["prompts"]
    assert translator.translate_sentences(SENTENCES) == known.translate_sentences(SENTENCES)


@pytest.mark.parametrize("behaviour", ["closed", "silent", "garbage"])
def test_what_is_no_server_is_away(behaviour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.TIMEOUT, "1")
    monkeypatch.setattr(place, "WAITS", (0.01, 0.01))
    port = free_port()
    listener = None
    if behaviour != "closed":
        listener = socket.create_server(("127.0.0.1", port + 1))
    begin = time.monotonic()
    if behaviour == "garbage":
        from threading import Thread

        def answer() -> None:
            while True:
                try:
                    connection, _ = listener.accept()  # type: ignore[union-attr]
                except OSError:
                    return
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nno gRPC here")
                connection.close()

        Thread(target=answer, daemon=True).start()
    translator = translator_of(f"qdrant:http://127.0.0.1:{port}/index")
    assert all("does not answer" in made.hints_away for made in translator.translate_sentences(SENTENCES))
    assert time.monotonic() - begin < 15
    if listener is not None:
        listener.close()


def test_other_files_are_not_asked_for_before_it_is_time(served: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(away, "INDEX_PAUSE", 0)
    translator = translator_of(served.place)
    monkeypatch.setattr(away, "INDEX_PAUSE", 1000)
    assert all(made.hints_away for made in translator.translate_sentences(SENTENCES))
    served.start()
    within = translator.with_only(Only("texts"))
    assert all(made.hints_away for made in within.translate_sentences(SENTENCES))
    within.hint_source._answering.again = 0.0
    until_hints(within)
    assert not any(made.hints_away for made in within.translate_sentences(SENTENCES))
    assert not translator.hint_source.reason and within.retriever is not translator.retriever


def test_other_files_that_are_not_reached_are_known_to_be_away() -> None:
    def opener() -> NoHints:
        raise AwayError("it is away")

    source = HintSource("stop", NoHints)
    with pytest.raises(AwayError):
        source.narrowed(opener)
    assert source.reason == "it is away"
    assert source.ask(lambda retriever: [retriever.name], [])[0] == ["none"] and not source.reason


def test_files_that_are_gone_are_told_and_found_again(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb")
    monkeypatch.setattr(away, "INDEX_PAUSE", 0.01)
    copy_index(folders["sentence"], Path(f"lance:{tmp_path}/copy"))
    translator = translator_of(f"lance:{tmp_path}/copy")
    assert not translator.translate(GERMAN[0]).hints_away
    shutil.move(tmp_path / "copy", tmp_path / "gone")
    assert "does not answer" in translator.translate(GERMAN[1]).hints_away
    shutil.move(tmp_path / "gone", tmp_path / "copy")
    time.sleep(0.02)
    assert not translator.translate(GERMAN[1]).hints_away


def test_a_store_that_says_nothing_is_away_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lancedb")
    keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "x", "AWS_ALLOW_HTTP": "true"}
    for name, value in keys.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(places.TIMEOUT, "0.5")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}")
        begin = time.monotonic()
        with pytest.raises(AwayError, match=r"^index lance:s3://bucket/index does not answer"):
            translator_of("lance:s3://bucket/index", "stop")
        assert time.monotonic() - begin < 10


@pytest.mark.parametrize("value", ["0", "-1", "x", "inf", "nan"])
def test_a_time_that_is_none_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(places.TIMEOUT, value)
    with pytest.raises(UserError, match=f"{places.TIMEOUT} is '{value}': expected a number of seconds above 0"):
        places.seconds_to_answer()


def test_an_index_that_is_wrong_is_not_away(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        translator_of(f"qdrant:{tmp_path}/none")
    with pytest.raises(UserError, match="index_away is 'maybe': expected one of stop, plain"):
        translator_of(str(tmp_path), "maybe")
