"""Documents: every format there and back, progress, cancellation, limits, and whose they are."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from tests.waiting import until
from ui.server.documents import Document
from ui.server.limits import ANONYMOUS, BusyError, LimitError, MissingError
from ui.server.service import Service
from ui.server.translators import Choice
from ui.server.work import Order

DE = Order(Choice("de", "en", "phrases"), "")

PO = 'msgid ""\nmsgstr ""\n"Language: en\\n"\n\nmsgid "Das Haus."\nmsgstr ""\n\nmsgid "Fertig"\nmsgstr "Done"\n'
XLIFF = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="de" target-language="en"
 datatype="plaintext" original="a"><body><trans-unit id="1"><source>Das <g id="1">Haus</g>.</source></trans-unit></body>
</file></xliff>"""
TMX = """<?xml version="1.0"?><tmx version="1.4"><header creationtool="t" creationtoolversion="1" segtype="sentence"
 o-tmf="t" adminlang="en" srclang="de" datatype="plaintext"/><body><tu><tuv xml:lang="de"><seg>Das Haus.</seg></tuv>
</tu></body></tmx>"""


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Document]:
    """Begins to translate a file with some content."""

    def begin(service: Service, name: str, content: str | bytes, owner: str = "ann", **more: Any) -> Document:
        path = tmp_path / f"upload{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return service.documents.start(owner, name, path, DE, **more)

    return begin


@pytest.mark.parametrize(
    ("name", "content", "output", "expected", "more"),
    [
        ("a.txt", "Das Haus.\n\n  Der Hund!\r\n", "a.en.txt", "DAS HAUS.\n\n  DER HUND!\r\n", {}),
        ("a.tsv", "1\tDas Haus.\n2\tDer Hund.\n", "a.en.tsv", "2\tDer Hund.\tDER HUND.\n", {"column": "2"}),
        ("a.jsonl", '{"text": "Das Haus."}\n', "a.en.jsonl", '"translation": "DAS HAUS."', {}),
        ("a.po", PO, "a.en.po", 'msgid "Das Haus."\nmsgstr "DAS HAUS."', {}),
        ("a.xliff", XLIFF, "a.en.xliff", '<g id="1">HAUS', {}),
        ("a.tmx", TMX, "a.en.tmx", "<seg>DAS HAUS.</seg>", {}),
        ("no suffix", "Das Haus.", "no suffix.en", "DAS HAUS.", {}),
    ],
)
def test_every_format_comes_back_filled(
    make_service: Any, start: Any, name: str, content: str, output: str, expected: str, more: dict[str, str]
) -> None:
    document = start(make_service(), name, content, **more)
    assert document.wait(60)
    assert (document.state, document.error) == ("done", "")
    assert document.output_name == output
    assert expected in document.result.read_bytes().decode()
    assert document.progress[0] == document.progress[1] == len(document.partial)


def test_packed_files_come_back_packed(make_service: Any, start: Any) -> None:
    document = start(make_service(), "a.txt.gz", gzip.compress(b"Das Haus.\n", mtime=0))
    assert document.wait(60)
    assert document.output_name == "a.en.txt.gz"
    assert gzip.decompress(document.result.read_bytes()) == b"DAS HAUS.\n"


