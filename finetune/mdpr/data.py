"""Make what mDPR is trained on, once for all runs.

    python -m finetune.mdpr.data --data DIR --output PREPARED

PREPARED then holds `relevance/NAME.jsonl` (questions, their passages and hard negatives), `pairs/AA-BB.tsv` (parallel
sentences), `texts/LL.txt` (sentences of a language without translation), `dev/LL.jsonl` with `dev/LL.passages.jsonl`
(questions and passages for the scores during training) and `manifest.json` (settings and counts).

By default relevance data is the English training part of XQuAD (`DIR/retrieval/xquad.en.json`), and development data
its development part in all languages (`xquad.XX.json`). Published sets are read with `--relevance NAME=FORMAT:PATH` in
their own formats, such as `nq=dpr:biencoder-nq-train.json.gz`, `msmarco=trec:FOLDER` or `mrtydi=jsonl:train.jsonl.gz`,
development data likewise with `--dev LL=FORMAT:PATH`; where a set has no hard negatives they are BM25's best wrong
passages. Sentences of development and test sets are left out of all training text, and those of `--exclude`, such as
sets that `python -m eval.bitext` made of the same data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.data.xquad import LANGUAGES, Xquad, has_xquad, read_xquad
from finetune.lora.config import NEWS_FIRST, DataConfig
from finetune.lora.examples import unusable
from finetune.mdpr.relevance import (
    Example,
    Passage,
    read_collection,
    read_examples,
    with_bm25_negatives,
    write_examples,
)
from finetune.training.sampling import weighted_order
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import whole_folder, write_json
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.parallel import excluded_texts, letters_and_digits, read_corpus, training_file
from rag_mt.text.splitting import split

MANIFEST = "manifest.json"
KINDS = ("relevance", "dev", "pairs", "texts")
"""The folders of PREPARED."""
DEPTH = 30
"""Hard negatives that are kept of each question."""
LIMITS = DataConfig(fewest_words=4, most_words=60, longest_ratio=2.5)
ENGLISH = "en"

Pair = tuple[str, str]
"""Parallel sentences; of a pair with English, the other language comes first."""


def xquad_examples(xquad: Xquad, language: str = ENGLISH) -> list[Example]:
    """Questions of a language with their passages in the same one."""
    passages = {key: Passage(key, text) for key, text in xquad.passages[language].items()}
    return [Example(q.id, q.text, (passages[q.passage],), (), language) for q in xquad.questions[language]]


def write_relevance(folder: Path, data: Path, sources: Sequence[str], skips: Skips) -> dict[str, int]:
    """`NAME.jsonl` of each `NAME=FORMAT:PATH` or, without any, of the English training part of XQuAD; the numbers of
    questions."""
    if not sources:
        train = read_xquad(data, (ENGLISH,)).part("train")
        collection = [Passage(key, text) for key, text in train.passages[ENGLISH].items()]
        examples = with_bm25_negatives(xquad_examples(train), collection, ENGLISH, DEPTH)
        return {"xquad-en": write_examples(folder / "xquad-en.jsonl", examples)}
    sizes = {}
    for text in sources:
        name, form, path = _named_data("--relevance", text)
        examples = list(read_examples(form, path, ENGLISH, skips))
        if not examples:
            raise UserError(f"{path} has no question with a relevant passage: give the training part of {name}")
        if not any(example.negatives for example in examples):
            by_id = {passage.id: passage for example in examples for passage in example.positives}
            collection = list(read_collection(Path(path)) if form == "trec" else by_id.values())
            examples = with_bm25_negatives(examples, collection, examples[0].language, DEPTH)
        sizes[name] = write_examples(folder / f"{name}.jsonl", examples)
    return sizes


def _named_data(option: str, text: str) -> tuple[str, str, str]:
    name, equals, rest = text.partition("=")
    form, colon, path = rest.partition(":")
    if not (name and equals and form and colon and path):
        raise UserError(f"{option} {text!r} names no data: expected NAME=FORMAT:PATH, such as nq=dpr:train.json")
    return name, form, path


def write_dev(folder: Path, data: Path, codes: Sequence[str], sources: Sequence[str], skips: Skips) -> dict[str, int]:
    """`LL.jsonl` of each `LL=FORMAT:PATH` or, without any, of every language of XQuAD, where the passages of the
    training part are further ones to search among (`LL.passages.jsonl`); the numbers of questions."""
    sizes = {}
    for text in sources:
        code, form, path = _named_data("--dev", text)
        sizes[code] = write_examples(folder / f"{code}.jsonl", read_examples(form, path, code, skips))
    if sources:
        return sizes
    xquad = read_xquad(data, [code for code in LANGUAGES if code in (ENGLISH, *codes)])
    further, dev = xquad.part("train"), xquad.part("dev")
    for code in dev.passages:
        sizes[code] = write_examples(folder / f"{code}.jsonl", xquad_examples(dev, code))
        rows = [json.dumps({"docid": k, "text": t}, ensure_ascii=False) for k, t in further.passages[code].items()]
        (folder / f"{code}.passages.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return sizes


def write_sentences(
    folder: Path, options: argparse.Namespace, languages: Sequence[str], connections: Sequence[str], skips: Skips
) -> dict[str, dict[str, int]]:
    """The files of `pairs/` and `texts/`; their sizes.

    A sentence of `texts/` is in none of the pairs with English. The sentences of XQuAD's training passages are texts
    too: text of the searched domain, as the paper's second kind of non-parallel text (section 5.4).
    """
    data = Path(options.data)
    excluded = texts_of_test_sets(data) | excluded_texts([Path(name) for name in options.exclude], skips)
    ordered = {code: ordered_pairs(data, code, excluded, options.seed, skips) for code in languages}
    pairs = {f"{code}-{ENGLISH}": rows[: options.pairs] for code, rows in ordered.items()}
    rest = slice(options.pairs, options.pairs + options.texts)
    texts = {code: [other for other, _ in rows[rest]] for code, rows in ordered.items()}
    if has_xquad(data, ENGLISH):
        train = read_xquad(data, [code for code in LANGUAGES if code in languages]).part("train")
        for code, passages in train.passages.items():
            spans = (span.of(text) for text in passages.values() for span in split(text, code))
            texts[f"xquad-{code}"] = list(dict.fromkeys(spans))
    for name in connections:
        first, second = split_pair(name)
        pairs[name] = joined_pairs(ordered[first], ordered[second])[: options.pairs]
    for name, rows in pairs.items():
        _write_rows(folder / "pairs" / f"{name}.tsv", rows)
    for name, sentences in texts.items():
        _write_rows(folder / "texts" / f"{name}.txt", [(text,) for text in sentences])
    return {
        "pairs": {name: len(rows) for name, rows in pairs.items()},
        "texts": {name: len(rows) for name, rows in texts.items()},
    }


def _write_rows(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """A line per row with tabs between its texts."""
    lines = ("\t".join(" ".join(text.split()) for text in row) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def texts_of_test_sets(data: Path) -> set[str]:
    """The `letters_and_digits` of what no training text may hold: the sentences of `dev/`, `test/`, `align/` and
    `retrieval/`, those inside passages too."""
    files = [p for folder in ("dev", "test", "align", "retrieval") for p in sorted((data / folder).glob("*"))]
    texts = excluded_texts(files, Skips(shown=0))
    for path in (p for p in files if ".passages." in p.name):
        language = path.name.split(".")[-2]
        for line in path.read_text(encoding="utf-8").splitlines():
            text = line.partition("\t")[2]
            texts |= {letters_and_digits(span.of(text)) for span in split(text, language)}
    return texts - {""}


def ordered_pairs(data: Path, language: str, excluded: set[str], seed: int, skips: Skips) -> list[Pair]:
    """The usable pairs of `DATA/train/LANGUAGE-en.tsv` in the order in which they are drawn: random, news and the like
    early (the weights are those of the language model's tuning).

    A pair that is too short, too long, lopsided, no translation, excluded or seen before goes to `skips`. Raises
    UserError for a missing file and for one without usable pairs.
    """
    path = training_file(data, f"{language}-{ENGLISH}")
    corpus = read_corpus(path, skips)
    pairs, weights, seen = list[Pair](), [], set[str]()
    columns = zip(corpus.lines, corpus.domains, corpus.sources, corpus.targets, strict=True)
    for line, domain, other, english in columns:
        weight = NEWS_FIRST.get(domain, 1.0)
        if not weight:
            continue
        keys = letters_and_digits(other), letters_and_digits(english)
        reason = unusable(other, english, keys, LIMITS)
        if not reason and not excluded.isdisjoint(keys):
            reason = "that test sets hold"
        if not reason and not seen.isdisjoint(keys):
            reason = "with a side that was seen before"
        if reason:
            skips.add(Origin(path.name, line), reason)
            continue
        seen.update(keys)
        pairs.append((other, english))
        weights.append(weight)
    if not pairs:
        raise UserError(f"{path} has no usable pair ({skips.summary()}): give English, then the other language")
    return [pairs[n] for n in weighted_order(np.array(weights), [seed, *language.encode()])]


def split_pair(name: str) -> tuple[str, str]:
    """The two language codes of `de-en`; raises UserError for another form."""
    first, _, second = name.partition("-")
    if not (first and second) or first == second:
        raise UserError(f"{name!r} is no pair of languages: expected two codes, such as de-en or ru-tr")
    return first, second


def joined_pairs(first: Iterable[Pair], second: Iterable[Pair]) -> list[Pair]:
    """Sentences of two languages whose English translations are equal, in the order of the first."""
    others = {letters_and_digits(english): other for other, english in second}
    return [(other, others[key]) for other, english in first if (key := letters_and_digits(english)) in others]


def prepare(options: argparse.Namespace) -> int:
    """Write PREPARED."""
    output = Path(options.output)
    languages = options.languages.split(",")
    connections = options.connections.split(",") if options.connections else []
    for name in connections:
        if missing := set(split_pair(name)) - set(languages):
            raise UserError(f"--connections {name!r} needs --languages with {', '.join(sorted(missing))} too")
    if output.exists():
        raise UserError(f"{output} is there already: give another --output or remove it")
    settings = {name: getattr(options, name) for name in ("languages", "connections", "pairs", "texts", "seed")}
    for name in ("relevance", "dev"):
        settings[name] = [text.partition(":")[0] for text in getattr(options, name)]
    if options.exclude:
        settings["exclude"] = [Path(name).name for name in options.exclude]
    skips = Skips(shown=0)
    with whole_folder(output) as folder:
        for kind in KINDS:
            (folder / kind).mkdir()
        facts: dict[str, Any] = {
            "settings": settings,
            "relevance": write_relevance(folder / "relevance", Path(options.data), options.relevance, skips),
            "dev": write_dev(folder / "dev", Path(options.data), languages, options.dev, skips),
            **write_sentences(folder, options, languages, connections, skips),
            "skipped": dict(skips.counts),
        }
        write_json(folder / MANIFEST, facts)
    for kind in KINDS:
        sys.stdout.write(f"{kind}: {', '.join(f'{name} {size}' for name, size in facts[kind].items())}\n")
    if skips.total:
        sys.stdout.write(skips.summary() + "\n")
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        "python -m finetune.mdpr.data",
        description=__doc__,
        examples=["--data DATA --output PREPARED"],
    )
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with train/, dev/, test/ and retrieval/")
    add("--output", required=True, metavar="PREPARED", help="the folder to make")
    add("--languages", default="de,ru,ro,tr", metavar="LL,LL", help="beside English")
    connections_help = "pairs without English, made of equal English sides"
    add("--connections", default="de-ru,ru-tr,de-tr", metavar="LL-LL,...", help=connections_help)
    add("--relevance", action="append", default=[], metavar="NAME=FORMAT:PATH", help="see above")
    add("--dev", action="append", default=[], metavar="LL=FORMAT:PATH", help="in place of XQuAD's")
    add("--pairs", type=positive, default=4000, metavar="N", help="of each pair of languages")
    add("--texts", type=positive, default=4000, metavar="N", help="of each language")
    add("--exclude", nargs="+", default=[], metavar="FILE", help="sentences that no pair may hold")
    add("--seed", type=int, default=1, help="of the random order of sentences")
    return run(prepare, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
