"""The report of the suite `xpr`: tables in Markdown and JSON, beside the paper's own numbers."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eval.report.blocks import Block, Bullets, Heading, Table, Text, as_markdown
from eval.report.tables import PAPERS
from eval.significance import LEVEL, Comparison, holm
from eval.xpr.models import ABLATIONS
from eval.xpr.plans import ALONE, COUNTS, SWEPT, UNTRAINED
from eval.xpr.scores import compared, score
from eval.xpr.suite import Row
from rag_mt import __version__
from rag_mt.base.paths import whole_file

log = logging.getLogger("rag_mt")

TITLES = {
    "unsupervised": "Without training pairs (the paper: unsupervised)",
    "supervised": "Supervised: trained on the pairs of the set",
    "zero-shot": "Zero-shot: trained on the pairs of {source}",
    "multilingual": "Multilingual: trained on the pairs of all sets",
}
SETTINGS = tuple(TITLES)
Key = tuple[str, str]
COMPARED: tuple[tuple[str, Key, Key], ...] = (
    ("XPR less CLWE, untrained", ("unsupervised", UNTRAINED), ("unsupervised", "CLWE")),
    (
        "XPR less CLSE, untrained: what example sentences are worth",
        ("unsupervised", UNTRAINED),
        ("unsupervised", ALONE),
    ),
    *(
        (f"XPR less {other}, {part}", (part, "XPR"), (part, other))
        for part in SETTINGS[1:]
        for other in ("CLWE", "CLSE")
    ),
    ("XPR supervised less untrained", ("supervised", "XPR"), ("unsupervised", UNTRAINED)),
    ("XPR zero-shot less supervised", ("zero-shot", "XPR"), ("supervised", "XPR")),
    ("XPR multilingual less supervised", ("multilingual", "XPR"), ("supervised", "XPR")),
    *((f"XPR less XPR {title}", ("ablations", "XPR"), ("ablations", title)) for title in ABLATIONS.values()),
)
"""Differences that the report tells, where both rows are there, over the sets that both have."""


@dataclass(frozen=True)
class Report:
    """All that was found. `notes` say what a reader must know to judge it; `layers` which layer stands for each system,
    `source` the set that zero-shot transfer comes from, `models` what is recorded of the trained models."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    layers: Mapping[str, int]
    source: str
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def part(self, name: str) -> list[Row]:
        """The rows of a part that have an answer."""
        return [row for row in self.rows if row.part == name and row.answers]

    @cached_property
    def differences(self) -> dict[str, tuple[Comparison, list[str]]]:
        """The differences of `COMPARED` that can be told, and the sets that they are over."""
        rows = {(row.part, row.name): row.answers for row in self.rows}
        made = {}
        for name, ours, theirs in COMPARED:
            one, other = rows.get(ours, {}), rows.get(theirs, {})
            if both := [pair for pair in one if pair in other]:
                made[name] = compared([one[pair] for pair in both], [other[pair] for pair in both]), both
        return made


def as_blocks(report: Report, picture: str | None) -> Iterator[Block]:
    """The report; `picture` is the file of the plot, if there is one."""
    yield Heading("Cross-lingual phrase retrieval, suite xpr", 1)
    yield Bullets(report.notes)
    if missing := _missing(report):
        yield Text("Not run, and therefore left out:")
        yield Bullets(tuple(missing))
    yield Heading("Four settings")
    yield Text("Accuracy@1 in %, the mean of both directions; the interval (95 %) is over concepts.")
    for part in SETTINGS:
        if rows := report.part(part):
            yield Heading(TITLES[part].format(source=report.source), 3)
            yield _table(rows, report.names)
        yield from _paper(part)
    if rows := list(_of_several_words(report)):
        yield Heading("Four settings, pairs with a phrase of several words")
        yield _table(rows, report.names)
    if found := list(_differences(report)):
        yield Heading("Differences")
        yield Text(
            "In points, over the sets that both rows have, with 95 % intervals by paired bootstrap over concepts and p "
            "of a two-sided randomization test that exchanges concepts. The rows of this table are one family: those "
            f"whose p by Holm is below {LEVEL} are significant."
        )
        yield Table(("difference", "points", "low", "high", "p", "p by Holm", "sets"), tuple(found))
    yield from _layers(report)
    yield from _counts(report, picture)
    for part, title in (
        ("matrix", "Trained on the row, asked on the column (test phrases alone as candidates)"),
        ("seeds", "Seeds (test phrases alone as candidates)"),
        ("ablations", "Ablations (test phrases alone as candidates)"),
        ("ablations, zero-shot", f"Ablations, zero-shot from {report.source} (test phrases alone as candidates)"),
    ):
        rows = report.part(part)
        if rows:
            yield Heading(title)
            yield _table(rows, report.names)
        if part == "seeds" and len(rows) > 1:
            values = [100 * row.average for row in rows]
            yield Text(f"Mean {np.mean(values):.1f}, standard deviation {np.std(values, ddof=1):.1f}.")
        if rows or part in ("matrix", "ablations"):
            yield from _paper(part)
    if report.models:
        yield Heading("Trained models")
        head = ("model", "steps", "of", "phrase pairs seen", "of each language", "minutes (wall clock)")
        yield Table(head, tuple(_training(report)))


