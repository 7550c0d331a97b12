"""Word aligners against human alignments: links, and the phrase pairs that come of them.

    python -m eval.alignment --data DIR [--gold] [--aligners eflomal,encoder] [--max-pairs N]

Prints precision, recall, F1 and AER of both aligners with every symmetrisation, and of what both agree on, on the
development sentences of XL-WA (Martelli et al. 2023); `--gold` takes the test sets in their place (XL-WA, WPT 2003
Romanian-English, English-French), for reports only, never for choices. eflomal learns from the training file of the
language along with the sentences; for French there is none, and it sees these alone.

Words are split as everywhere in rag_mt: punctuation is no word, and gold links of punctuation are left out (how many is
printed), so that the scores cannot be compared with published ones. Phrase pairs are the consistent spans of up to 6
words of the links and of the gold links, compared as equal spans.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from itertools import product
from pathlib import Path
from typing import TypeVar

from eval.data.alignments import EflomalAligner, GoldPair, TokenLinks, read_gold, word_links, word_tokens
from eval.data.phrase_pairs import consistent_spans
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import read_corpus, training_file
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import METHODS, EncoderAligner, Links, symmetrised
from retrievers.encoders.encoder import open_encoder

T = TypeVar("T")
Directions = tuple[list[Links], list[Links]]


@dataclass(frozen=True)
class GoldSet:
    """A file in `align/`; `pair` names the training file of its languages, if there is one."""

    name: str
    file: str
    pair: str
    english_first: bool


DEVELOPMENT = (GoldSet("XL-WA en-ru dev", "xl-wa.en-ru.dev.tsv", "ru-en", True),)
TEST = (
    GoldSet("XL-WA en-ru test", "xl-wa.en-ru.test.tsv", "ru-en", True),
    GoldSet("WPT 2003 ro-en", "roen.src-tgt", "ro-en", False),
    GoldSet("en-fr", "enfr.src-tgt", "", True),
)


@dataclass(frozen=True)
class Scores:
    """Precision, recall, F1 and alignment error rate (Och and Ney 2003), each between 0 and 1."""

    precision: float
    recall: float
    f1: float
    aer: float


def alignment_scores(
    links: Sequence[frozenset[T]], sure: Sequence[frozenset[T]], possible: Sequence[frozenset[T]]
) -> Scores:
    """Scores of the links of all sentences together (Och and Ney 2003, equation 21): precision counts possible links,
    recall sure ones, and AER is 1 - (links that are sure + links that are possible) / (links + sure links)."""
    linked, wanted = sum(map(len, links)), sum(map(len, sure))
    in_sure = sum(len(a & s) for a, s in zip(links, sure, strict=True))
    in_possible = sum(len(a & p) for a, p in zip(links, possible, strict=True))
    precision, recall = in_possible / max(linked, 1), in_sure / max(wanted, 1)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Scores(precision, recall, f1, 1 - (in_sure + in_possible) / (linked + wanted) if linked + wanted else 0.0)


def on_words(pair: GoldPair) -> GoldPair:
    """The pair less the links of tokens without a word."""
    source, target = (set(word_tokens(text).tolist()) for text in (pair.source, pair.target))
    sure, possible = (
        frozenset((i, j) for i, j in links if i in source and j in target) for links in (pair.sure, pair.possible)
    )
    return GoldPair(pair.source, pair.target, sure, possible)


def token_links(pair: GoldPair, links: Links) -> TokenLinks:
    """Links between words as links between the gold file's tokens."""
    source, target = word_tokens(pair.source), word_tokens(pair.target)
    return frozenset(zip(source[links[:, 0]].tolist(), target[links[:, 1]].tolist(), strict=True))


def phrase_scores(gold: Sequence[GoldPair], links: Sequence[Links]) -> Scores:
    """Scores of the consistent spans of the links against those of the sure gold links."""

    def boxes(pair: GoldPair, own: Links) -> frozenset[tuple[int, ...]]:
        sizes = len(word_spans(pair.source)), len(word_spans(pair.target))
        return frozenset(map(tuple, consistent_spans(own, *sizes).tolist()))

    wanted = [boxes(pair, word_links(pair, pair.sure)) for pair in gold]
    return alignment_scores([boxes(*row) for row in zip(gold, links, strict=True)], wanted, wanted)


