"""Word alignments: links that people drew, and links by eflomal (Östling and Tiedemann 2016).

eflomal is a program of its own. It samples a Bayesian model (IBM 1, then HMM, then HMM with fertility) of the very
pairs that it aligns: a few sentences need many others along. Its random numbers cannot be seeded, so that two runs
differ in a few links.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rag_mt.base.errors import UserError
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import Aligner, Links, Method, alignable

PROGRAM = "eflomal-align"
TokenLinks = frozenset[tuple[int, int]]

_LINK = re.compile(r"(\d+)([-p])(\d+)")


@dataclass(frozen=True)
class GoldPair:
    """A sentence pair whose tokens, parted by single blanks, were aligned by hand: `sure` links and `possible` ones,
    which include the sure ones, as token numbers from 0."""

    source: str
    target: str
    sure: TokenLinks
    possible: TokenLinks


def gold_pair(source: str, target: str, links: str, first: int = 0) -> GoldPair:
    """The pair of a line of gold links such as `0-0 1p2`, where tokens are counted from `first`; `p` marks a possible
    link. Raises ValueError for other links."""
    matches = [_LINK.fullmatch(link) for link in links.split()]
    if not all(matches):
        raise ValueError(f"{links!r} is no list of links such as 0-0 1-2 or 1p2")
    rows = [(int(m[1]) - first, int(m[3]) - first, m[2]) for m in matches if m]
    sure = frozenset((i, j) for i, j, kind in rows if kind == "-")
    return GoldPair(" ".join(source.split()), " ".join(target.split()), sure, sure | {(i, j) for i, j, _ in rows})


def read_gold(path: Path) -> tuple[GoldPair, ...]:
    """The pairs of `NAME.tsv` with two sentences and links from 0 (XL-WA), or of `NAME.src-tgt` with lines
    `source ||| target` and links from 1 in `NAME.gold` beside it. Raises UserError where a file is missing."""
    lines = _lines(path)
    if path.suffix == ".tsv":
        return tuple(gold_pair(source, target, links) for source, target, links, *_ in (s.split("\t") for s in lines))
    texts, links_of = (line.split(" ||| ", 1) for line in lines), _lines(path.with_suffix(".gold"))
    return tuple(gold_pair(s, t, links, first=1) for (s, t), links in zip(texts, links_of, strict=True))


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        raise UserError(f"there is no {path}: give the folder that holds align/ with the human alignments")
    return path.read_text(encoding="utf-8").rstrip("\n").split("\n")


def word_tokens(text: str) -> NDArray[np.int64]:
    """For each word of a text its token, when tokens are parted by single blanks."""
    blanks = np.array([n for n, c in enumerate(text) if c == " "], dtype=np.int64)
    return np.searchsorted(blanks, word_spans(text)[:, 0])


def word_links(pair: GoldPair, links: TokenLinks) -> Links:
    """Links between tokens as links between words: all words of one token with all words of the other."""
    linked = np.zeros([len(text.split()) for text in (pair.source, pair.target)], dtype=bool)
    for i, j in links:
        if not (0 <= i < linked.shape[0] and 0 <= j < linked.shape[1]):
            raise UserError(
                f"the human alignment has a link {i}-{j} that leads out of its sentences ({pair.source[:40]!r}): "
                "give the untouched files"
            )
        linked[i, j] = True
    return np.argwhere(linked[np.ix_(word_tokens(pair.source), word_tokens(pair.target))]).astype(np.int32)


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
        release = next((own.version for own in distributions(name="eflomal")), "unknown")
        self.settings: Mapping[str, Any] = {"aligner": self.name, "version": release, "length": length}

    def directed(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[Links], list[Links]]:
        """See `Aligner`."""
        sides = [number_words(pair[side] for pair in pairs)[0] for side in (0, 1)]
        rows = alignable([(len(a), len(b)) for a, b in zip(*sides, strict=True)])
        aligned = self._run([[side[n] for n in rows] for side in sides]) if rows else ([], [])
        directions = [dict(zip(rows, links, strict=True)) for links in aligned]
        none = np.zeros((0, 2), np.int32)
        forward, backward = ([own.get(n, none) for n in range(len(pairs))] for own in directions)
        return forward, backward

    def _run(self, sides: Sequence[Sequence[Sequence[int]]]) -> Sequence[list[Links]]:
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
    lines, or others."""
    lines = path.read_text(encoding="ascii").split("\n")[:-1]
    if len(lines) != count:
        raise ValueError(f"{len(lines)} lines of links for {count} pairs")
    numbers = [np.array(line.replace("-", " ").split(), dtype=np.int32) for line in lines]
    if any(len(own) % 2 for own in numbers):
        raise ValueError("links that are not pairs of numbers")
    links = [own.reshape(-1, 2) for own in numbers]
    return [own[np.lexsort((own[:, 1], own[:, 0]))] for own in links]


def _program() -> str:
    own = str(Path(sys.executable).parent)
    path = shutil.which(PROGRAM, path=os.pathsep.join([own, os.environ.get("PATH", "")]))
    if not path:
        raise UserError(f"the program {PROGRAM} is not installed: `pip install eflomal`, or take `--aligner encoder`")
    return path