def _training(report: Report) -> Iterator[tuple[str, ...]]:
    for name, facts in report.models.items():
        steps, planned = facts["steps"], facts["settings"]["training"]["steps"]
        minutes = facts["training_seconds"] / 60
        seen = facts["phrase_pairs_seen"]
        yield name, str(steps), str(planned), f"{seen:,}", _of_each(seen, facts["phrases"]), f"{minutes:.1f}"


def _of_each(seen: int, sets: Sequence[Mapping[str, Any]]) -> str:
    """Of the pairs that a model saw about how many were of each set: a batch is drawn from all alike."""
    sizes = {own["name"]: own["statistics"]["train"]["pairs"] for own in sets}
    return ", ".join(f"{name} {seen * size / sum(sizes.values()):,.0f}" for name, size in sizes.items())


def _table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    """Rows with an average where all planned sets are there, and its interval."""
    shown = [name for name in names if any(name in row.planned for row in rows)]
    lines = []
    for row in rows:
        cells = [f"{100 * row.answers[name].accuracy:.1f}" if name in row.answers else "" for name in shown]
        ends = (f"{100 * row.average:.1f}", f"{100 * row.score.low:.1f} to {100 * row.score.high:.1f}")
        lines.append((row.name, *cells, *(("", "") if row.missing else ends)))
    return Table(("system", *shown, "avg", "95 %"), tuple(lines))


def _of_several_words(report: Report) -> Iterator[Row]:
    """The rows of the four settings for such pairs alone."""
    for part in SETTINGS:
        for row in report.part(part):
            narrowed = {name: asked.of_several_words() for name, asked in row.answers.items() if asked.several.any()}
            if narrowed:
                yield Row(part, f"{part}: {row.name}", row.planned, narrowed)


def _paper(part: str) -> Iterator[Block]:
    for table in tomllib.loads(PAPERS.read_text(encoding="utf-8"))["xpr"]:
        if table["part"] == part:
            yield Text(f"The paper's own rows, other data and models: {table['title']}.")
            rows = [(name, *(f"{value:.1f}" for value in values)) for name, values in table["rows"].items()]
            yield Table(("the paper", *table["columns"]), tuple(rows))


def _missing(report: Report) -> list[str]:
    """A line for each part with what it lacks."""
    lines = []
    for part in dict.fromkeys(row.part for row in report.rows):
        own = [row for row in report.rows if row.part == part and row.missing]
        if part in ("layers", "examples"):  # many rows of the same few systems
            names = dict.fromkeys(row.name.rpartition("@")[0] for row in own)
            told = list(names)
        else:
            told = [row.name if not row.answers else f"{row.name} ({', '.join(row.missing)})" for row in own]
        if told:
            lines.append(f"{part}: {'; '.join(told)}")
    return lines


def _differences(report: Report) -> Iterator[tuple[str, ...]]:
    corrected = holm({name: gain.p for name, (gain, _) in report.differences.items()})
    for name, (gain, both) in report.differences.items():
        points = (f"{100 * value:+.1f}" for value in (gain.value, gain.low, gain.high))
        yield (name, *points, f"{gain.p:.4f}", f"{corrected[name]:.4f}", ", ".join(both))


