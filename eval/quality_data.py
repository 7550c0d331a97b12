"""Make tables of translations with human scores, to train a metric on and to check metrics by.

    python -m eval.quality_data --data DIR --output QUALITY

DIR/quality holds direct assessments (mlqe-da.PAIR.PART.tsv: source, translation, z-score; no references) and MQM
penalties (mqm-2021_PAIR.tsv). MQM sources that stand in newstest2021 of DIR/train/XX-en.tsv.xz get its reference; the
others are dropped, and so are rows whose translation is the reference. MQM rows are split by source, so that no part
knows a sentence of another; direct assessments keep their own parts.

QUALITY gets KIND.PART.PAIR.csv (columns src, mt, ref, score, human, as unbabel-comet reads them), of `da` without ref.
`human` is the human score, higher being better: the z-score, or the penalty with a minus. `score` is what is learnt:
the z-score, or 1 for no penalty and 0 for WORST and more.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rag_mt.console import OK, Parser, note, run
from rag_mt.corpora.opening import open_bytes
from rag_mt.errors import UserError
from rag_mt.paths import whole_file, whole_folder

WORST = 25.0
"""The penalty of the worst translation: MQM's own maximum for a sentence."""
SHARES = {"train": 0.6, "dev": 0.15, "test": 0.25}
"""Of the sources with MQM scores."""
FACTS = "facts.json"


@dataclass(frozen=True)
class Rated:
    """A translation with its human score; `reference` is empty where there is none."""

    source: str
    translation: str
    reference: str
    human: float

    @property
    def score(self) -> float:
        """What a metric learns to predict."""
        return 1 + max(self.human, -WORST) / WORST if self.reference else self.human


Tables = dict[tuple[str, str, str], list[Rated]]
"""Rows by kind, part and language pair, such as ("da", "dev", "en-de")."""


def make(options: argparse.Namespace) -> int:
    """Write the tables; returns the exit code."""
    data, output = Path(options.data), Path(options.output)
    if output.exists():
        raise UserError(f"{output} is there already: delete it or choose another --output")
    tables = assessments(data) | penalties(data, options.seed)
    with whole_folder(output) as part:
        for (kind, name, pair), rows in sorted(tables.items()):
            write_table(part / f"{kind}.{name}.{pair}.csv", rows)
            note(f"{kind}.{name}.{pair}: {len(rows)} rows, {len({r.source for r in rows})} sources")
        facts = {"seed": options.seed, "shares": SHARES, "rows": {".".join(k): len(r) for k, r in tables.items()}}
        (part / FACTS).write_text(json.dumps(facts, indent=1) + "\n")
    return OK


def assessments(data: Path) -> Tables:
    """The direct assessments by part and pair."""
    found: Tables = {}
    for path in sorted((data / "quality").glob("mlqe-da.*.tsv*")):
        pair, part = path.name.split(".")[1:3]
        rows = [Rated(r["src"], r["mt"], "", float(r["z_mean"])) for r in _rows(path)]
        found["da", part, pair] = rows
    return found


def penalties(data: Path, seed: int) -> Tables:
    """The MQM rows that get a reference, by part and pair."""
    found: Tables = {}
    for path in sorted((data / "quality").glob("mqm-2021_*.tsv*")):
        pair = path.name.split(".")[0].partition("_")[2]
        known = references(data, pair)
        for row in _rows(path):
            reference = known.get(row["src"])
            if reference is None or reference == row["mt"]:
                continue
            rated = Rated(row["src"], row["mt"], reference, 0 - float(row["mqm_penalty"]))
            found.setdefault(("mqm", part_of(row["src"], seed), pair), []).append(rated)
    if not found:
        raise UserError(f"{data / 'quality'} has no MQM rows with a reference: expected mqm-2021_en-XX.tsv.xz there")
    return found


def references(data: Path, pair: str) -> dict[str, str]:
    """The references of newstest2021 by English source; the half that was translated from English."""
    other = pair.removeprefix("en-")
    paths = [p for p in (data / "train" / f"{other}-en.tsv{end}" for end in ("", ".xz")) if p.is_file()]
    if not paths:
        raise UserError(f"there is no {data / 'train' / other}-en.tsv.xz: expected the text with newstest2021")
    rows = (line.rstrip("\n").split("\t") for line in _lines(paths[0]))
    return {row[0]: row[1] for row in rows if row[-1].startswith("newstest2021.eng-")}


def part_of(source: str, seed: int) -> str:
    """The part of a source sentence, the same in all pairs and whatever else is there."""
    place = int.from_bytes(hashlib.sha256(f"{seed} {source}".encode()).digest()[:8]) / 2**64
    for name, share in SHARES.items():
        place -= share
        if place < 0:
            return name
    return "test"


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    return csv.DictReader(_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)


def _lines(path: Path) -> Iterator[str]:
    with open_bytes(path) as file:
        yield from io.TextIOWrapper(file, encoding="utf-8", newline="\n")


def write_table(path: Path, rows: Sequence[Rated]) -> None:
    """Write rows as a CSV file that unbabel-comet reads."""
    with whole_file(path) as new, new.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(["src", "mt", *(["ref"] if rows[0].reference else []), "score", "human"])
        for r in rows:
            texts = [r.source, r.translation, *([r.reference] if r.reference else [])]
            out.writerow([*texts, f"{r.score:.4f}", f"{r.human:.4f}"])


def read_tables(folder: Path) -> Tables:
    """All tables of a folder that this command wrote; raises UserError for another folder."""
    if not (folder / FACTS).is_file():
        raise UserError(f"{folder} holds no tables of human scores: make them with `python -m eval.quality_data`")
    found: Tables = {}
    for path in sorted(folder.glob("*.csv")):
        kind, part, pair = path.stem.split(".")
        with path.open(encoding="utf-8", newline="") as file:
            rows = [Rated(r["src"], r["mt"], r.get("ref", ""), float(r["human"])) for r in csv.DictReader(file)]
        found[kind, part, pair] = rows
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.quality_data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with quality/ and train/")
    parser.add_argument("--output", required=True, metavar="QUALITY", help="folder of the tables")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the split of the MQM sources (default: 1)")
    return run(make, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