def measure(gold: GoldSet, options: argparse.Namespace) -> None:
    """Print the table of one gold set."""
    pairs = read_gold(Path(options.data) / "align" / gold.file)
    total = sum(len(pair.possible) for pair in pairs)
    pairs = tuple(map(on_words, pairs))
    left_out = total - sum(len(pair.possible) for pair in pairs)
    print(f"\n{gold.name}: {len(pairs)} sentences, {total} gold links, {left_out} of them with punctuation left out")
    print(f"{'':46s}{'links':>8s}" + "".join(f"{name:>8s}" for name in ("P", "R", "F1", "AER")) + "   phrases P/R/F1")
    systems: dict[str, list[Links]] = {}
    for name in options.aligners:
        directions = ALIGNERS[name](gold, pairs, options)
        systems |= {f"{name} {method}": symmetrised(*directions, method) for method in METHODS}
    for a, b in product(METHODS, ("intersection", "union")) if set(options.aligners) == set(ALIGNERS) else ():
        both = (systems[f"eflomal {a}"], systems[f"encoder {b}"])
        systems[f"eflomal {a} & encoder {b}"] = symmetrised(*both, "intersection")
    for name, links in systems.items():
        own = [token_links(*row) for row in zip(pairs, links, strict=True)]
        scores = alignment_scores(own, [p.sure for p in pairs], [p.possible for p in pairs])
        phrases = phrase_scores(pairs, links)
        numbers = "".join(f"{100 * n:8.1f}" for n in astuple(scores))
        of_phrases = "/".join(f"{100 * n:.1f}" for n in (phrases.precision, phrases.recall, phrases.f1))
        print(f"{name:46s}{sum(map(len, own)):8d}{numbers}   {of_phrases}")


def _eflomal(gold: GoldSet, pairs: Sequence[GoldPair], options: argparse.Namespace) -> Directions:
    """eflomal's links, learnt with the training pairs of the language."""
    along: list[tuple[str, str]] = []
    if gold.pair:
        corpus = read_corpus(training_file(Path(options.data), gold.pair), Skips(shown=0))
        sides = (corpus.targets, corpus.sources) if gold.english_first else (corpus.sources, corpus.targets)
        along = list(zip(*sides, strict=True))[: options.max_pairs]
    note(f"{gold.name}: eflomal with {len(along)} training pairs along")
    texts = [(pair.source, pair.target) for pair in pairs]
    forward, backward = EflomalAligner(length=options.length).directed([*texts, *along])
    return forward[: len(pairs)], backward[: len(pairs)]


def _encoder(gold: GoldSet, pairs: Sequence[GoldPair], options: argparse.Namespace) -> Directions:
    encoder = open_encoder(options.encoder, options.device, options.dtype)
    return EncoderAligner(encoder, options.layer).directed([(p.source, p.target) for p in pairs])


ALIGNERS = {"eflomal": _eflomal, "encoder": _encoder}


def report(options: argparse.Namespace) -> int:
    """Measure the development set or the test sets."""
    options.aligners = options.aligners.split(",")
    if unknown := [name for name in options.aligners if name not in ALIGNERS]:
        raise UserError(f"unknown aligner {unknown[0]!r}: choose from {', '.join(ALIGNERS)}")
    for gold in TEST if options.gold else DEVELOPMENT:
        measure(gold, options)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m eval.alignment",
        description=__doc__,
        examples=["--data DATA", "--data DATA --aligners eflomal --max-pairs 20000"],
    )
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder with align/ and train/")
    add("--gold", action="store_true", help="the test sets in place of the development set")
    add("--aligners", default="eflomal,encoder", metavar="A,B", help="aligners to judge")
    add("--max-pairs", type=positive, metavar="N", help="eflomal: training pairs (default: all)")
    add("--length", type=float, default=1.0, help="eflomal: relative number of iterations")
    add("--encoder", default=DEFAULT_ENCODER, help="encoder: its name")
    add("--layer", type=int, default=6, help="encoder: hidden layer")
    add_model_options(parser)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
