"""How consistently the words of a document are translated, and what it costs to make them more so.

    python -m eval.consistency --data DIR [--part dev|test] [--documents 2] [--output FILE.md --output FILE.json]

A document is 40 sentences of DIR/domains as they follow each other there. A word of the source that several sentences
of a document have is translated consistently if the words that are aligned with it have the same lemma. Its score is
the chance that two of its occurrences, taken at random, agree (the Herfindahl index that Itagaki et al. 2007,
"Automatic validation of terminology translation consistency with statistical method", use, without its bias for few
occurrences); those of all words are averaged by occurrences. Function words do not count. The alignment is the
encoder's, and its errors count as inconsistent: only differences say something.

`plain` are the translations as they are, `consistent` those of `--consistent`; `--variants` tries other bounds for the
document's terms, on `dev`. `--context N` adds translations with so many sentences of context, `--adapter DIR` those of
another adapter, plain and with context. With `--index` all of them have the hints of an index, so that `plain` is
without context alone.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from eval.cells import add_cell_options, cell_translator
from eval.data.domains import DOMAINS, cell_file, languages_of
from eval.metrics.formulas import FORMULAS, Formula, Rows, mean, open_chrf
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from eval.significance import compare
from eval.translation.systems import filled
from rag_mt.base.console import OK, Parser, count, positive, progress, run
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import LanguageModel, Sentence, Skips, Translation
from rag_mt.formats.parallel import read_corpus
from rag_mt.glossary.extraction import function_words, lemma_of
from rag_mt.glossary.forms import forms_in
from rag_mt.text.words import word_spans
from rag_mt.translation.consistency import ASKED_AGAIN, LEAST, SCORE, SHARE, DocumentTerms
from rag_mt.translation.context import translate_together
from rag_mt.translation.queue import TaskQueue
from rag_mt.translation.tasks import SentenceTask
from rag_mt.translation.terms import ALIGN_LAYER
from rag_mt.translation.translator import Translator
from retrievers.encoders.alignment import EncoderAligner
from retrievers.registry import encoder_for

CHRF = open_chrf()
LENGTH = 40
"""Sentences of a document."""
BOUNDS = (LEAST, SCORE, SHARE)
VARIANTS = ((2, 0.5, 0.5), (2, 0.5, 0.0), (3, 0.5, 0.5), (2, 0.7, 0.5))
"""Bounds that are tried: sentences that have a term, the Dice coefficient of its translation, and the share of places
where the encoder aligns them (0: it is not asked), at least."""
AGREEMENT = Formula(lambda sums: 100 * mean(sums), lambda rows: 100 * mean(rows))
"""Columns: agreement of a document's words, times their occurrences, and these."""


@dataclass(frozen=True)
class Document:
    """The sentences of a domain in one direction, the `number`-th LENGTH of them."""

    domain: str
    source: str
    target: str
    number: int
    sources: list[str]
    references: list[str]

    @property
    def cell(self) -> str:
        return f"{self.domain} {self.source}-{self.target}"

    @property
    def text(self) -> str:
        """What it has in common with the document of the other direction."""
        return f"{self.domain} {'-'.join(sorted((self.source, self.target)))} {self.number}"


@dataclass(frozen=True)
class System:
    """The translations of all documents, and how many of them were made anew for the sake of their terms."""

    texts: list[list[str]]
    changed: int = 0


