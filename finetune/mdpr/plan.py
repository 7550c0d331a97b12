"""A plan of mDPR trainings: named changes to a configuration, each with several seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finetune.mdpr.config import Config
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_toml

EXAMPLE = "configs/mdpr-runs.toml"
CONFIG = "config"


@dataclass(frozen=True)
class Run:
    """One training: `name` is that of the plan, `changes` are what `--set` takes, the seed among them."""

    group: str
    name: str
    seed: int
    config: Path
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
        return Config.read(self.config, self.changes)


def read_plan(path: Path, runs: Path, groups: Sequence[str] = (), seeds: Sequence[int] = ()) -> list[Run]:
    """The runs of some groups (all if none is named) with some seeds (those of the plan), seed by seed, so that a plan
    that is stopped has as many whole comparisons as possible.

    In a text `{runs}` stands for the folder of all runs and `{seed}` for the seed. Raises UserError for a plan of
    another form, an unknown group and two runs of one name.
    """
    found = read_toml(path, "plan", EXAMPLE)
    config, own = found.get(CONFIG), found.get("seeds")
    whole = isinstance(own, list) and all(isinstance(seed, int) for seed in own)
    known = found.get("groups")
    if not isinstance(config, str) or not whole or not isinstance(known, dict) or not known:
        raise UserError(f"{path} is no plan: expected config, seeds and [groups.GROUP.RUN], as in {EXAMPLE}")
    for name in groups:
        if name not in known:
            raise UserError(f"{path} has no group {name!r}: choose from {', '.join(known)}")
    chosen = [(group, name, changes) for group in groups or known for name, changes in known[group].items()]
    names = [name for _, name, _ in chosen]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UserError(f"{path} has two runs {sorted(twice)[0]!r}: give them different names")
    return [
        _run(group, name, seed, config, changes, runs) for seed in seeds or own or () for group, name, changes in chosen
    ]


def _run(group: str, name: str, seed: int, config: str, changes: Mapping[str, Any], runs: Path) -> Run:
    texts = {
        key: json.dumps(_filled(value, runs, seed), ensure_ascii=False)
        for key, value in changes.items()
        if key != CONFIG
    }
    return Run(group, name, seed, Path(changes.get(CONFIG, config)), {**texts, "training.seed": str(seed)})


def _filled(value: Any, runs: Path, seed: int) -> Any:
    """The value with `{runs}` and `{seed}` replaced."""
    return value.replace("{runs}", str(runs)).replace("{seed}", str(seed)) if isinstance(value, str) else value
