"""How well translations keep to a glossary, and what becomes of their quality.

    python -m eval.terms --data DIR [--part dev|test] [--limit 300] [--output FILE.md --output FILE.json]

Glossaries are what `rag-mt terms extract` makes of user interfaces: of Libre Office's catalogues for its help, of all
catalogues for web pages in Romanian. The sentences are those of DIR/domains whose reference uses a term of the glossary
in the translation that it has there. Such terms are required (Dinu et al. 2019, "Training neural machine translation to
apply terminology constraints", count so too); with `--all-terms` a second run shows all terms of a sentence, also those
that its reference translates otherwise, as a user's glossary would.

Everything was chosen on `dev`; Romanian has no such part.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eval.cells import add_cell_options, cell_translator
from eval.data.domains import blocks_of, cell_file, excluded, languages_of, normalised
from eval.metrics.formulas import FORMULAS, open_chrf
from eval.outputs import check_outputs, write_outputs
from eval.report.blocks import Block, Code, Heading, Table, Text, as_markdown
from eval.significance import Comparison, compare
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from rag_mt.base.terms import Term, TermMatch
from rag_mt.base.types import LanguageModel, Origin, Sentence, Skips, Translation
from rag_mt.formats.parallel import read_corpus, training_file
from rag_mt.glossary.extraction import proposed_terms
from rag_mt.glossary.forms import forms_in
from rag_mt.glossary.glossary import Glossary
from rag_mt.glossary.phrases import text_words

CHRF = open_chrf()
LEAST = 0.5
"""Score of the proposals that are taken without a look at them."""
SYSTEMS = ("plain", "glossary", "all terms")
LARGE = 10_000
"""Terms of the glossary whose search is timed."""


@dataclass(frozen=True)
class RequiredTerms(Glossary):
    """A glossary that has no other terms of a sentence than the `required` ones."""

    required: dict[str, frozenset[Term]] = field(default_factory=dict)

    def matches(self, sentence: str) -> tuple[TermMatch, ...]:
        """See `Glossary.matches`."""
        wanted = self.required.get(sentence, frozenset())
        return tuple(match for match in super().matches(sentence) if match.term in wanted)


@dataclass(frozen=True)
class Cell:
    """A domain and a direction: the sentences with required terms, their references and blocks."""

    domain: str
    source: str
    target: str
    glossary: Glossary
    sources: list[str]
    references: list[str]
    blocks: list[str]
    required: list[tuple[TermMatch, ...]]

    @property
    def name(self) -> str:
        return f"{self.domain} {self.source}-{self.target}"

    @property
    def terms(self) -> int:
        """How many required terms there are."""
        return sum(map(len, self.required))


@dataclass(frozen=True)
class Result:
    """The translations of a cell by a system, and how long a sentence took on average, in CPU seconds."""

    translations: list[Translation]
    seconds: float

    @property
    def texts(self) -> list[str]:
        return [made.text for made in self.translations]

    def chrf(self, cell: Cell) -> float:
        """The score of the cell."""
        sums = CHRF.statistics(cell.sources, self.texts, cell.references).sum(axis=0, keepdims=True)
        return float(FORMULAS[CHRF.formula].corpus(sums)[0])

    def used(self, cell: Cell) -> int:
        """How many of the required terms are there."""
        pairs = zip(self.translations, cell.required, strict=True)
        return sum(cell.glossary.used(match, made.text).ok for made, own in pairs for match in own)


def catalogue(data: Path, domain: str, code: str) -> list[tuple[str, str]]:
    """Pairs (English, other) of user interfaces whose terms a domain may have, without what it holds out."""
    corpus = read_corpus(training_file(data, f"{code}-en"), Skips(shown=0))
    held_out = excluded(data, domain)
    own = "libreoffice-l10n" if domain == "help" else ""
    return [
        (english, other)
        for other, english, kind, origin in zip(
            corpus.sources, corpus.targets, corpus.domains, corpus.origins, strict=True
        )
        if kind == "ui" and origin.startswith(own) and normalised(english) not in held_out
    ]


def glossary_of(pairs: Sequence[tuple[str, str]], source: str, target: str) -> Glossary:
    """The glossary that is made of pairs (source, target)."""
    proposals = proposed_terms(pairs, source, target, score=LEAST)
    return Glossary(source, target, tuple(Term(p.term, source, target, (p.translation,)) for p in proposals))


def cells(data: Path, part: str, limit: int, directions: Sequence[str]) -> list[Cell]:
    """All cells of a part, with up to `limit` sentences each; raises UserError where the data is not there."""
    made = []
    for code in WMT16:
        domain = "help" if code in languages_of(data, "help", part) else "site"
        file = cell_file(data, domain, code, part)
        if not file.is_file():
            if part == "test":
                raise UserError(f"there is no {file}: give --data DIR with domains/ and train/")
            continue
        corpus = read_corpus(file, Skips(shown=0))
        pairs = catalogue(data, domain, code)
        blocks = blocks_of(data, domain, corpus.targets)
        for source, target in (("en", code), (code, "en")):
            if directions and f"{source}-{target}" not in directions:
                continue
            sides = (corpus.targets, corpus.sources) if source == "en" else (corpus.sources, corpus.targets)
            glossary = glossary_of(pairs if source == "en" else [pair[::-1] for pair in pairs], source, target)
            rows = []
            for text, reference, block in zip(*sides, blocks, strict=True):
                whole = (match for match in glossary.first_matches(text) if not match.in_compound)
                required = tuple(match for match in whole if glossary.used(match, reference).ok)
                if required:
                    rows.append((text, reference, block, required))
            columns = [list(column) for column in zip(*rows[:limit], strict=True)]
            made.append(Cell(domain, source, target, glossary, *columns))
    return made


def translated(
    cell: Cell, system: str, llm: LanguageModel | str, options: argparse.Namespace
) -> tuple[Result, LanguageModel]:
    """The translations of a cell by a system, and the language model for the next one."""
    glossary = {
        "plain": None,
        "glossary": RequiredTerms(
            cell.source,
            cell.target,
            cell.glossary.terms,
            required={s: frozenset(m.term for m in own) for s, own in zip(cell.sources, cell.required, strict=True)},
        ),
        "all terms": cell.glossary,
    }[system]
    translator = cell_translator(cell.source, cell.target, llm, options, glossary=glossary)
    sentences = [Sentence(text, cell.source, Origin(cell.name, n)) for n, text in enumerate(cell.sources, 1)]
    begun = time.process_time()
    translations = translator.translate_sentences(sentences)
    return Result(translations, (time.process_time() - begun) / len(sentences)), translator.llm


def evaluate(options: argparse.Namespace) -> int:
    """Run the command."""
    check_outputs(options.output)
    all_cells = cells(
        Path(options.data), options.part, options.limit, options.directions.split(",") if options.directions else ()
    )
    systems = SYSTEMS if options.all_terms else SYSTEMS[:2]
    llm: LanguageModel | str = options.llm
    results: dict[tuple[str, str], Result] = {}
    with progress(
        len(all_cells) * len(systems), "translations of a cell", "translating", show=not options.quiet
    ) as bar:
        for cell in all_cells:
            for system in systems:
                results[cell.name, system], llm = translated(cell, system, llm, options)
                bar.update()
    milliseconds = searching(all_cells)
    blocks, facts = _report(all_cells, systems, results, milliseconds, options)
    markdown = as_markdown(blocks)
    sys.stdout.write(markdown)
    write_outputs(options.output, markdown, facts)
    return OK


def searching(all_cells: Sequence[Cell]) -> float:
    """Milliseconds that the search for the terms of a sentence takes in a glossary of LARGE terms: those of a cell, and
    others of two of its words by chance."""
    cell = all_cells[0]
    rng = random.Random(1)
    words = sorted({word for text in cell.sources for word in text.split() if word.isalpha()})
    terms = list(cell.glossary.terms)
    while len(terms) < LARGE:
        terms.append(Term(" ".join(rng.sample(words, 2)), cell.source, cell.target, ("x",)))
    large = Glossary(cell.source, cell.target, tuple(terms))
    large.matches(cell.sources[0])
    begun = time.process_time()
    for text in cell.sources:
        for match in large.matches(text):
            large.used(match, text)
    return 1000 * (time.process_time() - begun) / len(cell.sources)


def compared(all_cells: Sequence[Cell], results: dict[tuple[str, str], Result], system: str) -> Comparison:
    """The chrF of a system less that of the plain translations, averaged over cells, by blocks."""
    ours, theirs = (
        [CHRF.statistics(cell.sources, results[cell.name, name].texts, cell.references) for cell in all_cells]
        for name in (system, "plain")
    )
    return compare(ours, theirs, CHRF.formula, [np.array(cell.blocks) for cell in all_cells])


def irrelevant(all_cells: Sequence[Cell], results: dict[tuple[str, str], Result], system: str) -> int:
    """Prompts with a term that the sentence does not seem to have: the first three letters of none of its words stand
    in it, nor does a word with the lemma of one of them."""
    count = 0
    for cell in all_cells:
        forms = forms_in(cell.source)
        for made in results[cell.name, system].translations:
            text = forms.fold(made.source.text)
            lemmas = {lemma for word in text_words(made.source.text) for lemma in forms.form(word.text).lemmas}
            count += any(
                not any(
                    forms.fold(word.text)[:3] in text or forms.form(word.text).lemmas & lemmas
                    for word in text_words(usage.match.term.source)
                )
                for usage in made.terms
            )
    return count


def _report(
    all_cells: Sequence[Cell],
    systems: Sequence[str],
    results: dict[tuple[str, str], Result],
    milliseconds: float,
    options: argparse.Namespace,
) -> tuple[list[Block], dict[str, object]]:
    shares: list[list[str]] = []
    chrf_rows: list[list[str]] = []
    facts: dict[str, object] = {"part": options.part, "milliseconds": milliseconds}
    for cell in all_cells:
        own = [results[cell.name, system] for system in systems]
        shares.append(
            [cell.name, str(len(cell.glossary)), str(len(cell.sources)), str(cell.terms)]
            + [f"{100 * result.used(cell) / cell.terms:.1f}" for result in own]
        )
        scores = [result.chrf(cell) for result in own]
        chrf_rows.append([cell.name, *(f"{score:.2f}" for score in scores)])
        facts[cell.name] = {
            "terms": cell.terms,
            "used": [result.used(cell) for result in own],
            "chrF": scores,
            "seconds": [result.seconds for result in own],
        }
    total = sum(cell.terms for cell in all_cells)
    used = [sum(results[cell.name, system].used(cell) for cell in all_cells) for system in systems]
    sentences = sum(len(cell.sources) for cell in all_cells)
    shares.append(["all", "", str(sentences), str(total), *(f"{100 * n / total:.1f}" for n in used)])
    rows = []
    for system in systems[1:]:
        found = compared(all_cells, results, system)
        better = sum(float(row[1 + systems.index(system)]) > float(row[1]) for row in chrf_rows)
        rows.append(
            [
                system,
                f"{found.value:+.2f}",
                f"{found.low:+.2f} to {found.high:+.2f}",
                f"{found.p:.4f}",
                f"{better} of {len(all_cells)}",
                str(irrelevant(all_cells, results, system)),
            ]
        )
        facts[system] = [found.value, found.low, found.high, found.p]
    seconds = [np.mean([results[cell.name, system].seconds for cell in all_cells]) for system in systems]
    times = ", ".join(f"{system} {second:.2f}" for system, second in zip(systems, seconds, strict=True))
    command = ["python", "-m", "eval.terms", "--data", "DATA", "--part", options.part, "--limit", str(options.limit)]
    about = (
        f"The {options.part} part, {options.llm} with its adapter, {options.dtype}: {sentences} sentences with {total} "
        "required terms, which the reference has too. `glossary` shows and asks for these, `all terms` for all that "
        "the glossary has of a sentence, also those that the reference translates otherwise. CPU seconds a sentence: "
        f"{times}. The search for the terms of a sentence in a glossary of {LARGE:,} terms, and for their "
        f"translations, takes {milliseconds:.2f} ms."
    )
    by_blocks = (
        "Interval: bootstrap over blocks of consecutive sentences; p: randomization test by blocks, two-sided. A term "
        "is foreign that neither begins like a part of the sentence nor has a word whose lemma stands in it."
    )
    blocks: list[Block] = [
        Heading("Terms of a glossary", 1),
        Text(about),
        Code(shlex.join([*command, *(["--all-terms"] if options.all_terms else [])])),
        Heading("Required terms that are used, %"),
        Table(["cell", "terms of the glossary", "sentences", "required terms", *systems], shares),
        Heading("chrF"),
        Table(["cell", *systems], chrf_rows),
        Heading("chrF against plain, all cells"),
        Text(by_blocks),
        Table(["system", "gain", "95 % interval", "p", "better in", "prompts with a foreign term"], rows),
    ]
    return blocks, facts


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.terms", description=__doc__, examples=["--data DIR --part dev"])
    add_cell_options(parser)
    add = parser.add_argument
    add("--limit", type=positive, default=300, metavar="N", help="most sentences of a cell")
    add("--all-terms", action="store_true", help="a third run with all terms of the glossary")
    return run(evaluate, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
