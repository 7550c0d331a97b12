"""How well the estimator judges translations: against people's judgements, and against chrF where nobody judged.

    python -m eval.quality --data DIR [--model quality-e5-small] [--part dev|test] [--outputs OUTPUTS.jsonl] \\
        [--output FILE.md --output FILE.json]

People's judgements are those of DIR/quality (see `eval.data.judgements`), OUTPUTS.jsonl is what
`python -m finetune.quality.outputs` wrote, of which the part is read that nothing was trained on. Baselines that also
see no reference: the cosine of both sentences' vectors by the encoder that the estimator began with, and how far the
ratio of their lengths is from the usual one. Settings were chosen on `dev`.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from eval.data.damage import DAMAGES, with_damage
from eval.data.judgements import PARTS, JudgedSet, read_judgements, read_outputs
from eval.metrics.formulas import Formula, Rows
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from eval.significance import LEVEL, Comparison, compare, holm
from rag_mt.base.console import OK, Parser, add_model_options, progress, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.quality import GRADES, LEAST, Estimate, Said
from rag_mt.base.types import Skips
from rag_mt.quality.estimator import DEFAULT_ESTIMATOR, Estimator, open_estimator
from retrievers.encoders.encoder import TransformerEncoder, open_encoder

DAMAGED = 300
"""Good translations of a set that are damaged."""
FIFTH = 0.2
"""The share of translations that is looked at first, and the share that counts as bad."""
WAYS = ("estimator", "cosine", "lengths")
WITH_PROBABILITY = "with probability"
"""The way of estimates that count what the language model says of its own translations."""


def pearson(sums: Rows) -> Rows:
    """Pearson's r (rows,) of sums over translations: their number, x, y, x squared, y squared, x times y."""
    n, x, y, xx, yy, xy = sums.T
    spread = np.sqrt(np.maximum((n * xx - x * x) * (n * yy - y * y), 1e-12))
    correlations: Rows = (n * xy - x * y) / spread
    return correlations


PEARSON = Formula(pearson, pearson)


class Scored(NamedTuple):
    """A set with what people gave (translations,) and what each of WAYS says (translations,), the higher the better; of
    translations of our own also WITH_PROBABILITY."""

    judged: JudgedSet
    truth: NDArray[np.float64]
    ways: dict[str, NDArray[np.float64]]

    def correlation(self, way: str) -> float:
        return float(np.corrcoef(self.ways[way], self.truth)[0, 1])

    def kendall(self, way: str) -> float:
        """Kendall's tau-b."""
        return float(kendalltau(self.ways[way], self.truth).statistic)

    def found(self, way: str) -> float:
        """The share of the worst fifth by people that is in the worst fifth by a way."""
        count = round(FIFTH * len(self.truth))
        worst, sorted_first = (set(np.argsort(v, kind="stable")[:count].tolist()) for v in (self.truth, self.ways[way]))
        return len(worst & sorted_first) / count

    def statistics(self, way: str) -> Rows:
        """What `pearson` is made from, (translations, 6), both sides standardised."""
        x, y = (((v - v.mean()) / (v.std() or 1.0)) for v in (self.ways[way], self.truth))
        return np.stack([np.ones(len(x)), x, y, x * x, y * y, x * y], axis=1)


def scored(judged: JudgedSet, estimator: Estimator, encoder: TransformerEncoder) -> Scored:
    """What is said of the translations of a set."""
    pairs = [row.pair for row in judged.rows]
    sources, targets = (encoder.encode(side) for side in map(list, zip(*pairs, strict=True)))
    ratios = np.log([(len(target) + 1) / (len(source) + 1) for source, target in pairs])
    ways = {
        "estimator": np.array([estimate.score for estimate in estimator.estimate(pairs)]),
        "cosine": np.einsum("ij,ij->i", sources, targets).astype(np.float64),
        "lengths": -np.abs(ratios - np.median(ratios)),
    }
    if estimator.settings.probability and any(row.logprob is not None for row in judged.rows):
        said = Said(DEFAULT_LLM, judged.direction, [row.logprob for row in judged.rows])
        ways[WITH_PROBABILITY] = np.array([estimate.score for estimate in estimator.estimate(pairs, said)])
    return Scored(judged, np.array([row.score for row in judged.rows]), ways)


