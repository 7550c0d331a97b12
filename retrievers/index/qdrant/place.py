"""Where an index in Qdrant is, and the client for it: `qdrant:FOLDER` is the local mode of the client, which one
process at a time can use, `qdrant:http://HOST:6333/NAME` a server, which is asked by gRPC at the port after that one,
and `qdrant::memory:` is gone with the process."""

from __future__ import annotations

import atexit
import math
import os
import pickle
import re
import socket
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from rag_mt.base.errors import DamagedFileError, UserError
from rag_mt.base.files import read_json
from retrievers.index.places import (
    CONNECT,
    KINDS,
    WAITS,
    Answer,
    no_index,
    package_of,
    place_text,
    seconds_to_answer,
    store_errors,
    where_of,
)

MEMORY = ":memory:"
LOCAL_NAME = "index"
"""The name of the index in a folder of its own."""
META, LOCK, STORAGE = "meta.json", ".lock", "storage.sqlite"
"""What the client writes into a folder, the last into that of a collection."""
TABLES = {("table", "points", True), ("index", "sqlite_autoindex_points_1", True)}
"""What STORAGE has, and whether that is stored in it."""
READ = "SELECT rowid, id, point FROM points ORDER BY rowid DESC"
"""How the client reads it."""
NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal that names another file, which sqlite would delete; the client writes none."""
KEY = "QDRANT_API_KEY"
NEEDED = 1, 16
"""The version of the server that knows points that are written on a condition."""
PASSING = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")
"""What a server answers that is away, perhaps for a moment only."""
RECONNECT = 10_000
"""Milliseconds after which a lost connection is tried again at the latest, of two minutes without."""
AWAY = (*PASSING, "DEADLINE_EXCEEDED")

_NAME = re.compile(r"[\w.-]{1,200}")
_CLIENTS: dict[str, tuple[int, Any]] = {}
"""The open clients, with the numbers of their folders on the disk: a folder cannot be opened twice."""
_OPENING = Lock()


@dataclass(frozen=True)
class Place:
    """`where` is a folder, MEMORY or the URL of a server, `name` that of the index there; `port` is that of gRPC."""

    where: str
    name: str
    host: str = ""
    port: int = 0

    @property
    def folder(self) -> Path | None:
        """The folder of the local mode, None for a server."""
        return None if self.host or self.where == MEMORY else Path(self.where).expanduser()

    @property
    def local(self) -> bool:
        """Whether the client itself searches, which is always exact."""
        return not self.host

    @property
    def overheard(self) -> bool:
        """Whether what is sent there can be read on its way."""
        try:
            this_machine = self.host in ("", "localhost") or ip_address(self.host).is_loopback
        except ValueError:
            this_machine = False
        return not this_machine and self.where.startswith("http://")


def place_of(folder: str | Path) -> Place:
    """What the place of an index names; raises UserError where that is no index in Qdrant."""
    scheme, where = where_of(folder)
    if where and not scheme and not where.startswith(("http:", "https:")):
        return Place(where, LOCAL_NAME)
    url = urlsplit(where)
    try:
        port = url.port or 6333
    except ValueError:
        port = 0
    server, _, name = url.path.rpartition("/")
    if url.username or url.password or url.query:
        raise UserError(
            f"{place_text(folder)} holds more than the place of an index: give a key in the environment, as {KEY}"
        )
    if scheme not in ("http", "https") or not url.hostname or not port or not _NAME.fullmatch(name):
        raise UserError(f"{place_text(folder)} names no index in Qdrant: expected {KINDS['qdrant'].places}")
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return Place(f"{scheme}://{host}:{port}{server}", name, url.hostname, port + 1)


def connected(folder: Path, new: bool = False) -> Any:
    """The client, one for all indexes of a place; its folder is made if it may be `new`. Raises UserError where Qdrant
    is not installed, where there is no folder or no server, and where another process uses the folder."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # read when it is imported: no notes of connections that end
    place, package = place_of(folder), package_of(folder)
    local = place.folder
    if local is not None and not new and not (local / META).is_file():
        raise no_index(folder, "is no index (it has no meta.json)" if local.exists() else "does not exist")
    with _OPENING, store_errors(folder, (Exception,)):
        if local is not None:
            local.mkdir(parents=True, exist_ok=True)
        key = place.where if local is None else str(local.resolve())
        inode = 0 if local is None else local.stat().st_ino
        known, client = _CLIENTS.get(key, (0, None))
        if client is None or known != inode:
            if client is not None:
                client.close()
            client = _opened(folder, place, package)
            _CLIENTS[key] = inode, client
        return client


