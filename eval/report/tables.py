"""The tables of a report: scores, gains, the papers' rows, hints, format and speed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from eval.report.blocks import Block, Heading, Table, Text
from eval.report.hints import hint_statistics, new_hints
from eval.report.runs import GROUPS, ReportRun, Runs
from eval.significance import LEVEL
from eval.translation.format import FAULTS, clean_counts

PAPERS = Path(__file__).parents[1] / "papers.toml"
BETTER, WORSE = "↑", "↓"
NONE = "–"


def score_tables(runs: Runs) -> Iterator[Block]:
    """For each metric and group of directions the scores of all systems, marked where they differ from the baseline."""
    yield Heading("Scores")
    yield Text(
        f"{BETTER} and {WORSE} mark scores above and below those of {runs.baseline} where a two-sided randomization "
        f"test gives p < {LEVEL} by Holm over its family: the first is {runs.primary} over all directions, a test for "
        "each system; the second is every other test of this report, of all metrics, directions and averages. Averages "
        "count directions alike."
    )
    for metric in runs.metrics:
        for group, directions in runs.groups.items():
            yield Heading(f"{metric}, {GROUPS[group]}", 3)
            averaged = len(directions) > 1
            rows = [_score_row(runs, system, directions, metric, averaged) for system in runs.systems]
            yield Table((metric, *directions, *(["avg"] if averaged else [])), tuple(rows))


def _score_row(runs: Runs, system: str, directions: Sequence[str], metric: str, averaged: bool) -> tuple[str, ...]:
    values = [runs.score(system, name, metric) for name in directions]
    cells = [
        number(value, 2) + mark(runs, system, [name], metric) for value, name in zip(values, directions, strict=True)
    ]
    if averaged:
        known = [value for value in values if value is not None]
        whole = len(known) == len(values)
        cells.append(number(sum(known) / len(known), 2) + mark(runs, system, directions, metric) if whole else NONE)
    return (system, *cells)


def mark(runs: Runs, system: str, directions: Sequence[str], metric: str) -> str:
    """The sign of a significant difference to the baseline, else nothing."""
    found = runs.comparison(system, directions, metric)
    if found is None or not runs.significant(system, directions, metric):
        return ""
    return f" {BETTER if found.value > 0 else WORSE}"


def gain_tables(runs: Runs) -> Iterator[Block]:
    """For each metric the mean gain of each system over the baseline with its interval and tests."""
    if len(runs.systems) < 2:
        return
    yield Heading(f"Gains over {runs.baseline}")
    yield Text(
        "p is that of a two-sided randomization test, which exchanges the outputs for sentences; p by Holm is "
        f"corrected for the number of tests of its family (see Scores): below {LEVEL} a difference is significant. "
        "Intervals are by bootstrap over sentences."
    )
    head = ("system", "directions", "gain", "95 % interval", "p", "p by Holm", "better", "significantly")
    for metric in runs.metrics:
        rows = []
        for system in runs.systems[1:]:
            for title, names in runs.averaged.items():
                found = runs.comparison(system, names, metric)
                if found is None:
                    continue
                compared = {name: runs.comparison(system, [name], metric) for name in names}
                single = {name: own.value for name, own in compared.items() if own}
                marked = [value for name, value in single.items() if runs.significant(system, [name], metric)]
                some = "" if len(single) == len(names) else f", {len(single)} of {len(names)} directions"
                better = sum(value > 0 for value in single.values())
                up, down = sum(value > 0 for value in marked), sum(value < 0 for value in marked)
                rows.append(
                    (
                        system,
                        title + some,
                        f"{found.value:+.2f}",
                        f"{found.low:+.2f} to {found.high:+.2f}",
                        f"{found.p:.4f}",
                        f"{runs.corrected[system, tuple(names), metric]:.4f}",
                        f"{better} of {len(single)}",
                        f"{up} better, {down} worse",
                    )
                )
        yield Heading(metric, 3)
        yield Table(head, tuple(rows))


def paper_tables(runs: Runs) -> Iterator[Block]:
    """What papers report, if this is a suite of their directions."""
    if runs.suite_name not in ("wmt16", "dev"):
        return
    yield Heading("The papers' own rows")
    yield Text(
        "These are other metrics, models and index text than ours: the scales are not the same, and only the order of "
        "systems and the direction of gains can be compared."
    )
    for table in tomllib.loads(PAPERS.read_text(encoding="utf-8"))["tables"]:
        yield Heading(f"{table['paper']}: {table['title']}", 3)
        base = _average(table["rows"][table["baseline"]])
        rows = [
            (name, *(f"{v:.2f}" for v in values), f"{_average(values):.2f}", f"{_average(values) - base:+.2f}")
            for name, values in table["rows"].items()
        ]
        yield Table(("system", *table["directions"], "avg", "gain"), tuple(rows))


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


NEW_HEAD = ("direction", "said already", "new, right", "of these taken up", "new, wrong", "of these taken up")


def hint_tables(runs: Runs) -> Iterator[Block]:
    """For each system that showed hints what they were worth."""
    shown = [s for s in runs.systems if any(r.translation.hints for run in runs.of(s) for r in run.records)]
    if not shown:
        return
    yield Heading("Hints")
    yield Text(
        "Per direction: sentences that were shown hints; hints per sentence; hints whose phrase stands in the "
        "reference word for word, and with each word in any form (lemmas); hints whose phrase stands in the output, "
        "and in output and reference; the share of the references' characters that such phrases cover; chrF of the "
        f"hints alone, pasted together; and the mean difference of sentence chrF to {runs.baseline} for sentences with "
        "hints and for those without. Other wordings count as wrong, so that precision is understated. Then, what was "
        f"new to {runs.baseline}: the share of hints whose phrase its output has already; and of the others how many "
        "are right by the reference and how many are not, each with how many the output took up."
    )
    head = (
        *("direction", "with hints", "hints", "in reference", "by lemma", "taken up", "taken up, right"),
        *("covered", "pasted chrF", "gain with", "gain without"),
    )
    for system in shown:
        yield Heading(system, 3)
        rows, new = [], []
        for run in runs.of(system):
            base = runs.by_place.get((runs.baseline, run.direction))
            compared = base is not None and base is not run
            scores = (run.sentence_chrf, base.sentence_chrf) if compared and base else (None, None)
            own = hint_statistics(run.records, run.target, *scores)
            rows.append(
                (
                    run.direction,
                    share(own.shown),
                    f"{own.hints:.2f}",
                    *(share(value) for value in (own.literal, own.by_lemma, own.used, own.used_right, own.covered)),
                    f"{own.pasted:.1f}",
                    *(NONE if value is None else f"{value:+.2f}" for value in (own.gain, own.gain_without)),
                )
            )
            if compared and base:
                found = new_hints(run.records, [r.text for r in base.records])
                counts = (found.right, found.right_used, found.wrong, found.wrong_used)
                new.append((run.direction, share(found.said), *map(str, counts)))
        yield Table(head, tuple(rows))
        if new:
            yield Table(NEW_HEAD, tuple(new))


def format_table(runs: Runs) -> Iterator[Block]:
    """How many outputs are one clean translation."""
    yield Heading("Format")
    yield Text(
        "Outputs that are one clean translation: one that could be read, no echo of the source, no loop, no mark of "
        "the prompts, ended by itself; of the completions as the language model gave them, and of what the answer "
        "reader makes of them. More than the translation (a line break in place of the end of text, where generation "
        "is stopped; labels) is a fault of completions only."
    )
    rows = []
    for system in runs.systems:
        counts = [clean_counts(run.records) for run in runs.of(system)]
        total = sum(own.outputs for own in counts)
        for title, own, faults in (
            ("completions", [c.raw for c in counts], [c.raw_faults for c in counts]),
            ("translations", [c.text for c in counts], [c.text_faults for c in counts]),
        ):
            numbers = [str(sum(found[name] for found in faults)) for name in FAULTS]
            rows.append((f"{system}, {title}", str(total), share(sum(own) / max(total, 1), 2), *numbers))
    yield Table(("system", "outputs", "clean", *FAULTS), tuple(rows))


def speed_table(runs: Runs) -> Iterator[Block]:
    """What the runs took."""
    yield Heading("Speed and length")
    yield Text(
        "Loading of models is left out; prompts are built in the time of retrieval. All sentences that were "
        "translated. In float32 an output depends on its prompt alone: what another system had asked the same model is "
        "not generated again, so that sentences/s counts retrieval by all sentences, generation by the generated ones."
    )
    rows = []
    for system in runs.systems:
        own = runs.of(system)
        seconds = {part: sum(run.facts["seconds"][part] for run in own) for part in ("retrieval", "generation")}
        sentences, generated = sum(run.translated for run in own), sum(run.generated for run in own)
        tokens = sum(run.facts["tokens"] for run in own)
        each = seconds["retrieval"] / sentences + seconds["generation"] / generated if generated else 0.0
        rows.append(
            (
                system,
                str(sentences),
                str(generated),
                f"{seconds['retrieval']:.1f}",
                f"{seconds['generation']:.1f}",
                number(1 / each if each else None, 2),
                str(tokens),
                f"{tokens / max(seconds['generation'], 1e-9):.1f}",
                f"{length_ratio(own):.3f}",
            )
        )
    counts = ("system", "sentences", "generated")
    head = (*counts, "retrieval s", "generation s", "sentences/s", "tokens", "tokens/s", "length")
    yield Table(head, tuple(rows))
    yield Text("Length: characters of the outputs for each character of the references, of the sentences that count.")


def length_ratio(runs: Sequence[ReportRun]) -> float:
    """Characters of the outputs for each of the references."""
    outputs, references = (
        sum(len(getattr(r, side)) for run in runs for r in run.records) for side in ("text", "reference")
    )
    return outputs / max(references, 1)


def number(value: float | None, digits: int) -> str:
    """A number, or a dash for none."""
    return NONE if value is None else f"{value:.{digits}f}"


def share(value: float | None, digits: int = 1) -> str:
    """A share of 1 in percent, or a dash for none."""
    return NONE if value is None else f"{100 * value:.{digits}f} %"
