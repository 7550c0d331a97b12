"""Check translations: `rag-mt check`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from rag_mt.base.console import OK, PARTLY, add_reading_options, note
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_file
from rag_mt.base.findings import Severity
from rag_mt.base.languages import language
from rag_mt.base.quality import least_score
from rag_mt.base.types import Origin, Skips
from rag_mt.cli.places import file_for

if TYPE_CHECKING:
    from rag_mt.checks.rules import Pair, Rule
    from rag_mt.checks.segments import Checked, Checker

DESCRIPTION = """Check translations against their sources, by rules: numbers, placeholders, lengths, marks and so on.

FILE holds both languages: XLIFF, PO, TMX, a TSV or JSONL file. Two plain texts are compared line by line. Every finding
is a line of output with its file, line, severity and rule. No model is loaded, but for --min-quality.

The exit code is 1 where something was found that --fail-on says, or a line could not be read."""
EXAMPLES = (
    "--src de --tgt en letter.xlf",
    "--src de --tgt en letter.de.txt letter.en.txt --html findings.html",
    "--src en --tgt fi --skip ends,quotes --glossary terms.csv --min-quality fair app.po",
)
FAIL_ON = ("error", "warning", "note", "nothing")
ESTIMATED_AT_ONCE = 256


def add_options(parser: argparse.ArgumentParser) -> None:
    """All options of the command."""
    add = parser.add_argument
    add("files", nargs="+", metavar="FILE", help="a file with both languages, or two texts: source, translation")
    add("--src", required=True, metavar="LANG", help="language of the sources")
    add("--tgt", default="en", metavar="LANG", help="language of the translations")
    add_reading_options(parser)
    add("--target-column", default="", metavar="NAME", help="column (number from 1, or name) of the translations")
    glossary_help = "terms and their translations (CSV, TSV, TBX, TMX) to check by too; may be given several times"
    add("--glossary", action="append", default=[], metavar="FILE", help=glossary_help)
    add("--rules", metavar="NAMES", help="check by these rules only, with commas between them")
    add("--skip", default="", metavar="NAMES", help="leave these rules out")
    quality_help = "estimate the quality too, and find what is below: good, fair or a number from 0 to 100"
    add("--min-quality", metavar="GRADE", help=quality_help)
    add("--html", metavar="FILE", help="write a page with all findings")
    add("--fail-on", choices=FAIL_ON, default="error", help="what makes the exit code 1")


def check(options: argparse.Namespace) -> int:
    """Run the command; returns its exit code."""
    from rag_mt.checks.page import page
    from rag_mt.checks.segments import INCONSISTENT, Checker

    codes = language(options.src).code, language(options.tgt).code
    if codes[0] == codes[1]:
        raise UserError(f"source and target are both {language(codes[0]).name}: give another --src or --tgt")
    page_file = file_for("--html", options.html, [*options.files, *options.glossary]) if options.html else None
    skips = Skips()
    known = _known_rules(options, codes, skips)
    names = _chosen(options, [*known, INCONSISTENT])
    checker = Checker([rule for rule in known.values() if rule.name in names], INCONSISTENT in names)
    least = least_score(options.min_quality)
    found: list[Checked] = []
    for checked in _checked(checker, _pairs(options, codes, skips), least):
        if not checked.findings:
            continue
        found.append(checked)
        for finding in checked.findings:
            sys.stdout.write(f"{finding.at(checked.origin)}\n")
    if not checker.segments:
        raise UserError(f"{options.files[0]} has no translation from {codes[0]} into {codes[1]} to check: see --src")
    if page_file:
        with whole_file(page_file) as part:
            part.write_text(page(found, checker, *codes), encoding="utf-8")
    errors, warnings, notes = (checker.severities[severity] for severity in get_args(Severity))
    counts = f"{errors} errors, {warnings} warnings" + (f", {notes} notes" if notes else "")
    note(f"{checker.segments} translations checked, {len(found)} with findings: {counts}")
    if skips.counts:
        note(skips.summary())
    failed = {"error": errors, "warning": errors + warnings, "note": errors + warnings + notes, "nothing": 0}
    return PARTLY if failed[options.fail_on] or skips.counts else OK


def _checked(checker: Checker, pairs: Iterator[tuple[Pair, Origin]], least: float | None) -> Iterator[Checked]:
    """The translations with what is found in them; with `least` also estimates of their quality that are below."""
    if least is None:
        yield from checker.check_all(pairs)
        return
    from rag_mt.quality.estimator import open_estimator

    estimator = open_estimator()
    while block := list(islice(pairs, ESTIMATED_AT_ONCE)):
        estimates = estimator.estimate([(pair.source, pair.target) for pair, _ in block])
        for (pair, origin), estimate in zip(block, estimates, strict=True):
            yield checker.check(pair, origin, estimate.below(least))


def _known_rules(options: argparse.Namespace, codes: tuple[str, str], skips: Skips) -> dict[str, Rule]:
    """The rules of single translations by their names, with that of the glossaries if there are any."""
    from rag_mt.checks.rules import RULES

    if not options.glossary:
        return RULES
    from rag_mt.glossary.reading import read_glossary
    from rag_mt.glossary.rule import TERMS, terms_rule

    return RULES | {TERMS: terms_rule(read_glossary(options.glossary, *codes, skips))}


def _chosen(options: argparse.Namespace, known: list[str]) -> set[str]:
    """The names of the rules to check by; raises UserError for an unknown one, and if none is left."""
    asked, skipped = (
        [n.strip() for n in (names or "").split(",") if n.strip()] for names in (options.rules, options.skip)
    )
    for name in (*asked, *skipped):
        if name not in known:
            raise UserError(f"there is no rule {name!r}: choose from {', '.join(known)}")
    if not (chosen := set(asked or known) - set(skipped)):
        raise UserError(f"--skip leaves none of the rules {', '.join(asked or known)}: leave one out of it")
    return chosen


def _pairs(options: argparse.Namespace, codes: tuple[str, str], skips: Skips) -> Iterator[tuple[Pair, Origin]]:
    """The translations of the files with their sources and places."""
    from rag_mt.checks.rules import Pair
    from rag_mt.formats.format import Side
    from rag_mt.formats.registry import format_of

    side = Side(codes[0], options.column, codes[1], options.target_column)
    paths = [Path(name) for name in options.files]
    forms = [format_of(path, options.format) for path in paths]
    if all(form.name == "text" for form in forms):
        yield from _lines(paths, codes, skips)
        return
    for path, form in zip(paths, forms, strict=True):
        for segment in form.translations(path, side, skips):
            yield Pair(segment.original, segment.text, *codes), segment.origin


def _lines(paths: list[Path], codes: tuple[str, str], skips: Skips) -> Iterator[tuple[Pair, Origin]]:
    """The lines of two texts side by side; raises UserError for another number of texts or lines."""
    from rag_mt.checks.rules import Pair
    from rag_mt.formats.opening import read_lines

    if len(paths) != 2:
        raise UserError(f"{len(paths)} plain texts were given: give two, the source and its translation")
    sides = [list(read_lines(path, skips)) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise UserError(
            f"{paths[0]} has {len(sides[0])} lines, {paths[1]} {len(sides[1])}: give texts whose lines belong together"
        )
    for source, target in zip(*sides, strict=True):
        if source.text is not None and target.text is not None and source.text.strip():
            yield Pair(source.text, target.text, *codes), Origin(str(paths[1]), target.number)
