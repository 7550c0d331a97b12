"""How many errors the rules of `rag-mt check` find, and what they find in good translations.

    python -m eval.checks --data DIR [--part dev|test] [--errors 500] [--output FILE.md --output FILE.json]
    python -m eval.checks --data DIR --part dev --lengths

Pairs are the news of DIR/dev or DIR/test and the held-out sentences of DIR/domains, in both directions. For each rule
and language up to --errors pairs get one error of its kind (`eval.checks.errors`), which counts as found where the rule
finds something; recall is the share of them. Where too few of those pairs have a place for an error, pairs of DIR/train
follow: of the one half of them for dev, of the other for test. The human translations as they are count as clean: what
the rules find there is an alarm, false or not (some of them do have errors). Settings were chosen on `dev`.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product, takewhile
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from eval.checks.errors import ERRORS
from eval.checks.pairs import NEWS, PARTS, Group, TrainingPairs, groups_of
from eval.data.domains import DOMAINS
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.languages import WMT16
from rag_mt.checks.amounts import length_off
from rag_mt.checks.rules import RULES, Pair, check

CODES = (*WMT16, "en")


class Seeded(NamedTuple):
    """A good pair, the same with an error in it, whether the pair is one of the training data, and whether the error is
    found."""

    pair: Pair
    damaged: Pair
    is_training: bool
    is_found: bool


def evaluate(options: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs(options.output)
    groups = groups_of(Path(options.data), options.part)
    pairs = [pair for group in groups for pair in group.pairs]
    if options.lengths:
        for code in WMT16:
            own = [length_off(p.source, p.target, "", "") for p in pairs if p.target_language == code]
            sys.stdout.write(f"{code} = {median(own):.3f}\n")
        return OK
    rows = TrainingPairs(Path(options.data), options.part)
    alarms: Counter[tuple[str, str]] = Counter()
    begun = time.process_time()
    with progress(len(pairs), "pairs", "checking") as bar:
        for group in groups:
            for pair in group.pairs:
                alarms.update({(rule, group.kind) for rule in {finding.rule for finding in check(pair)}})
                bar.update()
    speed = 1000 * (time.process_time() - begun) / len(pairs)
    counts: Counter[tuple[str, str, bool, bool]] = Counter()
    for name in ERRORS:
        for error in seeded(name, pairs, rows, options.errors, options.seed):
            counts[name, error.pair.target_language, error.is_training, error.is_found] += 1
    blocks = _report(groups, alarms, counts, speed, options)
    markdown = as_markdown(blocks)
    sys.stdout.write(markdown)
    facts: dict[str, Any] = {
        "part": options.part,
        "errors": _facts(counts, (False, True)),
        "errors in training pairs": _facts(counts, (True,)),
        "alarms": {f"{rule} {kind}": count for (rule, kind), count in sorted(alarms.items())},
        "pairs": {kind: sum(len(g.pairs) for g in groups if g.kind == kind) for kind in (NEWS, *DOMAINS)},
    }
    write_outputs(options.output, markdown, facts)
    return OK


def seeded(name: str, pairs: Sequence[Pair], rows: TrainingPairs, most: int, seed: int) -> Iterator[Seeded]:
    """Up to `most` errors of a rule for each target language, drawn by a seed, in pairs of which the rule found nothing
    before: in those given, and in pairs of the training data where they have too few places for it."""
    rng, made = random.Random(f"{seed} {name}"), Counter[str]()
    own = ((pair, False) for pair in rng.sample(pairs, len(pairs)))
    for pair, is_training in chain(own, *(_training(rows, code, made, most, rng) for code in CODES)):
        if made[pair.target_language] >= most:
            continue
        damaged = ERRORS[name](pair, rng)
        if damaged is not None and not RULES[name].found(pair):
            made[pair.target_language] += 1
            yield Seeded(pair, damaged, is_training, bool(RULES[name].found(damaged)))


def _training(
    rows: TrainingPairs, code: str, made: Mapping[str, int], most: int, rng: random.Random
) -> Iterator[tuple[Pair, bool]]:
    """Pairs of the training data with translations into a language, as long as it has fewer errors than `most`."""
    if made[code] < most:
        for pair in takewhile(lambda _: made[code] < most, rows.into(code, rng)):
            yield pair, True


def _facts(counts: Mapping[Any, int], kinds: Sequence[bool]) -> dict[str, list[int]]:
    """How many errors of each rule and language were found, and how many were made, in these kinds of pairs."""
    facts = {}
    for name, code in product(ERRORS, CODES):
        found, missed = (sum(counts[name, code, kind, is_found] for kind in kinds) for is_found in (True, False))
        if found + missed:
            facts[f"{name} {code}"] = [found, found + missed]
    return facts


def _recalls(facts: Mapping[str, Sequence[int]]) -> Table:
    """The share of errors found by rule and language, those rules that have any."""
    rows = []
    for name in ERRORS:
        cells = [facts.get(f"{name} {code}") for code in CODES]
        if any(cells):
            rows.append([name, *(f"{100 * cell[0] / cell[1]:.1f} ({cell[1]})" if cell else "" for cell in cells)])
    return Table(["rule", *CODES], rows)


def _report(
    groups: Sequence[Group],
    alarms: Counter[tuple[str, str]],
    counts: Mapping[Any, int],
    speed: float,
    options: argparse.Namespace,
) -> list[Block]:
    kinds = [kind for kind in (NEWS, *DOMAINS) if any(group.kind == kind for group in groups)]
    sizes = {kind: sum(len(group.pairs) for group in groups if group.kind == kind) for kind in kinds}
    total = sum(sizes.values())
    rates = [
        [
            name,
            f"{1000 * sum(alarms[name, kind] for kind in kinds) / total:.2f}",
            *(f"{1000 * alarms[name, kind] / sizes[kind]:.1f}" for kind in kinds),
        ]
        for name in ERRORS
    ]
    return [
        Heading("Checks: errors found, and alarms in human translations", 1),
        Text(
            f"The {options.part} part: {total} pairs, both directions of six languages. {speed:.2f} ms a pair for all "
            "rules on one core."
        ),
        Code(shlex.join(["python", "-m", "eval.checks", "--data", "DATA", "--part", options.part])),
        Heading("Errors found, %, by language of the translation (errors made)"),
        _recalls(_facts(counts, (False, True))),
        Heading("Of these in training data"),
        Text(
            f"Where those pairs have fewer than {options.errors} places for an error of a language, pairs of the half "
            f"of the training data that belongs to the {options.part} part follow."
        ),
        _recalls(_facts(counts, (True,))),
        Heading("Human translations in which a rule finds something, per 1,000"),
        Text("Alarms need not be false: human translations have lost numbers, doubled words and other marks as well."),
        Table(["rule", "all", *kinds], rates),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.checks", description=__doc__, examples=["--data DIR --part dev"])
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with dev/, test/, domains/ and train/")
    parser.add_argument("--part", choices=PARTS, default="test", help="which sentences")
    parser.add_argument("--errors", type=positive, default=500, metavar="N", help="errors of each rule and language")
    parser.add_argument("--seed", type=int, default=1, help="what errors are drawn by")
    parser.add_argument("--lengths", action="store_true", help="print the medians of rag_mt/checks/amounts.toml")
    parser.add_argument("--output", action="append", default=[], metavar="FILE", help="write .md or .json; repeatable")
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
