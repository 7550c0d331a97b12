"""Make what mDPR is trained on, once for all runs.

    python -m finetune.mdpr.data --data DIR --output PREPARED

PREPARED then holds `relevance/NAME.jsonl` (questions, their passages and hard negatives), `pairs/AA-BB.tsv` (parallel
sentences), `texts/LL.txt` (sentences of a language without translation), `dev/LL.jsonl` with `dev/LL.passages.jsonl`
(questions and passages for the scores during training) and `manifest.json` (settings and counts).

By default relevance data is the English training part of XQuAD (`DIR/retrieval/xquad.en.json`, and the same of the
other languages). Published sets are read with `--relevance NAME=FORMAT:PATH` in their own formats, such as
`nq=dpr:biencoder-nq-train.json.gz`, `msmarco=trec:FOLDER` or `mrtydi=jsonl:train.jsonl.gz`, development data likewise
with `--dev LL=FORMAT:PATH`; where a set has no hard negatives they are BM25's best wrong passages. Sentences of
development and test sets are left out of all training text, and those of `--exclude`, such as sets that `python -m
eval.bitext` made of the same data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.data.xquad import LANGUAGES, Xquad, has_xquad, read_xquad
from finetune.mdpr.negatives import with_bm25_negatives
from finetune.mdpr.relevance import Example, Passage, read_collection, read_examples, write_examples
from finetune.mdpr.texts import (
    ENGLISH,
    PairedSentence,
    joined_pairs,
    ordered_pairs,
    split_pair,
    texts_of_test_sets,
    write_pairs,
    write_texts,
)
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.errors import UserError
from rag_mt.base.paths import whole_folder
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import excluded_texts
from rag_mt.text.splitting import split

MANIFEST = "manifest.json"
DEPTH = 30
"""Hard negatives that are kept of each question."""


def xquad_examples(xquad: Xquad, language: str = ENGLISH) -> list[Example]:
    """Questions of a language with their passages in the same one."""
    passages = {key: Passage(key, text) for key, text in xquad.passages[language].items()}
    return [Example(q.id, q.text, (passages[q.passage],), (), language) for q in xquad.questions[language]]


def write_relevance(folder: Path, data: Path, wanted: Sequence[str], skips: Skips) -> dict[str, int]:
    """`relevance/NAME.jsonl` of the English training part of XQuAD and of each `NAME=FORMAT:PATH`; their sizes."""
    sizes = {}
    train = read_xquad(data, (ENGLISH,)).part("train") if not wanted else None
    if train is not None:
        collection = [Passage(key, text) for key, text in train.passages[ENGLISH].items()]
        made = with_bm25_negatives(xquad_examples(train), collection, ENGLISH, DEPTH)
        sizes["xquad-en"] = write_examples(folder / "xquad-en.jsonl", made)
    for text in wanted:
        name, form, path = _named_data("--relevance", text)
        made = list(read_examples(form, path, ENGLISH, skips))
        if not made:
            raise UserError(f"{path} has no question with a relevant passage: give the training part of {name}")
        if not any(example.negatives for example in made):
            collection = read_collection(Path(path)) if form == "trec" else list(_all_passages(made))
            made = with_bm25_negatives(made, collection, made[0].language, DEPTH)
        sizes[name] = write_examples(folder / f"{name}.jsonl", made)
    return sizes


def _named_data(option: str, text: str) -> tuple[str, str, str]:
    name, equals, rest = text.partition("=")
    form, colon, path = rest.partition(":")
    if not (name and equals and form and colon and path):
        raise UserError(f"{option} {text!r} names no data: expected NAME=FORMAT:PATH, such as nq=dpr:train.json")
    return name, form, path


def _all_passages(examples: Sequence[Example]) -> Collection[Passage]:
    return {p.id: p for e in examples for p in (*e.positives, *e.negatives)}.values()


def write_dev(
    folder: Path, data: Path, languages: Sequence[str], wanted: Sequence[str], skips: Skips
) -> dict[str, int]:
    """`dev/LL.jsonl` of each `LL=FORMAT:PATH` or, without any, of every language of XQuAD, where the passages of the
    training part are further ones to search among (`dev/LL.passages.jsonl`); the numbers of questions."""
    sizes = {}
    for text in wanted:
        code, form, path = _named_data("--dev", text)
        sizes[code] = write_examples(folder / f"{code}.jsonl", read_examples(form, path, code, skips))
    if wanted:
        return sizes
    xquad = read_xquad(data, [code for code in LANGUAGES if code in (ENGLISH, *languages)])
    further, dev = xquad.part("train"), xquad.part("dev")
    for code in dev.passages:
        sizes[code] = write_examples(folder / f"{code}.jsonl", xquad_examples(dev, code))
        rows = [json.dumps({"docid": k, "text": t}, ensure_ascii=False) for k, t in further.passages[code].items()]
        (folder / f"{code}.passages.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return sizes


def write_sentences(
    folder: Path, options: argparse.Namespace, languages: Sequence[str], connections: Sequence[str], skips: Skips
) -> dict[str, dict[str, int]]:
    """`pairs/` and `texts/` of all languages; their sizes. A sentence of `texts/` is in none of the pairs with
    English."""
    data = Path(options.data)
    excluded = texts_of_test_sets(data) | excluded_texts([Path(name) for name in options.exclude], skips)
    pools: dict[str, list[PairedSentence]] = {}
    sizes: dict[str, dict[str, int]] = {"pairs": {}, "texts": {}}
    for code in languages:
        pools[code] = ordered_pairs(data, code, excluded, options.seed, skips)
        pairs = [(p.other, p.english) for p in pools[code][: options.pairs]]
        texts = [p.other for p in pools[code][options.pairs : options.pairs + options.texts]]
        write_pairs(folder / "pairs" / f"{code}-{ENGLISH}.tsv", pairs)
        write_texts(folder / "texts" / f"{code}.txt", texts)
        sizes["pairs"][f"{code}-{ENGLISH}"], sizes["texts"][code] = len(pairs), len(texts)
    for code, texts in _passage_sentences(data, languages).items():
        write_texts(folder / "texts" / f"xquad-{code}.txt", texts)
        sizes["texts"][f"xquad-{code}"] = len(texts)
    for name in connections:
        first, second = split_pair(name)
        found = joined_pairs(pools[first], pools[second])[: options.pairs]
        write_pairs(folder / "pairs" / f"{name}.tsv", found)
        sizes["pairs"][name] = len(found)
    return sizes


def _passage_sentences(data: Path, languages: Sequence[str]) -> dict[str, list[str]]:
    """The sentences of XQuAD's training passages in each language that it has: text of the searched domain, as the
    paper's second kind of non-parallel text (section 5.4). Empty without XQuAD."""
    if not has_xquad(data, ENGLISH):
        return {}
    train = read_xquad(data, [code for code in LANGUAGES if code in languages]).part("train")
    return {
        code: list(dict.fromkeys(span.of(text) for text in own.values() for span in split(text, code)))
        for code, own in train.passages.items()
    }


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
    skips = Skips(shown=0)
    with whole_folder(output) as folder:
        for name in ("relevance", "dev", "pairs", "texts"):
            (folder / name).mkdir()
        facts: dict[str, Any] = {
            "settings": _settings(options),
            "relevance": write_relevance(folder / "relevance", Path(options.data), options.relevance, skips),
            "dev": write_dev(folder / "dev", Path(options.data), languages, options.dev, skips),
            **write_sentences(folder, options, languages, connections, skips),
            "skipped": dict(skips.counts),
        }
        (folder / MANIFEST).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for kind in ("relevance", "dev", "pairs", "texts"):
        sys.stdout.write(f"{kind}: {', '.join(f'{name} {size}' for name, size in facts[kind].items())}\n")
    if skips.total:
        sys.stdout.write(skips.summary() + "\n")
    return OK


