"""Results of the suite `xpr` on disk: one small JSON file for each system and task, so that a stopped run goes on."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.xpr.scores import Asked, Bits, Result, Task
from rag_mt.base.fingerprints import read_json, settings_hash
from rag_mt.base.paths import whole_file
from retrievers.xpr.model import Sums

log = logging.getLogger("rag_mt")

BLOCKS = 4
"""Blocks of sentences after which the sums so far are kept: what a stopped run has to do again at most."""


class OutOfTimeError(Exception):
    """The run has lasted as long as it may."""


@dataclass
class Cells:
    """The results in `folder`. Nothing is computed after `deadline` (of `time.monotonic`)."""

    folder: Path
    deadline: float = float("inf")
    computed: int = field(default=0, init=False)

    def kept(
        self, name: str, key: Mapping[str, Any], own: Task, others: int, compute: Callable[[], Result] | None
    ) -> Asked | None:
        """The result of the system of `key` on a task with `others` further candidates a side, found on disk or else
        computed; None where it is not there and there is no `compute` or no time. `name` is for people.

        `key` says all that changes the result but `others`: what was computed with any number of them holds the result
        without.
        """
        stem, folder = settings_hash(key), self.folder / "cells"
        path = folder / (f"{stem}-{others}.json" if others else f"{stem}.json")
        there = [path] if others else sorted(folder.glob(f"{stem}*.json"))
        for found in (read_json(place) for place in there if place.is_file()):
            return Asked(_bits(found["among_all" if others else "among_own"]), own.concepts, own.several)
        if compute is None or time.monotonic() > self.deadline:
            return None
        begin = time.monotonic()
        try:
            made = compute()
        except OutOfTimeError:
            return None
        contents = {
            "name": name,
            "set": own.name,
            "key": dict(key),
            "others": others,
            "candidates": [len(side) for side in own.candidates],
            "among_all": _text(made.among_all),
            "among_own": _text(made.among_own),
            "seconds": round(time.monotonic() - begin, 1),
        }
        with whole_file(path) as part:
            part.write_text(json.dumps(contents, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        self.computed += 1
        log.info("%s, %s: %.1f %%", name, own.name, 100 * made.among_all.mean())
        return Asked(made.among_all, own.concepts, own.several)

    def summed(
        self,
        key: Mapping[str, Any],
        side: int,
        rows: NDArray[np.int64],
        growing: Callable[[Sums | None], Iterator[Sums]],
    ) -> Sums:
        """The last of the sums that `growing` gives for phrases of a side (`XprEncoder.growing_sums`), from those that
        an earlier run came to. They stay on disk until `forget`.

        Raises OutOfTimeError after the deadline.
        """
        path = self._vectors(key) / f"{side}-{settings_hash(rows.tolist())}.npz"
        begun = _read_sums(path) if path.is_file() else None
        kept = begun.done if begun else 0
        made = Sums.none(0, 0, 0, 0)
        for number, made in enumerate(growing(begun)):
            late = time.monotonic() > self.deadline
            if number and (late or number % BLOCKS == 0):
                _write_sums(path, made)
                kept = made.done
            if late:
                raise OutOfTimeError
        if made.done > kept:
            _write_sums(path, made)
        return made

    def forget(self, key: Mapping[str, Any]) -> None:
        """Delete the vectors of a key whose results are all there."""
        shutil.rmtree(self._vectors(key), ignore_errors=True)

    def _vectors(self, key: Mapping[str, Any]) -> Path:
        return self.folder / "vectors" / settings_hash(key)


def _read_sums(path: Path) -> Sums:
    with np.load(path, allow_pickle=False) as found:
        return Sums(found["sums"], found["seen"], int(found["done"]))


def _write_sums(path: Path, sums: Sums) -> None:
    with whole_file(path) as part, part.open("wb") as file:
        np.savez(file, sums=sums.sums, seen=sums.seen, done=np.array(sums.done))


def _text(bits: Bits) -> list[str]:
    return ["".join("01"[int(bit)] for bit in row) for row in bits]


def _bits(rows: list[str]) -> Bits:
    return np.array([[bit == "1" for bit in row] for row in rows], dtype=bool)
