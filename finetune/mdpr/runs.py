"""Make all trainings of the report on mDPR, one after the other.

    python -m finetune.mdpr.runs --plan configs/mdpr-runs.toml --prepared PREPARED --output RUNS

Each run is a folder of RUNS, as `python -m finetune.mdpr` writes it; a plan that is stopped goes on where it was, and
finished runs are left as they are. At the end a table of the development scores is printed (`--table` prints it at any
time). `--estimate 20` makes so many steps of each kind of run, throws them away and tells how long the plan would take;
`--list` names the runs and their commands.
"""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

from scipy.stats import t as student_t

from finetune.mdpr.batches import TrainingData
from finetune.mdpr.config import Config, DataConfig, TrainingConfig
from finetune.mdpr.model import weights_of
from finetune.mdpr.plan import EXAMPLE, Run, read_plan
from finetune.mdpr.train import MdprTrainer
from rag_mt.base.console import OK, PARTLY, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.models.adapters import TRAINING
from retrievers.mdpr import passage_model_folder

log = logging.getLogger("rag_mt")

SCORES = ("same", "cross", "mixed", "average")


def finished(item: Run, prepared: Path, runs: Path) -> Mapping[str, Any] | None:
    """What the `training.json` of a run says if it came to its last step with the settings of the plan, on the data of
    `prepared` and from the model where the plan lets it start, else None."""
    path = runs / item.folder / TRAINING
    if not path.is_file():
        return None
    found: Mapping[str, Any] = read_json(path)
    settings = item.settings()
    same = found.get("settings") == _plain(settings) and found.get("steps") == settings.training.steps
    manifest = prepared / "manifest.json"
    same &= found.get("prepared", {}) == (read_json(manifest) if manifest.is_file() else {})
    same = same and found.get("data_fingerprint") == data_of(settings.data, settings.training, prepared)
    if same and settings.model.start:
        same = found["started_from"]["weights"] == weights_of(passage_model_folder(settings.model.start))
    return found if same else None


@lru_cache(1024)
def data_of(data: DataConfig, training: TrainingConfig, prepared: Path) -> str:
    """What changes with all that a run is trained on; read once for each run of a plan."""
    return TrainingData(prepared, data, training).fingerprint


def _plain(settings: Config) -> Any:
    """The settings as JSON has them: lists for tuples."""
    return {
        section: {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
        for section, values in settings.as_dict().items()
    }


def make_all(plan: Sequence[Run], prepared: Path, runs: Path, device: str) -> list[Run]:
    """Train what is not finished; returns the runs that could not be made, each told with its reason."""
    failed = []
    for number, item in enumerate(plan, 1):
        if finished(item, prepared, runs) is not None:
            log.info("%d of %d: %s is finished", number, len(plan), item.folder)
            continue
        log.info("%d of %d: %s", number, len(plan), item.folder)
        try:
            MdprTrainer(item.settings(), prepared, runs / item.folder, device, item.command).train()
        except UserError as error:
            log.warning("%s is left out: %s", item.folder, error)
            failed.append(item)
    return failed


def score_table(plan: Sequence[Run], prepared: Path, runs: Path) -> str:
    """A Markdown table of the development scores of the finished runs: their mean over seeds with half the width of its
    95 % confidence interval (Student's t), and how many seeds there were."""
    rows = ["| group | run | seeds | " + " | ".join(SCORES) + " |", "|---" * (3 + len(SCORES)) + "|"]
    for group, name in dict.fromkeys((item.group, item.name) for item in plan):
        facts = [finished(item, prepared, runs) for item in plan if (item.group, item.name) == (group, name)]
        last = [f["curve"][-1] for f in facts if f and f["curve"]]
        if last:
            cells = [_interval([point[score] for point in last if score in point]) for score in SCORES]
            rows.append(f"| {group} | `{name}` | {len(last)} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _interval(values: Sequence[float]) -> str:
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    half = student_t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):.1f} ± {half:.1f}"


