"""Fit what the language model's own probability adds to the estimates of quality.

    python -m finetune.quality.outputs --config lora-memory --data DIR --pairs 400 --output OUTPUTS.jsonl
    python -m finetune.quality.probability --outputs OUTPUTS.jsonl [--estimator FOLDER] --output FOLDER2

FOLDER2 has the estimator with the factors of `rag_mt.quality.probability`, for translations by the language model that
comes with rag_mt. With c the chrF of a translation, s the estimate of the pair alone and g the mean probability of a
token, all less their means in the direction, there are two regressions:

    c = a s    and    c = b s + d g,    so that    per_score = b / a - 1    and    per_probability = d / a

and as much chrF is expected from an estimate as from s alone. Only the training part of the outputs is read.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.data.judgements import JudgedSet, read_outputs
from rag_mt.base.console import OK, Parser, add_model_options, note, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_folder
from rag_mt.base.types import Skips
from rag_mt.quality.estimator import DEFAULT_ESTIMATOR, Estimator, open_estimator
from rag_mt.quality.model import EstimatorSettings
from rag_mt.quality.probability import Probability

FEWEST = 20
"""Translations of a direction from which its means are taken."""


def fitted(sets: Sequence[JudgedSet], estimator: Estimator) -> Probability:
    """The factors and means by translations with their chrF; raises UserError if there are too few."""
    centred: list[NDArray[np.float64]] = []
    means: dict[str, tuple[float, float]] = {}
    for own in sets:
        known = [row for row in own.rows if row.logprob is not None]
        if len(known) < FEWEST:
            continue
        scores = [estimate.score for estimate in estimator.estimate([row.pair for row in known])]
        probabilities = np.exp([row.logprob or 0.0 for row in known])
        columns = np.stack([np.array(scores), probabilities, np.array([row.score for row in known])], axis=1)
        centred.append(columns - columns.mean(axis=0))
        means[own.direction] = (round(float(columns[:, 0].mean()), 2), round(float(columns[:, 1].mean()), 4))
    if not centred:
        raise UserError(f"no direction has {FEWEST} translations with a logprob: make the outputs with this version")
    rows = np.concatenate(centred)
    alone = float(rows[:, 0] @ rows[:, 2] / (rows[:, 0] @ rows[:, 0]))
    score, probability = np.linalg.lstsq(rows[:, :2], rows[:, 2], rcond=None)[0].tolist()
    if alone <= 0:
        raise UserError("the estimates of these translations do not rise with their chrF: train the estimator first")
    return Probability(DEFAULT_LLM, round(probability / alone, 3), round(score / alone - 1, 4), means)


def fit(options: argparse.Namespace) -> int:
    """Run the command."""
    folder, output = EstimatorSettings.folder(options.estimator), Path(options.output)
    if output.exists():
        raise UserError(f"{output} is there already: give another folder")
    settings = EstimatorSettings.load(folder)
    probability = fitted(
        read_outputs(Path(options.outputs), "train", Skips()),
        open_estimator(options.estimator, options.device, options.dtype),
    )
    with whole_folder(output) as part:
        shutil.copytree(folder, part, dirs_exist_ok=True)
        replace(settings, probability=asdict(probability)).save(part)
    sys.stdout.write(f"{probability.per_probability} a probability, {probability.per_score} a score\n")
    note(f"the estimator is in {output}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    example = "--outputs OUTPUTS.jsonl --output FOLDER"
    parser = Parser(prog="python -m finetune.quality.probability", description=__doc__, examples=[example])
    parser.add_argument("--outputs", required=True, metavar="FILE", help="what finetune.quality.outputs wrote")
    parser.add_argument("--estimator", default=DEFAULT_ESTIMATOR, metavar="NAME", help="ours or a folder")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    add_model_options(parser)
    return run(fit, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
