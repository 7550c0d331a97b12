"""Make phrase pairs with example sentences, what XPR is trained and measured on.

    python -m finetune.xpr.data --data DIR --output PHRASES [--pairs de-en,cs-en] [--report FILE]

reads the lexicons `DIR/lexicon/NAME.xx-en.tsv[.xz]` (English, then the other language) and takes example sentences from
both sides of `DIR/train/xx-en.tsv[.xz]` as monolingual text (English from all pairs): the examples of the two phrases
of a pair are never each other's translations. Sentences of DIR/dev, DIR/test and DIR/align are left out. Of one's
own files, which should not be translations of each other:

    python -m finetune.xpr.data --pairs xx-en --lexicon FILE --text xx=FILE --text en=FILE --output PHRASES

And WikiXPR in the form its authors published (folders train, dev, test, sentences):

    python -m finetune.xpr.data --wikixpr DIR --pairs fr-en,de-en --output PHRASES

PHRASES/xx-en is written for each pair (see `retrievers.xpr.examples`); what is there already is kept, unless it
was made with other settings.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from finetune.xpr.build import Limits, assemble, choose, statistics
from finetune.xpr.lexicon import lexicon_files, read_lexicon
from finetune.xpr.sentences import LEFT_OUT_DOMAINS, SentenceIndex, linked_rows
from finetune.xpr.tables import write_report
from finetune.xpr.wikixpr import SETTINGS as WIKIXPR
from finetune.xpr.wikixpr import read_wikixpr, wikixpr_files
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import remembered_hashes
from rag_mt.base.languages import WMT16, language
from rag_mt.base.types import Origin, Sentence, Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import Corpus, excluded_texts, read_corpus, training_file
from retrievers.xpr.examples import MANIFEST, open_examples, write_examples

log = logging.getLogger("rag_mt")

HELD_OUT = ("dev", "test", "align")
LIMITS = {"limit": "pairs", "least": "least", "most": "most", "others": "others"}
"""Options and the fields of `Limits` that they set."""


def make(options: argparse.Namespace) -> int:
    """Make the sets that are missing, and the report if one is wanted."""
    pairs = options.pairs.split(",")
    for pair in pairs:
        if not re.fullmatch(r"[a-z]{2,3}-en", pair):
            raise UserError(f"{pair!r} is no pair of a language with English: give pairs such as de-en,cs-en")
        language(pair.removesuffix("-en"))
    limits = _limits(options)
    output = Path(options.output)
    missing = [pair for pair in pairs if not (output / pair / MANIFEST).is_file()]
    for pair in pairs:
        if pair not in missing:
            _check_made(output / pair, WIKIXPR if options.wikixpr else limits.settings(), _inputs(options, pair))
    if options.wikixpr:
        for pair in missing:
            read_wikixpr(Path(options.wikixpr), pair, output / pair)
    elif options.data:
        _from_data(options, missing, output, limits)
    elif options.lexicon and options.text:
        _from_files(options, missing, output, limits)
    else:
        raise UserError("what to read is missing: give --data DIR, or --lexicon FILE with --text, or --wikixpr DIR")
    for pair in pairs:
        found = open_examples(output / pair)
        counts = ", ".join(f"{len(found.pairs(split))} {split}" for split in ("train", "dev", "test"))
        log.info("%s: %s pairs%s", output / pair, counts, "" if pair in missing else " (made before)")
    if options.report:
        write_report(Path(options.report), [open_examples(output / pair) for pair in pairs])
    return OK


def _limits(options: argparse.Namespace) -> Limits:
    """The limits that the options set; raises UserError for options that do not go together."""
    sources = [f"--{name}" for name in ("data", "lexicon", "wikixpr") if getattr(options, name)]
    if len(sources) > 1:
        raise UserError(f"{' and '.join(sources)} are different things to read: give one of them")
    if options.lexicon and len(options.pairs.split(",")) > 1:
        raise UserError(f"--lexicon is of one language pair, not of {options.pairs}: give --pairs de-en or the like")
    if options.text and sources and not options.lexicon:
        raise UserError(f"--text goes with --lexicon and is not read with {sources[0]}: leave one of them out")
    given = {name: getattr(options, name) for name in LIMITS if getattr(options, name) is not None}
    if options.wikixpr and given:
        raise UserError(f"--{next(iter(given))} is for sets made of a lexicon: WikiXPR is read whole, leave it out")
    made = replace(Limits(), **{LIMITS[name]: value for name, value in given.items()})
    if made.others < 0:
        raise UserError(f"--others {made.others} is below 0: give how many further candidates there may be")
    if made.least > made.most:
        raise UserError(f"--least {made.least} is above --most {made.most}: no phrase has so many example sentences")
    return made


def _check_made(folder: Path, wanted: Mapping[str, int], inputs: Sequence[Path]) -> None:
    """Raise UserError if a set that is there was made with other settings than those that are wanted, or of other
    files, if there are any."""
    found = open_examples(folder).manifest
    made = found.get("settings", {})
    different = {name for name in wanted.keys() | made.keys() if made.get(name) != wanted.get(name)}
    if inputs and not different and remembered_hashes(inputs) != found.get("inputs"):
        different = {"files"}
    if different:
        raise UserError(
            f"{folder} was made with other settings ({', '.join(sorted(different))}): "
            "give another --output, or remove it"
        )


def _inputs(options: argparse.Namespace, pair: str) -> list[Path]:
    """The files that the set of a pair is made of, those that are there."""
    if options.wikixpr:
        found = wikixpr_files(Path(options.wikixpr), pair)
    elif options.data:
        data = Path(options.data)
        found = [*(data / "lexicon").glob(f"*.{pair}.tsv*"), *(data / "train").glob("*-en.tsv*"), *_held_out(data)]
    else:
        texts = _texts(options)
        found = [*map(Path, options.lexicon or ()), *(path for code in pair.split("-") for path in texts.get(code, ()))]
    return sorted(path for path in found if path.is_file())


def _texts(options: argparse.Namespace) -> dict[str, list[Path]]:
    """The files of --text by language code."""
    texts: dict[str, list[Path]] = {}
    for given in options.text or ():
        code, separator, name = given.partition("=")
        if not separator:
            raise UserError(f"--text {given!r} names no language: give LANG=FILE, such as de=news.txt")
        texts.setdefault(language(code).code, []).append(Path(name))
    return texts


def _held_out(data: Path) -> list[Path]:
    return sorted(p for name in HELD_OUT for p in (data / name).glob("*") if p.is_file())


def _from_data(options: argparse.Namespace, pairs: Sequence[str], output: Path, limits: Limits) -> None:
    """The sets of a folder of lexicons and parallel text, each side of which serves as monolingual text."""
    if not pairs:
        return
    data, skips = Path(options.data), Skips(shown=0)
    excluded = excluded_texts(_held_out(data), skips)
    english_files = sorted((data / "train").glob("*-en.tsv*"))
    corpora = {path.name.split(".")[0]: read_corpus(path, skips) for path in english_files}
    for pair in pairs:
        if pair not in corpora:
            training_file(data, pair)  # says what is missing
    log.info("indexing %d lines of English", sum(map(len, corpora.values())))
    english = SentenceIndex(
        "en", (s for path in english_files for s in _side(corpora[path.name.split(".")[0]], path, "en")), excluded
    )
    for pair in pairs:
        train = training_file(data, pair)
        code, corpus = pair.removesuffix("-en"), corpora[pair]
        source = SentenceIndex(code, _side(corpus, train, code), excluded)
        linked = linked_rows(source, english, corpus.pairs)
        _build(options, pair, lexicon_files(data, pair), (source, english), linked, output, limits)


def _from_files(options: argparse.Namespace, pairs: Sequence[str], output: Path, limits: Limits) -> None:
    """The set of one lexicon and plain text files, a sentence per line."""
    texts = _texts(options)
    for pair in pairs:
        if wanting := [code for code in pair.split("-") if code not in texts]:
            raise UserError(f"{pair} needs text of {' and '.join(wanting)}: give --text {wanting[0]}=FILE")
        skips = Skips()
        sides = [
            SentenceIndex(code, (s for path in texts[code] for s in _lines(path, code, skips)))
            for code in pair.split("-")
        ]
        paths = [Path(name) for name in options.lexicon]
        _build(options, pair, paths, (sides[0], sides[1]), {}, output, limits)


def _build(
    options: argparse.Namespace,
    pair: str,
    lexicons: Sequence[Path],
    indexes: tuple[SentenceIndex, SentenceIndex],
    linked: dict[int, frozenset[int]],
    output: Path,
    limits: Limits,
) -> None:
    skips = Skips(shown=0)
    entries = read_lexicon(lexicons, skips)
    usable = sum(entry.asked for entry in entries)
    log.info("%s: %d entries; %s", pair, usable, skips.summary())
    with closing(progress(limits.pairs, "pairs", f"example sentences {pair}")) as bar:
        chosen = choose(entries, *indexes, linked, limits, bar.update, skips)
    if not chosen:
        raise UserError(
            f"no entry of {', '.join(p.name for p in lexicons)} has {limits.least} example sentences on both sides: "
            "give more text, or a smaller --least"
        )
    sides, rows = assemble(entries, chosen, indexes, limits)
    texts = dict(zip(pair.split("-"), map(len, indexes), strict=True))
    counts = {"entries": usable, "skips": dict(skips.counts), "sentences to choose from": texts}
    facts = {
        "settings": limits.settings(),
        "inputs": remembered_hashes(_inputs(options, pair)),
        "lexicon": counts,
        "statistics": statistics(sides, rows),
    }
    write_examples(output / pair, pair, sides, rows, facts)


def _side(corpus: Corpus, path: Path, code: str) -> Iterator[Sentence]:
    """One side of parallel text as monolingual sentences."""
    texts = corpus.targets if code == "en" else corpus.sources
    for line, domain, text in zip(corpus.lines, corpus.domains, texts, strict=True):
        if domain not in LEFT_OUT_DOMAINS:
            yield Sentence(text, code, Origin(path.name, line))


def _lines(path: Path, code: str, skips: Skips) -> Iterator[Sentence]:
    for line in read_lines(path, skips):
        if line.text:
            yield Sentence(line.text, code, Origin(path.name, line.number))


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.xpr.data", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    wmt16 = ",".join(f"{code}-en" for code in WMT16)
    usual = Limits()
    parser.add_argument("--pairs", default=wmt16, metavar="XX-en,...", help=f"language pairs (default: {wmt16})")
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder per language pair is made here")
    parser.add_argument("--data", metavar="DIR", help="folder with lexicon/ and train/")
    parser.add_argument("--lexicon", nargs="+", metavar="FILE", help="files of English, a tab and the other language")
    parser.add_argument("--text", action="append", metavar="LANG=FILE", help="a file of sentences; may be repeated")
    parser.add_argument("--wikixpr", metavar="DIR", help="folder of WikiXPR")
    for name, kind, what in (
        ("limit", positive, "pairs"),
        ("least", positive, "fewest examples of a phrase"),
        ("most", positive, "most examples of a phrase"),
        ("others", int, "further candidates"),
    ):
        parser.add_argument(
            f"--{name}", type=kind, metavar="N", help=f"{what} (default: {getattr(usual, LIMITS[name])})"
        )
    parser.add_argument("--report", metavar="FILE", help="write the sizes of all sets as Markdown")
    return run(make, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
