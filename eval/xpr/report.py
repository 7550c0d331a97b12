"""The suite `xpr` of `python -m eval.phrases`, phrase retrieval both ways in the four settings of the XPR paper: its
options, and its report in Markdown and JSON, beside the numbers of the paper."""

from __future__ import annotations

import argparse
import logging
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.phrase_sets import QUICK
from eval.report.blocks import Block, Bullets, Heading, Table, Text, as_markdown
from eval.report.tables import PAPERS
from eval.significance import LEVEL, Comparison, holm
from eval.xpr.baselines import SENTENCES
from eval.xpr.plans import ABLATIONS, ALONE, COUNTS, SWEPT, UNTRAINED, Plans
from eval.xpr.suite import PARTS, SETTINGS, Row, Sets, compared, score
from rag_mt import __version__
from rag_mt.base.console import OK, note, positive
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.files import whole_file, write_json, write_whole
from rag_mt.base.settings import shown_path

log = logging.getLogger("rag_mt")

TITLES = {
    "unsupervised": "Without training pairs (the paper: unsupervised)",
    "supervised": "Supervised: trained on the pairs of the set",
    "zero-shot": "Zero-shot: trained on the pairs of {source}",
    "multilingual": "Multilingual: trained on the pairs of all sets",
    "matrix": "Trained on the row, asked on the column (test phrases alone as candidates)",
    "seeds": "Seeds (test phrases alone as candidates)",
    "ablations": "Ablations (test phrases alone as candidates)",
    "ablations, zero-shot": "Ablations, zero-shot from {source} (test phrases alone as candidates)",
}
"""Headings of the tables with a column per set, by the part of the report."""
PLAIN = ("unsupervised", UNTRAINED)
Key = tuple[str, str]
COMPARED: dict[str, tuple[Key, Key]] = {
    "XPR less CLWE, untrained": (PLAIN, ("unsupervised", "CLWE")),
    "XPR less CLSE, untrained: what example sentences are worth": (PLAIN, ("unsupervised", ALONE)),
    **{
        f"XPR less {other}, {part}": ((part, "XPR"), (part, other))
        for part in SETTINGS[1:]
        for other in ("CLWE", "CLSE")
    },
    "XPR supervised less untrained": (("supervised", "XPR"), PLAIN),
    "XPR zero-shot less supervised": (("zero-shot", "XPR"), ("supervised", "XPR")),
    "XPR multilingual less supervised": (("multilingual", "XPR"), ("supervised", "XPR")),
    **{f"XPR less XPR {title}": (("ablations", "XPR"), ("ablations", title)) for title in ABLATIONS.values()},
}
"""Differences that the report tells, where both rows are there, over the sets that both have."""
OPTIONS = ("phrases", "models", "runs", "parts", "minutes", "encoder", "examples", "others", "dev_pairs")
"""The options that only this suite has."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add `OPTIONS`."""
    add = parser.add_argument_group("suite xpr").add_argument
    add("--phrases", metavar="DIR", help="phrase sets, the output of `python -m finetune.xpr.data`")
    names = "supervised.XX-en, multilingual, seed.N.XX-en, ablation.NAME.XX-en, layer.N.XX-en"
    add("--models", metavar="DIR", help=f"trained models: {names}")
    add("--runs", metavar="DIR", default="xpr-runs", help="results, to go on with")
    parts_help = f"what to compute: {', '.join(PARTS)}, or none; results that are there are shown anyway (default: all)"
    add("--parts", metavar="NAME,...", default=",".join(PARTS), help=parts_help)
    add("--minutes", type=positive, metavar="N", help="begin nothing after N minutes (default: no limit)")
    add("--encoder", default=DEFAULT_ENCODER, help="encoder without training")
    for name, kind, default, what in (
        ("examples", positive, 8, "example sentences of a phrase"),
        ("others", int, 20_000, "further candidates on each side"),
        ("dev-pairs", positive, 500, "pairs in the sweeps"),
    ):
        add(f"--{name}", type=kind, default=default, metavar="N", help=what)


