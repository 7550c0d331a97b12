"""Compare the systems of a folder of runs: tables, tests of significance, plots.

    python -m eval.report RUNS --output reports/NAME.md --html reports/NAME.html

RUNS is what `python -m eval.translation` wrote. The first system, `plain` if there is one or --baseline, is what the
others are compared with. The HTML page needs no other file. Sentences of the suite are shown only where they are those
of the sample corpus, or with --examples N.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.data.suites import SAMPLE
from eval.report.blocks import Block, Bullets, Code, Figure, Heading, Table, Text, as_html, as_markdown
from eval.report.examples import examples
from eval.report.plots import figures
from eval.report.runs import ReportRun, Runs, read_runs
from eval.report.tables import format_table, gain_tables, hint_tables, paper_tables, score_tables, speed_table
from eval.significance import RESAMPLES, SEED, TRIALS
from rag_mt.base.console import OK, Parser, note, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_file

SHOWN = 3
"""Examples of each kind from the sample corpus."""


def report(options: argparse.Namespace) -> int:
    """Write the report, or print its Markdown; returns the exit code."""
    systems = options.systems.split(",") if options.systems else None
    runs = read_runs(Path(options.runs), systems, options.baseline)
    _check_place(options)
    title = options.title or f"Translation, suite {runs.suite_name}"
    count = options.examples if options.examples is not None else SHOWN if runs.suite == SAMPLE else 0
    plots = figures(runs) if options.html else []
    blocks = list(contents(runs, title, count, plots, command_of(options)))
    if not options.output and not options.html:
        print(as_markdown(blocks), end="")
    if options.output:
        _write(Path(options.output), as_markdown(blocks))
    if options.html:
        _write(Path(options.html), as_html(blocks, title))
    return OK


def _write(path: Path, text: str) -> None:
    with whole_file(path) as new:
        new.write_text(text, encoding="utf-8")
    note(f"wrote {path}")


def _check_place(options: argparse.Namespace) -> None:
    if options.output and options.html and Path(options.output) == Path(options.html):
        raise UserError(f"--output and --html are both {options.html}: give the Markdown and the page different names")


def contents(runs: Runs, title: str, count: int, plots: Sequence[Figure], command: str) -> Iterator[Block]:
    """All blocks of a report, with `count` examples of each kind; `command` made it."""
    yield Heading(title, 1)
    if runs.label:
        yield Text(f"{runs.label[0].upper()}{runs.label[1:]}.")
    yield Text(_summary(runs))
    yield from score_tables(runs)
    yield from gain_tables(runs)
    yield from plots
    yield from paper_tables(runs)
    yield from hint_tables(runs)
    yield from format_table(runs)
    yield from speed_table(runs)
    if count:
        yield from examples(runs, count)
    yield from settings(runs, command)


def _summary(runs: Runs) -> str:
    sentences = sum(len(r.records) for r in runs.of(runs.baseline))
    seconds = sum(entry["seconds"] for entry in runs.commands)
    work = sum(sum(r.facts["seconds"].values()) for r in runs.all)
    return (
        f"Suite {runs.suite_name}; {len(runs.directions)} directions; {len(runs.systems)} systems; {sentences} "
        f"sentences per system; baseline {runs.baseline}. Retrieval and generation of all runs took {work / 60:.1f} "
        f"minutes; the commands below that were not interrupted took {seconds / 60:.1f}."
        + "".join(f" {told}" for told in _cut(runs))
    )


def _cut(runs: Runs) -> Iterator[str]:
    """What is said of systems that were run on more sentences than others."""
    for system in runs.systems:
        own = runs.of(system)
        kept, translated = sum(len(r.records) for r in own), sum(r.translated for r in own)
        if kept < translated:
            yield f"Of the {translated} sentences of {system} the {kept} count that all systems of a direction have."


def settings(runs: Runs, command: str) -> Iterator[Block]:
    """What was run, on what, with which settings, and the signatures of all metrics."""
    yield Heading("Settings")
    yield Heading("Sentences", 3)
    first = {run.direction: run for run in reversed(runs.all)}
    rows = []
    for source, target in runs.directions:
        facts = first[f"{source}-{target}"].facts["sample"]
        rows.append((f"{source}-{target}", str(facts["sentences"]), str(facts["available"]), facts["sha256"][:16]))
    yield Table(("direction", "sentences", "of", "sha256"), tuple(rows))
    indexes = [(system, run) for system in runs.systems for run in runs.of(system) if run.facts["index"]]
    if indexes:
        yield Heading("Indexes", 3)
        cells = [
            (f"{system}, {r.direction}", str(r.facts["index"]["sentences"]), str(r.facts["index"]["units"]))
            for system, r in indexes
        ]
        yield Table(("system", "sentences", "units"), tuple(cells))
    yield Heading("Systems", 3)
    for system in runs.systems:
        yield Text(f"{system}:")
        yield Bullets(tuple(_system_lines(runs.of(system))))
    yield Heading("Signatures", 3)
    yield Bullets(tuple(_signatures(runs)))
    yield Text(
        f"Bootstrap intervals: {RESAMPLES} samples of sentences; approximate randomization: {TRIALS} trials; seed "
        f"{SEED}. Averages are tested by the mean of the differences per direction."
    )
    yield Heading("Software and machine", 3)
    yield Bullets(tuple(sorted({_machine(r) for r in runs.all})))
    yield Heading("Commands", 3)
    yield Code("\n".join([*(f"{c['command']}   # {c['seconds']:.0f} s" for c in runs.commands), command]))


UNSAID = {"plain_adapter": "none"}
"""What settings were that the facts of an older run do not have."""


def _system_lines(runs: Sequence[ReportRun]) -> Iterator[str]:
    """Each setting of a system; those that differ between directions with all their values."""
    for name in dict.fromkeys(name for own in runs for name in own.facts["settings"]):
        if name == "name":
            continue
        values = [json.dumps(run.facts["settings"].get(name, UNSAID.get(name)), ensure_ascii=False) for run in runs]
        kinds = list(dict.fromkeys(values))
        yield f"{name}: {kinds[0] if len(kinds) == 1 else ', '.join(kinds)}"
    yield f"prompts: {', '.join(dict.fromkeys(run.facts['wrapper'] for run in runs))}"
    yield f"language model: {', '.join(dict.fromkeys(run.facts['llm'] for run in runs))}"


def _signatures(runs: Runs) -> Iterator[str]:
    for metric in runs.metrics:
        found: dict[str, list[str]] = {}
        for source, target in runs.directions:
            own = next(r for r in runs.all if (r.source, r.target) == (source, target))
            found.setdefault(own.scores[metric].signature, []).append(own.direction)
        for signature, names in found.items():
            yield f"{metric}{f' ({chr(44).join(names)})' if len(found) > 1 else ''}: {signature}"


def _machine(run: ReportRun) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in run.facts["versions"].items())
    device = run.facts["device"]
    return f"{versions}; {device['name']}, {device['threads']} threads"


def command_of(options: argparse.Namespace) -> str:
    """The report's own command; folders and files by their last name."""
    parts = [f"python -m eval.report {Path(options.runs).name}"]
    for name in ("baseline", "systems", "title", "examples", "output", "html"):
        value = getattr(options, name)
        if value is not None:
            parts.append(f"--{name} {shlex.quote(Path(value).name if name in ('output', 'html') else str(value))}")
    return " ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", metavar="RUNS", help="folder of runs")
    parser.add_argument("--output", metavar="FILE.md", help="write Markdown here (default: standard output)")
    parser.add_argument("--html", metavar="FILE.html", help="write a self-contained page with plots here")
    parser.add_argument("--baseline", metavar="NAME", help="the system to compare with (default: plain, or the first)")
    parser.add_argument("--systems", metavar="A,B", help="systems to report (default: all)")
    parser.add_argument("--title", help="title of the report")
    parser.add_argument(
        "--examples", type=positive, metavar="N", help="show N sentences where hints helped and where they hurt"
    )
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