def _settings(options: argparse.Namespace) -> Mapping[str, Any]:
    names = ("languages", "connections", "pairs", "texts", "seed")
    named = {name: [text.partition(":")[0] for text in getattr(options, name)] for name in ("relevance", "dev")}
    excluded = {"exclude": [Path(name).name for name in options.exclude]} if options.exclude else {}
    return {**{name: getattr(options, name) for name in names}, **named, **excluded}


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.mdpr.data", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/, dev/, test/ and retrieval/")
    parser.add_argument("--output", required=True, metavar="PREPARED", help="the folder to make")
    parser.add_argument(
        "--languages", default="de,ru,ro,tr", metavar="LL,LL", help="beside English (default: %(default)s)"
    )
    parser.add_argument(
        "--connections",
        default="de-ru,ru-tr,de-tr",
        metavar="LL-LL,...",
        help="pairs without English, made of equal English sides (default: %(default)s)",
    )
    parser.add_argument("--relevance", action="append", default=[], metavar="NAME=FORMAT:PATH", help="see above")
    parser.add_argument("--dev", action="append", default=[], metavar="LL=FORMAT:PATH", help="in place of XQuAD's")
    parser.add_argument(
        "--pairs", type=positive, default=4000, metavar="N", help="of each pair of languages (%(default)s)"
    )
    parser.add_argument("--texts", type=positive, default=4000, metavar="N", help="of each language (%(default)s)")
    parser.add_argument("--exclude", nargs="+", default=[], metavar="FILE", help="sentences that no pair may hold")
    parser.add_argument("--seed", type=int, default=1, help="of the random order of sentences (default: 1)")
    return run(prepare, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
