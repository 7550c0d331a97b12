"""Make all trainings of the report on mDPR, one after the other.

    python -m finetune.mdpr.runs --plan mdpr-runs --prepared PREPARED --output RUNS

Each run is a folder of RUNS, as `python -m finetune.mdpr` writes it; a plan that is stopped goes on where it was, and
finished runs are left as they are. At the end a table of the development scores is printed (`--table` prints it at any
time); `--list` names the runs and their commands.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from scipy.stats import t as student_t

from finetune.mdpr.batches import TrainingData
from finetune.mdpr.config import Config, DataConfig, TrainingConfig
from finetune.mdpr.model import weights_of
from finetune.mdpr.train import MdprTrainer
from rag_mt.base.console import OK, PARTLY, Parser, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json, read_toml
from rag_mt.base.settings import changes_of, config_file
from rag_mt.models.adapter_files import TRAINING
from retrievers.mdpr import passage_model_folder

log = logging.getLogger("rag_mt")

EXAMPLE = "mdpr-runs"
SCORES = ("same", "cross", "mixed", "average")


@dataclass(frozen=True)
class Run:
    """One training: `name` is that of the plan, `changes` are what `--set` takes, the seed among them."""

    group: str
    name: str
    seed: int
    config: str
    changes: Mapping[str, str]

    @property
    def folder(self) -> str:
        """The name of the model's folder."""
        return f"{self.name}.seed{self.seed}"

    @property
    def command(self) -> str:
        """How the run could be made by itself."""
        changes = "".join(f" --set '{key}={value}'" for key, value in self.changes.items())
        return f"python -m finetune.mdpr --config {self.config} --prepared PREPARED --output MODEL{changes}"

    def settings(self) -> Config:
        """The settings of the run; raises UserError for impossible ones."""
        return Config.read(config_file(self.config), self.changes)


def read_plan(
    path: Path,
    runs: Path,
    groups: Sequence[str] = (),
    seeds: Sequence[int] = (),
    changes: Mapping[str, str] = {},
) -> list[Run]:
    """The runs of some groups (all if none is named) with some seeds (those of the plan), seed by seed, so that a plan
    that is stopped has as many whole comparisons as possible. `changes` to the settings are on top of the plan's.

    In a text `{runs}` stands for the folder of all runs and `{seed}` for the seed. Raises UserError for a plan of
    another form, an unknown group and two runs of one name.
    """
    plan = read_toml(path, "plan", f"--plan {EXAMPLE}")
    config, planned_seeds, known = (plan.get(key) for key in ("config", "seeds", "groups"))
    whole = isinstance(planned_seeds, list) and all(isinstance(seed, int) for seed in planned_seeds)
    if not isinstance(config, str) or not whole or not isinstance(known, dict) or not known:
        raise UserError(f"{path} is no plan: expected config, seeds and [groups.GROUP.RUN], as in {EXAMPLE}")
    for name in groups:
        if name not in known:
            raise UserError(f"{path} has no group {name!r}: choose from {', '.join(known)}")
    chosen = [(group, name, own) for group in groups or known for name, own in known[group].items()]
    names = [name for _, name, _ in chosen]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{path} has two runs {sorted(twice)[0]!r}: give them different names")

    def planned(group: str, name: str, own: Mapping[str, Any], seed: int) -> Run:
        def filled(value: Any) -> Any:
            return value.replace("{runs}", str(runs)).replace("{seed}", str(seed)) if isinstance(value, str) else value

        texts = {k: json.dumps(filled(v), ensure_ascii=False) for k, v in own.items() if k != "config"}
        return Run(group, name, seed, own.get("config", config), {**texts, **changes, "training.seed": str(seed)})

    return [planned(*run, seed) for seed in seeds or planned_seeds or () for run in chosen]


def finished(item: Run, prepared: Path, runs: Path) -> Mapping[str, Any] | None:
    """What the `training.json` of a run says if it came to its last step with the settings of the plan, on the data of
    `prepared` and from the model where the plan lets it start, else None."""
    path = runs / item.folder / TRAINING
    if not path.is_file():
        return None
    facts: Mapping[str, Any] = read_json(path)
    settings = item.settings()
    manifest = prepared / "manifest.json"
    expected = {
        "settings": json.loads(json.dumps(settings.as_dict())),
        "steps": settings.training.steps,
        "prepared": read_json(manifest) if manifest.is_file() else {},
    }
    if any(facts.get(key, {}) != value for key, value in expected.items()):
        return None
    if facts.get("data_fingerprint") != data_of(settings.data, settings.training, prepared):
        return None
    start = settings.model.start
    if start and facts["started_from"]["weights"] != weights_of(passage_model_folder(start)):
        return None
    return facts


@lru_cache(1024)
def data_of(data: DataConfig, training: TrainingConfig, prepared: Path) -> str:
    """What changes with all that a run is trained on; read once for each run of a plan."""
    return TrainingData(prepared, data, training).fingerprint


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
    if len(values) < 2:
        return "".join(f"{value:.1f}" for value in values)
    half = student_t.ppf(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return f"{mean(values):.1f} ± {half:.1f}"


def work(options: argparse.Namespace) -> int:
    """Make or list the runs of a plan, or print their scores."""
    runs, prepared = Path(options.output), Path(options.prepared)
    groups, seeds = (text.split(",") if text else [] for text in (options.groups, options.seeds))
    if not all(seed.isdecimal() for seed in seeds):
        raise UserError(f"--seeds {options.seeds!r} is no list of whole numbers: expected such as 1,2,3")
    plan = read_plan(config_file(options.plan), runs, groups, [int(seed) for seed in seeds], changes_of(options.set))
    for item in plan:
        item.settings()  # a mistake in the last run is reported before the first
    if options.list:
        for item in plan:
            state = "finished" if finished(item, prepared, runs) is not None else "to be made"
            sys.stdout.write(f"{item.group}/{item.folder} ({state}): {item.command}\n")
        return OK
    code = OK
    for number, item in enumerate([] if options.table else plan, 1):
        title = f"{number} of {len(plan)}: {item.folder}"
        if finished(item, prepared, runs) is not None:
            log.info("%s is finished", title)
            continue
        log.info("%s", title)
        try:
            MdprTrainer(item.settings(), prepared, runs / item.folder, options.device, item.command).train()
        except UserError as error:
            log.warning("%s is left out: %s", item.folder, error)
            code = PARTLY
    sys.stdout.write(score_table(plan, prepared, runs))
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        "python -m finetune.mdpr.runs",
        description=__doc__,
        examples=["--prepared PREPARED --output RUNS --list", "--prepared PREPARED --output RUNS"],
    )
    add = parser.add_argument
    add("--plan", default=EXAMPLE, metavar="NAME|FILE", help="the plan")
    add("--prepared", required=True, metavar="DIR", help="made by `python -m finetune.mdpr.data`")
    add("--output", required=True, metavar="DIR", help="the folder of all runs")
    add("--groups", default="", metavar="G,G", help="of the plan (default: all)")
    add("--seeds", default="", metavar="N,N", help="instead of the plan's")
    add("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="change a setting of all runs")
    add("--device", default="auto", help="auto, cpu or cuda")
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--list", action="store_true", help="name the runs and do nothing")
    instead.add_argument("--table", action="store_true", help="print the scores of what is finished")
    return run(work, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
