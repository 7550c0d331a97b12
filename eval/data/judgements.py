"""Translations that were judged without a reference: by people, or by their chrF against one.

    DATA/quality/mlqe-da.XX-YY.PART.tsv   source, translation, z_mean, mean: direct assessments (MLQE-PE)
    DATA/quality/mqm-2021_XX-YY.tsv       source, translation, mqm_penalty: errors that experts marked (WMT21)
    OUTPUTS.jsonl                         lines that `python -m finetune.quality.outputs` writes

MQM files have no parts: a source belongs to one by its hash, with all of its translations.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rag_mt.base.errors import UserError
from rag_mt.base.quality import LEAST
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines

Kind = Literal["da", "mqm", "chrf"]
PARTS = ("train", "dev", "test")
TEST_PARTS = ("test20", "test21")
"""The test parts of direct assessments, by year."""
TENTHS = {"train": range(3, 10), "dev": range(2, 3), "test": range(2)}
"""The tenths of sources that a part of what has no parts of its own gets."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A translation and what it was given: `score`, the higher the better, and, of direct assessments, the `mean` from
    0 to 100 that the scores of its judges have (None where it is not known); `logprob` is what the language model says
    of its own translation, where that is known."""

    source: str
    target: str
    score: float
    mean: float | None = None
    logprob: float | None = None

    @property
    def pair(self) -> tuple[str, str]:
        """Both texts."""
        return self.source, self.target


@dataclass(frozen=True)
class JudgedSet:
    """Translations of one direction (`en-de`) that were judged in the same way; `part` is that of the file's name."""

    kind: Kind
    direction: str
    part: str
    rows: Sequence[Judged]

    @property
    def good_rows(self) -> list[Judged]:
        """The translations that people found good."""
        return [row for row in self.rows if row.mean is not None and row.mean >= LEAST["good"]]

    @property
    def name(self) -> str:
        """Such as `da.en-de.test20`."""
        return f"{self.kind}.{self.direction}.{self.part}"


def read_judgements(data: Path, part: str, skips: Skips) -> list[JudgedSet]:
    """The sets of a part (`train`, `dev` or `test`) in DIR/quality; raises UserError if there are none."""
    folder = data / "quality"
    own = TEST_PARTS if part == "test" else (part,)
    sets = []
    for path in sorted(folder.glob("mlqe-da.*.tsv*")):
        _, direction, name, *_ = path.name.split(".")
        if name in own:
            sets.append(JudgedSet("da", direction, name, list(_assessed(path, skips))))
    for path in sorted(folder.glob("mqm-2021_*.tsv*")):
        direction = path.name.partition("_")[2].partition(".")[0]
        rows = [judged for judged in _penalised(path, skips) if tenth(judged.source) in TENTHS[part]]
        sets.append(JudgedSet("mqm", direction, part, rows))
    if not sets:
        raise UserError(
            f"there are no judgements in {folder}: expected mlqe-da.XX-YY.{own[0]}.tsv or mqm-2021_XX-YY.tsv"
        )
    return sets


def read_outputs(path: Path, part: str, skips: Skips) -> list[JudgedSet]:
    """The translations of a part in a file of outputs with references, a set for each direction."""
    by_direction: dict[str, list[Judged]] = {}
    for line in read_lines(path, skips):
        if line.text:
            row = json.loads(line.text)
            if tenth(row["source"]) in TENTHS[part]:
                judged = Judged(row["source"], row["target"], row["chrf"], logprob=row.get("logprob"))
                by_direction.setdefault(row["direction"], []).append(judged)
    return [JudgedSet("chrf", direction, part, rows) for direction, rows in sorted(by_direction.items())]


def tenth(source: str) -> int:
    """The number from 0 to 9 that a source always has."""
    return int.from_bytes(hashlib.blake2b(source.encode(), digest_size=8).digest()) % 10


def _columns(path: Path, least: int, skips: Skips) -> Iterator[list[str]]:
    """The columns of the lines after the head."""
    for line in read_lines(path, skips):
        if line.text is None or line.number == 1:
            continue
        columns = line.text.split("\t")
        if len(columns) < least:
            raise UserError(f"{path}:{line.number} has {len(columns)} columns: expected {least} or more")
        yield columns


def _assessed(path: Path, skips: Skips) -> Iterator[Judged]:
    for source, target, score, *more in _columns(path, 3, skips):
        yield Judged(source, target, float(score), float(more[0]) if more else None)


def _penalised(path: Path, skips: Skips) -> Iterator[Judged]:
    for source, target, penalty, *_ in _columns(path, 3, skips):
        yield Judged(source, target, -float(penalty))