def _opened(folder: Path, place: Place, package: Any) -> Any:
    """A new client."""
    if place.host:
        if place.overheard and os.environ.get(KEY):
            raise UserError(f"the key of {KEY} would go unencrypted to {place.host}: give the place with https://")
        try:
            socket.create_connection((place.host, place.port), CONNECT).close()
        except OSError as error:
            raise OSError(f"{place.host}, port {place.port} of gRPC: {error}") from error
        options = {
            "prefer_grpc": True,
            "grpc_port": place.port,
            "timeout": math.ceil(seconds_to_answer()),
            "check_compatibility": False,
            "grpc_options": {"grpc.max_reconnect_backoff_ms": RECONNECT},
        }
        warnings.filterwarnings("ignore", "Api key is used with an insecure connection")  # on this machine
        client = package.QdrantClient(url=place.where, api_key=os.environ.get(KEY), **options)
        version = asked(folder, client.info).version
        if (known := re.match(r"v?(\d+)\.(\d+)", version)) and (int(known[1]), int(known[2])) < NEEDED:
            client.close()
            raise UserError(f"{place_text(folder)} needs Qdrant {NEEDED[0]}.{NEEDED[1]} or newer, this is {version}")
    elif place.folder is None:
        client = package.QdrantClient(MEMORY)
    else:
        with _alone(folder, place.folder / LOCK):
            for name in _collections(folder, place.folder):
                check_points(folder, place.folder / "collection" / name / STORAGE)
        warnings.filterwarnings("ignore", "Local mode is not recommended")  # a copy says so, once
        try:
            client = package.QdrantClient(path=str(place.folder), force_disable_check_same_thread=True)
        except RuntimeError as error:
            if "already accessed" not in str(error):
                raise
            raise _in_use(folder) from error
    atexit.register(client.close)
    return client


def _in_use(folder: Path) -> UserError:
    """The error for a folder that another process has open."""
    return UserError(
        f"index {place_text(folder)} is in use by another process, and the local mode of Qdrant is for one at a time: "
        "wait for its end, or copy the index to a server"
    )


@contextmanager
def _alone(folder: Path, lock: Path) -> Iterator[None]:
    """While no other process has the folder open; raises UserError if one has."""
    import portalocker  # comes with the client, and is slow to import

    if not lock.exists():  # it never had been opened
        yield
        return
    with lock.open("r+", encoding="utf-8") as file:
        try:
            portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
        except portalocker.exceptions.LockException as error:
            raise _in_use(folder) from error
        yield


def _collections(folder: Path, local: Path) -> list[str]:
    """The names of the collections in a folder; raises UserError if its list of them is none."""
    if not (local / META).is_file():
        return []
    try:
        return list(read_json(local / META)["collections"].keys())
    except (DamagedFileError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{local / META} is damaged: delete {local}, and `rag-mt index copy DIR {place_text(folder)}` makes the "
            "index again"
        ) from error


class _PointsOnly(pickle.Unpickler):
    """Reads pickled points of the client, and nothing that runs code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) != ("qdrant_client.http.models.models", "PointStruct"):
            raise pickle.UnpicklingError(f"{module}.{name} in the place of a point")
        return super().find_class(module, name)


def check_points(folder: Path, storage: Path) -> None:
    """Raises UserError if a file of the local mode, which unpickles what it has, holds anything but points: it would be
    run when the client reads it. A write that was killed is rolled back."""
    if not os.path.lexists(storage):  # a deletion was killed; the client makes it anew
        return
    journal = Path(f"{storage.resolve()}-journal")
    try:
        if journal.exists() and journal.read_bytes().endswith(NAMES_ANOTHER):
            raise ValueError("a journal of more files")
        with closing(sqlite3.connect(f"{storage.absolute().as_uri()}?mode=rw", uri=True)) as database:
            tables = set(database.execute("SELECT type, name, rootpage > 0 FROM sqlite_master"))
            if tables and tables != TABLES:
                raise ValueError("more than a table of points")
            for _, _, point in database.execute(READ) if tables else ():
                _PointsOnly(BytesIO(point)).load()
    except Exception as error:  # a damaged pickle raises anything
        raise UserError(
            f"index {place_text(folder)} is damaged or not safe to read: {storage.name} has {error}"
        ) from error


def asked(folder: Path, call: Callable[[], Answer]) -> Answer:
    """What Qdrant answers; a server that is away for a moment is asked again. Raises AwayError for one that stays away,
    UserError for every other error, and one that says so for an index that is there no more, for another one has
    replaced it twice."""
    with store_errors(folder, (Exception,)):
        for wait in (*WAITS, None):
            try:
                return call()
            except Exception as error:
                code = getattr(getattr(error, "code", lambda: None)(), "name", "")
                if wait is not None and code in PASSING:
                    time.sleep(wait)
                    continue
                details = getattr(error, "details", lambda: "")() or str(error)
                if code == "NOT_FOUND" or re.search(r"Collection .* not found", details):
                    raise UserError(f"index {place_text(folder)} was replaced meanwhile: open it again") from error
                kind = OSError if code in AWAY else RuntimeError
                raise kind(details or type(error).__name__) from error
    raise AssertionError("the last try has returned or raised")
