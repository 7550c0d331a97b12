"""How many numbers and placeholders that a translation lost come back when they are asked for again.

    python -m eval.checks.repair --data DIR [--part dev|test] [--limit 60] [--output FILE.md --output FILE.json]

Sentences of the news and domains that `eval.checks` reads, the first --limit of each file and direction that hold a
number or a placeholder, are translated by the embedded language model without hints. Its first answers are compared
with the translations that come out.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.checks.pairs import PARTS, groups_of
from eval.metrics.formulas import FORMULAS, open_chrf
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from eval.significance import compare
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.types import LanguageModel, Sentence
from rag_mt.checks.literals import has_literals, wrong_literals
from rag_mt.checks.rules import Pair
from rag_mt.translation.queue import translate_all
from rag_mt.translation.tasks import SentenceTask
from rag_mt.translation.translator import Translator

CHRF = open_chrf()
AT_ONCE = 64
"""Sentences of a batch."""


@dataclass
class Asked:
    """The translations of a direction in whose first answer a number or placeholder was wrong: `sources`,
    `references`, the `first` answers and those that came out `last`; `still` counts those that are wrong in the end,
    `sentences` all that were translated."""

    direction: str
    sentences: int = 0
    still: int = 0
    sources: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)

    def add(self, pair: Pair, first: str, last: str) -> None:
        """Count a translation of a pair's source; its target is the reference."""
        self.sentences += 1
        if not wrong_in(pair, first):
            return
        self.still += wrong_in(pair, last)
        for column, text in zip(
            (self.sources, self.references, self.first, self.last), (pair.source, pair.target, first, last), strict=True
        ):
            column.append(text)

    def statistics(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """The statistics of the chrF of the first or last answers."""
        return CHRF.statistics(self.sources, texts, self.references)


def wrong_in(pair: Pair, text: str) -> bool:
    """Whether a translation of the pair's source lost, added or changed a number or placeholder."""
    return bool(wrong_literals(Pair(pair.source, text, pair.source_language, pair.target_language)))


def translated(pairs: Sequence[Pair], llm: LanguageModel | str, dtype: str) -> tuple[Asked, LanguageModel]:
    """What became of the sentences of a direction, and the language model for the next one."""
    source, target = pairs[0].source_language, pairs[0].target_language
    translator = Translator(
        source, target, retriever="none", llm=llm, engine="transformers", dtype=dtype, batch_size=AT_ONCE
    )
    tasks = [SentenceTask(translator, Sentence(pair.source, source)) for pair in pairs]
    for _ in translate_all(tasks):
        pass
    asked = Asked(f"{source}-{target}")
    for task, pair in zip(tasks, pairs, strict=True):
        assert task.first is not None and task.translation is not None
        asked.add(pair, task.first.text, task.translation.text)
    return asked, translator.llm


def evaluate(options: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs(options.output)
    by_direction: dict[str, list[Pair]] = {}
    for group in groups_of(Path(options.data), options.part):
        chosen = [pair for pair in group.pairs if has_literals(pair.source)][: options.limit]
        if chosen:
            direction = f"{chosen[0].source_language}-{chosen[0].target_language}"
            by_direction.setdefault(direction, []).extend(chosen)
    llm: LanguageModel | str = DEFAULT_LLM
    results = []
    with progress(len(by_direction), "directions", "translating") as bar:
        for pairs in by_direction.values():
            asked, llm = translated(pairs, llm, options.dtype)
            results.append(asked)
            bar.update()
    blocks, facts = report(results, options)
    markdown = as_markdown(blocks)
    sys.stdout.write(markdown)
    write_outputs(options.output, markdown, facts)
    return OK


def report(results: Sequence[Asked], options: argparse.Namespace) -> tuple[list[Block], dict[str, object]]:
    """The report and its numbers."""
    sentences, wrong, still = (
        sum(values) for values in zip(*((r.sentences, len(r.first), r.still) for r in results), strict=True)
    )
    some = [own for own in results if own.first]
    if not some:
        raise UserError(
            f"no first answer to {sentences} sentences has a wrong number or placeholder: give a higher --limit"
        )
    first, last = (np.concatenate([own.statistics(getattr(own, name)) for own in some]) for name in ("first", "last"))
    change = compare([last], [first], CHRF.formula)
    rows = []
    for own in results:
        scores = [
            f"{FORMULAS[CHRF.formula].corpus(own.statistics(texts).sum(axis=0, keepdims=True))[0]:.1f}" if texts else ""
            for texts in (own.first, own.last)
        ]
        rows.append([own.direction, *map(str, (own.sentences, len(own.first), own.still)), *scores])
    command = f"python -m eval.checks.repair --data DATA --part {options.part} --limit {options.limit}"
    blocks: list[Block] = [
        Heading("Numbers and placeholders that are asked for again", 1),
        Text(
            f"The {options.part} part: of {sentences} sentences with numbers or placeholders {wrong} "
            f"({100 * wrong / sentences:.1f} %) had a wrong one in the model's first answer, and {still} "
            f"({100 * still / sentences:.1f} %) have one in the end. chrF of those {wrong} changes by "
            f"{change.value:+.2f} [{change.low:+.2f}, {change.high:+.2f}] (p {change.p:.4f})."
        ),
        Code(command),
        Table(
            ["direction", "sentences", "wrong at first", "wrong in the end", "chrF at first", "chrF in the end"], rows
        ),
    ]
    facts = {
        "part": options.part,
        "sentences": sentences,
        "wrong at first": wrong,
        "wrong in the end": still,
        "chrf": [round(value, 4) for value in (change.value, change.low, change.high, change.p)],
    }
    return blocks, facts


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.checks.repair", description=__doc__, examples=["--data DIR --part dev"])
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with dev/, test/ and domains/")
    parser.add_argument("--part", choices=PARTS, default="test", help="which sentences")
    parser.add_argument("--limit", type=positive, default=60, metavar="N", help="sentences of each file and direction")
    parser.add_argument("--dtype", default="auto", help="number format of the language model")
    parser.add_argument("--output", action="append", default=[], metavar="FILE", help="write .md or .json; repeatable")
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