def evaluate_xpr(options: argparse.Namespace) -> int:
    """Compute what is not there yet, print the report and write it."""
    if not options.phrases:
        note("no --phrases DIR is given: this is the quick form on the sample corpus, which measures nothing")
    sets = Sets(options)
    if not options.data:
        note("without --data DIR there are no word vectors: rows of CLWE that were not computed earlier are missing")
    plans = Plans(sets)
    models = {name: plans.models.facts(name, sets.every) for name in plans.known_models()}
    swept = sets.rows(plans.by_layer())
    chosen = plans.choose_layers(swept)
    rows = (*swept, *sets.rows(plans.tables()))
    report = Report(rows, sets.names, tuple(_notes(sets, plans, chosen)), plans.layers, models)
    note(f"{sets.cells.computed} results were computed; all are in {Path(options.runs)}")
    print(as_markdown(list(as_blocks(report, None))), end="")
    for name in options.output:
        write_report(report, Path(name))
    return OK


def _notes(sets: Sets, plans: Plans, chosen: bool) -> Iterator[str]:
    """What a reader must know."""
    options = sets.options
    if not options.phrases:
        yield QUICK
    for name in sets.names:
        task, examples = sets.task(name, "test", options.others), sets.every[name]
        sides = zip(task.candidates, examples.sides, strict=True)
        counts = " and ".join(f"{len(candidates)} of {side.language}" for candidates, side in sides)
        kinds = f"{task.several.sum()} with several words, {len(set(task.concepts))} concepts"
        several = sum(len(right) > 1 for side in task.answers for right in side)
        yield (
            f"{name}: {len(task.pairs)} test pairs ({kinds}), searched among {counts}; {several} of "
            f"{2 * len(task.pairs)} queries have several right answers; {len(examples.pairs('train'))} training and "
            f"{len(examples.pairs('dev'))} development pairs"
        )
    yield (
        "right is every translation that the lexicon has of a phrase (the paper: that of the pair alone); of the pairs "
        "that could be tested those with few other translations were taken first"
    )
    yield (
        f"XPR reads at most {options.examples} example sentences of a phrase (the paper: 32), of queries as of "
        "candidates"
    )
    yield f"CLWE: word vectors of each language from {SENTENCES:,} different sentences of its training text at most"
    layers = "; ".join(f"{kind}: {plans.layers[kind]}" for kind in SWEPT)
    why = "best on development pairs" if chosen else "the encoder's usual one where the sweep was not run"
    yield f"encoder {shown_path(options.encoder)}; layers ({why}): {layers}"
    if without := [name for name in sets.names if name not in sets.with_dev]:
        yield f"without development pairs, so that nothing is chosen on them: {', '.join(without)}"
    yield f"layers and numbers of examples: {options.dev_pairs} development pairs, searched among their own phrases"
    if options.encoder == DEFAULT_ENCODER:
        yield (
            f"this encoder has seen parallel text in its own training: its row ({UNTRAINED}) is called untrained, not "
            "unsupervised, and compared with the paper's XLM-R as a finding"
        )


@dataclass(frozen=True)
class Report:
    """All results. `notes` say what a reader must know to judge them; `layers` which layer stands for each system,
    `models` what is recorded of the trained models. The first of `names` is the source of zero-shot transfer."""

    rows: tuple[Row, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]
    layers: Mapping[str, int]
    models: Mapping[str, Mapping[str, Any]]

    def part(self, name: str) -> list[Row]:
        """The rows of a part that have an answer."""
        return [row for row in self.rows if row.part == name and row.answers]

    def by_number(self, part: str) -> dict[str, dict[int, float]]:
        """Accuracy in % by system and the number in the names `SYSTEM@NUMBER` of a part's rows."""
        systems: dict[str, dict[int, float]] = {}
        for row in self.part(part):
            name, _, number = row.name.rpartition("@")
            systems.setdefault(name, {})[int(number)] = 100 * row.average
        return systems

    @cached_property
    def differences(self) -> dict[str, tuple[Comparison, list[str]]]:
        """The differences of `COMPARED` that can be told, and the sets that they are over."""
        answers = {(row.part, row.name): row.answers for row in self.rows}
        differences = {}
        for name, keys in COMPARED.items():
            ours, theirs = (answers.get(key, {}) for key in keys)
            if both := [pair for pair in ours if pair in theirs]:
                differences[name] = compared([ours[pair] for pair in both], [theirs[pair] for pair in both]), both
        return differences

    @property
    def missing(self) -> list[str]:
        """A line for each part with what it lacks."""
        parts: dict[str, dict[str, None]] = {}
        for row in self.rows:
            if row.missing:
                name = row.name if not row.answers else f"{row.name} ({', '.join(row.missing)})"
                if row.part in ("layers", "examples"):  # many rows of the same few systems
                    name = row.name.rpartition("@")[0]
                parts.setdefault(row.part, {})[name] = None
        return [f"{part}: {'; '.join(names)}" for part, names in parts.items()]