def documents(
    data: Path, part: str, most: int, directions: Sequence[str], domains: Sequence[str] = ()
) -> list[Document]:
    """Up to so many documents of some domains and directions, or all of them; raises UserError for an unknown domain
    and where there are none."""
    if unknown := sorted(set(domains) - set(DOMAINS)):
        raise UserError(f"there is no domain {unknown[0]}: --domains takes some of {','.join(DOMAINS)}")
    made = []
    for domain in domains or DOMAINS:
        for code in languages_of(data, domain, part):
            corpus = read_corpus(cell_file(data, domain, code, part), Skips(shown=0))
            for source, target in (("en", code), (code, "en")):
                if directions and f"{source}-{target}" not in directions:
                    continue
                sides = (corpus.targets, corpus.sources) if source == "en" else (corpus.sources, corpus.targets)
                for number in range(min(most, len(corpus.targets) // LENGTH)):
                    own = (list(side[number * LENGTH : (number + 1) * LENGTH]) for side in sides)
                    made.append(Document(domain, source, target, number, *own))
    if not made:
        raise UserError(f"there is nothing of the part {part} in {data / 'domains'}: give --data DIR with domains/")
    return made


class Agreement:
    """Scores documents; the aligner is opened once."""

    @cached_property
    def _aligner(self) -> EncoderAligner:
        return EncoderAligner(encoder_for("sentence", DEFAULT_ENCODER, "cpu", "auto"), ALIGN_LAYER)

    def of(self, document: Document, texts: Sequence[str]) -> tuple[float, int]:
        """The agreement of the words of a document's translation, times their occurrences, and these."""
        pairs = list(zip(document.sources, texts, strict=True))
        forms, others = forms_in(document.source), forms_in(document.target)
        common, other_common = function_words(document.source), function_words(document.target)
        votes: dict[str, Counter[str]] = defaultdict(Counter)
        sentences: dict[str, set[int]] = defaultdict(set)
        for number, (pair, links) in enumerate(zip(pairs, self._aligner.align(pairs), strict=True)):
            words, other_words = (
                [lemma_of(text[start:end], known) for start, end in word_spans(text).tolist()]
                for text, known in zip(pair, (forms, others), strict=True)
            )
            for one, other in links.tolist():
                word, translation = words[one], other_words[other]
                if len(word) > 2 and word not in common and translation and translation not in other_common:
                    votes[word][translation] += 1
                    sentences[word].add(number)
        agreed, occurrences = 0.0, 0
        for word, counts in votes.items():
            if len(sentences[word]) > 1:
                agreed += sum(n * (n - 1) for n in counts.values()) / (counts.total() - 1)
                occurrences += counts.total()
        return agreed, occurrences


def translators_of(
    own: Sequence[Document], options: argparse.Namespace, adapter: str, context: int = 0
) -> list[Translator]:
    """A translator for each document, all with one language model and its adapter, which may depend on `context`."""
    llm: LanguageModel | str = options.llm
    made = []
    for document in own:
        index = filled(options.index, {"domain": document.domain, "tgt": document.target})
        languages = document.source, document.target
        made.append(cell_translator(*languages, llm, options, index, adapter=adapter, context=context))
        llm = made[-1].llm
    return made


def with_context(own: Sequence[Document], options: argparse.Namespace, adapter: str) -> list[list[Translation]]:
    """The translations of documents with sentences of context."""
    return plain(translators_of(own, options, adapter, options.context), own, options.context)


def plain(translators: Sequence[Translator], own: Sequence[Document], context: int) -> list[list[Translation]]:
    """The translations of documents, each with its translator, all as one call."""
    tasks = [
        [SentenceTask(translator, Sentence(text, document.source)) for text in document.sources]
        for translator, document in zip(translators, own, strict=True)
    ]
    for document in tasks:
        translate_together(document, context)
    answer(list(chain(*tasks)))
    return [[task.translation for task in document if task.translation is not None] for document in tasks]


def consistent(
    translators: Sequence[Translator], made: Sequence[list[Translation]], bounds: tuple[int, float, float]
) -> list[list[Translation]]:
    """The translations of documents after those that differ from the rest were made again."""
    terms = [DocumentTerms(translator, SentenceTask, *bounds) for translator in translators]
    again = [own.again(first, {}) for own, first in zip(terms, made, strict=True)]
    answer(list(chain(*(tasks.values() for tasks in again))))
    return [
        own.kept(first, {n: task.translation for n, task in tasks.items() if task.translation is not None})
        for own, first, tasks in zip(terms, made, again, strict=True)
    ]


def answer(tasks: Sequence[SentenceTask]) -> None:
    """Translate tasks of translators with one language model."""
    if tasks:
        for _ in tasks[0].translator.answer(TaskQueue(sorted(tasks, key=lambda task: -len(task.sentence.text)))):
            pass


def evaluate(options: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs(options.output)
    directions = options.directions.split(",") if options.directions else ()
    domains = options.domains.split(",") if options.domains else ()
    own = documents(Path(options.data), options.part, options.documents, directions, domains)
    bounds = VARIANTS if options.variants else (BOUNDS,)
    names = ["consistent" if own_bounds == BOUNDS else f"consistent {own_bounds}" for own_bounds in bounds]
    adapters = {Path(adapter).name: adapter for adapter in options.adapter}
    names += ["context"] if options.context else []
    names += [f"{kind}, {name}" for name in adapters for kind in ("plain", "context")[: 1 + (options.context > 0)]]
    texts: dict[str, list[list[str]]] = {name: [] for name in ["plain", *names]}
    changed: Counter[str] = Counter()
    with progress(len(own) * len(texts), "documents", "translating", show=not options.quiet) as bar:
        for cell in dict.fromkeys(document.cell for document in own):
            group = [document for document in own if document.cell == cell]
            translators = translators_of(group, options, DEFAULT_ADAPTER)
            first = plain(translators, group, 0)
            made = {"plain": first}
            for name, own_bounds in zip(names[: len(bounds)], bounds, strict=True):
                made[name] = consistent(translators, first, own_bounds)
                changed[name] += sum(ASKED_AGAIN in " ".join(t.notes) for t in chain(*made[name]))
            if options.context:
                made["context"] = with_context(group, options, DEFAULT_ADAPTER)
            for name, adapter in adapters.items():
                others = translators_of(group, options, adapter)
                made[f"plain, {name}"] = plain(others, group, 0)
                if options.context:
                    made[f"context, {name}"] = with_context(group, options, adapter)
            for name, translations in made.items():
                texts[name] += [[t.text for t in document] for document in translations]
                bar.update(len(group))
    systems = {name: System(made, changed[name]) for name, made in texts.items()}
    blocks, facts = report(own, systems, options)
    markdown = as_markdown(blocks)
    sys.stdout.write(markdown)
    write_outputs(options.output, markdown, facts)
    return OK


def report(
    own: Sequence[Document], systems: dict[str, System], options: argparse.Namespace
) -> tuple[list[Block], dict[str, object]]:
    """Tables over all documents, and by direction from and into English."""
    agreement = Agreement()
    columns = {**systems, "reference": System([document.references for document in own])}
    rows: dict[str, Rows] = {
        name: np.array([agreement.of(*pair) for pair in zip(own, system.texts, strict=True)], np.float64)
        for name, system in columns.items()
    }
    chrf = {
        name: np.stack(
            [
                CHRF.statistics(document.sources, texts, document.references).sum(axis=0)
                for document, texts in zip(own, system.texts, strict=True)
            ]
        )
        for name, system in systems.items()
    }
    clusters = np.array([document.text for document in own])
    english = np.array([document.source == "en" for document in own])
    groups = {"from English": english, "into English": ~english, "all": np.ones(len(own), bool)}
    table = [
        [
            f"{group} ({int(inside.sum())})",
            name,
            f"{AGREEMENT.corpus(own_rows[inside].sum(axis=0, keepdims=True))[0]:.1f}",
            f"{FORMULAS['chrf'].corpus(chrf[name][inside].sum(axis=0, keepdims=True))[0]:.2f}" if name in chrf else "",
        ]
        for group, inside in groups.items()
        for name, own_rows in rows.items()
    ]
    sentences = sum(len(document.sources) for document in own)
    gains, facts = [], {"part": options.part, "documents": len(own), "sentences": sentences}
    for name in list(systems)[1:]:
        for group, inside in groups.items():
            pairs = [(rows, AGREEMENT), (chrf, FORMULAS["chrf"])]
            found = [
                compare([values[name][inside]], [values["plain"][inside]], formula, [clusters[inside]])
                for values, formula in pairs
            ]
            shown = [f"{each.value:+.2f} ({each.low:+.2f} to {each.high:+.2f}), p {each.p:.4f}" for each in found]
            gains.append([name, group, *shown])
            facts[f"{name}, {group}"] = [[each.value, each.low, each.high, each.p] for each in found]
    changed = ", ".join(f"{name} {system.changed}" for name, system in systems.items() if system.changed)
    arguments = ["--data", "DATA", "--part", options.part, "--documents", str(options.documents)]
    arguments += ["--context", str(options.context)] if options.context else []
    arguments += ["--index", options.index] if options.index else []
    arguments += ["--variants"] if options.variants else []
    arguments += ["--domains", options.domains] if options.domains else []
    arguments += ["--directions", options.directions] if options.directions else []
    arguments += [part for adapter in options.adapter for part in ("--adapter", Path(adapter).name)]
    retrieval = "with hints of an index" if options.index else "no retrieval"
    about = (
        f"The {options.part} part, {options.llm} with its adapter, {options.dtype}, {retrieval}: {len(own)} documents "
        f"of {sentences} sentences in {len({document.cell for document in own})} cells of domain and direction. "
        f"Sentences that were translated again and taken: {changed or 'none'}."
    )
    parts: list[Block] = [
        Heading("Consistency in documents", 1),
        Text(about),
        Code(shlex.join(["python", "-m", "eval.consistency", *arguments])),
        Heading("Agreement of two occurrences of a word, %, and chrF"),
        Table(["documents", "translation", "agreement", "chrF"], table),
        Heading("Gain over plain"),
        Text(
            "95 % intervals: bootstrap over documents; p: randomization test by documents, two-sided. Both directions "
            "of a document are drawn and exchanged together."
        ),
        Table(["translation", "documents", "agreement", "chrF"], gains),
    ]
    return parts, facts


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.consistency", description=__doc__, examples=["--data DIR --part dev"])
    add_cell_options(parser)
    add = parser.add_argument
    add("--documents", type=positive, default=2, metavar="N", help="most documents of a domain and direction")
    add("--variants", action="store_true", help="other bounds for a document's terms too")
    add("--adapter", action="append", default=[], metavar="DIR", help="translations with this adapter too; repeatable")
    index_help = "an index of each domain and language, such as indexes/{domain}.memory.{tgt} (default: no hints)"
    add("--index", default="", metavar="PATTERN", help=index_help)
    add("--domains", default="", metavar="D,D", help="some domains (default: all)")
    add("--context", type=count, default=0, metavar="N", help="translations with so many sentences of context too")
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
