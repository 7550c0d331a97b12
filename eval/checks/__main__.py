"""How many errors the rules of `rag-mt check` find, and what they find in good translations.

    python -m eval.checks --data DIR [--part dev|test] [--errors 500] [--output FILE.md --output FILE.json]
    python -m eval.checks --data DIR --part dev --lengths

Pairs are the news of DIR/dev or DIR/test and the held-out sentences of DIR/domains, in both directions. For each rule
and language up to --errors pairs get one error of its kind (`eval.checks.errors`), which counts as found where the rule
finds something; recall is the share of them. The human translations as they are count as clean: what the rules find
there is an alarm, false or not (some of them do have errors). Settings were chosen on `dev`.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from eval.checks.errors import ERRORS
from eval.data.domains import DOMAINS, cell_file, languages_of
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Skips
from rag_mt.checks.amounts import length_off
from rag_mt.checks.rules import RULES, Pair, check
from rag_mt.formats.parallel import read_corpus

PARTS = ("dev", "test")
NEWS = "news"


class Group(NamedTuple):
    """Pairs of a kind of text in a direction."""

    kind: str
    pairs: list[Pair]


def groups_of(data: Path, part: str) -> list[Group]:
    """The pairs of a part; raises UserError where the data is not there."""
    groups = []
    for code in WMT16:
        files = {NEWS: data / part / f"{code}-en.tsv"}
        files |= {d: cell_file(data, d, code, part) for d in DOMAINS if code in languages_of(data, d, part)}
        for kind, file in files.items():
            if not file.is_file():
                raise UserError(f"there is no {file}: give --data DIR with {part}/ and domains/")
            corpus = read_corpus(file, Skips(shown=0))
            groups.append(Group(kind, [Pair(one, other, code, "en") for one, other in corpus.pairs]))
            groups.append(Group(kind, [Pair(other, one, "en", code) for one, other in corpus.pairs]))
    return groups


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
    alarms: Counter[tuple[str, str]] = Counter()
    begun = time.process_time()
    with progress(len(pairs), "pairs", "checking") as bar:
        for group in groups:
            for pair in group.pairs:
                alarms.update({(rule, group.kind) for rule in {finding.rule for finding in check(pair)}})
                bar.update()
    speed = 1000 * (time.process_time() - begun) / len(pairs)
    found, made = _seeded(pairs, options)
    blocks = _report(groups, alarms, found, made, speed, options)
    markdown = as_markdown(blocks)
    sys.stdout.write(markdown)
    facts: dict[str, Any] = {
        "part": options.part,
        "errors": {f"{rule} {code}": [found[rule, code], made[rule, code]] for rule, code in sorted(made)},
        "alarms": {f"{rule} {kind}": count for (rule, kind), count in sorted(alarms.items())},
        "pairs": {kind: sum(len(g.pairs) for g in groups if g.kind == kind) for kind in (NEWS, *DOMAINS)},
    }
    write_outputs(options.output, markdown, facts)
    return OK


def _seeded(pairs: Sequence[Pair], options: argparse.Namespace) -> tuple[Counter[Any], Counter[Any]]:
    """How many errors of each rule and target language were found, and how many were made."""
    found: Counter[tuple[str, str]] = Counter()
    made: Counter[tuple[str, str]] = Counter()
    for name, error in ERRORS.items():
        rng = random.Random(f"{options.seed} {name}")
        order = rng.sample(pairs, len(pairs))
        rule = RULES[name]
        for pair in order:
            key = (name, pair.target_language)
            if made[key] >= options.errors or rule.found(pair):
                continue
            damaged = error(pair, rng)
            if damaged is not None:
                made[key] += 1
                found[key] += bool(rule.found(damaged))
    return found, made


def _report(
    groups: Sequence[Group],
    alarms: Counter[tuple[str, str]],
    found: Counter[tuple[str, str]],
    made: Counter[tuple[str, str]],
    speed: float,
    options: argparse.Namespace,
) -> list[Block]:
    codes = [*WMT16, "en"]
    kinds = [kind for kind in (NEWS, *DOMAINS) if any(group.kind == kind for group in groups)]
    sizes = {kind: sum(len(group.pairs) for group in groups if group.kind == kind) for kind in kinds}
    recalls = [
        [
            name,
            *(f"{100 * found[name, c] / made[name, c]:.1f} ({made[name, c]})" if made[name, c] else "" for c in codes),
        ]
        for name in ERRORS
    ]
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
        Table(["rule", *codes], recalls),
        Heading("Human translations in which a rule finds something, per 1,000"),
        Text("Alarms need not be false: human translations have lost numbers, doubled words and other marks as well."),
        Table(["rule", "all", *kinds], rates),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.checks", description=__doc__, examples=["--data DIR --part dev"])
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with dev/, test/ and domains/")
    parser.add_argument("--part", choices=PARTS, default="test", help="which sentences")
    parser.add_argument("--errors", type=positive, default=500, metavar="N", help="errors of each rule and language")
    parser.add_argument("--seed", type=int, default=1, help="what errors are drawn by")
    parser.add_argument("--lengths", action="store_true", help="print the medians of rag_mt/checks/amounts.toml")
    parser.add_argument("--output", action="append", default=[], metavar="FILE", help="write .md or .json; repeatable")
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
