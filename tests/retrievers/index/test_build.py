"""Building: complete or not there, resumed after any kind of end, never two at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rag_mt.base.errors import UserError
from rag_mt.base.files import alone_in
from rag_mt.base.types import Origin, Sentence
from retrievers.index.build import build_index, build_part
from retrievers.index.opening import open_index
from retrievers.index.shards import Seen
from retrievers.index.verifying import verify_index
from retrievers.units.unit import NgramUnits, SentenceUnits
from tests.waiting import until_while_running

ROOT = Path(__file__).parents[3]
CORPUS = [Sentence(f"sentence {n} of {n % 7}", "en", Origin("c.txt", n + 1)) for n in range(100)]


def build(folder, encoder, sentences=CORPUS, **options):
    maker = SentenceUnits(encoder)
    maker.block = options.pop("block", 10)
    options = {"retriever": "sentence", "language": "en", "shard": 10, "show": False, **options}
    part = options.pop("part", None)
    return (
        build_part(folder, sentences, maker, part, **options)
        if part
        else build_index(folder, sentences, maker, **options)
    )


def contents(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def nothing_left(folder):
    return not [p for p in folder.parent.iterdir() if p != folder]


class StopHereError(Exception):
    pass


def stopping(sentences, after):
    """The sentences, with a crash after some."""
    yield from sentences[:after]
    raise StopHereError


def test_counts(tmp_path, fake):
    texts = ["one", "two", "", "one", " \t", "three", "two", "bad \ud800", "one"]
    manifest = build(tmp_path / "i", fake(), [Sentence(t, "en") for t in texts], block=2)
    assert manifest.counts == {"read": 9, "kept": 3, "duplicates": 3, "unusable": 3}
    assert manifest.sentences == manifest.units == 3
    index = open_index(tmp_path / "i")
    assert [index.sentence(n).text for n in range(3)] == ["one", "two", "three"]
    assert "3 duplicates" in manifest.describe()
    assert nothing_left(tmp_path / "i")


def test_contents_do_not_depend_on_the_shards(tmp_path, fake):
    for size in (1, 30, 1000):
        build(tmp_path / f"{size}", fake(), shard=size)
    one, *others = (contents(tmp_path / f"{size}") for size in (1, 30, 1000))
    assert others == [one, one]


def test_vectors_do_not_depend_on_the_blocks(tmp_path, fake):
    for size in (1, 7, 1000):
        build(tmp_path / f"{size}", fake(), block=size)
    one, *others = (contents(tmp_path / f"{size}") for size in (1, 7, 1000))
    for other in others:
        assert other["vectors.faiss"] == one["vectors.faiss"]
        assert other["spans.npy"] == one["spans.npy"]


def test_interruptions_anywhere_give_the_same_bytes(tmp_path, fake):
    build(tmp_path / "whole", fake())
    for after in (15, 48, 61, 99):
        with pytest.raises(StopHereError):
            build(tmp_path / "i", fake(), stopping(CORPUS, after), shard=20)
    assert build(tmp_path / "i", fake(), shard=20).resumed == 80
    assert contents(tmp_path / "i") == contents(tmp_path / "whole")


def test_a_shorter_text_is_not_taken_for_the_interrupted_one(tmp_path, fake):
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 25))
    with pytest.raises(UserError, match=r"text has changed .*--restart"):
        build(tmp_path / "i", fake(), CORPUS[:15])


def test_shards_of_another_size_are_not_mixed(tmp_path, fake):
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 45), shard=20)
    with pytest.raises(UserError, match=r"\(shard: 20, now 10\)"):
        build(tmp_path / "i", fake())


def test_parts_that_processes_share_are_put_together(tmp_path, fake):
    build(tmp_path / "whole", fake())
    assert build(tmp_path / "i", fake(), part=(1, 3)) == (40, 0)  # shards 1, 4, 7 and 10 of 10
    assert build(tmp_path / "i", fake(), part=(3, 3)) == (30, 0)
    assert build(tmp_path / "i", fake(), part=(3, 3)) == (30, 30)
    assert not (tmp_path / "i").exists()
    with pytest.raises(UserError, match=r"other settings \(settings.fingerprint: f1, now f2\)"):
        build(tmp_path / "i", fake("f2"), part=(2, 3))
    encoder = fake()
    assert build(tmp_path / "i", encoder).resumed == 70 and encoder.encoded == 30
    assert contents(tmp_path / "i") == contents(tmp_path / "whole")
    assert not (tmp_path / "i.building").exists()
    with pytest.raises(UserError, match="exists already"):
        build(tmp_path / "i", fake(), part=(2, 3))
    assert not (tmp_path / "i.building").exists()
    assert build(tmp_path / "i", fake(), part=(2, 3), replace=True) == (30, 0)
    with pytest.raises(UserError, match=r"text has changed .*: delete .*i\.building to start over"):
        build(tmp_path / "i", fake(), CORPUS[1:], part=(2, 3), replace=True)
    assert build(tmp_path / "i", fake(), replace=True).resumed == 30


def test_a_part_is_built_once_at_a_time_and_not_beside_the_whole(tmp_path, fake):
    refused = []

    def sentences():
        yield from CORPUS[:5]  # nothing is finished yet
        for part, settings in (((1, 2), {}), (None, {}), ((2, 2), {"language": "de"})):
            with pytest.raises(UserError) as error:
                build(tmp_path / "i", fake(), part=part, **settings)
            refused.append(str(error.value))
        assert build(tmp_path / "i", fake(), part=(2, 2)) == (50, 0)
        yield from CORPUS[5:]

    assert build(tmp_path / "i", fake(), sentences(), part=(1, 2)) == (50, 0)
    assert "part 1/2 of index" in refused[0] and "is being built already" in refused[0]
    assert f"is being built (process {os.getpid()}): wait for it" in refused[1]
    assert "language: en, now de" in refused[2]
    assert build(tmp_path / "i", fake()).resumed == 100


def test_a_crash_is_resumed_without_encoding_again(tmp_path, fake):
    build(tmp_path / "whole", fake())
    encoder = fake()
    for after in (35, 61):
        with pytest.raises(StopHereError):
            build(tmp_path / "i", encoder, stopping(CORPUS, after))
        assert not (tmp_path / "i").exists()
    assert encoder.encoded == 60
    manifest = build(tmp_path / "i", encoder)
    assert encoder.encoded == 100
    assert manifest.resumed == 60
    assert "60 sentences were kept" in manifest.describe()
    assert contents(tmp_path / "i") == contents(tmp_path / "whole")
    assert not (tmp_path / "i.building").exists()


def test_kill_9_is_resumed_to_the_same_bytes(tmp_path, fake):
    process = subprocess.Popen([sys.executable, "-m", __name__, str(tmp_path / "i")], cwd=ROOT)
    try:
        until_while_running(process, lambda: len(list((tmp_path / "i.building").glob("shard-*"))) >= 4)
        with pytest.raises(UserError, match=f"is running already \\(process {process.pid}\\)"):
            build(tmp_path / "i", fake())
    finally:
        process.kill()
        process.wait()
    finished = len(list((tmp_path / "i.building").glob("shard-*")))
    assert 4 <= finished < 10
    assert not (tmp_path / "i").exists()
    encoder = fake()
    assert build(tmp_path / "i", encoder).resumed == finished * 10
    assert encoder.encoded == 100 - finished * 10
    build(tmp_path / "whole", fake())
    assert contents(tmp_path / "i") == contents(tmp_path / "whole")


def test_other_settings_are_refused_by_name(tmp_path, fake):
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 25), plan={"files": ["a.txt", 100]})
    plan = {"files": ["a.txt", 100]}
    with pytest.raises(UserError, match=r"language: en, now de\): .*--restart"):
        build(tmp_path / "i", fake(), language="de", plan=plan)
    with pytest.raises(UserError, match=r"settings\.fingerprint: f1, now f2"):
        build(tmp_path / "i", fake("f2"), plan=plan)
    with pytest.raises(UserError, match=r"input\.files: .*100.*now .*101"):
        build(tmp_path / "i", fake(), plan={"files": ["a.txt", 101]})
    encoder = fake("f2")
    assert build(tmp_path / "i", encoder, restart=True).resumed == 0
    assert encoder.encoded == 100


def test_changed_text_is_refused(tmp_path, fake):
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 25))
    with pytest.raises(UserError, match=r"text has changed .*near c\.txt:2.*--restart"):
        build(tmp_path / "i", fake(), CORPUS[1:])


def test_a_damaged_part_is_made_again(tmp_path, fake):
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 55))
    for n, name in enumerate(("vectors.f16", "spans.npy", "sentences.arrow", "shard.json")):
        path = tmp_path / "i.building" / f"shard-{n:06d}" / name
        path.write_bytes(path.read_bytes()[:-3])
    (tmp_path / "i.building" / "shard-000004" / "shard.json").unlink()
    encoder = fake()
    assert build(tmp_path / "i", encoder).resumed == 0
    assert verify_index(tmp_path / "i")
    build(tmp_path / "whole", fake())
    assert contents(tmp_path / "i") == contents(tmp_path / "whole")


def test_nothing_finished_leaves_no_trace(tmp_path, fake):
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 5))
    assert not list(tmp_path.iterdir())
    build(tmp_path / "i", fake(), language="de")


def test_one_build_at_a_time(tmp_path, fake):
    building = tmp_path / "i.building"
    with alone_in(building, "test"), pytest.raises(UserError, match=f"running already \\(process {os.getpid()}\\)"):
        build(tmp_path / "i", fake())
    (tmp_path / ".i.building.lock").write_text("4711")  # a lock that nobody holds any more
    assert build(tmp_path / "i", fake()).units == 100


def test_an_index_is_replaced_only_on_demand_and_at_the_end(tmp_path, fake):
    build(tmp_path / "i", fake())
    before = contents(tmp_path / "i")
    with pytest.raises(UserError, match=r"exists already: .*--replace"):
        build(tmp_path / "i", fake(), CORPUS[:5])
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS, 5), replace=True)
    assert contents(tmp_path / "i") == before
    opened = open_index(tmp_path / "i")
    build(tmp_path / "i", fake(), CORPUS[:5], replace=True)
    assert len(open_index(tmp_path / "i")) == 5
    assert opened.hit(99, 0).text == CORPUS[99].text  # who had it open goes on with the old one
    assert nothing_left(tmp_path / "i")


def test_an_index_survives_a_kill_while_it_is_replaced(tmp_path, fake):
    build(tmp_path / "i", fake())
    before = contents(tmp_path / "i")
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS[50:], 25), replace=True)
    (tmp_path / "i").rename(tmp_path / "i.building" / "replaced")
    with pytest.raises(UserError, match="other settings"):
        build(tmp_path / "i", fake("f2"), CORPUS[50:], replace=True)
    assert contents(tmp_path / "i") == before
    assert build(tmp_path / "i", fake(), CORPUS[50:], replace=True).units == 50
    assert nothing_left(tmp_path / "i")


def test_an_index_that_came_back_is_not_built_anew_unasked(tmp_path, fake):
    build(tmp_path / "i", fake())
    before = contents(tmp_path / "i")
    with pytest.raises(StopHereError):
        build(tmp_path / "i", fake(), stopping(CORPUS[50:], 25), replace=True)
    (tmp_path / "i").rename(tmp_path / "i.building" / "replaced")
    encoder = fake()
    with pytest.raises(UserError, match=r"exists already: .*--replace"):
        build(tmp_path / "i", encoder, CORPUS[50:])
    assert encoder.encoded == 0
    assert contents(tmp_path / "i") == before
    assert build(tmp_path / "i", encoder, CORPUS[50:], replace=True).resumed == 20
    assert nothing_left(tmp_path / "i")


def test_an_index_that_appeared_meanwhile_stays(tmp_path, fake):
    def sentences():
        yield from CORPUS
        build(tmp_path / "other", fake(), CORPUS[:5])
        (tmp_path / "other").rename(tmp_path / "i")

    with pytest.raises(UserError, match="exists already"):
        build(tmp_path / "i", fake(), sentences())
    assert len(open_index(tmp_path / "i")) == 5


def test_foreign_folders_are_never_replaced(tmp_path, fake):
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"cat")
    with pytest.raises(UserError, match="holds other files and no index"):
        build(folder, fake(), replace=True)
    with pytest.raises(UserError, match="is a file"):
        build(folder / "cat.jpg", fake(), replace=True)
    assert (folder / "cat.jpg").read_bytes() == b"cat"


@pytest.mark.parametrize("texts", [[], ["", " "], ["12 34", "...", "5,000"]])
def test_nothing_to_index(tmp_path, fake, texts):
    sentences = [Sentence(t, "de") for t in texts]
    maker = NgramUnits(fake())
    with pytest.raises(UserError, match=rf"nothing to index .* {len(texts)} sentences .*German"):
        build_index(tmp_path / "i", sentences, maker, retriever="phrases", language="de", show=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_place(tmp_path, fake):
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="cannot be written"):
        build(tmp_path / "i", fake())


def test_place_below_a_file(tmp_path, fake):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        build(tmp_path / "file" / "i", fake())


def test_seen_knows_every_text():
    rng = np.random.default_rng(0)
    seen, known = Seen(), set()
    for _ in range(60):
        texts = [str(n) for n in rng.integers(0, 3000, rng.integers(0, 90))]
        expected = []
        for text in texts:
            expected.append(text not in known)
            known.add(text)
        assert seen.add(texts).tolist() == expected


def slow_build(folder: Path) -> None:
    """A build that takes a while per shard; run in a process of its own to be killed."""
    from tests.retrievers.conftest import FakeEncoder

    class Slow(FakeEncoder):
        def encode(self, texts, kind="query"):
            time.sleep(0.3)
            return super().encode(texts, kind)

    build(folder, Slow())


if __name__ == "__main__":
    slow_build(Path(sys.argv[1]))
