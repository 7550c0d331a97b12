"""Phrase pairs of sentence pairs: spans of both sides whose words are linked with each other and with nothing else.

The training data of CCPR (section 4.3) from word-aligned sentence pairs:

    python -m eval.data.phrase_pairs --data DIR --pairs de-en,cs-en --output PAIRS [--exclude FILE ...]

reads `DIR/train/de-en.tsv[.xz]` (English, German and, if there, domain) and writes `PAIRS/de-en/`: `pairs-00000.arrow`
and so on with the columns line, domain, source (German), target (English) and spans (flattened rows of start and end
of the source phrase, start and end of the target phrase, in characters), `frequent.json` and `manifest.json`. Where
there is a `DIR/dev/de-en.tsv`, its sentences are aligned along and their links written to `PAIRS/de-en.dev.jsonl`.
A run that was interrupted goes on when it is started again.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.data.eflomal import EflomalAligner
from rag_mt.base.console import OK, Parser, add_model_options, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.languages import language
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import METHODS, Aligner, EncoderAligner, Links

MAX_WORDS = 6
FREQUENT_SHARE = 0.003
"""A word that occurs more often than this, per sentence, is too frequent to begin or end a phrase: CCPR's 30,000
occurrences in 10 million sentences."""
FREQUENT_LEAST = 10
"""A word that occurs less often than this is never too frequent, however little text there is."""

Spans = NDArray[np.int32]


@dataclass(frozen=True)
class Frequent:
    """The casefolded words of each side that are too frequent to begin or end a phrase."""

    source: frozenset[str] = frozenset()
    target: frozenset[str] = frozenset()


def frequent_words(rows: Iterable[Sequence[int]], words: Sequence[str], sentences: int) -> frozenset[str]:
    """The too frequent words among `words`, from the word numbers of all sentences."""
    counts = np.zeros(len(words), dtype=np.int64)
    block: list[int] = []
    for row in rows:
        block += row
        if len(block) > 1_000_000:
            counts += np.bincount(block, minlength=len(words))
            block = []
    counts += np.bincount(np.array(block, dtype=np.int64), minlength=len(words))
    many = (counts > FREQUENT_SHARE * sentences) & (counts >= FREQUENT_LEAST)
    return frozenset(words[n] for n in np.flatnonzero(many).tolist())


def consistent_spans(links: Links, source_words: int, target_words: int, max_words: int = MAX_WORDS) -> Spans:
    """Every consistent pair of spans, int32 (n, 4): first and last source word, first and last target word, inclusive.

    No link leads out of a pair, the first and last words of both its spans are linked, and neither span has more than
    `max_words` words; words inside may be unlinked (Koehn, Och and Marcu 2003, without their extension over unlinked
    words). There is at most one pair for each source span. In ascending order.
    """
    return _boxes(links, np.zeros(source_words, np.int32), np.zeros(target_words, np.int32), max_words)


def _boxes(links: Links, sources: NDArray[np.int32], targets: NDArray[np.int32], max_words: int) -> Spans:
    """`consistent_spans` of many texts at once: `sources` and `targets` give the ascending text number of each word,
    and links are between words counted through all texts."""
    low, high = _reach(links[:, 0], links[:, 1], len(sources))
    back_low, back_high = _reach(links[:, 1], links[:, 0], len(targets))
    # For every width, the words that the target spans of that width are linked to.
    windows = list(_windows(back_low, back_high, max_words))
    made = [np.zeros((0, 4), np.int32)]
    for size, (first_target, last_target) in enumerate(_windows(low, high, max_words), 1):
        first = np.arange(len(first_target))
        last = first + size - 1
        kept = (sources[first] == sources[last]) & (high[first] >= 0) & (high[last] >= 0)
        kept &= last_target - first_target < max_words
        first, last, first_target, last_target = first[kept], last[kept], first_target[kept], last_target[kept]
        consistent = np.zeros(len(first), dtype=bool)
        for width, (lowest, highest) in enumerate(windows, 1):
            own = np.flatnonzero(last_target - first_target == width - 1)
            begin = first_target[own]
            consistent[own] = (lowest[begin] >= first[own]) & (highest[begin] <= last[own])
        rows = np.stack([first, last, first_target, last_target], axis=1)[consistent]
        made.append(rows.astype(np.int32))
    boxes = np.concatenate(made)
    return boxes[np.lexsort((boxes[:, 1], boxes[:, 0]))]


def _reach(words: NDArray[np.int32], others: NDArray[np.int32], count: int) -> tuple[Spans, Spans]:
    """The first and last word that each of `count` words is linked to; a huge number and -1 for unlinked ones."""
    low, high = np.full(count, np.iinfo(np.int32).max, np.int32), np.full(count, -1, np.int32)
    np.minimum.at(low, words, others)
    np.maximum.at(high, words, others)
    return low, high


def _windows(low: Spans, high: Spans, longest: int) -> Iterable[tuple[Spans, Spans]]:
    """The least `low` and greatest `high` of each window of 1, 2, ... `longest` words, by first word."""
    least, greatest = low, high
    for size in range(1, min(longest, len(low)) + 1):
        if size > 1:
            least = np.minimum(least[:-1], low[size - 1 :])
            greatest = np.maximum(greatest[:-1], high[size - 1 :])
        yield least, greatest


def phrase_pairs(
    source: str, target: str, links: Links, frequent: Frequent, max_words: int = MAX_WORDS
) -> NDArray[np.int32]:
    """The phrase pairs of a sentence pair, int32 (n, 4): start and end characters of the source phrase and of the
    target phrase.

    Consistent pairs, less those of which a side begins or ends with a too frequent word or has no letter (CCPR, 4.3).
    """
    return all_phrase_pairs([source], [target], [links], frequent, max_words)[0]


def all_phrase_pairs(
    sources: Sequence[str], targets: Sequence[str], links: Sequence[Links], frequent: Frequent, max_words: int
) -> list[NDArray[np.int32]]:
    """`phrase_pairs` of many sentence pairs."""
    if not sources:
        return []
    left, right = _Words.of(sources, frequent.source), _Words.of(targets, frequent.target)
    shifts = np.stack([left.bounds[:-1], right.bounds[:-1]], axis=1)
    shifted = np.concatenate(links) + np.repeat(shifts, [len(own) for own in links], axis=0)
    boxes = _boxes(shifted.astype(np.int32), left.texts, right.texts, max_words)
    boxes = boxes[left.good(boxes[:, 0], boxes[:, 1]) & right.good(boxes[:, 2], boxes[:, 3])]
    starts = left.spans[boxes[:, 0], 0], right.spans[boxes[:, 2], 0]
    ends = left.spans[boxes[:, 1], 1], right.spans[boxes[:, 3], 1]
    pairs = np.stack([starts[0], ends[0], starts[1], ends[1]], axis=1)
    return np.split(pairs, np.searchsorted(left.texts[boxes[:, 0]], np.arange(1, len(sources))))


@dataclass(frozen=True)
class _Words:
    """The words of many texts: (words, 2) `spans`, (words,) text numbers, (texts + 1,) `bounds` of each text's words;
    whether a word may begin or end a phrase; and (words + 1,) how many words before one have letters."""

    spans: Spans
    texts: Spans
    bounds: NDArray[np.int64]
    edges: NDArray[np.bool_]
    lettered: NDArray[np.int64]

    @staticmethod
    def of(texts: Sequence[str], frequent: frozenset[str]) -> _Words:
        spans = [word_spans(text) for text in texts]
        counts = [len(own) for own in spans]
        words = [t[a:b] for t, own in zip(texts, spans, strict=True) for a, b in own.tolist()]
        lettered = np.array([w.isalpha() or any(map(str.isalpha, w)) for w in words], dtype=bool)
        return _Words(
            np.concatenate(spans),
            np.repeat(np.arange(len(texts), dtype=np.int32), counts),
            np.cumsum([0, *counts]),
            np.array([w.casefold() not in frequent for w in words], dtype=bool),
            np.cumsum(np.concatenate([[0], lettered])),
        )

    def good(self, first: Spans, last: Spans) -> NDArray[np.bool_]:
        """Whether the spans of these first and last words pass the filters."""
        return self.edges[first] & self.edges[last] & (self.lettered[last + 1] > self.lettered[first])


def extract(options: argparse.Namespace) -> int:
    """Write the phrase pairs of all language pairs."""
    from finetune.ccpr.pair_shards import Job, write_pairs  # which imports this module

    jobs = []
    for pair in options.pairs.split(","):
        if not re.fullmatch(r"[a-z]{2,3}-en", pair):
            raise UserError(f"{pair!r} is no pair of a language with English: give pairs such as de-en,cs-en")
        language(pair.removesuffix("-en"))
        jobs.append(
            Job(
                Path(options.data),
                Path(options.output),
                pair,
                tuple(map(Path, options.exclude)),
                options.max_pairs,
                options.max_words,
                options.workers,
            )
        )
    aligner = _aligner(options)
    for job in jobs:
        write_pairs(job, aligner)
    return OK


def _aligner(options: argparse.Namespace) -> Aligner:
    if options.aligner == "eflomal":
        return EflomalAligner(options.symmetrisation, options.length)
    from retrievers.encoders.encoder import open_encoder  # not needed otherwise, and slow to import

    encoder = open_encoder(options.encoder, options.device, options.dtype)
    return EncoderAligner(encoder, options.layer, options.symmetrisation)


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.data.phrase_pairs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv[.xz]")
    parser.add_argument("--pairs", required=True, metavar="XX-en,...", help="language pairs")
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder per language pair is made here")
    parser.add_argument(
        "--exclude",
        nargs="*",
        default=[],
        metavar="FILE",
        help="leave out pairs of which a side stands in a column of these files (tabs or ` ||| ` between columns),\n"
        "compared by casefolded letters and digits",
    )
    parser.add_argument("--aligner", choices=["eflomal", "encoder"], default="eflomal", help="default: eflomal")
    parser.add_argument("--symmetrisation", choices=METHODS, default=METHODS[-1], help=f"default: {METHODS[-1]}")
    parser.add_argument("--length", type=float, default=1.0, help="eflomal: relative number of iterations (default: 1)")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help=f"encoder: its name (default: {DEFAULT_ENCODER})")
    parser.add_argument("--layer", type=int, default=6, help="encoder: hidden layer (default: 6)")
    parser.add_argument("--max-pairs", type=positive, metavar="N", help="sentence pairs per language, evenly spread")
    parser.add_argument(
        "--max-words", type=positive, default=MAX_WORDS, help=f"words of a phrase (default: {MAX_WORDS})"
    )
    parser.add_argument("--workers", type=positive, default=os.cpu_count() or 1, help="processes (default: all cores)")
    add_model_options(parser)
    return run(extract, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
