"""Train a small COMET model on human scores, with unbabel-comet's own classes and trainer (`make comet` first).

    python -m eval.quality_data --data DIR --output QUALITY
    python -m eval.comet_train --config configs/comet-reference.toml --data QUALITY --output MODEL

The encoder is the embedded one and stays frozen; what is trained is the mixture of its layers and the estimator. MODEL
is a folder of `head.safetensors` and `training.json`; `python -m eval.comet_score RUNS --model MODEL` scores with it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from eval.comet_checkpoint import HEAD, TRAINING
from eval.comet_encoder import xlmr_folder
from eval.comet_environment import run_in_comet
from eval.quality_damage import damaged
from eval.quality_data import FACTS, Rated, read_tables, write_table
from rag_mt.console import OK, Parser, note, positive, run
from rag_mt.defaults import DEFAULT_ENCODER
from rag_mt.errors import UserError
from rag_mt.fingerprints import read_json
from rag_mt.paths import whole_folder
from rag_mt.toml_settings import at_least, check_values, shown_path
from rag_mt.toml_settings import read_settings as read_sections

EXAMPLE = "configs/comet-reference.toml"


@dataclass(frozen=True)
class DataSettings:
    """`train_rows` and `dev_rows` are per language pair, 0 for all; damaged forms of so many as `damaged_rows` per pair
    are added to the training rows."""

    table: str = "mqm"
    kind: Literal["reference", "reference-free"] = "reference"
    train_rows: int = 0
    dev_rows: int = 0
    damaged_rows: int = 0


@dataclass(frozen=True)
class TrainingSettings:
    """The optimisation; training ends after `patience` epochs without a better development score."""

    seed: int = 1
    max_epochs: int = 10
    patience: int = 3
    encode_batch_size: int = 32


@dataclass(frozen=True)
class Settings:
    """All settings; `model` are arguments of the COMET class."""

    data: DataSettings
    training: TrainingSettings
    model: Mapping[str, Any]


FIXED = {"layer": "mix", "layer_norm": False, "pool": "avg"}
"""What makes a frozen encoder's states enough (see `eval.comet_fit`)."""


def train(options: argparse.Namespace) -> int:
    """Train and write the model; returns the exit code."""
    changes = {"training.max_epochs": str(options.max_epochs)} if options.max_epochs else {}
    settings, output = read_settings(Path(options.config), changes), Path(options.output)
    if output.exists():
        raise UserError(f"{output} is there already: delete it or choose another --output")
    data, training = settings.data, settings.training
    tables = read_tables(Path(options.data))
    begin = time.perf_counter()
    with whole_folder(output) as part:
        scratch = part / "scratch"
        scratch.mkdir()
        parts = {
            name: _tables(tables, data.table, name, limit)
            for name, limit in (("train", data.train_rows), ("dev", data.dev_rows))
        }
        rated = [row for rows in parts["train"].values() for row in rows]
        bad = [r for own in parts["train"].values() for r in damaged(own, data.damaged_rows, training.seed)]
        write_table(scratch / "train.csv", [*rated, *bad])
        dev = [scratch / f"dev.{pair}.csv" for pair in parts["dev"]]
        for path, rows in zip(dev, parts["dev"].values(), strict=True):
            write_table(path, rows)
        answer = run_in_comet(
            "comet_fit",
            {
                "kind": data.kind,
                "encoder": str(xlmr_folder()),
                "model": settings.model,
                "training": asdict(training),
                "train": [str(scratch / "train.csv")],
                "dev": [str(path) for path in dev],
                "head": str(part / HEAD),
                "states": None if options.states is None else str(Path(options.states).absolute()),
                "scratch": str(scratch),
                "quiet": options.quiet,
            },
        )
        for path in scratch.iterdir():
            path.unlink()
        scratch.rmdir()
        facts = {
            "command": f"python -m eval.comet_train --config {shown_path(options.config)} --data QUALITY --output MODEL"
            + (f" --max-epochs {options.max_epochs}" if options.max_epochs else ""),
            "kind": data.kind,
            "encoder": DEFAULT_ENCODER,
            "arguments": {**settings.model, **FIXED},
            "settings": asdict(settings),
            "damaged": len(bad),
            "rows": {name: {pair: len(rows) for pair, rows in own.items()} for name, own in parts.items()},
            "split": {n: v for n, v in read_json(Path(options.data) / FACTS).items() if n != "rows"},
            "unbabel_comet": answer["version"],
            "seconds": round(time.perf_counter() - begin),
            "dev_scores": answer["curve"],
            "best_dev_kendall": round(answer["best"], 4),
        }
        (part / TRAINING).write_text(json.dumps(facts, indent=1) + "\n")
    note(f"{output}: Kendall's tau on the development data {answer['best']:.3f}, after {len(answer['curve'])} epochs")
    return OK


def read_settings(path: Path, changes: Mapping[str, str] = {}) -> Settings:
    """The settings of a TOML file; raises UserError for what is not known or does not fit."""
    made = read_sections(Settings, path, changes, EXAMPLE)
    for name in sorted(FIXED.keys() & made.model):
        raise UserError(f"{path} sets model.{name}, which is {FIXED[name]!r} here: leave it out")
    check_values(path, at_least(0, "data", made.data, "train_rows", "dev_rows", "damaged_rows"))
    return made


def _tables(tables: Any, table: str, part: str, limit: int) -> dict[str, list[Rated]]:
    """The first rows of each pair's table of a part; raises UserError where there is none."""
    found = {pair: rows[: limit or None] for (kind, own, pair), rows in tables.items() if (kind, own) == (table, part)}
    if not found:
        raise UserError(f"there are no tables {table}.{part}.*.csv: make them with `python -m eval.quality_data`")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.comet_train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, metavar="FILE", help=f"settings, such as {EXAMPLE}")
    parser.add_argument("--data", required=True, metavar="QUALITY", help="tables of `python -m eval.quality_data`")
    parser.add_argument("--output", required=True, metavar="MODEL", help="the model's folder")
    parser.add_argument("--max-epochs", type=positive, metavar="N", help="so many instead of the configured ones")
    parser.add_argument("--states", metavar="FILE", help="keep the encoder's states there, for further runs")
    parser.add_argument("--quiet", action="store_true", help="no progress bar of the training")
    return run(train, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
