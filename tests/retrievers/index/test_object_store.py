"""An index in LanceDB in an object store, which a server on this machine is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rag_mt import Index
from rag_mt.base.errors import AwayError, UserError
from rag_mt.cli.main import main
from retrievers.index.copying import copy_index
from retrievers.index.lance import place
from retrievers.index.lance.place import connected
from retrievers.index.lance.tables import commit, finished, read_stored
from retrievers.index.opening import open_index
from retrievers.index.verifying import verify_index
from tests.object_store import BUCKET, object_store
from tests.retrievers.index.stored import NEW, OLD, build, same

pytest.importorskip("lancedb")

Fake = Callable[..., Any]
COPY = Path(f"lance:s3://{BUCKET}/deep/index")


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of an empty store, which is not asked twice."""
    monkeypatch.setattr(place, "PATIENCE", {**place.PATIENCE, "client_max_retries": "0"})
    return object_store(monkeypatch)


@pytest.fixture
def pair(store: Any, tmp_path: Path, fake: Fake) -> tuple[Path, Path]:
    """A folder with a phrase index, and its copy in the store."""
    build(tmp_path / "i", fake(), OLD)
    copy_index(tmp_path / "i", COPY)
    return tmp_path / "i", COPY


def test_a_copy_is_changed_and_replaced_and_copied_back(
    pair: tuple[Path, Path], tmp_path: Path, fake: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert same(*pair) and verify_index(COPY)
    for sentences, without in ((NEW, ["f'0.txt"]), ((), ["f'1.txt"])):
        for folder in pair:
            build(folder, fake(), sentences, without=without)
        assert same(*pair)
    copy_index(COPY, tmp_path / "back")
    assert same(pair[0], tmp_path / "back")
    build(tmp_path / "other", fake(), NEW)
    assert main(["index", "copy", str(tmp_path / "other"), str(COPY)]) == 2
    assert f"index lance:s3://{BUCKET}/deep/index exists already: give another place" in capsys.readouterr().err
    assert main(["index", "copy", str(tmp_path / "other"), str(COPY), "--replace"]) == 0
    assert same(tmp_path / "other", COPY)


def test_of_changes_at_once_one_is_taken(pair: tuple[Path, Path], fake: Fake) -> None:
    def meanwhile() -> Iterator[Any]:
        yield from NEW[:5]
        build(COPY, fake(), NEW[5:], without=[])

    with pytest.raises(UserError, match="changed by others during its change: start the change again"):
        build(COPY, fake(), meanwhile(), without=[])
    build(pair[0], fake(), NEW[5:], without=[])
    assert same(*pair)
    # And of last steps at the very same moment, which the store lets happen if it has no conditional writes.
    revision, manifest = finished(COPY, read_stored(COPY, connected(COPY)))
    together, refused = threading.Barrier(5), list[str]()

    def finish(number: int) -> None:
        mine = replace(manifest, counts={**manifest.counts, "read": number})
        together.wait()
        try:
            commit(COPY, connected(COPY), revision, mine, "change")
        except UserError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=finish, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    now, left = finished(COPY, read_stored(COPY, connected(COPY)))
    assert now == revision + 1 and left.counts["read"] in range(5) and len(refused) == 4
    assert all("was changed by others during its change" in told for told in refused)


def test_a_bucket_a_right_or_a_store_that_is_missing_is_told(pair: tuple[Path, Path], store: Any) -> None:
    with pytest.raises(UserError, match=r"is no index \(it has no table with a manifest\)"):
        open_index(Path(f"lance:s3://{BUCKET}/none"))
    with pytest.raises(UserError, match=r"s3://none/i cannot be .* \(The specified bucket does not exist\)") as told:
        copy_index(pair[0], Path("lance:s3://none/i"))
    assert not isinstance(told.value, AwayError), "it will not come back"
    rule = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{BUCKET}/*"}
    store.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps({"Version": "2012-10-17", "Statement": [rule]}))
    with pytest.raises(UserError, match=r"deep/new does not answer \(403 Forbidden\): .* its keys are set"):
        copy_index(pair[0], Path(f"lance:s3://{BUCKET}/deep/new"))
    assert same(*pair), "it may be read still"


@pytest.mark.slow
def test_text_and_index_are_in_a_store(store: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["The city council meets on Monday.", "The museum is closed on public holidays."]
    store.put_object(Bucket=BUCKET, Key="letters/one.txt", Body="\n".join(texts).encode())
    Index.build(tmp_path / "i", f"s3://{BUCKET}/letters/", language="en").copy(str(COPY))
    store.put_object(Bucket=BUCKET, Key="new.txt", Body=b"The library opens at nine.\n")
    assert main(["index", "add", str(COPY), f"s3://{BUCKET}/new.txt", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["search", "--index", str(COPY), "--src", "de", "Die Bibliothek öffnet um neun."]) == 0
    assert f"s3://{BUCKET}/new.txt" in capsys.readouterr().out
    assert main(["index", "remove", str(COPY), f"s3://{BUCKET}/letters/one.txt", "--quiet"]) == 0
    assert Index.open(str(COPY)).files == {f"s3://{BUCKET}/new.txt": 1}