def estimate(plan: Sequence[Run], prepared: Path, runs: Path, device: str, steps: int) -> str:
    """How long the unfinished runs would take, by `steps` steps and one measurement of each kind of run."""
    kinds: dict[tuple[Any, ...], tuple[float, float, float]] = {}
    total = 0.0
    lines = []
    for item in plan:
        if finished(item, prepared, runs) is not None:
            continue
        settings = item.settings()
        kind = _kind(settings)
        if kind not in kinds:
            try:
                kinds[kind] = _timed(settings, prepared, device, steps)
            except UserError as error:
                lines.append(f"{item.folder}: cannot be timed: {error}")
                continue
            lines.append(
                "{}: opened in {:.1f} s, {:.2f} s a step, {:.1f} s a measurement".format(item.name, *kinds[kind])
            )
        opening, step, measurement = kinds[kind]
        training = settings.training
        measurements = 1 + math.ceil(training.steps / training.evaluate_every)
        total += opening + training.steps * step + measurements * measurement
    lines.append(f"{len(plan)} runs: about {total / 3600:.1f} hours for those that are not finished")
    return "\n".join(lines) + "\n"


def _kind(settings: Config) -> tuple[Any, ...]:
    """What decides how long a run takes."""
    model, data, training = settings.model, settings.data, settings.training
    texts = bool(data.texts) and bool(training.language_weight)
    contrastive = bool(training.semantic_weight or training.language_weight)
    return model.encoder, model.shared, data.relevance, contrastive, texts, training.batch, training.pair_batch


def _timed(settings: Config, prepared: Path, device: str, steps: int) -> tuple[float, float, float]:
    """Seconds to open a run, for a step, and for a measurement."""
    with TemporaryDirectory() as folder:
        begun = time.monotonic()
        trainer = MdprTrainer(settings, prepared, Path(folder), device)
        opened = time.monotonic()
        for _ in range(steps):
            trainer.run_step()
        stepped = time.monotonic()
        trainer.evaluate()
        return opened - begun, (stepped - opened) / steps, time.monotonic() - stepped


def work(options: argparse.Namespace) -> int:
    """Make, list, time or tell the runs of a plan."""
    runs, prepared = Path(options.output), Path(options.prepared)
    groups = options.groups.split(",") if options.groups else ()
    seeds = _seeds(options.seeds) if options.seeds else ()
    plan = read_plan(Path(options.plan), runs, groups, seeds)
    for item in plan:
        item.settings()  # a mistake in the last run is told before the first
    if options.list:
        for item in plan:
            state = "finished" if finished(item, prepared, runs) is not None else "to be made"
            sys.stdout.write(f"{item.group}/{item.folder} ({state}): {item.command}\n")
        return OK
    if options.estimate:
        sys.stdout.write(estimate(plan, prepared, runs, options.device, options.estimate))
        return OK
    failed = [] if options.table else make_all(plan, prepared, runs, options.device)
    sys.stdout.write(score_table(plan, prepared, runs))
    return PARTLY if failed else OK


def _seeds(text: str) -> list[int]:
    if not all(part.isdecimal() for part in text.split(",")):
        raise UserError(f"--seeds {text!r} is no list of whole numbers: expected such as 1,2,3")
    return [int(part) for part in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.mdpr.runs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--plan", default=EXAMPLE, metavar="FILE", help="the plan (default: %(default)s)")
    parser.add_argument("--prepared", required=True, metavar="DIR", help="made by `python -m finetune.mdpr.data`")
    parser.add_argument("--output", required=True, metavar="DIR", help="the folder of all runs")
    parser.add_argument("--groups", default="", metavar="G,G", help="of the plan (default: all)")
    parser.add_argument("--seeds", default="", metavar="N,N", help="instead of the plan's")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda (default: auto)")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="name the runs and do nothing")
    what.add_argument("--estimate", type=positive, metavar="STEPS", help="tell how long it would take")
    what.add_argument("--table", action="store_true", help="print the scores of what is finished")
    return run(work, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