def evaluate(options: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs(options.output)
    skips = Skips()
    judged = read_judgements(Path(options.data), options.part, skips)
    outputs = read_outputs(Path(options.outputs), options.part, skips) if options.outputs else []
    estimator = open_estimator(options.model, options.device, options.dtype)
    encoder = open_encoder(estimator.settings.encoder, options.device, options.dtype)
    sets: list[Scored] = []
    with progress(len(judged) + len(outputs), "sets", "judging") as bar:
        for own in (*judged, *outputs):
            sets.append(scored(own, estimator, encoder))
            bar.update()
    by_people = [own for own in sets if own.judged.kind != "chrf"]
    blocks, facts = _of_people(by_people)
    if outputs:
        more, more_facts = _of_outputs([own for own in sets if own.judged.kind == "chrf"])
        blocks, facts = [*blocks, *more], facts | more_facts
    assessed = [own for own in by_people if own.judged.rows[0].mean is not None]
    head: list[Block] = [
        Heading("Estimates of quality without a reference", 1),
        Text(
            f"The {options.part} part, judged by {Path(options.model).name}: {speed(estimator, by_people[0]):.1f} ms "
            f"of processor time a translation ({str(estimator.dtype).removeprefix('torch.')})."
        ),
        Code(_command(options)),
    ]
    markdown = as_markdown([*head, *blocks, *_grades(assessed), *_damage(assessed, estimator)])
    sys.stdout.write(markdown)
    write_outputs(options.output, markdown, {"part": options.part, "model": estimator.fingerprint, **facts})
    return OK


def _command(options: argparse.Namespace) -> str:
    outputs = ["--outputs", "OUTPUTS.jsonl"] if options.outputs else []
    return shlex.join(["python", "-m", "eval.quality", "--data", "DATA", "--part", options.part, *outputs])


def speed(estimator: Estimator, own: Scored) -> float:
    """Milliseconds of processor time that an estimate takes, of many at once."""
    pairs = [row.pair for row in own.judged.rows]
    begun = time.process_time()
    estimator.estimate(pairs)
    return 1000 * (time.process_time() - begun) / len(pairs)


def against(sets: Sequence[Scored], way: str) -> dict[str, Comparison]:
    """Pearson's r of the estimator less that of another way, of each set."""
    return {own.judged.name: between([own], "estimator", way) for own in sets}


def between(sets: Sequence[Scored], way: str, other: str) -> Comparison:
    """Pearson's r of a way less that of another, over sets that are standardised each; translations of one source are
    exchanged together."""
    return compare(
        [own.statistics(way) for own in sets],
        [own.statistics(other) for own in sets],
        PEARSON,
        [np.unique([row.source for row in own.judged.rows], return_inverse=True)[1] for own in sets],
    )


def _with_interval(c: Comparison) -> str:
    return f"{c.value:+.3f} [{c.low:+.3f}, {c.high:+.3f}]"


def _cells(
    sets: Sequence[Scored], measure: Callable[[Scored, str], float], form: str, ways: Sequence[str] = WAYS
) -> list[str]:
    """The mean of a measure over sets, for each way."""
    return [format(np.mean([measure(own, way) for own in sets]), form) for way in ways]


def _worst(own: Scored, way: str) -> float:
    return 100 * own.found(way)


def _of_people(sets: Sequence[Scored]) -> tuple[list[Block], dict[str, Any]]:
    comparisons = {way: against(sets, way) for way in WAYS[1:]}
    corrected = holm({(way, name): c.p for way, own in comparisons.items() for name, c in own.items()})
    rows = []
    for own in sets:
        name = own.judged.name
        gains = [comparisons[way][name] for way in WAYS[1:]]
        rows.append(
            [
                name,
                str(len(own.truth)),
                *_cells([own], Scored.correlation, ".3f"),
                *map(_with_interval, gains),
                *_cells([own], Scored.kendall, ".3f"),
                *_cells([own], _worst, ".0f"),
            ]
        )
    average = [
        "average",
        "",
        *_cells(sets, Scored.correlation, ".3f"),
        *("" for _ in WAYS[1:]),
        *_cells(sets, Scored.kendall, ".3f"),
        *_cells(sets, _worst, ".0f"),
    ]
    heads = [
        "set",
        "translations",
        *(f"r {way}" for way in WAYS),
        *(f"estimator - {way}" for way in WAYS[1:]),
        *(f"tau {way}" for way in WAYS),
        *(f"worst fifth, % {way}" for way in WAYS),
    ]
    better = sum(p < LEVEL and comparisons[way][name].value > 0 for (way, name), p in corrected.items())
    blocks: list[Block] = [
        Heading("Against people's judgements"),
        Text(
            "Direct assessments (da) of sentences by several judges, and MQM penalties by experts. r is Pearson's, tau "
            "Kendall's (b), intervals are 95 % by bootstrap over sources; the worst fifth is the share of the fifth "
            "that people found worst that is in the fifth that a way finds worst (20 by chance). Of "
            f"{len(corrected)} differences to a baseline {better} are significant in favour of the estimator (p < .05, "
            "randomization test, Holm)."
        ),
        Table(heads, [*rows, average]),
    ]
    facts = {
        own.judged.name: {
            way: {
                "pearson": round(own.correlation(way), 4),
                "kendall": round(own.kendall(way), 4),
                "worst fifth": round(own.found(way), 4),
            }
            for way in WAYS
        }
        for own in sets
    }
    return blocks, facts


def _of_outputs(sets: Sequence[Scored]) -> tuple[list[Block], dict[str, Any]]:
    told = all(WITH_PROBABILITY in own.ways for own in sets)
    ways = (WITH_PROBABILITY, *WAYS) if told else WAYS
    rows = [
        [name, count, *_cells(some, Scored.correlation, ".3f", ways), *_cells(some, _worst, ".0f", ways)]
        for name, count, some in [
            *((own.judged.direction, str(len(own.truth)), [own]) for own in sets),
            ("average", "", sets),
        ]
    ]
    gain = between(sets, WITH_PROBABILITY, "estimator") if told else None
    blocks: list[Block] = [
        Heading("Against chrF, where nobody judged"),
        Text(
            "Translations by the embedded language model of held-out sources, judged by their chrF against one "
            "reference, which is a poor judge of a single sentence; the estimator has learned from others like them."
        ),
        Table(
            ["direction", "translations", *(f"r {way}" for way in ways), *(f"worst fifth, % {way}" for way in ways)],
            rows,
        ),
        *([Text(_about(gain))] if gain else []),
    ]
    facts = {own.judged.name: {way: round(own.correlation(way), 4) for way in ways} for own in sets}
    return blocks, facts


def _about(gain: Comparison) -> str:
    return (
        f"{WITH_PROBABILITY.capitalize()}: estimates that count how likely the language model found its own "
        f"translation. Mean r less that of the estimator alone: {_with_interval(gain)}, p {gain.p:.4f} (bootstrap "
        "and randomization test over sources)."
    )


def _grades(sets: Sequence[Scored]) -> list[Block]:
    """What people gave where the estimator gives a grade."""
    rows = []
    for own in sets:
        means = np.array([row.mean for row in own.judged.rows], np.float64)
        scores = own.ways["estimator"]
        grades = np.array([Estimate(score).grade for score in scores.tolist()])
        for grade in GRADES:
            at = grades == grade
            if at.any():
                counts = [f"{100 * np.mean(_graded(means[at], g)):.0f}" for g in GRADES]
                rows.append(
                    [
                        own.judged.name,
                        grade,
                        str(at.sum()),
                        f"{scores[at].mean():.0f}",
                        f"{means[at].mean():.0f}",
                        *counts,
                    ]
                )
    bounds = ", ".join(f"{grade} from {LEAST[grade]:.0f}" for grade in GRADES[:-1])
    return [
        Heading("Grades"),
        Text(
            f"What people gave, from 0 to 100, where the estimate has a grade ({bounds}), and what share of it has "
            "which grade."
        ),
        Table(["set", "grade", "translations", "expected", "people", *(f"people: {g}, %" for g in GRADES)], rows),
    ]


def _damage(sets: Sequence[Scored], estimator: Estimator) -> list[Block]:
    """How often good translations are told from the same ones damaged."""
    rows, rng = [], np.random.default_rng(1)
    for own in sets:
        good, cells = own.judged.good_rows[:DAMAGED], []
        for kind in DAMAGES:
            both = [(row.pair, made.pair) for row, made in with_damage(good, [kind], rng)]
            whole, broken = (np.array([e.score for e in estimator.estimate(side)]) for side in zip(*both, strict=True))
            cells.append(f"{100 * np.mean(whole > broken):.0f} ({broken.mean():.0f})")
        rows.append([own.judged.name, str(len(good)), *cells])
    return [
        Heading("Damaged translations"),
        Text(
            "The share in % of translations that people found good that are estimated better than the same ones "
            "damaged, and in brackets the mean estimate of the damaged ones: the translation of another sentence, a "
            "copy of the source, a part alone, the words in another order, a beginning again and again."
        ),
        Table(["set", "good translations", *DAMAGES], rows),
    ]


def _graded(means: NDArray[np.float64], grade: str) -> NDArray[np.bool_]:
    return np.array([Estimate(mean).grade == grade for mean in means.tolist()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    examples = ["--data DIR --part dev", "--data DIR --part test --output reports/estimation.md"]
    parser = Parser(prog="python -m eval.quality", description=__doc__, examples=examples)
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with quality/")
    add("--model", default=DEFAULT_ESTIMATOR, metavar="NAME", help="the estimator: a name or a folder")
    add("--part", choices=PARTS[1:], default="dev", help="the part that is judged")
    add("--outputs", metavar="FILE", help="translations with their chrF (python -m finetune.quality.outputs)")
    add("--output", action="append", default=[], metavar="FILE", help="write the report (.md) or the numbers (.json)")
    add_model_options(parser)
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