def as_blocks(report: Report, picture: str | None) -> Iterator[Block]:
    """The report; `picture` is the file of the plot, if there is one."""
    yield Heading("Cross-lingual phrase retrieval, suite xpr", 1)
    yield Bullets(report.notes)
    if report.missing:
        yield Text("Not run, and therefore left out:")
        yield Bullets(tuple(report.missing))
    yield Heading("Four settings")
    yield Text("Accuracy@1 in %, the mean of both directions; the interval (95 %) is over concepts.")
    for part in SETTINGS:
        yield from _by_set(report, report.part(part), TITLES[part], level=3)
        yield from _paper(part)
    several = [
        replace(row, name=f"{part}: {row.name}", answers=answers)
        for part in SETTINGS
        for row in report.part(part)
        if (answers := {n: asked.of_several_words() for n, asked in row.answers.items() if asked.several.any()})
    ]
    yield from _by_set(report, several, "Four settings, pairs with a phrase of several words")
    if report.differences:
        yield Heading("Differences")
        yield Text(
            "In points, over the sets that both rows have, with 95 % intervals by paired bootstrap over concepts and p "
            "of a two-sided randomization test that exchanges concepts. The rows of this table are one family: those "
            f"whose p by Holm is below {LEVEL} are significant."
        )
        corrected = holm({name: gain.p for name, (gain, _) in report.differences.items()})
        lines = []
        for name, (gain, both) in report.differences.items():
            points = (f"{100 * value:+.1f}" for value in (gain.value, gain.low, gain.high))
            lines.append((name, *points, f"{gain.p:.4f}", f"{corrected[name]:.4f}", ", ".join(both)))
        yield Table(("difference", "points", "low", "high", "p", "p by Holm", "sets"), tuple(lines))
    if swept := list(_swept(report)):
        yield Heading("Layers, on development pairs")
        yield Table(("system", *(str(n) for n in range(len(swept[0]) - 1))), tuple(swept))
    if trained := report.by_number("layers, trained"):
        yield Heading("Layers of trained models, on development pairs")
        yield _numbered(trained, sorted({layer for accuracies in trained.values() for layer in accuracies}))
    if swept or trained:
        yield from _paper("layers")
    if counted := report.by_number("examples"):
        yield Heading("Number of example sentences, on development pairs")
        yield _numbered(counted, COUNTS)
        if picture:
            yield Text(
                f"The same as a picture: {picture}. The paper has a picture and no numbers (figure 2), of models that "
                "are trained with as many sentences as are read, and of one that is trained with 32."
            )
    for part in ("matrix", "seeds", "ablations", "ablations, zero-shot"):
        rows = report.part(part)
        yield from _by_set(report, rows, TITLES[part])
        if part == "seeds":
            yield from _spread(rows)
        yield from _paper(part)
    if report.models:
        yield Heading("Trained models")
        head = ("model", "steps", "of", "phrase pairs seen", "of each language", "minutes (wall clock)")
        yield Table(head, tuple(_training(name, facts) for name, facts in report.models.items()))


def _by_set(report: Report, rows: Sequence[Row], title: str, level: int = 2) -> Iterator[Block]:
    """Rows with a column per set, and an average with its interval where all planned sets are there."""
    if not rows:
        return
    yield Heading(title.format(source=report.names[0]), level)
    names = [name for name in report.names if any(name in row.planned for row in rows)]
    lines = []
    for row in rows:
        cells = [f"{100 * row.answers[name].accuracy:.1f}" if name in row.answers else "" for name in names]
        ends = (f"{100 * row.average:.1f}", f"{100 * row.score.low:.1f} to {100 * row.score.high:.1f}")
        lines.append((row.name, *cells, *(("", "") if row.missing else ends)))
    yield Table(("system", *names, "avg", "95 %"), tuple(lines))