SAID = "Der Stadtrat hat den Bau einer neuen Brücke beschlossen."
REMARKS = "#. Shown in the title of the window when the user opens a file\n" * 5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", SAID),
        ("a.txt.gz", gzip.compress(f"{SAID}\n".encode() * 99, mtime=0)),
        ("a.po", f'{REMARKS}msgid "{SAID}"\nmsgstr ""\n'),
        ("a.xliff", XLIFF),
        ("a.tmx", TMX.replace("Das Haus.", SAID)),
        ("a.jsonl", json.dumps({"remark": REMARKS, "text": SAID}) + "\n"),
    ],
)
def test_the_language_of_a_file_is_that_of_its_text(
    make_service: Any, tmp_path: Path, name: str, content: str | bytes
) -> None:
    service = make_service()
    path = tmp_path / "upload"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    codes = service.offer.sources_of("en")
    assert service.documents.source_of(path, name, "", service.detector, codes) == "de"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"The council meets on Thursday evening.", "cannot be told"),
        ("a.txt", b"123", "cannot be told"),
        ("a.po", b'msgid "x', "a.po"),
        ("bomb.txt.gz", gzip.compress(b"wort " * 300, mtime=0), "bomb.txt.gz holds more than 1000 bytes"),
    ],
)
def test_a_file_whose_language_cannot_be_told(
    make_service: Any, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    service = make_service(file_bytes=1000)
    path = tmp_path / "upload"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as error:
        service.documents.source_of(path, name, "", service.detector, service.offer.sources_of("en"))
    assert str(tmp_path) not in str(error.value)


def test_partial_results_and_cancellation(make_service: Any, start: Any, slow: Callable[[float], Any]) -> None:
    opener = slow(0.01)
    service = make_service(opener, batch=2)
    document = start(service, "long.txt", "".join(f"Satz {n} ist noch nicht dran.\n" for n in range(200)))
    for _ in document.updates(every=0):
        if len(document.partial) >= 4:
            document.cancel()
    assert document.state == "cancelled"
    assert document.partial[0] == ("Satz 0 ist noch nicht dran.", "SATZ 0 IST NOCH NICHT DRAN.")
    assert document.progress[0] < 200 == document.progress[1]
    assert service.engine.waiting == 0
    calls = len(opener.llm.calls)
    assert service.engine.submit(Order(DE.choice, "Danach.")).result(5).text == "DANACH."
    assert len(opener.llm.calls) <= calls + 2


def test_nobody_sees_what_others_have(make_service: Any, start: Any) -> None:
    service = make_service()
    document = start(service, "a.txt", "Geheim.\n", owner="ann")
    assert document.wait(60)
    assert service.documents.of("bob") == []
    for attempt in (service.documents.get, service.documents.delete):
        with pytest.raises(MissingError, match="there is no document"):
            attempt("bob", document.id)
    service.documents.delete("ann", document.id)
    assert not document.result.exists()
    assert service.documents.of("ann") == []


def test_the_oldest_finished_one_gives_way(make_service: Any, start: Any, slow: Callable[[float], Any]) -> None:
    opener = slow(0)
    service = make_service(opener, documents=2)
    first, second = (start(service, f"{n}.txt", "Ein Satz.\n") for n in "ab")
    assert first.wait(60) and second.wait(60)
    opener.llm.hold.clear()
    third = start(service, "c.txt", "Ein Satz.\n")
    assert service.documents.of("ann") == [second, third]
    start(service, "d.txt", "Ein Satz.\n")
    with pytest.raises(BusyError, match="2 files are being translated"):
        start(service, "e.txt", "Ein Satz.\n")
    opener.llm.hold.set()


def test_clients_without_a_key_do_not_push_each_other_out(make_service: Any, start: Any) -> None:
    service = make_service(documents=1, all_documents=3)
    made = [start(service, f"{n}.txt", "Ein Satz.\n", owner=ANONYMOUS) for n in range(3)]
    assert all(document.wait(60) for document in made)
    assert service.documents.of(ANONYMOUS) == made
    last = start(service, "3.txt", "Ein Satz.\n", owner=ANONYMOUS)
    assert service.documents.of(ANONYMOUS) == [*made[1:], last]


def test_deleting_a_running_one_waits_for_nothing(
    make_service: Any, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, ending, go_on = make_service(documents=1), threading.Event(), threading.Event()

    def slowly(counts: Any) -> tuple[str, ...]:
        ending.set()
        go_on.wait(60)
        return ()

    monkeypatch.setattr("ui.server.documents._notes", slowly)
    document = start(service, "a.txt", "Ein Satz.\n")
    assert ending.wait(60) and document.state == "running"
    service.documents.delete("ann", document.id)
    assert service.documents.of("ann") == [] and not document.ended
    with pytest.raises(MissingError):
        service.documents.get("ann", document.id)
    with pytest.raises(BusyError):  # it counts until it has ended
        start(service, "b.txt", "Ein Satz.\n")
    place = service.documents.folder / document.id
    assert place.is_dir()
    go_on.set()
    until(lambda: not place.exists())
    assert start(service, "b.txt", "Ein Satz.\n").wait(60)


def test_one_client_without_a_key_cannot_take_all_places(make_service: Any, start: Any, slow: Any) -> None:
    opener = slow(0)
    service = make_service(opener, documents=2, all_documents=10)
    opener.llm.hold.clear()
    made = [start(service, f"{n}.txt", "Ein Satz.\n", owner=ANONYMOUS, client="1.2.3.4") for n in range(2)]
    with pytest.raises(BusyError, match="2 files are being translated"):
        start(service, "2.txt", "Ein Satz.\n", owner=ANONYMOUS, client="1.2.3.4")
    other = start(service, "3.txt", "Ein Satz.\n", owner=ANONYMOUS, client="1.2.3.5")
    opener.llm.hold.set()
    assert all(document.wait(60) for document in [*made, other])


def test_documents_outlive_the_server(make_service: Any, start: Any, slow: Any, tmp_path: Path) -> None:
    opener, folder = slow(0), tmp_path / "kept"
    first = make_service(opener, folder=folder)
    done = start(first, "done.txt", "Ein Satz.\n123 \n")
    assert done.wait(60)
    deleted = start(first, "deleted.txt", "Ein Satz.\n")
    assert deleted.wait(60)
    first.documents.delete("ann", deleted.id)
    opener.llm.hold.clear()
    running = start(first, "long.txt", "Ein Satz.\nNoch ein Satz.\n")
    until(lambda: running.state == "running")
    threading.Timer(0.5, opener.llm.hold.set).start()
    first.close(0.1)
    second = make_service(opener, folder=folder)
    assert [own.id for own in second.documents.of("ann")] == [done.id, running.id]
    later = second.documents.get("ann", done.id)
    assert (later.state, later.progress, later.notes, later.output_name) == ("done", (2, 2), done.notes, "done.en.txt")
    assert later.result.read_text() == "EIN SATZ.\n123 \n"
    lost = second.documents.get("ann", running.id)
    assert (lost.state, lost.error) == (
        "failed",
        "the server was restarted before long.txt was translated: send it again",
    )
    assert not list(folder.rglob("source*"))
    second.documents.delete_all("ann")
    second.close()
    assert not list((folder / "documents").iterdir())


KILLED = """
import sys, time
from pathlib import Path
from ui.server.documents import Documents
from ui.server.engine import Engine
from ui.server.limits import Limits
from ui.server.translators import Choice, Translators
from ui.server.work import Order
folder = Path(sys.argv[1])
(folder / "upload").write_text("Ein Satz.")
documents = Documents(folder / "documents", Engine(Translators(lambda choice: time.sleep(60))), Limits())
print(documents.start("ann", "a.txt", folder / "upload", Order(Choice("de", "en"), "")).id, flush=True)
time.sleep(60)
"""


def test_a_killed_server_says_so_of_its_documents(make_service: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        id = process.stdout.readline().strip()
        process.kill()
    (tmp_path / "documents" / "documents-broken" / "x").mkdir(parents=True)
    (tmp_path / "documents" / "documents-broken" / "x" / "document.json").write_text("{")
    service = make_service(folder=tmp_path)
    assert "restarted" in service.documents.get("ann", id).error
    assert [own.id for own in service.documents.of("ann")] == [id]
    assert not list(tmp_path.rglob("source*")) and not list(tmp_path.rglob("x"))


def test_old_documents_do_not_outlive_the_server(make_service: Any, start: Any, tmp_path: Path) -> None:
    first = make_service(folder=tmp_path / "kept")
    document = start(first, "a.txt", "Ein Satz.\n")
    assert document.wait(60)
    first.close()
    (record,) = (tmp_path / "kept").rglob("document.json")
    record.write_text(record.read_text().replace(str(document.created), str(document.created - 86_401)))
    second = make_service(folder=tmp_path / "kept")
    assert second.documents.of("ann") == []
    assert not list((tmp_path / "kept").rglob("result*"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("../x/book.pdf", b"%PDF-1.7", "^book.pdf looks like a PDF"),
        ("big.txt", b"wort " * 300, "at most 1000 are allowed"),
        ("bomb.txt.gz", gzip.compress(b"wort " * 300, mtime=0), "bomb.txt.gz holds more than 1000 bytes"),
        ("a.tmx", b"<tmx", "a.tmx"),
        ("a.po", b'msgid "x', "a.po"),
        ("a.po", PO.replace("Language: en", "Language: fi").encode(), "a.po"),
    ],
)
def test_files_that_cannot_be_translated(make_service: Any, start: Any, name: str, content: bytes, said: str) -> None:
    service = make_service(file_bytes=1000)
    with pytest.raises(UserError, match=said) as error:
        start(service, name, content)
    assert "upload" not in str(error.value) or isinstance(error.value, LimitError)
    assert service.documents.of("ann") == []


def test_lines_that_cannot_be_read_are_counted_and_kept(make_service: Any, start: Any) -> None:
    document = start(make_service(), "a.txt", b"Gut.\nschlecht \xff\n")
    assert document.wait(60)
    assert document.result.read_bytes() == b"GUT.\nschlecht \xff\n"
    assert any("skipped 1 lines" in note for note in document.notes)


def test_units_that_are_kept_are_counted_and_cost_nothing(make_service: Any, start: Any) -> None:
    unit = '<tu><tuv xml:lang="de"><seg>Ja.</seg></tuv><tuv xml:lang="en"><seg>Yes.</seg></tuv></tu>'
    document = start(make_service(), "a.tmx", TMX.replace("</body>", f"{unit}</body>"))
    assert document.wait(60)
    assert document.partial == [("Das Haus.", "DAS HAUS.")]
    assert "1 units have a translation into en already, which is kept" in document.notes


def test_a_lost_placeholder_is_named_with_its_line(make_service: Any, start: Any) -> None:
    document = start(make_service(), "a.txt", "Gut.\n%s ist %s gleich.\nGut!\n")
    assert document.wait(60)
    assert "a.txt:2: error: placeholder lost: %s [placeholders]" in document.notes
    assert any(note.startswith("findings: ") and "1 x placeholders" in note for note in document.notes)


SAMPLES = {
    "a.txt": "Das Haus.\r\n\nZwei Sätze. Hier.\n",
    "a.tsv": "1\tDas Haus.\n",
    "a.jsonl": '{"text": "Das Haus.", "x": [1]}\n',
    "a.po": PO,
    "a.xliff": XLIFF,
    "a.tmx": TMX,
    "a": PO,
}


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """The name and content of a file with pieces cut out, doubled and put in."""
    name = draw(st.sampled_from(sorted(SAMPLES)))
    content = SAMPLES[name].encode()
    for _ in range(draw(st.integers(0, 4))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(content))] * 2)))
        piece = draw(st.sampled_from([b"", content[start:end] * 2, b"\x00", b"\xff", b"<", b"&", b'"', b"\n", b"]]>"]))
        content = content[:start] + piece + content[end:]
    return name, gzip.compress(content, mtime=0) if draw(st.booleans()) else content


def fuzz(service: Service, start: Callable[..., Document], examples: int) -> None:
    """Translate and index damaged files: all end, and whatever fails says why."""

    @settings(max_examples=examples, database=None)
    @given(damaged(), st.sampled_from(["", "1", "text"]))
    def check(file: tuple[str, bytes], column: str) -> None:
        for begin in (
            lambda: start(service, *file, column=column),
            lambda: start_build(service, *file, column=column),
        ):
            try:
                task = begin()
            except UserError as error:
                assert "\n" not in str(error) and "upload" not in str(error).replace("the upload", "")
                continue
            assert task.wait(60)
            assert task.state == "done" or (task.state == "failed" and "server's log" not in task.error), task.error
        service.delete_owner("ann")

    def start_build(service: Service, name: str, content: bytes, **more: Any) -> Any:
        path = service.indexes.folder.parent / "to-index"
        path.write_bytes(content)
        return service.indexes.build("ann", "x", "en", [(name, path)], "sentence", **more)

    check()


def test_damaged_files(make_service: Any, start: Any) -> None:
    fuzz(make_service(), start, 15)


@pytest.mark.slow
def test_many_damaged_files(make_service: Any, start: Any) -> None:
    fuzz(make_service(), start, 500)
