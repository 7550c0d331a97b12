"""How often the rules of `rag-mt check` are wrong: what they find in human translations, judged by a reader.

    python -m eval.checks.judged --data DIR [--output FILE.md --output FILE.json]

Every alarm of `numbers`, `sentences`, `ends` and `stops` in the human translations of DIR/dev and DIR/domains was read,
those of the rules as they were before they were improved (`first`) and what the improved ones find beside that
(`later`); of `months` and `units` those of the improved rules alone. `judged.tsv` has the verdicts, with hashes for the
sentences; no text. The criteria:

- true: the translation has another number, month or unit than its source, or none, or one more; lacks a sentence's
  content or adds some; or lost or added a question, a colon, or the mark of a sentence that breaks off. A proof-reader
  would change it.
- style (marks alone): they differ, and the source's would fit, but a proof-reader may let it stand: a full stop
  behind a headline or an item of a list, an exclamation mark against a full stop, a question that is none.
- false: the same is said in another way: a number in words, by a name or idiom, in other units, as a time; two
  sentences in one or one in two with all their content; a mark that only is written otherwise (`...`, `….`), that the
  order of the words moved, or that belongs to a name.

One reader judged, who also improved the rules by what was read: the rates of the improved rules are those of texts that
were seen. A pair of sentences counts once, not once for each direction.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from scipy.stats import binomtest

from eval.checks.pairs import groups_of
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from rag_mt.base.console import OK, Parser, run
from rag_mt.checks.rules import RULES, Pair

FILE = Path(__file__).with_name("judged.tsv")
PART = "dev"
JUDGED = {
    "numbers": "numbers", "months": "months", "units": "units", "sentences": "sentences", "ends": "ends",
    "stops": "ends",
}  # fmt: skip
"""The rules, and under which rule their alarms were judged: `stops` was part of `ends`."""
VERDICTS = ("true", "style", "false")
FIRST, UNREAD = "first", "not read"


def key_of(pair: Pair) -> str:
    """The name of a pair of sentences in the list, the same for both directions."""
    sides = (pair.source, pair.target) if pair.source_language == "en" else (pair.target, pair.source)
    return sha256("\t".join(sides).encode()).hexdigest()[:16]


def verdicts(file: Path = FILE) -> dict[tuple[str, str], tuple[str, str]]:
    """The verdict on each alarm by rule and pair, and whether it is one of the first rules."""
    rows = (line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:])
    return {(rule, pair): (verdict, seen) for rule, pair, verdict, _, seen in rows}


def evaluate(options: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs(options.output)
    pairs = {key_of(pair): pair for group in groups_of(Path(options.data), PART) for pair in group.pairs}
    known = verdicts()
    # Of some rules, only the alarms of today were read.
    before = Counter((rule, verdict) for (rule, _), (verdict, seen) in known.items() if seen == FIRST)
    read_before = [rule for rule in dict.fromkeys(JUDGED.values()) if any(rule == own for own, _ in before)]
    now: Counter[tuple[str, str]] = Counter()
    for key, pair in pairs.items():
        for rule, judged in JUDGED.items():
            if RULES[rule].found(pair):
                now[rule, known.get((judged, key), (UNREAD, ""))[0]] += 1
    blocks: list[Block] = [
        Heading("Checks: alarms in human translations, judged", 1),
        Text(f"The {PART} part: {len(pairs)} pairs of sentences, each counted once. {_CRITERIA}"),
        Code(shlex.join(["python", "-m", "eval.checks.judged", "--data", "DATA"])),
        Heading("The rules before"),
        _table(before, read_before, len(pairs)),
        Heading("The rules now"),
        _table(now, list(JUDGED), len(pairs)),
    ]
    markdown = as_markdown(blocks)
    sys.stdout.write(markdown)
    facts = {
        "pairs": len(pairs),
        **{name: {f"{rule} {verdict}": n for (rule, verdict), n in sorted(counts.items())} for name, counts in
           (("before", before), ("now", now))},
    }  # fmt: skip
    write_outputs(options.output, markdown, facts)
    return OK


_CRITERIA = (
    "True: a proof-reader would change it. Style: the marks differ, a proof-reader may let it stand. False: the same "
    "is said in another way. Intervals are Wilson's, 95 %."
)


def _table(counts: Mapping[tuple[str, str], int], rules: Sequence[str], total: int) -> Table:
    rows = []
    for rule in rules:
        of_rule = [counts.get((rule, verdict), 0) for verdict in (*VERDICTS, UNREAD)]
        interval = binomtest(of_rule[2], total).proportion_ci(method="wilson")
        rate = f"{1000 * of_rule[2] / total:.2f} ({1000 * interval.low:.2f} to {1000 * interval.high:.2f})"
        rows.append([rule, str(sum(of_rule)), *map(str, of_rule), rate])
    return Table(["rule", "alarms", *VERDICTS, UNREAD, "false, per 1,000"], rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.checks.judged", description=__doc__, examples=["--data DIR"])
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with dev/ and domains/")
    parser.add_argument("--output", action="append", default=[], metavar="FILE", help="write .md or .json; repeatable")
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
