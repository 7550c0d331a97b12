"""The journal keeps finished records through a crash and refuses another job's."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.errors import UserError
from rag_mt.base.types import Hint, Hit, Origin, Recalled, Sentence, Span, Translation
from rag_mt.translation.journal import Journal, RecordJournal, pack, unpack

ROOT = Path(__file__).parents[3]
KILLED = """
import os, signal, sys
from pathlib import Path
from rag_mt.translation.journal import RecordJournal
journal = RecordJournal(Path(sys.argv[1]), {"llm": "a"})
with journal._transaction() as database:
    database.execute("PRAGMA cache_size = 10")
    database.executemany("INSERT INTO records VALUES (?, ?)", [(n, "x" * 500) for n in range(2, 2000)])
    os.kill(os.getpid(), signal.SIGKILL)
"""
SOURCE = Sentence("Der Hund schläft.", "de", Origin("a.txt", 3))
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


@st.composite
def hints_of(draw: st.DrawFn) -> tuple[Hint, ...]:
    hints = []
    for text in draw(st.lists(texts, max_size=3)):
        end = draw(st.integers(0, len(text)))
        origin = Origin(draw(texts), draw(st.integers(0, 10**9)))
        original = draw(st.one_of(st.just(""), texts))
        hit = Hit(Sentence(text, "en", origin), Span(0, end), round(draw(st.floats(-2, 2)), 6), original)
        hints.append(Hint(Span(0, draw(st.integers(0, 17))), hit))
    return tuple(hints)


@st.composite
def translations(draw: st.DrawFn) -> Translation:
    hints = draw(hints_of())
    used = tuple(draw(st.booleans()) for _ in hints)
    made = Translation(
        SOURCE, draw(texts), hints, "", used, tuple(draw(st.lists(texts, max_size=2))), draw(st.booleans())
    )
    if draw(st.booleans()):
        return made
    recalled = Recalled(draw(hints_of()), draw(st.booleans()))
    alternatives = tuple(draw(st.lists(texts, max_size=3)))
    return replace(made, draft=draw(texts), recalled=recalled, alternatives=alternatives)


@given(translations())
def test_pack_and_unpack_are_inverse(translation: Translation) -> None:
    assert unpack(pack(translation), SOURCE) == translation


def test_what_a_kill_interrupts_is_dropped_and_the_rest_kept(tmp_path: Path) -> None:
    """A process that is killed before a commit, its pages partly on disk: the file goes back to the last commit."""
    path = tmp_path / "out.rag-mt-journal"
    done = [Translation(SOURCE, f"text {i}") for i in range(4)]
    journal = Journal(path, {"llm": "a"})
    journal.add([0, 1], done[:2])
    journal.close()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(path)], cwd=ROOT, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert path.stat().st_size > 100_000, "nothing was written before the kill"
    again = Journal(path, {"llm": "a"})
    assert again.resumed == 2
    again.add([2, 3], done[2:])
    again.close()
    last = Journal(path, {"llm": "a"})
    with pytest.raises(UserError, match="other sentences"):
        last.take(1, Sentence("Der Hund", "de"))
    last.close()
    last = Journal(path, {"llm": "a"})
    assert [last.take(n, SOURCE) for n in range(5)] == [*done, None]
    last.finish()
    assert not list(tmp_path.iterdir())


def test_a_damaged_journal_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "out.rag-mt-journal"
    journal = RecordJournal(path, {"llm": "a"})
    journal.add_records(range(300), [{"text": "x" * 200}] * 300)
    journal.close()
    whole = path.read_bytes()
    for cut in (50, 5000, len(whole) - 5000):
        path.write_bytes(whole[:cut])
        with pytest.raises(UserError, match=r"out\.rag-mt-journal.*(--restart|delete it)"):
            list(RecordJournal(path, {"llm": "a"}).records())
        again = RecordJournal(path, {"llm": "a"}, restart=True)
        assert again.resumed == 0
        again.close()
    with pytest.raises(UserError, match="cannot be used"):
        RecordJournal(tmp_path / "nowhere" / "journal", {})


def test_other_settings_are_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "out.rag-mt-journal"
    Journal(path, {"llm": "a", "target": "en"}).close()
    with pytest.raises(UserError, match=r"another llm.*--restart"):
        Journal(path, {"llm": "b", "target": "en"})
    path.write_text("no JSON at all\n")
    with pytest.raises(UserError, match="--restart"):
        Journal(path, {"llm": "a"})
    path.write_text('"something else"\n')
    with pytest.raises(UserError, match="--restart"):
        Journal(path, {"llm": "a"})


def test_a_job_that_starts_over_can_go_on(tmp_path: Path) -> None:
    path = tmp_path / "out.rag-mt-journal"
    first = RecordJournal(path, {"llm": "a"})
    first.add_records([0], [{"text": "old"}])
    first.close()
    again = RecordJournal(path, {"llm": "b"}, restart=True)
    again.add_records([1], [{"text": "new"}])
    again.close()
    last = RecordJournal(path, {"llm": "b"})
    assert last.earlier == {1: {"text": "new"}}
    last.close()


def test_two_jobs_cannot_share_an_output(tmp_path: Path) -> None:
    path = tmp_path / "out.rag-mt-journal"
    first = Journal(path, {"llm": "a"})
    with pytest.raises(UserError, match="another process"):
        Journal(path, {"llm": "a"})
    first.close()
    assert Journal(path, {"llm": "b"}, restart=True).resumed == 0
