"""The average of adapters that were tuned from the same start, as one adapter of the same size.

    python -m finetune.lora_average ADAPTER ADAPTER ... --output DIR [--weights 0.5,0.5]

Adapters that differ only in what they learnt last, from one start, can be averaged weight by weight (model soups,
Wortsman et al. 2022), such as that of phrases and the plain one. The average keeps the settings, the prompts and the
record (`training.json`) of the first one.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from finetune.lora_model import KEPT_SETTINGS, TERMS
from rag_mt.adapters import CONFIG, TRAINING, WEIGHTS, checked_adapter
from rag_mt.console import OK, Parser, run
from rag_mt.errors import UserError
from rag_mt.fingerprints import file_sha256, read_json
from rag_mt.paths import whole_folder

SAME = (
    *KEPT_SETTINGS,
    "base_model_name_or_path",
    "peft_type",
    "use_rslora",
    "use_dora",
    "rank_pattern",
    "alpha_pattern",
)
"""Settings in which averaged adapters agree."""


def average(options: argparse.Namespace) -> int:
    """Write the average."""
    folders = [checked_adapter(name) for name in options.adapters]
    weights = weights_of(options.weights, len(folders))
    output = Path(options.output)
    if output.exists():
        raise UserError(f"{output} is there already: give --output another folder, or remove it")
    check_alike(folders)
    tensors = averaged([load_file(folder / WEIGHTS) for folder in folders], weights)
    parts = [
        {"name": folder.name, "weight": round(weight, 6), "sha256": file_sha256(folder / WEIGHTS)}
        for folder, weight in zip(folders, weights, strict=True)
    ]
    with whole_folder(output) as made:
        save_file(tensors, made / WEIGHTS, {"format": "pt"})
        first = folders[0]
        for path in (first / CONFIG, *(p for pattern in TERMS for p in sorted(first.glob(pattern)))):
            shutil.copyfile(path, made / path.name)
        record = read_json(first / TRAINING) if (first / TRAINING).is_file() else {}
        record["averaged"] = parts
        (made / TRAINING).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    told = " + ".join(f"{part['weight']:g} {part['name']}" for part in parts)
    sys.stderr.write(f"{output} is {told}\n")
    return OK


def weights_of(given: str | None, count: int) -> list[float]:
    """The weights of `count` adapters, which sum to 1; raises UserError for others."""
    if given is None:
        return [1 / count] * count
    try:
        weights = [float(text) for text in given.split(",")]
    except ValueError:
        weights = []
    if len(weights) != count or not math.isclose(sum(weights), 1, abs_tol=1e-6) or min(weights) < 0:
        raise UserError(f"--weights {given} do not fit {count} adapters: give as many shares, which sum to 1")
    return weights


def check_alike(folders: Sequence[Path]) -> None:
    """Raise UserError if adapters have other shapes, or were tuned from different starts where that is recorded."""
    first, *others = ({**read_json(folder / CONFIG), "start": _start(folder)} for folder in folders)
    for folder, own in zip(folders[1:], others, strict=True):
        different = [key for key in (*SAME, "start") if _plain(own.get(key)) != _plain(first.get(key))]
        if different:
            raise UserError(
                f"{folders[0]} and {folder} differ in {', '.join(different)}: only adapters of one shape that were "
                "tuned from the same start can be averaged"
            )


def averaged(parts: Sequence[Mapping[str, torch.Tensor]], weights: Sequence[float]) -> dict[str, torch.Tensor]:
    """The tensors weighted by `weights`, in the number format of the first adapter."""
    sums = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in parts[0].items()}
    for part, weight in zip(parts, weights, strict=True):
        for name, tensor in part.items():
            sums[name] += weight * tensor.float()
    return {name: tensor.to(parts[0][name].dtype).contiguous() for name, tensor in sums.items()}


def _start(folder: Path) -> str | None:
    """The hash of the weights that an adapter's tuning began with, None if it is not recorded."""
    record: dict[str, Any] = read_json(folder / TRAINING) if (folder / TRAINING).is_file() else {}
    return (record.get("started_from") or {}).get("weights")


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, list) else value


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.lora_average",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("adapters", nargs="+", metavar="ADAPTER", help="folders that `python -m finetune.lora` wrote")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder of the average")
    parser.add_argument("--weights", metavar="W,...", help="share of each adapter (default: equal shares)")
    return run(average, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
