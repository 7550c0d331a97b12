"""Fit how much it counts in estimates of quality what the language model says of its own translations.

    python -m finetune.quality.outputs --config lora-memory --data DIR --pairs 400 --output OUTPUTS.jsonl
    python -m finetune.quality.probability --data DIR --outputs OUTPUTS.jsonl [--estimator FOLDER] --output FOLDER2

FOLDER2 has the estimator with the factors of `rag_mt.quality.probability`, for translations by the language model that
comes with rag_mt. They are fitted on the direct assessments of DIR/quality that nothing was trained on (`dev`), of
translations by others that the language model is given: with y what people gave, s the estimate of the pair alone and g
the mean probability of a token, all less their means in the set, there are two regressions:

    y = a s    and    y = b s + d g,    so that    per_score = b / a - 1    and    per_probability = d / a

and estimates stay as far apart as they were. Their means in a direction are those of the model's own translations
(the training part of the outputs). Printed is the correlation with people of s and of the estimate.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from array import array
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from eval.data.judgements import Judged, JudgedSet, read_judgements, read_outputs
from finetune.lora.model import Responses
from finetune.lora.train import Tokens, answered, collated, micro_batches
from prompts.safety import Guard, one_line
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, progress, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_folder
from rag_mt.base.types import Sentence, Skips
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.quality.estimator import DEFAULT_ESTIMATOR, Estimator, open_estimator
from rag_mt.quality.model import EstimatorSettings
from rag_mt.quality.probability import Probability
from rag_mt.translation.translator import Translator

FEWEST = 50
"""Translations that the factors, or the means of a direction, are taken from."""
TOKENS = 1800
"""Tokens that the language model is given at once."""
Columns = NDArray[np.float64]
"""Estimate, mean probability of a token, and what was given, (translations, 3)."""


def given(translator: Translator, rows: Sequence[Judged]) -> list[float]:
    """The mean log-probability of the tokens of translations by others, each as the answer to the plain prompt."""
    llm = translator.llm
    assert isinstance(llm, TransformersLLM)
    responses, guard, tokens = Responses(llm.model), Guard(llm.reserved), []
    for number, row in enumerate(rows):
        prompt = translator.prompts.build(Sentence(row.source, translator.source), ())
        ids, response = answered(llm, prompt, guard.neutral(one_line(row.target)))
        tokens.append(Tokens(array("i", ids), min(response, len(ids) - 1), str(number)))
    found = [0.0] * len(rows)
    with torch.inference_mode():
        for part in micro_batches(tokens, 1, TOKENS):
            batch = collated(part, 0)
            losses = responses.losses(responses.states(batch), batch.wanted)
            for own, loss in zip(part, losses.split([own.answers for own in part]), strict=True):
                found[int(own.direction)] = -float(loss.mean())
    return found


def columns_of(own: JudgedSet, estimator: Estimator, logprobs: Sequence[float]) -> Columns:
    """The columns of a set."""
    scores = [estimate.score for estimate in estimator.estimate([row.pair for row in own.rows])]
    means = [row.score if row.mean is None else row.mean for row in own.rows]
    return np.stack([np.array(scores), np.exp(logprobs), np.array(means)], axis=1)


def fitted(assessed: Sequence[Columns], means: dict[str, tuple[float, float]]) -> Probability:
    """The factors by what people gave; raises UserError if there is too little of it."""
    rows = np.concatenate([own - own.mean(axis=0) for own in assessed] or [np.zeros((0, 3))])
    if len(rows) < FEWEST or not means:
        raise UserError(
            f"there are {len(rows)} assessments and {len(means)} directions of {FEWEST} outputs with a logprob: give "
            "DIR with quality/, and make the outputs with this version"
        )
    alone = float(rows[:, 0] @ rows[:, 2] / max(rows[:, 0] @ rows[:, 0], 1e-9))
    if alone <= 0:
        raise UserError("the estimates do not rise with what people gave: train the estimator first")
    score, probability = np.linalg.lstsq(rows[:, :2], rows[:, 2], rcond=None)[0].tolist()
    return Probability(DEFAULT_LLM, round(probability / alone, 2), round(score / alone - 1, 3), means)


def fit(options: argparse.Namespace) -> int:
    """Run the command."""
    folder, output, skips = EstimatorSettings.folder(options.estimator), Path(options.output), Skips()
    if output.exists():
        raise UserError(f"{output} is there already: give another folder")
    estimator = open_estimator(options.estimator, options.device, options.dtype)
    means = {}
    for own in read_outputs(Path(options.outputs), "train", skips):
        known = [row for row in own.rows if row.logprob is not None]
        if len(known) >= FEWEST:
            columns = columns_of(replace(own, rows=known), estimator, [row.logprob or 0.0 for row in known])
            score, probability, _ = columns.mean(axis=0).tolist()
            means[own.direction] = (round(score, 2), round(probability, 4))
    sets = [own for own in read_judgements(Path(options.data), "dev", skips) if own.kind == "da"]
    translator, assessed = None, []
    with closing(progress(len(sets), "sets", "reading translations")) as bar:
        for own in sets:
            some = replace(own, rows=own.rows[: options.limit])
            llm = translator.llm if translator else DEFAULT_LLM
            loading = {"device": options.device, "dtype": options.dtype, "engine": "transformers"}
            translator = Translator(*own.direction.split("-"), retriever="none", llm=llm, **loading)
            assessed.append(columns_of(some, estimator, given(translator, some.rows)))
            bar.update()
    probability = fitted(assessed, means)
    for own, columns in zip(sets, assessed, strict=True):
        s, g, y = columns.T
        both = s * (1 + probability.per_score) + g * probability.per_probability
        alone, together = (np.corrcoef(side, y)[0, 1] for side in (s, both))
        sys.stdout.write(f"{own.name}: {len(y)} translations, r {alone:.3f} alone, {together:.3f} with probability\n")
    with whole_folder(output) as part:
        shutil.copytree(folder, part, dirs_exist_ok=True)
        replace(EstimatorSettings.load(folder), probability=asdict(probability)).save(part)
    note(f"{probability.per_probability} a probability, {probability.per_score} a score: the estimator is in {output}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    example = "--data DIR --outputs OUTPUTS.jsonl --output FOLDER"
    parser = Parser(prog="python -m finetune.quality.probability", description=__doc__, examples=[example])
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with quality/")
    parser.add_argument("--outputs", required=True, metavar="FILE", help="what finetune.quality.outputs wrote")
    parser.add_argument("--estimator", default=DEFAULT_ESTIMATOR, metavar="NAME", help="ours or a folder")
    parser.add_argument("--limit", type=positive, metavar="N", help="translations of each set (default: all)")
    parser.add_argument("--output", required=True, metavar="FOLDER", help="folder to write")
    add_model_options(parser)
    return run(fit, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