def _layers(report: Report) -> Iterator[Block]:
    """The sweep over layers: a line per system and set, a column per layer."""
    rows = report.part("layers")
    lines = []
    for kind in SWEPT:
        own = [row for row in rows if row.name.rpartition("@")[0] == kind]
        for name in report.names:
            if own and all(name in row.answers for row in own):
                lines.append((f"{kind}: {name}", *(f"{100 * row.answers[name].accuracy:.1f}" for row in own)))
        if own and not any(row.missing for row in own):
            lines.append((f"{kind}: average", *(f"{100 * row.average:.1f}" for row in own)))
    if lines:
        yield Heading("Layers, on development pairs")
        yield Table(("system", *(str(n) for n in range(len(lines[0]) - 1))), tuple(lines))
    if trained := _by_number(report, "layers, trained"):
        layers = sorted({layer for own in trained.values() for layer in own})
        yield Heading("Layers of trained models, on development pairs")
        yield _sweep(trained, layers)
    if lines or trained:
        yield from _paper("layers")


def counted(report: Report) -> dict[str, dict[int, float]]:
    """Accuracy in % by system and number of example sentences."""
    return _by_number(report, "examples")


def _by_number(report: Report, part: str) -> dict[str, dict[int, float]]:
    """Accuracy in % by system and the number in the names `SYSTEM@NUMBER` of a part's rows."""
    made: dict[str, dict[int, float]] = {}
    for row in report.part(part):
        name, _, number = row.name.rpartition("@")
        made.setdefault(name, {})[int(number)] = 100 * row.average
    return made


def _sweep(found: Mapping[str, Mapping[int, float]], numbers: Sequence[int]) -> Table:
    lines = [(name, *(f"{own[n]:.1f}" if n in own else "" for n in numbers)) for name, own in found.items()]
    return Table(("system", *map(str, numbers)), tuple(lines))


def _counts(report: Report, picture: str | None) -> Iterator[Block]:
    found = counted(report)
    if found:
        yield Heading("Number of example sentences, on development pairs")
        yield _sweep(found, COUNTS)
        if picture:
            yield Text(
                f"The same as a picture: {picture}. The paper has a picture and no numbers (figure 2), of models that "
                "are trained with as many sentences as are read, and of one that is trained with 32."
            )


def as_dict(report: Report) -> dict[str, Any]:
    """JSON-able contents; accuracies are shares of 1."""
    return {
        "version": __version__,
        "suite": "xpr",
        "notes": list(report.notes),
        "missing": _missing(report),
        "layers": dict(report.layers),
        "source": report.source,
        "models": {
            name: {key: facts[key] for key in ("steps", "phrase_pairs_seen", "training_seconds", "settings")}
            for name, facts in report.models.items()
        },
        "rows": [
            {
                "part": row.part,
                "name": row.name,
                "sets": {name: asdict(score([own])) for name, own in row.answers.items()},
                "missing": list(row.missing),
                "average": None if row.missing else asdict(row.score),
            }
            for row in report.rows
            if row.answers
        ],
        "differences": {name: {**asdict(gain), "sets": both} for name, (gain, both) in report.differences.items()},
    }


def write_report(report: Report, path: Path) -> None:
    """Write the report as `.json`, or as `.md` with the plot beside it as `.svg`."""
    if path.suffix == ".json":
        text = json.dumps(as_dict(report), ensure_ascii=False, indent=1) + "\n"
    else:
        drawn = plot_counts(counted(report), path.with_suffix(".svg"))
        text = as_markdown(list(as_blocks(report, path.with_suffix(".svg").name if drawn else None)))
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")


def plot_counts(counts: Mapping[str, Mapping[int, float]], path: Path) -> bool:
    """Draw accuracy against the number of example sentences; returns whether there was something to draw."""
    if not counts:
        return False
    if find_spec("matplotlib") is None:
        log.info("%s is not drawn: it needs `pip install matplotlib`", path)
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, own in counts.items():
        axes.plot(list(own), list(own.values()), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
    axes.set_xlabel("example sentences per phrase")
    axes.set_ylabel("accuracy@1, %")
    axes.legend()
    with whole_file(path) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})
    return True
