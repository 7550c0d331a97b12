"""Compare the systems of a folder of runs: tables, tests of significance, plots.

    python -m eval.report RUNS --output reports/NAME.md --html reports/NAME.html

RUNS is what `python -m eval.translation` wrote. The first system, `plain` if there is one or --baseline, is what the
others are compared with. Systems NAME@1, NAME@2 and so on are trainings of one system, NAME, and count by their mean.
The HTML page needs no other file. Sentences of the suite are shown only where they are those
of the sample corpus, or with --examples N.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eval.data.domains import SPLITS
from eval.data.suites import SAMPLE
from eval.report import domains, tables
from eval.report.blocks import Block, Bullets, Code, Figure, Heading, Table, Text, as_html, as_markdown
from eval.report.nearest import Place, nearest_of
from eval.report.plots import figures
from eval.report.reading import read_runs
from eval.report.runs import ReportRun, Runs
from eval.significance import RESAMPLES, SEED
from eval.translation.records import command_line
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import write_whole

SHOWN = 3
"""Examples of each kind from the sample corpus."""


def report(options: argparse.Namespace) -> int:
    """Write the report, or print its Markdown; returns the exit code."""
    systems = options.systems.split(",") if options.systems else None
    runs = read_runs(options.runs, systems, options.baseline)
    if options.output and options.output == options.html:
        raise UserError(f"--output and --html are both {options.html}: give the Markdown and the page different names")
    title = options.title or f"Translation, suite {runs.suite_name}"
    count = options.examples if options.examples is not None else SHOWN if runs.suite_name == SAMPLE else 0
    if options.index_text and not runs.of_domains:
        raise UserError(f"--index-text is for the suites {', '.join(SPLITS)}, not for {runs.suite_name}: leave it out")
    plots = figures(runs) if options.html else []
    names = ("baseline", "systems", "index_text", "title", "examples", "output", "html")
    command = command_line("eval.report", [options.runs.name], {name: getattr(options, name) for name in names})
    nearest = nearest_of(runs, options.index_text) if options.index_text else None
    blocks = list(contents(runs, title, count, plots, command, nearest))
    if not options.output and not options.html:
        print(as_markdown(blocks), end="")
    for path, text in ((options.output, as_markdown(blocks)), (options.html, as_html(blocks, title))):
        if path:
            write_whole(path, text)
            note(f"wrote {path}")
    return OK


def contents(
    runs: Runs,
    title: str,
    count: int,
    plots: Sequence[Figure],
    command: str,
    nearest: Mapping[Place, float] | None = None,
) -> Iterator[Block]:
    """All blocks of a report, with `count` examples of each kind; `command` made it."""
    yield Heading(title, 1)
    if label := runs.facts["label"]:
        yield Text(f"{label[0].upper()}{label[1:]}.")
    yield Text(" ".join(_summary(runs)))
    compared = runs.of_domains and len(runs.systems) > 1
    if compared:
        yield from domains.primary_table(runs)
    yield from tables.score_tables(runs)
    yield from tables.gain_tables(runs)
    if compared:
        yield from domains.similarity_tables(runs, nearest)
    yield from plots
    yield from tables.paper_tables(runs)
    yield from tables.hint_tables(runs)
    yield from tables.format_table(runs)
    yield from tables.speed_table(runs)
    if count:
        yield from tables.examples(runs, count)
    yield from settings(runs, command)


def _summary(runs: Runs) -> Iterator[str]:
    sentences = sum(len(r.records) for r in runs.of(runs.trained[runs.baseline][0]))
    seconds = sum(entry["seconds"] for entry in runs.commands)
    work = sum(sum(r.facts["seconds"].values()) for r in runs.by_place.values())
    yield (
        f"Suite {runs.suite_name}; {len(runs.directions)} {runs.places}; {len(runs.systems)} systems; {sentences} "
        f"sentences per system; baseline {runs.baseline}. Retrieval and generation of all runs took {work / 60:.1f} "
        f"minutes; the commands below that were not interrupted took {seconds / 60:.1f}."
    )
    for system in runs.trainings:
        own = runs.of(system)
        common, translated = sum(len(r.records) for r in own), sum(r.translated for r in own)
        if common < translated:
            yield f"Of the {translated} sentences of {system} the {common} count that all systems of a direction have."


def settings(runs: Runs, command: str) -> Iterator[Block]:
    """What was run, on what, with which settings, and the signatures of all metrics."""
    yield Heading("Settings")
    yield Heading("Sentences", 3)
    first = {name: next(r for r in runs.by_place.values() if r.direction == name) for name in runs.directions}
    samples = {name: r.facts["sample"] for name, r in first.items()}
    rows = [(name, str(s["sentences"]), str(s["available"]), s["sha256"][:16]) for name, s in samples.items()]
    yield Table(("direction", "sentences", "of", "sha256"), rows)
    indexes = {f"{name}, {r.direction}": r.facts["index"] for name in runs.systems for r in runs.of(name)}
    if sizes := [(name, str(index["sentences"]), str(index["units"])) for name, index in indexes.items() if index]:
        yield Heading("Indexes", 3)
        yield Table(("system", "sentences", "units"), sizes)
    yield Heading("Systems", 3)
    for system in runs.systems:
        yield Text(f"{system}:")
        yield Bullets([*_system_lines(runs.of(system))])
    yield Heading("Signatures", 3)
    yield Bullets([*_signatures(runs.metrics, first)])
    unit = "blocks" if runs.of_domains else "sentences"
    yield Text(
        f"Bootstrap intervals: {RESAMPLES} samples of {unit}; approximate randomization: {runs.trials} trials; seed "
        f"{SEED}. Averages are tested by the mean of the differences per direction."
    )
    yield Heading("Software and machine", 3)
    yield Bullets(sorted({_machine(r) for r in runs.by_place.values()}))
    yield Heading("Commands", 3)
    yield Code("\n".join([*(f"{c['command']}   # {c['seconds']:.0f} s" for c in runs.commands), command]))


def _system_lines(runs: Sequence[ReportRun]) -> Iterator[str]:
    """Each setting of a system; those that differ between directions with all their values."""
    for name in dict.fromkeys(name for own in runs for name in own.facts["settings"] if name != "name"):
        values = (json.dumps(run.facts["settings"].get(name), ensure_ascii=False) for run in runs)
        yield f"{name}: {', '.join(dict.fromkeys(values))}"
    yield f"prompts: {', '.join(dict.fromkeys(run.facts['wrapper'] for run in runs))}"
    yield f"language model: {', '.join(dict.fromkeys(run.facts['llm'] for run in runs))}"


def _signatures(metrics: Sequence[str], first: Mapping[str, ReportRun]) -> Iterator[str]:
    """The signatures of each metric, with the directions of each where it has several."""
    for metric in metrics:
        directions: dict[str, list[str]] = {}
        for name, own in first.items():
            directions.setdefault(own.scores[metric].signature, []).append(name)
        for signature, names in directions.items():
            yield f"{metric}{f' ({chr(44).join(names)})' if len(directions) > 1 else ''}: {signature}"


def _machine(run: ReportRun) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.facts["versions"].items())
    device = run.facts["device"]
    return f"{versions}; {device['name']}, {device['threads']} threads"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.report",
        description=__doc__,
        examples=[
            "runs/sample-10",
            "RUNS --output report.md --html report.html",
            "RUNS --index-text TEXTS --output domains.md",
        ],
    )
    parser.add_argument("runs", type=Path, metavar="RUNS", help="folder of runs")
    parser.add_argument("--output", type=Path, metavar="FILE.md", help="write Markdown here (default: standard output)")
    parser.add_argument("--html", type=Path, metavar="FILE.html", help="write a self-contained page with plots here")
    parser.add_argument("--baseline", metavar="NAME", help="the system to compare with (default: plain, or the first)")
    parser.add_argument("--systems", metavar="A,B", help="systems to report (default: all)")
    text_help = "folder of `python -m eval.data.domain_text`: also show the gain by the nearest sentence of the index"
    parser.add_argument("--index-text", type=Path, metavar="DIR", help=text_help)
    parser.add_argument("--title", help="title of the report")
    parser.add_argument(
        "--examples", type=positive, metavar="N", help="show N sentences where hints helped and where they hurt"
    )
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
