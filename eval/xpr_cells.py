"""Results of the suite `xpr` on disk: one small JSON file for each system and task, so that a stopped run goes on."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eval.xpr_scores import Asked, Bits, Result, Task
from rag_mt.fingerprints import read_json, settings_hash
from rag_mt.paths import whole_file
from rag_mt.types import Floats

log = logging.getLogger("rag_mt")

CHUNK = 2000
"""Phrases whose vectors are kept together: what a stopped run has to do again at most."""


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

        `key` says all that changes the result but `others`: what was computed with more of them holds that without.
        """
        path = self.folder / "cells" / f"{settings_hash(key)}.json"
        if path.is_file():
            found = read_json(path)
            if others == found["others"]:
                return Asked(_bits(found["among_all"]), own.concepts)
            if others == 0:
                return Asked(_bits(found["among_own"]), own.concepts)
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
        return Asked(made.among_all, own.concepts)

    def vectors(
        self, key: Mapping[str, Any], side: int, rows: NDArray[np.int64], make: Callable[[NDArray[np.int64]], Floats]
    ) -> Floats:
        """The vectors (rows, dimension) that `make` gives for phrases of a side, on disk part by part until `forget`.

        Raises OutOfTimeError after the deadline.
        """
        folder = self._vectors(key) / str(side)
        folder.mkdir(parents=True, exist_ok=True)
        parts = []
        for begin in range(0, len(rows), CHUNK):
            chunk = rows[begin : begin + CHUNK]
            path = folder / f"{settings_hash(chunk.tolist())}.npy"
            if not path.is_file():
                if time.monotonic() > self.deadline:
                    raise OutOfTimeError
                with whole_file(path) as part, part.open("wb") as file:
                    np.save(file, make(chunk), allow_pickle=False)
            parts.append(np.load(path, allow_pickle=False))
        made: Floats = np.concatenate(parts)
        return made

    def forget(self, key: Mapping[str, Any]) -> None:
        """Delete the vectors of a key whose results are all there."""
        shutil.rmtree(self._vectors(key), ignore_errors=True)

    def _vectors(self, key: Mapping[str, Any]) -> Path:
        return self.folder / "vectors" / settings_hash(key)


def _text(bits: Bits) -> list[str]:
    return ["".join("01"[int(bit)] for bit in row) for row in bits]


def _bits(rows: list[str]) -> Bits:
    return np.array([[bit == "1" for bit in row] for row in rows], dtype=bool)
