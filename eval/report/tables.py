"""The tables of a report: scores, gains, the papers' rows, hints, format and speed; and single sentences."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import stdev

from eval.report.blocks import Block, Bullets, Heading, Table, Text
from eval.report.runs import GROUPS, Runs
from eval.report.statistics import FAULTS, completion_faults, hint_statistics, new_hints, translation_faults
from eval.significance import LEVEL
from eval.translation.records import Record

PAPERS = Path(__file__).parents[1] / "papers.toml"
BETTER, WORSE = "↑", "↓"
NONE = "–"


def score_tables(runs: Runs) -> Iterator[Block]:
    """For each metric and group of directions the scores of all systems, marked where they differ from the baseline."""
    yield Heading("Scores")
    yield Text(
        f"{BETTER} and {WORSE} mark scores above and below those of {runs.baseline} where a two-sided randomization "
        f"test gives p < {LEVEL} by Holm over its family: the first is {runs.primary} over all {runs.places}, a test "
        f"for each system; the second is every other test of this report, of all metrics, {runs.places} and averages"
        f"{f' (of single cells only by {runs.primary})' if runs.of_domains else ''}. Averages count {runs.places} "
        "alike."
    )
    for metric in runs.metrics:
        if runs.of_domains:
            yield from average_table(runs, metric)
        for group, directions in runs.groups.items():
            yield Heading(f"{metric}, {GROUPS.get(group, group)}", 3)
            averaged = len(directions) > 1
            rows = [_score_row(runs, system, directions, metric, averaged) for system in runs.systems]
            yield Table((metric, *directions, *(["avg"] if averaged else [])), rows)


def _score_row(runs: Runs, system: str, directions: Sequence[str], metric: str, averaged: bool) -> list[str]:
    cells = [_mean_cell(runs, system, [name], metric) for name in directions]
    return [system, *cells, *([_mean_cell(runs, system, directions, metric)] if averaged else [])]


def _mean_cell(runs: Runs, system: str, directions: Sequence[str], metric: str) -> str:
    """The mean score over directions with its mark, and the standard deviation over several trainings; a dash where the
    system lacks one."""
    scores = [
        _average([runs.by_place[name, direction].scores[metric].corpus for direction in directions])
        for name in runs.trained[system]
        if all((name, direction) in runs.by_place for direction in directions)
    ]
    if not scores:
        return NONE
    spread = f" ± {stdev(scores):.2f}" if len(scores) > 1 else ""
    return f"{_average(scores):.2f}{spread}{mark(runs, system, directions, metric)}"


def average_table(runs: Runs, metric: str) -> Iterator[Block]:
    """The mean scores of all systems by domain, by group of directions, and over all."""
    yield Heading(f"{metric}, averages", 3)
    rows = [
        [system, *(_mean_cell(runs, system, names, metric) for names in runs.averaged.values())]
        for system in runs.systems
    ]
    yield Table((metric, *runs.averaged), rows)


def mark(runs: Runs, system: str, directions: Sequence[str], metric: str) -> str:
    """The sign of a significant difference to the baseline, else nothing."""
    comparison = runs.comparison(system, directions, metric)
    if comparison is None or not runs.significant(system, directions, metric):
        return ""
    return f" {BETTER if comparison.value > 0 else WORSE}"


def gain_tables(runs: Runs) -> Iterator[Block]:
    """For each metric the mean gain of each system over the baseline with its interval and tests."""
    if len(runs.systems) < 2:
        return
    yield Heading(f"Gains over {runs.baseline}")
    unit = "blocks of consecutive sentences" if runs.of_domains else "sentences"
    seeds = " Of a system that was trained several times both are about other trainings too."
    yield Text(
        f"p is that of a two-sided randomization test, which exchanges the outputs for {unit}; p by Holm is "
        f"corrected for the number of tests of its family (see Scores): below {LEVEL} a difference is significant. "
        f"Intervals are by bootstrap over {unit}.{seeds if len(runs.trainings) > len(runs.systems) else ''}"
    )
    head = ("system", runs.places, "gain", "95 % interval", "p", "p by Holm", "better", "significantly")
    for metric in runs.metrics:
        rows = [
            _gain_row(runs, system, title, names, metric)
            for system in runs.systems[1:]
            for title, names in runs.averaged.items()
            if runs.comparison(system, names, metric)
        ]
        yield Heading(metric, 3)
        yield Table(head, rows)


def _gain_row(runs: Runs, system: str, title: str, names: Sequence[str], metric: str) -> list[str]:
    whole = runs.comparisons[system, tuple(names), metric]
    common = runs.common(system, names)
    single, (up, down) = runs.single_gains(system, names, metric), runs.single_significant(system, names, metric)
    return [
        system,
        title if len(common) == len(names) else f"{title}, {len(common)} of {len(names)} {runs.places}",
        f"{whole.value:+.2f}",
        f"{whole.low:+.2f} to {whole.high:+.2f}",
        f"{whole.p:.4f}",
        f"{runs.corrected[system, tuple(names), metric]:.4f}",
        f"{sum(value > 0 for value in single)} of {len(single)}" if single else NONE,
        f"{up} better, {down} worse" if single else NONE,
    ]


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
        yield Table(("system", *table["directions"], "avg", "gain"), rows)


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def hint_tables(runs: Runs) -> Iterator[Block]:
    """For each system that showed hints what they were worth."""
    shown = [s for s in runs.trainings if any(r.translation.hints for run in runs.of(s) for r in run.records)]
    if not shown:
        return
    yield Heading("Hints")
    yield Text(
        "Per direction: sentences that were shown hints (with a memory those whose draft was not chosen all the same); "
        "hints per sentence; hints whose phrase stands in the reference word for word, and with each word in any form "
        "(lemmas); hints whose phrase stands in the output, and in output and reference; the share of the "
        "references' characters that such phrases cover; chrF of the "
        f"hints alone, pasted together; and the mean difference of sentence chrF to {runs.baseline} for sentences with "
        "hints and for those without. Other wordings count as wrong, so that precision is understated. Then, what was "
        f"new to {runs.baseline}: the share of hints whose phrase its output has already; and of the others how many "
        "are right by the reference and how many are not, each with how many the output took up."
    )
    head = (
        *("direction", "with hints", "hints", "in reference", "by lemma", "taken up", "taken up, right"),
        *("covered", "pasted chrF", "gain with", "gain without"),
    )
    new_head = ("direction", "said already", "new, right", "of these taken up", "new, wrong", "of these taken up")
    for system in shown:
        rows, new_rows = [], []
        for run in runs.of(system):
            base = runs.baseline_of(run)
            gains = run.sentence_chrf - base.sentence_chrf if base else None
            own = hint_statistics(run.records, run.target, gains)
            shares = (own.literal, own.by_lemma, own.used, own.used_right, own.covered)
            differences = [NONE if gain is None else f"{gain:+.2f}" for gain in (own.gain, own.gain_without)]
            cells = [share(own.shown), f"{own.hints:.2f}", *map(share, shares), f"{own.pasted:.1f}", *differences]
            rows.append([run.direction, *cells])
            if base:
                said, *counts = new_hints(run.records, [r.text for r in base.records])
                new_rows.append([run.direction, share(said), *map(str, counts)])
        yield Heading(system, 3)
        yield Table(head, rows)
        if new_rows:
            yield Table(new_head, new_rows)


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
    for system in runs.trainings:
        records = [record for run in runs.of(system) for record in run.records]
        for title, faults_of in (("completions", completion_faults), ("translations", translation_faults)):
            faults = [faults_of(record) for record in records]
            clean = sum(not own for own in faults) / max(len(records), 1)
            counts = [str(sum(name in own for own in faults)) for name in FAULTS]
            rows.append((f"{system}, {title}", str(len(records)), share(clean, 2), *counts))
    yield Table(("system", "outputs", "clean", *FAULTS), rows)


def speed_table(runs: Runs) -> Iterator[Block]:
    """What the runs took."""
    yield Heading("Speed and length")
    yield Text(
        "Loading of models is left out; prompts are built in the time of retrieval. All sentences that were "
        "translated. In float32 an output depends on its prompt alone: what another system had asked the same model is "
        "not generated again, so that sentences/s counts retrieval by all sentences, generation by the generated ones."
    )
    rows = []
    for system in runs.trainings:
        own = runs.of(system)
        retrieval, generation = (sum(run.facts["seconds"][part] for run in own) for part in ("retrieval", "generation"))
        sentences, generated = sum(run.translated for run in own), sum(run.generated for run in own)
        tokens = sum(run.facts["tokens"] for run in own)
        each = retrieval / sentences + generation / generated if generated else 0.0
        counts = (str(sentences), str(generated), f"{retrieval:.1f}", f"{generation:.1f}")
        speeds = (number(1 / each if each else None, 2), str(tokens), f"{tokens / max(generation, 1e-9):.1f}")
        records = [record for run in own for record in run.records]
        length = sum(len(r.text) for r in records) / max(sum(len(r.reference) for r in records), 1)
        rows.append((system, *counts, *speeds, f"{length:.3f}"))
    counted = ("system", "sentences", "generated", "retrieval s", "generation s")
    yield Table((*counted, "sentences/s", "tokens", "tokens/s", "length"), rows)
    yield Text("Length: characters of the outputs for each character of the references, of the sentences that count.")


def examples(runs: Runs, count: int) -> Iterator[Block]:
    """For each system with hints the sentences with hints whose chrF rose and fell most against the baseline, `count`
    of each."""
    yield Heading("Examples")
    for system in runs.trainings[len(runs.trained[runs.baseline]) :]:
        differences = [
            (gain, run.direction, record, other)
            for run in runs.of(system)
            if (base := runs.baseline_of(run))
            for gain, record, other in zip(
                (run.sentence_chrf - base.sentence_chrf).tolist(), run.records, base.records, strict=True
            )
            if record.translation.hints
        ]
        differences.sort(key=lambda difference: difference[0])
        helped = [difference for difference in reversed(differences) if difference[0] > 0][:count]
        hurt = [difference for difference in differences if difference[0] < 0][:count]
        for title, chosen in (("helped", helped), ("hurt", hurt)):
            if chosen:
                yield Heading(f"{system}: where hints {title}", 3)
            for gain, direction, record, other in chosen:
                yield Text(f"{direction}, sentence chrF {gain:+.1f}")
                outputs = (f"{runs.baseline}: {other.text}", f"{system}: {record.text}")
                yield Bullets((f"source: {record.source}", f"reference: {record.reference}", _hints(record), *outputs))


def _hints(record: Record) -> str:
    hints = (
        f"{hint.source_span.of(record.source)} → {hint.phrase} ({hint.hit.score:.2f}{', taken up' if used else ''})"
        for hint, used in zip(record.translation.hints, record.translation.used, strict=True)
    )
    return f"hints: {'; '.join(hints)}"


def number(value: float | None, digits: int) -> str:
    """A number, or a dash for none."""
    return NONE if value is None else f"{value:.{digits}f}"


def share(value: float | None, digits: int = 1) -> str:
    """A share of 1 in percent, or a dash for none."""
    return NONE if value is None else f"{100 * value:.{digits}f} %"
