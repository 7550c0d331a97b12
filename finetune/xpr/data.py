"""Make phrase pairs with example sentences, what XPR is trained and measured on.

    python -m finetune.xpr.data --data DIR --output PHRASES [--pairs de-en,cs-en] [--report FILE]

reads the lexicons `DIR/lexicon/NAME.xx-en.tsv[.xz]` (English, then the other language) and takes example sentences from
both sides of `DIR/train/xx-en.tsv[.xz]` as monolingual text (English from all pairs): the examples of the two phrases
of a pair are never each other's translations. Sentences of DIR/dev, DIR/test and DIR/align are left out. From
your own files, which should not be translations of each other:

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from finetune.xpr.build import TEST_PAIRS, Indexes, Limits, assemble, choose, read_lexicon, statistics
from finetune.xpr.sentences import SentenceIndex, linked_rows
from finetune.xpr.wikixpr import SETTINGS as WIKIXPR
from finetune.xpr.wikixpr import read_wikixpr, wikixpr_files
from rag_mt.base.console import OK, Parser, positive, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import remembered_hashes, write_whole
from rag_mt.base.languages import WMT16, language
from rag_mt.base.types import Origin, Sentence, Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import Corpus, excluded_texts, read_corpus, training_file
from retrievers.xpr.examples import MANIFEST, SPLITS, ExampleSet, open_examples, write_examples

log = logging.getLogger("rag_mt")

HELD_OUT = ("dev", "test", "align")
LEFT_OUT_DOMAINS = frozenset(("dict-phrases", "wmt-tok"))
"""Examples out of dictionaries, which tell lexicon phrases apart too easily, and text that was tokenised."""
LIMITS = {"limit": "pairs", "least": "least", "most": "most", "others": "others"}
"""Options and the fields of `Limits` that they set."""

Source = tuple[str, Sequence[Path], Indexes, dict[int, frozenset[int]]]
"""A language pair, its lexicons, the sentences of both languages, and which of them translate each other."""


def make(options: argparse.Namespace) -> int:
    """Make the sets that are missing, and the report if one is wanted."""
    pairs = options.pairs.split(",")
    for pair in pairs:
        if not re.fullmatch(r"[a-z]{2,3}-en", pair):
            raise UserError(f"{pair!r} is no pair of a language with English: give pairs such as de-en,cs-en")
        language(pair.removesuffix("-en"))
    limits, output = limits_of(options), Path(options.output)
    missing = [pair for pair in pairs if not (output / pair / MANIFEST).is_file()]
    for pair in pairs:
        if pair not in missing:
            settings = WIKIXPR if options.wikixpr else asdict(limits)
            check_settings(output / pair, settings, inputs_of(options, pair))
    if options.wikixpr:
        for pair in missing:
            read_wikixpr(Path(options.wikixpr), pair, output / pair)
    elif options.data or (options.lexicon and options.text):
        sources = sources_in_data(Path(options.data), missing) if options.data else sources_in_files(options, missing)
        for source in sources:
            write_set(output, source, limits, inputs_of(options, source[0]))
    else:
        raise UserError("what to read is missing: give --data DIR, or --lexicon FILE with --text, or --wikixpr DIR")
    sets = [open_examples(output / pair) for pair in pairs]
    for pair, examples in zip(pairs, sets, strict=True):
        counts = ", ".join(f"{len(examples.pairs(split))} {split}" for split in ("train", "dev", "test"))
        log.info("%s: %s pairs%s", output / pair, counts, "" if pair in missing else " (made before)")
    if options.report:
        write_whole(Path(options.report), "\n".join(sizes(sets)) + "\n")
    return OK


def limits_of(options: argparse.Namespace) -> Limits:
    """The limits that the options set; raises UserError for options that do not go together."""
    sources = [f"--{name}" for name in ("data", "lexicon", "wikixpr") if getattr(options, name)]
    if len(sources) > 1:
        raise UserError(f"{' and '.join(sources)} are different things to read: give one of them")
    if options.lexicon and "," in options.pairs:
        raise UserError(f"--lexicon is of one language pair, not of {options.pairs}: give --pairs de-en or the like")
    if options.text and sources and not options.lexicon:
        raise UserError(f"--text goes with --lexicon and is not read with {sources[0]}: leave one of them out")
    changes = {name: getattr(options, name) for name in LIMITS if getattr(options, name) is not None}
    if options.wikixpr and changes:
        raise UserError(f"--{next(iter(changes))} is for sets made of a lexicon: WikiXPR is read whole, leave it out")
    limits = replace(Limits(), **{LIMITS[name]: value for name, value in changes.items()})
    if limits.others < 0:
        raise UserError(f"--others {limits.others} is below 0: give how many further candidates there may be")
    if limits.least > limits.most:
        raise UserError(
            f"--least {limits.least} is above --most {limits.most}: no phrase has so many example sentences"
        )
    return limits


def check_settings(folder: Path, wanted: Mapping[str, int], inputs: Sequence[Path]) -> None:
    """Raise UserError if a set that is there was made with other settings than those that are wanted, or of other
    files, if there are any."""
    manifest = open_examples(folder).manifest
    settings = manifest.get("settings", {})
    different = {name for name in wanted.keys() | settings.keys() if settings.get(name) != wanted.get(name)}
    if inputs and not different and remembered_hashes(inputs) != manifest.get("inputs"):
        different = {"files"}
    if different:
        names = ", ".join(sorted(different))
        raise UserError(f"{folder} was made with other settings ({names}): give another --output, or remove it")


def inputs_of(options: argparse.Namespace, pair: str) -> list[Path]:
    """The files that the set of a pair is made of, those that are there."""
    if options.wikixpr:
        paths = wikixpr_files(Path(options.wikixpr), pair)
    elif options.data:
        data = Path(options.data)
        paths = [*_lexicons(data, pair), *(data / "train").glob("*-en.tsv*"), *_held_out(data)]
    else:
        texts = _texts(options)
        paths = [*map(Path, options.lexicon or ()), *(path for code in pair.split("-") for path in texts.get(code, ()))]
    return sorted(path for path in paths if path.is_file())


def _lexicons(data: Path, pair: str) -> list[Path]:
    return sorted(path for path in (data / "lexicon").glob(f"*.{pair}.tsv*") if path.is_file())


def _held_out(data: Path) -> list[Path]:
    return sorted(path for name in HELD_OUT for path in (data / name).glob("*") if path.is_file())


def _texts(options: argparse.Namespace) -> dict[str, list[Path]]:
    """The files of --text by language code."""
    texts: dict[str, list[Path]] = {}
    for text in options.text or ():
        code, separator, name = text.partition("=")
        if not separator:
            raise UserError(f"--text {text!r} names no language: give LANG=FILE, such as de=news.txt")
        texts.setdefault(language(code).code, []).append(Path(name))
    return texts


def sources_in_data(data: Path, pairs: Sequence[str]) -> Iterator[Source]:
    """Of a folder of lexicons and parallel text, each side of which serves as monolingual text."""
    if not pairs:
        return
    skips = Skips(shown=0)
    excluded = excluded_texts(_held_out(data), skips)
    corpora = {path.name: read_corpus(path, skips) for path in sorted((data / "train").glob("*-en.tsv*"))}
    files = {pair: training_file(data, pair).name for pair in pairs}
    log.info("indexing %d lines of English", sum(map(len, corpora.values())))
    texts = (sentence for name, corpus in corpora.items() for sentence in _side(corpus, name, "en"))
    english = SentenceIndex("en", texts, excluded)
    for pair, name in files.items():
        source = SentenceIndex(code := pair.removesuffix("-en"), _side(corpora[name], name, code), excluded)
        lexicons = _lexicons(data, pair)
        if not lexicons:
            raise UserError(
                f"there is no lexicon/NAME.{pair}.tsv in {data}: give the folder that holds it, or your own "
                "files by --lexicon and --text instead of --data"
            )
        yield pair, lexicons, (source, english), linked_rows(source, english, corpora[name].pairs)


def _side(corpus: Corpus, file: str, code: str) -> Iterator[Sentence]:
    """One side of parallel text as monolingual sentences."""
    texts = corpus.targets if code == "en" else corpus.sources
    for line, domain, text in zip(corpus.lines, corpus.domains, texts, strict=True):
        if domain not in LEFT_OUT_DOMAINS:
            yield Sentence(text, code, Origin(file, line))


def sources_in_files(options: argparse.Namespace, pairs: Sequence[str]) -> Iterator[Source]:
    """Of lexicons and plain text files, a sentence per line."""
    texts, skips = _texts(options), Skips()
    for pair in pairs:
        codes = pair.split("-")
        if wanting := [code for code in codes if code not in texts]:
            raise UserError(f"{pair} needs text of {' and '.join(wanting)}: give --text {wanting[0]}=FILE")
        source, english = (SentenceIndex(code, _lines(texts[code], code, skips)) for code in codes)
        yield pair, [Path(name) for name in options.lexicon], (source, english), {}


def _lines(paths: Iterable[Path], code: str, skips: Skips) -> Iterator[Sentence]:
    for path in paths:
        for line in read_lines(path, skips):
            if line.text:
                yield Sentence(line.text, code, Origin(path.name, line.number))


def write_set(output: Path, source: Source, limits: Limits, inputs: Sequence[Path]) -> None:
    """Choose phrase pairs and write them with their examples to `output`/PAIR."""
    pair, lexicons, indexes, linked = source
    skips = Skips(shown=0)
    entries = read_lexicon(lexicons, skips)
    usable = sum(entry.asked for entry in entries)
    log.info("%s: %d entries; %s", pair, usable, skips.summary())
    with closing(progress(limits.pairs, "pairs", f"example sentences {pair}")) as bar:
        chosen = choose(entries, indexes, linked, limits, bar.update, skips)
    if not chosen:
        names = ", ".join(path.name for path in lexicons)
        raise UserError(
            f"no entry of {names} has {limits.least} example sentences on both sides: give more text, or a smaller "
            "--least"
        )
    sides, rows = assemble(entries, chosen, indexes, limits)
    counts = dict(zip(pair.split("-"), map(len, indexes), strict=True))
    facts = {
        "settings": asdict(limits),
        "inputs": remembered_hashes(inputs),
        "lexicon": {"entries": usable, "skips": dict(skips.counts), "sentences to choose from": counts},
        "statistics": statistics(sides, rows),
    }
    write_examples(output / pair, pair, sides, rows, facts)


def sizes(sets: Sequence[ExampleSet]) -> list[str]:
    """The sizes of phrase sets as lines of Markdown, like tables 1 and 6 of the XPR paper."""
    names = [examples.name for examples in sets]
    numbers: list[dict[str, Any]] = [dict(examples.manifest["statistics"]) for examples in sets]
    counts = {split.title(): [own[split]["pairs"] for own in numbers] for split in SPLITS[:3]}
    counts["Test, several words"] = [own["test"]["of several words"] for own in numbers]
    titles = {
        "pairs": "pairs",
        "words per phrase": "average words of a phrase",
        "words per sentence": "average words of an example sentence",
        "examples per phrase": "average examples of a phrase",
    }
    details = {
        f"{split.title()}: {title}": [own[split][key] for own in numbers]
        for split in SPLITS[:3]
        for key, title in titles.items()
    }
    for key in ("other candidates", "sentences", "examples"):
        details[f"All: {key}"] = [own[key] for own in numbers]
    lines = [
        "# Phrase pairs with example sentences: sizes",
        "",
        "Made by `python -m finetune.xpr.data --data DIR --output PHRASES --report reports/xpr-data.md`; DIR holds "
        "bilingual lexicons and parallel text, of which each side serves as monolingual text.",
        "",
        "## Phrase pairs (the paper's table 1)",
        "",
        *_table(["", *names, "Total"], {title: [*row, sum(row)] for title, row in counts.items()}),
        "",
        "## Details (the paper's table 6)",
        "",
        *_table(["xx / en", *names], details),
        "",
        "`Other candidates` are phrases of no pair that are searched along with those of a split; they stand in the "
        "same sentences. A concept, English words in their base form, is in the same split in all pairs.",
        "",
        "A pair is tested only if all translations that the lexicon has of its phrase are of held-out concepts. By "
        f"that rule some languages have fewer than {TEST_PAIRS:,} test pairs, and where phrases of several words run "
        "out, words take their places: then they are fewer than half of a test set.",
    ]
    if all("lexicon" in examples.manifest for examples in sets):
        facts = [examples.manifest["lexicon"] for examples in sets]
        rows = {"usable entries": [own["entries"] for own in facts]}
        for reason in dict.fromkeys(reason for own in facts for reason in sorted(own["skips"])):
            rows[f"left out: {reason}"] = [own["skips"].get(reason, 0) for own in facts]
        rows["sentences to choose from, xx / en"] = [[*own["sentences to choose from"].values()] for own in facts]
        lines += ["", "## What the lexicons had", "", *_table(["", *names], rows)]
    return lines


def _table(head: Sequence[str], rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """Rows of numbers, or of lists of one for each language."""
    cells = [head, ["---", *["---:"] * (len(head) - 1)]]
    for title, row in rows.items():
        cells.append([title, *(" / ".join(map(str, cell if isinstance(cell, list) else [cell])) for cell in row)])
    return [f"| {' | '.join(line)} |" for line in cells]


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.xpr.data",
        description=__doc__,
        examples=[
            "--data DATA --pairs de-en,cs-en --output PHRASES --report phrases.md",
            "--pairs de-en --lexicon FILE --text de=FILE --text en=FILE --output PHRASES",
        ],
    )
    add, wmt16 = parser.add_argument, ",".join(f"{code}-en" for code in WMT16)
    add("--pairs", default=wmt16, metavar="XX-en,...", help="language pairs")
    add("--output", required=True, metavar="DIR", help="a folder per language pair is made here")
    add("--data", metavar="DIR", help="folder with lexicon/ and train/")
    add("--lexicon", nargs="+", metavar="FILE", help="files of English, a tab and the other language")
    add("--text", action="append", metavar="LANG=FILE", help="a file of sentences; may be repeated")
    add("--wikixpr", metavar="DIR", help="folder of WikiXPR")
    for name, kind, what in (
        ("limit", positive, "pairs"),
        ("least", positive, "fewest examples of a phrase"),
        ("most", positive, "most examples of a phrase"),
        ("others", int, "further candidates"),
    ):
        default = getattr(Limits(), LIMITS[name])
        add(f"--{name}", type=kind, metavar="N", help=f"{what} (default: {default})")
    add("--report", metavar="FILE", help="write the sizes of all sets as Markdown")
    return run(make, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
