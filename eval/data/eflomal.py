"""Word alignment with eflomal (Östling and Tiedemann 2016), run as a program of its own.

eflomal samples a Bayesian model (IBM 1, then HMM, then HMM with fertility) of the very pairs that it aligns: a few
sentences need many others along. Its random numbers cannot be seeded, so that two runs differ in a few links.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rag_mt.base.errors import UserError
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import Aligner, Links, Method, alignable

PROGRAM = "eflomal-align"


class EflomalAligner(Aligner):
    """Links that eflomal samples in both directions.

    `length` is relative to eflomal's own number of iterations, which falls with the number of pairs. The program sees
    casefolded words as numbers, so that no character of the text can mean something to it.
    Raises UserError if the program is missing.
    """

    name = "eflomal"
    learns = True

    def __init__(self, method: Method = "grow-diag-final-and", length: float = 1.0) -> None:
        if not 0 < length < 1000:
            raise UserError(
                f"length {length} of eflomal is no factor of its iterations: give a number such as 0.5 or 2"
            )
        self.method, self.length = method, length
        self.program = _program()
        self.settings: Mapping[str, Any] = {"aligner": self.name, "version": _version(), "length": length}

    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        """See `Aligner`."""
        sides = [number_words(pair[side] for pair in pairs)[0] for side in (0, 1)]
        rows = alignable([(len(a), len(b)) for a, b in zip(*sides, strict=True)])
        none = np.zeros((0, 2), np.int32)
        made = [none] * len(pairs), [none] * len(pairs)
        if rows:
            found = self._run([[side[n] for n in rows] for side in sides])
            for links, own in zip(made, found, strict=True):
                for n, link in zip(rows, own, strict=True):
                    links[n] = link
        return made

    def _run(self, sides: Sequence[Sequence[Sequence[int]]]) -> list[list[Links]]:
        with TemporaryDirectory(prefix="rag_mt-eflomal-") as name:
            folder = Path(name)
            for side, rows in zip("st", sides, strict=True):
                with (folder / side).open("w", encoding="ascii") as file:
                    file.writelines(" ".join(map(str, row)) + "\n" for row in rows)
            command = [self.program, "--length", str(self.length)]
            for option in "stfr":
                command += [f"-{option}", str(folder / option)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            try:
                if done.returncode:
                    raise ValueError((done.stderr.strip().splitlines() or ["no message"])[-1])
                return [read_links(folder / side, len(sides[0])) for side in "fr"]
            except (OSError, ValueError) as error:
                raise UserError(
                    f"{PROGRAM} failed with exit code {done.returncode} ({error}): "
                    "look for free memory and disk space, or take `--aligner encoder`"
                ) from error


def number_words(texts: Iterable[str]) -> tuple[list[list[int]], list[str]]:
    """The numbers of each text's casefolded words, and the words by number."""
    numbers: dict[str, int] = {}
    rows = [
        [numbers.setdefault(text[a:b].casefold(), len(numbers)) for a, b in word_spans(text).tolist()] for text in texts
    ]
    return rows, list(numbers)


def read_links(path: Path, count: int) -> list[Links]:
    """The links of a file with one line `i-j i-j ...` per pair, each sorted; raises ValueError if there are not `count`
    lines."""
    text = path.read_bytes()
    data = np.frombuffer(text, dtype=np.uint8)
    breaks = np.flatnonzero(data == ord("\n"))
    if len(breaks) != count:
        raise ValueError(f"{len(breaks)} lines of links for {count} pairs")
    bounds = np.cumsum(data == ord("-"))[breaks]
    plain = text.translate(bytes.maketrans(b"-\n", b"  ")).decode("ascii")
    values = np.fromstring(plain if count and bounds[-1] else "", dtype=np.int32, sep=" ")
    if len(values) != 2 * (bounds[-1] if count else 0):
        raise ValueError("links that are not pairs of numbers")
    links = values.reshape(-1, 2)
    lines = np.repeat(np.arange(count), np.diff(bounds, prepend=0))
    links = links[np.lexsort((links[:, 1], links[:, 0], lines))]
    return np.split(links, bounds[:-1])


def _program() -> str:
    own = str(Path(sys.executable).parent)
    found = shutil.which(PROGRAM, path=os.pathsep.join([own, os.environ.get("PATH", "")]))
    if not found:
        raise UserError(f"the program {PROGRAM} is not installed: `pip install eflomal`, or take `--aligner encoder`")
    return found


def _version() -> str:
    try:
        return version("eflomal")
    except PackageNotFoundError:
        return "unknown"
