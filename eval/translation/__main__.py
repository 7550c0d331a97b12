"""Translate a suite with some systems and score what comes out.

    python -m eval.translation                                         the quick form, on the sample corpus
    python -m eval.translation --suite wmt16 --data DIR --limit 200 --systems plain,ccpr --output RUNS
    python -m eval.translation --suite my.tsv --src de --tgt en --output RUNS

Suites: `wmt16`, the 12 directions of newstest2016 (DIR/test/XX-en.tsv, English first, or without --data `hf:wmt16`);
`dev`, the same directions of DIR/dev for choices (of the hub: its validation sets, another one for Turkish); `domains`
and `domains-dev`, held-out blocks of five domains in up to 12 directions (DIR/domains/DOMAIN.XX-en.test.tsv and
.dev.tsv; DIR/train tells which sentences stand in one block); a TSV or TMX file; and `sample`, the quick form, which
shows that everything works and measures nothing: 5 pairs of de-en and en-de, a minute or two on two processor cores,
unless --directions and --limit say more. How many sentences there are to translate, and about how long it takes, is
said before it starts.

Systems are those of a TOML file (`systems`, which ships, or your own). Each run, a system on a direction, is a file
RUNS/SYSTEM/SRC-TGT.jsonl or RUNS/SYSTEM/DOMAIN.SRC-TGT.jsonl; the same command goes on where it was interrupted.
`python -m eval.report RUNS` makes tables, tests of significance and plots of them.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from eval.data.suites import NAMED, SAMPLE, SEED, Part, Suite, open_suite
from eval.metrics import DEFAULT_METRICS, METRICS, open_metrics
from eval.translation.records import (
    FACTS,
    RECORDS,
    SCORES,
    Record,
    command_line,
    note_command,
    outputs_sha256,
    read_facts,
    read_records,
    score_run,
)
from eval.translation.runs import translate_run
from eval.translation.systems import EXAMPLE, check_at, read_systems
from eval.translation.translators import Models, Run, in_order
from rag_mt.base.console import INTERRUPTED, OK, Parser, note, positive, progress, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import direction_group
from rag_mt.base.settings import config_file
from rag_mt.base.types import Metric

QUICK_LIMIT, QUICK_DIRECTIONS = 5, "de-en,en-de"
"""Of the sample corpus, where the user says nothing else."""
SECONDS_PER_SENTENCE = 1.5
"""Of the small model on two processor cores, for a first estimate of the quick form; the bar then goes by itself."""
DEFAULTS: dict[str, Any] = {
    "suite": SAMPLE,
    "config": EXAMPLE,
    "seed": SEED,
    "metrics": ",".join(DEFAULT_METRICS),
    "bertscore_model": DEFAULT_ENCODER,
}

Scores = Mapping[tuple[str, str, str], float]
"""The score of a system, on a direction, by a metric."""


def evaluate(options: argparse.Namespace) -> int:
    """Translate and score; returns the exit code."""
    begin = time.perf_counter()
    suite = open_suite(options.suite, options.data, options.src, options.tgt, options.columns)
    systems = read_systems(config_file(options.config), options.systems)
    cells = suite.chosen(options.directions or (QUICK_DIRECTIONS if suite.quick else None))
    bertscore = (options.bertscore_model, options.bertscore_layer, options.bertscore_baselines)
    metrics_for = partial(open_metrics, options.metrics.split(","), bertscore=bertscore, comet=options.comet)
    if not options.score_only:
        check_at(systems, cells)
        for target in sorted({cell.target for cell in cells}):  # what cannot be scored is refused before the hours
            metrics_for(target)
    limit = options.limit or (QUICK_LIMIT if suite.quick else None)
    folder = options.output or Path(f"runs/{Path(suite.name).stem}-{limit or 'all'}")
    parts = [suite.part(cell.source, cell.target, limit, options.seed, cell.domain) for cell in cells]
    runs = [Run(system, part, folder) for system in systems for part in parts]
    if suite.label:
        note(f"suite {suite.name}: {suite.label}")
    if not options.score_only:
        _translate(runs, suite, options)
    elif missing := [f"{own.system.name} {own.part.name}" for own in runs if not own.file(FACTS).is_file()]:
        raise UserError(f"{len(missing)} runs are not finished ({missing[0]}): run the command without --score-only")
    try:
        scores = _score(runs, metrics_for, not options.quiet)
    except UserError:
        if not options.score_only:  # what was translated took its time
            note_command(folder, command_of(options), time.perf_counter() - begin)
        raise
    note_command(folder, command_of(options), time.perf_counter() - begin)
    print(tables(scores, parts, [system.name for system in systems]), end="")
    note(f"runs and scores are in {folder}: `python -m eval.report {folder}` compares the systems")
    return OK


def _translate(runs: Sequence[Run], suite: Suite, options: argparse.Namespace) -> None:
    total = sum(len(own.part.sources) for own in runs)
    models, show = Models(), not options.quiet
    if show:
        note(to_translate(runs, suite.quick))
    with closing(progress(total, "sentences", "translating", show=show)) as bar:
        try:
            for own in in_order(runs):
                translate_run(own, suite, models, bar, options.restart, show)
        except KeyboardInterrupt:
            note("interrupted: what was finished is kept; the same command goes on there")
            raise SystemExit(INTERRUPTED) from None


def to_translate(runs: Sequence[Run], quick: bool) -> str:
    """A line that says how much there is to translate and, of the quick form, about how long it takes."""
    count = sum(len(own.part.sources) for own in runs)
    systems, directions = {own.system.name for own in runs}, {own.part.name for own in runs}
    line = f"{count} sentences to translate: {len(systems)} systems, {', '.join(sorted(directions))}"
    if not quick:
        return f"{line}; the bar says how long it takes"
    minutes = max(1, round(count * SECONDS_PER_SENTENCE / 60))
    plural = "s" if minutes > 1 else ""
    first = "; the first time a minute or two more, for the sample indexes"
    return f"{line}; about {minutes} minute{plural} on two processor cores{first}"


def _score(runs: Sequence[Run], metrics_for: Callable[[str], list[Metric]], show: bool) -> Scores:
    """The scores of all runs; target language by target language, since metrics are opened for one."""
    scores: dict[tuple[str, str, str], float] = {}
    metrics: dict[str, list[Metric]] = {}
    with closing(progress(len(runs), "runs", "scoring", show=show)) as bar:
        for one in sorted(runs, key=lambda one: one.part.target):
            target = one.part.target
            if target not in metrics:
                metrics = {target: metrics_for(target)}
            for scored in score_run(one.file(SCORES), *_outputs(one), metrics[target]):
                scores[one.system.name, one.part.name, scored.name] = scored.corpus
            bar.update(1)
    return scores


def _outputs(own: Run) -> tuple[list[Record], str]:
    """The records of a finished run and their hash; raises UserError where they are not those asked for."""
    facts, records = read_facts(own.file(FACTS)), read_records(own.file(RECORDS))
    if facts["sample"]["sha256"] != own.part.sha256:
        raise UserError(
            f"{own.file(RECORDS)} has {facts['sample']['sentences']} sentences and not the "
            f"{len(own.part.sources)} of these options: give the --suite, --data, --limit and --seed of its run"
        )
    outputs = outputs_sha256(records)
    if facts["outputs"] != outputs:
        raise UserError(f"{own.file(RECORDS)} was changed after its run: make it again with --restart")
    return records, outputs


def tables(scores: Scores, parts: Sequence[Part], systems: Sequence[str]) -> str:
    """A plain table for each metric and group of directions (of each domain), with the average of a group of
    several."""
    groups: dict[tuple[str, str], list[str]] = {}
    for part in parts:
        groups.setdefault((part.cell.domain, direction_group(part.source, part.target)), []).append(part.name)
    width = max(map(len, (*systems, "chrF++")))
    lines = []
    for metric in dict.fromkeys(metric for _, _, metric in scores):
        for directions in groups.values():
            heads = [*directions, *(["avg"] if len(directions) > 1 else [])]
            column = max(8, *(len(head) + 2 for head in heads))
            lines.append(f"{metric:{width}s}" + "".join(f"{head:>{column}s}" for head in heads))
            for system in systems:
                values = [scores[system, name, metric] for name in directions]
                values += [sum(values) / len(values)] if len(values) > 1 else []
                lines.append(f"{system:{width}s}" + "".join(f"{value:{column}.2f}" for value in values))
            lines.append("")
    return "\n".join(lines)


def command_of(options: argparse.Namespace) -> str:
    """The command with the options that were given."""
    changed = {name: value for name, value in sorted(vars(options).items()) if value != DEFAULTS.get(name)}
    if changed.get("suite") not in (None, *NAMED):
        changed["suite"] = "FILE"
    return command_line("eval.translation", [], changed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.translation",
        description=__doc__,
        examples=[
            "",
            "--suite domains-dev --data DATA --config domains --directions help,manual.de-en --output RUNS",
            "--suite my.tsv --src de --tgt en --output RUNS",
        ],
    )
    add = parser.add_argument
    add("--suite", metavar="NAME|FILE", help=f"{', '.join(NAMED)}, or a TSV or TMX file")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder with test/ and dev/ for wmt16 and dev (default: hf:wmt16), with domains/ and train/ for domains",
    )
    add("--src", metavar="LANG", help="source language of a file of your own")
    add("--tgt", metavar="LANG", help="target language of a file of your own")
    add("--columns", metavar="A,B", help="source and target column of a TSV file (default: by header, else 1,2)")
    add("--config", metavar="NAME|FILE", help="the systems")
    add("--systems", metavar="A,B", help="names of systems (default: all in the file)")
    add(
        "--directions",
        metavar="A,B",
        help=f"directions such as de-en,en-de, of domains also help.de-en or help (default: all; of sample "
        f"{QUICK_DIRECTIONS})",
    )
    add(
        "--limit",
        type=positive,
        metavar="N",
        help=f"a fixed sample of N pairs per direction (default: all; of sample {QUICK_LIMIT})",
    )
    add("--seed", type=int, metavar="N", help="of the sample")
    add("--output", type=Path, metavar="RUNS", help="folder of the runs (default: runs/SUITE-LIMIT)")
    add("--restart", action="store_true", help="forget what earlier runs had finished")
    add("--score-only", action="store_true", help="score finished runs and translate nothing")
    add("--metrics", metavar="A,B", help=f"from {', '.join(METRICS)}")
    add("--bertscore-model", metavar="ID", help="encoder of bertscore")
    add("--bertscore-layer", type=int, metavar="N", help="its hidden layer")
    add(
        "--bertscore-baselines",
        type=Path,
        metavar="DIR",
        help="baselines to rescale by, LANG.tsv (default: ours, if any)",
    )
    add(
        "--comet",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="sentence scores of `python -m eval.comet.score`",
    )
    add("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(**DEFAULTS)
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
