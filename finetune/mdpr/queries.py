"""Questions in a target language for the second stage of training, without anybody's annotation.

    python -m finetune.mdpr.queries --data DIR --language de --method titles --prepared PREPARED

| method | question | relevant passage |
|---|---|---|
| `titles` | the title of a document | its first passage |
| `first-sentences` | the first sentence of a passage | the rest of it |
| `generated` | what a language model asks about a passage | the passage |

The other passages of the language that BM25 finds for a question are its negatives, parts of the same document
excepted. Documents are the runs of lines below a heading in `DIR/train/LL-en.tsv`, or `--documents FILE`: JSON lines
with `title` and `text` (Wikipedia as WikiExtractor writes it), or `hf:wikimedia/wikipedia/20231101.de`. They go
to `PREPARED/relevance/METHOD-LL.jsonl`. Generation goes on where it was stopped.

Source: Shi et al. (2021), Cross-Lingual Training of Dense Retrievers for Document Retrieval, section 2.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from finetune.mdpr.data import texts_of_test_sets
from finetune.mdpr.relevance import Example, Passage, json_rows, with_bm25_negatives, write_examples
from prompts.builder import query_prompt, question_of
from rag_mt.base.console import OK, Parser, add_model_options, positive, progress, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.document_runs import Document, document_runs, passages
from rag_mt.formats.parallel import letters_and_digits, training_file
from rag_mt.llm.opening import open_llm
from rag_mt.llm.queue import complete
from rag_mt.text.splitting import split
from rag_mt.text.words import words_of
from rag_mt.translation.journal import RecordJournal
from retrievers.bm25 import Bm25

log = logging.getLogger("rag_mt")

METHODS = ("titles", "first-sentences", "generated")
NEW_TOKENS = 48
AT_ONCE = 16
"""Prompts of one batch."""
FEWEST_WORDS, MOST_WORDS = 3, 40
"""Words of a question; a title may be a single one."""
MOST_DOCUMENTS = 100_000
"""Documents that are read at most: all are held in memory, to be searched for negatives."""
PASSAGE_WORDS = 20
"""The least words of a passage."""


def corpus_documents(data: Path, code: str, skips: Skips) -> Iterator[Document]:
    """The documents of `DATA/train/LL-en.tsv` in the other language, without those that hold a sentence of a
    development or test set."""
    excluded = texts_of_test_sets(data)
    for _, document in document_runs(training_file(data, f"{code}-en"), code, skips):
        if excluded.isdisjoint(letters_and_digits(sentence) for sentence in document.sentences):
            yield document
        else:
            skips.add(document.origin, "documents that hold a sentence of a test set")


def listed_documents(name: str, code: str, skips: Skips) -> Iterator[Document]:
    """The documents of JSON lines (or of an `hf:` data set) with `title` and `text`."""
    for number, row in enumerate(json_rows(name), 1):
        title, text = row.get("title"), row.get("text")
        if isinstance(title, str) and isinstance(text, str) and text.strip():
            sentences = tuple(span.of(text) for span in split(text, code))
            yield Document(title, sentences, code, Origin(Path(name).name, number))
        else:
            skips.add(Origin(name, number), "without title and text")


def cut(documents: Iterable[Document]) -> Iterator[list[Passage]]:
    """The passages of each document that has any that are long enough; their title is that of the document."""
    for document in documents:
        name = f"{document.language}:{document.origin}"
        if texts := [p.text for p in passages(document) if len(words_of(p.text)) >= PASSAGE_WORDS]:
            yield [Passage(f"{name}#{n}", text, document.title) for n, text in enumerate(texts)]


def weak_examples(chosen: Sequence[Passage], method: str, code: str, skips: Skips) -> Iterator[Example]:
    """One question per first passage of a document: its title, or its first sentence; questions that are too short or
    too long, and those with nearly nothing to be found, go to `skips`."""
    fewest = 1 if method == "titles" else FEWEST_WORDS
    for number, passage in enumerate(chosen):
        if method == "titles":
            query, text = passage.title, passage.text
        else:
            query, *rest = [span.of(passage.text) for span in split(passage.text, code)]
            text = " ".join(rest)
        if not fewest <= len(words_of(query)) <= MOST_WORDS:
            skips.add(Origin(passage.id), f"questions without {fewest} to {MOST_WORDS} words")
        elif len(words_of(text)) < PASSAGE_WORDS // 2:
            skips.add(Origin(passage.id), "questions with too little text below them")
        else:
            yield Example(str(number), query, (replace(passage, text=text),), (), code)


def generated_examples(
    options: argparse.Namespace, chosen: Sequence[Passage], journal_path: Path, skips: Skips
) -> Iterator[Example]:
    """What a language model asks about passages; answers without a question, questions that are too short or too long
    and copies of the passage go to `skips`. The answers stay in the journal."""
    code = options.language
    llm = open_llm(options.llm, adapter=options.adapter, device=options.device, dtype=options.dtype)
    settings: Mapping[str, Any] = {
        "llm": llm.fingerprint,
        "prompts": settings_hash(query_prompt("", code, llm).text),
        "passages": settings_hash([passage.text for passage in chosen]),
    }
    with closing(RecordJournal(journal_path, settings, options.restart)) as journal:
        answers = {number: record["answer"] for number, record in journal.earlier.items()}
        left = [number for number in range(len(chosen)) if number not in answers]
        with progress(len(chosen), "passages", "asking", initial=journal.resumed) as bar:
            for begin in range(0, len(left), AT_ONCE):
                numbers = left[begin : begin + AT_ONCE]
                completions = complete(llm, [query_prompt(chosen[n].text, code, llm) for n in numbers], NEW_TOKENS)
                texts = [completion.text for completion in completions]
                journal.add_records(numbers, [{"answer": text} for text in texts])
                answers.update(zip(numbers, texts, strict=True))
                bar.update(len(numbers))
    for number, passage in enumerate(chosen):
        query = question_of(answers[number])
        if not FEWEST_WORDS <= len(words_of(query)) <= MOST_WORDS:
            skips.add(Origin(passage.id), "answers without a question of 3 to 40 words")
        elif letters_and_digits(query) in letters_and_digits(passage.text):
            skips.add(Origin(passage.id), "questions that stand in their passage")
        else:
            yield Example(str(number), query, (passage,), (), code)


def findable(
    examples: Sequence[Example], collection: Sequence[Passage], code: str, rank: int, skips: Skips
) -> Iterator[Example]:
    """The examples whose passage is among the `rank` best of the collection by BM25: a question that shares no rare
    word with its passage is seldom about it. The others go to `skips`."""
    if not examples:
        return
    terms = Bm25.build([p.text for p in collection], code)
    _, best = terms.top(terms.queries([e.query for e in examples], code), rank)
    for example, row in zip(examples, best.tolist(), strict=True):
        own = example.positives[0].id
        if own in {collection[n].id for n in row if n >= 0}:
            yield example
        else:
            skips.add(Origin(own), f"questions that do not find their passage among {rank} by BM25")


def make(options: argparse.Namespace) -> int:
    """Write the questions of a language."""
    code, method, skips = options.language, options.method, Skips(shown=0)
    folder = Path(options.prepared) / "relevance"
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: make it with `python -m finetune.mdpr.data`")
    if options.documents:
        documents = listed_documents(options.documents, code, skips)
    elif options.data:
        documents = corpus_documents(Path(options.data), code, skips)
    else:
        raise UserError("no documents are named: give --data DIR or --documents FILE")
    every = list(cut(islice(documents, options.read)))
    if not every:
        raise UserError(f"there is no document with a heading in {code}: give others with --documents FILE")
    if next(iter(documents), None) is not None:
        log.warning("only the first %d documents are read: --read takes more", options.read)
    order = np.random.default_rng(options.seed).permutation(len(every))[: options.limit]
    chosen = [every[n][0] for n in sorted(order.tolist())]
    collection = [passage for document in every for passage in document]
    journal = folder / f"generated-{code}.journal"
    if method == "generated":
        questions = list(generated_examples(options, chosen, journal, skips))
        examples = list(findable(questions, collection, code, options.rank, skips))
    else:
        examples = list(weak_examples(chosen, method, code, skips))
    if not examples:
        raise UserError(f"no question could be made in {code} ({skips.summary()}): give more or other documents")
    rng = np.random.default_rng([options.seed, 1])
    path = folder / f"{method}-{code}.jsonl"
    mined = with_bm25_negatives(examples, collection, code, options.depth, related=False)
    write_examples(path, (_shortened(example, options.negatives, rng) for example in mined))
    if method == "generated":
        journal.unlink()
    sys.stdout.write(f"{path}: {len(mined)} questions from {len(chosen)} of {len(every)} documents\n")
    if skips.total:
        sys.stdout.write(skips.summary() + "\n")
    return OK


def _shortened(example: Example, count: int, rng: np.random.Generator) -> Example:
    """The example with `count` of its negatives at random, best first, and bare passages: a title that is the question
    would answer it."""
    rows = np.sort(rng.permutation(len(example.negatives))[:count]).tolist()
    positives, negatives = example.positives, [example.negatives[n] for n in rows]
    bare = [tuple(replace(p, title="") for p in passages) for passages in (positives, negatives)]
    return replace(example, positives=bare[0], negatives=bare[1])


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        "python -m finetune.mdpr.queries",
        description=__doc__,
        examples=["--data DATA --language de --method titles --prepared PREPARED"],
    )
    add = parser.add_argument
    add("--language", required=True, metavar="LL", help="the language of questions and passages")
    add("--method", choices=METHODS, default="titles", help="where the questions come from")
    add("--prepared", required=True, metavar="DIR", help="made by `python -m finetune.mdpr.data`")
    add("--data", metavar="DIR", help="folder with train/LL-en.tsv, whose documents are taken")
    add("--documents", metavar="FILE", help="documents instead: JSON lines, or an hf: data set")
    add("--limit", type=positive, default=2000, metavar="N", help="documents")
    add("--read", type=positive, default=MOST_DOCUMENTS, metavar="N", help="documents to choose from")
    add("--depth", type=positive, default=1000, metavar="N", help="BM25 hits per question")
    add("--negatives", type=positive, default=30, metavar="N", help="of them that are kept")
    rank_help = "generated questions must find their passage by BM25 among the best N"
    add("--rank", type=positive, default=20, metavar="N", help=rank_help)
    add("--llm", default=DEFAULT_LLM, help="the language model that asks")
    add("--adapter", metavar="DIR", help="its adapter (default: none)")
    add("--seed", type=int, default=1, help="of what is drawn")
    add("--restart", action="store_true", help="forget what an interrupted run generated")
    add_model_options(parser)
    return run(make, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
