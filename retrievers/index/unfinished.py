"""An index that is not finished yet: the folder with the plan of its build and the shards that are made so far.

`FOLDER.building` holds `plan.json` (the settings of the build), a folder per finished shard and, for the IVF form, one
with its centroids and lists as far as they are known. Several processes may each make some of the shards.
"""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import count, islice
from pathlib import Path
from typing import Any

from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import holder_of, locked, read_json, release, write_whole
from rag_mt.base.languages import language as language_of
from rag_mt.base.types import Sentence
from retrievers.bm25 import Bm25Settings
from retrievers.index.manifest import FORMAT, differences
from retrievers.index.replacing import REPLACED, building_place
from retrievers.index.shards import Blocks, Shard, Writer, read_shard, texts_digest
from retrievers.units.unit import UnitMaker

log = logging.getLogger("rag_mt")

PLAN = "plan.json"
PREFIX = "shard-"
SHARDS = f"{PREFIX}*"
PARTS = ".part-*.lock"
KEPT = "kept"
LISTS_OF = "lists-"


def blocks_of_shard(maker: UnitMaker, shard: int) -> tuple[int, int]:
    """How many blocks of the maker have at most `shard` sentences together, at least one, and the sentences of a block:
    those whose units depend on each other, or that the maker takes at once."""
    block = int(getattr(maker, "pooled", maker.block))
    return max(1, shard // block), block


def _is_held(path: Path) -> bool:
    """Whether a process holds the lock of a file; one that nobody holds is removed."""
    if (lock := locked(path)) is None:
        return True
    release(lock)
    return False


class Unfinished:
    """The build of an index with its settings, among them the number format that the encoder computes in; `shard` is
    the number of sentences in a shard, in whole blocks of the maker. `part` (n, of) says that only every `of`-th shard
    is wanted, from the n-th on, with n from 1."""

    def __init__(
        self,
        folder: Path,
        maker: UnitMaker,
        *,
        retriever: str,
        language: str,
        plan: Mapping[str, Any] | None,
        terms: Bm25Settings | None,
        shard: int,
        part: tuple[int, int] = (1, 1),
    ) -> None:
        self.folder, self.place, self.language, self.part = folder, building_place(folder), language, part
        self.blocks, self.block = blocks_of_shard(maker, shard)
        self.settings: dict[str, Any] = {
            "format": FORMAT,
            "retriever": retriever,
            "language": language,
            "settings": dict(maker.settings),
            "dtype": str(getattr(getattr(maker, "encoder", None), "dtype", "")),
            "block": self.block,
            "shard": self.blocks * self.block,
            "input": dict(plan or {}),
            **({} if terms is None else {"terms": asdict(terms)}),
        }

    def check_alone(self) -> None:
        """Raise UserError while another process makes a part of it."""
        for path in self.place.glob(PARTS):
            if _is_held(path):
                raise UserError(
                    f"a part of index {self.folder} is being built (process {holder_of(path)}): wait for it or stop it "
                    "first"
                )

    def begin(self, restart: bool) -> None:
        """Clear what a killed build left unfinished, and compare its settings with those of this one. Raises UserError
        if they differ and `restart` is false."""
        finished = (self.place / REPLACED).is_dir()  # all but tidied up
        restart = restart or finished or not any(self.place.glob(SHARDS))
        for path in self.place.iterdir():
            if path.is_dir() and (restart or not path.name.startswith((PREFIX, LISTS_OF))):
                shutil.rmtree(path)
        self._compare()

    @contextmanager
    def begun_part(self) -> Iterator[None]:
        """Compare the settings with those of other parts, and hold this one; its lock is a file in the folder."""
        number, of = self.part
        lock = locked(self.place / f".part-{number}-of-{of}.lock")
        if lock is None:
            raise UserError(f"part {number}/{of} of index {self.folder} is being built already: give another one")
        try:
            self._compare(any(_is_held(path) for path in self.place.glob(PARTS) if path != Path(lock.lock_file)))
            yield
        finally:
            release(lock)

    @property
    def _start_over(self) -> str:
        """What to do where an interrupted build does not fit."""
        return "give --restart to start over" if self.part == (1, 1) else f"delete {self.place} to start over"

    def _compare(self, others: bool = False) -> None:
        """Compare the settings with those of what is there, or of `others` that are at work."""
        wanted = json.loads(json.dumps(self.settings, default=str))
        if others or any(self.place.glob(SHARDS)):
            try:
                interrupted = read_json(self.place / PLAN)
            except (OSError, ValueError):
                interrupted = {"plan": "unreadable"}
            if different := differences(interrupted, wanted):
                raise UserError(
                    f"an interrupted build of index {self.folder} had other settings ({'; '.join(different)}): "
                    f"build with those to go on, or {self._start_over}"
                )
        write_whole(self.place / PLAN, json.dumps(wanted, ensure_ascii=False, indent=2))

    def shards(
        self,
        kept: Sequence[Shard],
        blocks: Iterator[list[Sentence]],
        writer: Writer,
        *,
        total: int | None,
        show: bool,
        advance: Callable[[int], object] = lambda sentences: None,
    ) -> tuple[list[Shard], int]:
        """All wanted shards, those that are `kept` from an index first, and the number of sentences in those of an
        interrupted build."""
        found: list[Shard] = []
        resumed = 0
        with closing(progress(total, "sentences", f"indexing {language_of(self.language).name}", show=show)) as bar:

            def done(sentences: int) -> None:
                bar.update(sentences)
                advance(sentences)

            def missing() -> Iterator[tuple[Path, Blocks]]:
                nonlocal resumed
                for number in count(len(kept)):
                    taken = list(islice(blocks, self.blocks))
                    if not taken:
                        return
                    if number % self.part[1] != self.part[0] - 1:
                        continue
                    place = self.place / f"{PREFIX}{number:06d}"
                    shard = read_shard(place)
                    if shard is None:
                        yield place, taken
                    elif texts_digest(taken) != shard.digest:
                        raise UserError(
                            f"the text has changed since the build of index {self.folder} was interrupted (near "
                            f"{taken[0][0].source}): {self._start_over}"
                        )
                    else:
                        found.append(shard)
                        resumed += shard.sentences
                        bar.initial = resumed  # so that the rate is that of the encoder
                        done(shard.sentences)

            for shard in writer(missing(), done):
                found.append(shard)
        if resumed:
            log.info("%s: %d sentences were kept from the interrupted build", self.folder, resumed)
        return [*kept, *sorted(found, key=lambda shard: int(shard.place.name.removeprefix(PREFIX)))], resumed
