"""Learn the words by which `rag-mt check` sees that a sentence is lost: rag_mt/checks/meanings.tsv.

    python -m eval.checks.words --data DIR --output rag_mt/checks/meanings.tsv [--words 3000]

Words, known by the letters they begin with, translate each other if they stand in the same pairs of sentences: their
Dice coefficient, twice the pairs with both over the sum of the pairs with either, is at least 0.1. The pairs are those
of the half of DIR/train by which the rules are improved; words of more than 5 % of them say too little. Of the English
words the most frequent ones that have translations are written, with the up to four best ones in each language.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from heapq import nlargest
from pathlib import Path

from eval.checks.pairs import PARTS, TrainingPairs
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.files import write_whole
from rag_mt.checks.meanings import as_table, beginnings

WORDS = 3000
LEAST_DICE, MOST_TRANSLATIONS = 0.1, 4
LEAST_PAIRS, MOST_SHARE = 8, 0.05
"""In how many pairs a word stands at least, of which half have its translation too, and in what share of them at
most."""
LONGEST = 40
"""Words of a sentence up to which a pair is counted: in longer ones, nearly all words meet."""


def translations(pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, list[str]], Counter[str]]:
    """The best translations of English words, as pairs of (other, English) sentences have them, and in how many pairs
    each English word stands."""
    english, other = Counter[str](), Counter[str]()
    both: Counter[tuple[str, str]] = Counter()
    sides = [(set(beginnings(one)), set(beginnings(two))) for two, one in pairs]
    sides = [(one, two) for one, two in sides if max(len(one), len(two)) <= LONGEST]
    for one, two in sides:
        english.update(one)
        other.update(two)
    fit = [{w for w, n in counts.items() if LEAST_PAIRS <= n <= MOST_SHARE * len(sides)} for counts in (english, other)]
    for one, two in sides:
        known = two & fit[1]
        both.update((a, b) for a in one & fit[0] for b in known)
    dice = {(a, b): 2 * n / (english[a] + other[b]) for (a, b), n in both.items() if 2 * n >= LEAST_PAIRS}
    best: dict[str, list[tuple[float, str]]] = {}
    for (a, b), score in dice.items():
        if score >= LEAST_DICE:
            best.setdefault(a, []).append((score, b))
    return {a: [b for _, b in nlargest(MOST_TRANSLATIONS, own)] for a, own in best.items()}, english


def most_frequent(counts: Counter[str], number: int) -> set[str]:
    """So many of the words that are counted, by their letters where counts are equal: the same ones in each run."""
    return set(sorted(counts, key=lambda word: (-counts[word], word))[:number])


def learn(options: argparse.Namespace) -> int:
    """Run the command."""
    rows = TrainingPairs(Path(options.data), PARTS[0])
    found: dict[str, dict[str, list[str]]] = {}
    counts: Counter[str] = Counter()
    for code, pairs in rows.pairs.items():
        found[code], english = translations(pairs)
        counts.update({word: english[word] for word in found[code]})
    chosen = most_frequent(counts, options.words)
    table = {code: {word: own for word, own in of_code.items() if word in chosen} for code, of_code in found.items()}
    write_whole(Path(options.output), as_table(table))
    print(f"{len(chosen)} words in {options.output}")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.checks.words", description=__doc__, examples=["--data DIR --output meanings.tsv"]
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv[.xz] and domains/")
    parser.add_argument("--output", required=True, metavar="FILE", help="the table")
    parser.add_argument("--words", type=positive, default=WORDS, metavar="N", help="English words of the table")
    return run(learn, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