def _spread(rows: Sequence[Row]) -> Iterator[Block]:
    """Mean and deviation over seeds, by set, of which each row has one."""
    sets = list(dict.fromkeys(row.planned for row in rows))
    for own in sets:
        values = [100 * row.average for row in rows if row.planned == own]
        mean = f"Mean of {own[0]}:" if len(sets) > 1 else "Mean"
        if len(values) > 1:
            yield Text(f"{mean} {np.mean(values):.1f}, standard deviation {np.std(values, ddof=1):.1f}.")


def _swept(report: Report) -> Iterator[tuple[str, ...]]:
    """The sweep over layers: a line per system and set and for their average, a column per layer."""
    for kind in SWEPT:
        rows = [row for row in report.part("layers") if row.name.rpartition("@")[0] == kind]
        for name in report.names:
            if rows and all(name in row.answers for row in rows):
                yield f"{kind}: {name}", *(f"{100 * row.answers[name].accuracy:.1f}" for row in rows)
        if rows and not any(row.missing for row in rows):
            yield f"{kind}: average", *(f"{100 * row.average:.1f}" for row in rows)


def _numbered(systems: Mapping[str, Mapping[int, float]], numbers: Sequence[int]) -> Table:
    lines = [(name, *(f"{own[n]:.1f}" if n in own else "" for n in numbers)) for name, own in systems.items()]
    return Table(("system", *map(str, numbers)), tuple(lines))


def _paper(part: str) -> Iterator[Block]:
    for table in tomllib.loads(PAPERS.read_text(encoding="utf-8"))["xpr"]:
        if table["part"] == part:
            yield Text(f"The paper's own rows, other data and models: {table['title']}.")
            rows = [(name, *(f"{value:.1f}" for value in values)) for name, values in table["rows"].items()]
            yield Table(("the paper", *table["columns"]), tuple(rows))


def _training(name: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What a model saw in training; a batch is drawn from the pairs of all sets alike."""
    seen, planned = facts["phrase_pairs_seen"], facts["settings"]["training"]["steps"]
    sizes = {own["name"]: own["statistics"]["train"]["pairs"] for own in facts["phrases"]}
    of_each = ", ".join(f"{pair} {seen * size / sum(sizes.values()):,.0f}" for pair, size in sizes.items())
    return name, str(facts["steps"]), str(planned), f"{seen:,}", of_each, f"{facts['training_seconds'] / 60:.1f}"


def as_dict(report: Report) -> dict[str, Any]:
    """JSON-able contents; accuracies are shares of 1."""
    return {
        "version": __version__,
        "suite": "xpr",
        "notes": list(report.notes),
        "missing": report.missing,
        "layers": dict(report.layers),
        "source": report.names[0],
        "models": {
            name: {key: facts[key] for key in ("steps", "phrase_pairs_seen", "training_seconds", "settings")}
            for name, facts in report.models.items()
        },
        "rows": [
            {
                "part": row.part,
                "name": row.name,
                "sets": {name: asdict(score([asked])) for name, asked in row.answers.items()},
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
        write_json(path, as_dict(report))
    else:
        picture = path.with_suffix(".svg")
        counted = report.by_number("examples")
        drawn = bool(counted) and _plot(counted, picture)
        write_whole(path, as_markdown(list(as_blocks(report, picture.name if drawn else None))))


def _plot(systems: Mapping[str, Mapping[int, float]], path: Path) -> bool:
    """Draw accuracy against the number of example sentences; returns whether there is something to draw with."""
    if find_spec("matplotlib") is None:
        log.info("%s is not drawn: it needs matplotlib: `pip install 'rag-mt[eval]'`", path)
        return False
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, accuracies in systems.items():
        axes.plot(list(accuracies), list(accuracies.values()), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks(COUNTS, [str(n) for n in COUNTS])
    axes.set_xlabel("example sentences per phrase")
    axes.set_ylabel("accuracy@1, %")
    axes.legend()
    with whole_file(path) as part:
        figure.savefig(part, format="svg", metadata={"Date": None})
    return True
