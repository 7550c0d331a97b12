"""Word aligners against human alignments: links, and the phrase pairs that come of them.

    python -m eval.alignment --data DIR [--gold] [--aligners eflomal,encoder] [--max-pairs N]

Prints precision, recall, F1 and AER of both aligners with every symmetrisation, and of what both agree on, on the
development sentences of XL-WA (Martelli et al. 2023); `--gold` takes the test sets in their place (XL-WA, WPT 2003
Romanian-English, English-French), for a report and for no choice. eflomal learns from the training file of the
language along with the sentences; for French there is none, and it sees these alone.

Words are ours: punctuation is none, and gold links of punctuation are left out (how many is printed), which makes the
scores other than published ones. Phrase pairs are the consistent spans of up to 6 words of the links and of the gold
links, compared as equal spans.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from eval.data.alignments import GoldPair, TokenLinks, read_parted, read_xlwa, word_tokens
from eval.data.eflomal import EflomalAligner
from eval.data.phrase_pairs import consistent_spans
from rag_mt.base.console import OK, Parser, add_model_options, note, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import read_corpus, training_file
from rag_mt.text.words import word_spans
from retrievers.encoders.alignment import METHODS, EncoderAligner, Links, symmetrise
from retrievers.encoders.encoder import open_encoder

T = TypeVar("T")
Boxes = frozenset[tuple[int, int, int, int]]


@dataclass(frozen=True)
class GoldSet:
    """Pairs of a gold file; `pair` names the training file of their languages and `english_first` their order."""

    name: str
    pair: str
    english_first: bool
    pairs: tuple[GoldPair, ...]


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
    made, wanted = sum(map(len, links)), sum(map(len, sure))
    in_sure = sum(len(a & s) for a, s in zip(links, sure, strict=True))
    in_possible = sum(len(a & p) for a, p in zip(links, possible, strict=True))
    precision, recall = in_possible / made if made else 0.0, in_sure / wanted if wanted else 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return Scores(precision, recall, f1, 1 - (in_sure + in_possible) / (made + wanted) if made + wanted else 0.0)


def on_words(pair: GoldPair) -> GoldPair:
    """The pair less the links of tokens without a word."""
    worded = [set(word_tokens(text).tolist()) for text in (pair.source, pair.target)]

    def kept(links: Iterable[tuple[int, int]]) -> TokenLinks:
        return frozenset((i, j) for i, j in links if i in worded[0] and j in worded[1])

    return GoldPair(pair.source, pair.target, kept(pair.sure), kept(pair.possible))


def token_links(pair: GoldPair, links: Links) -> TokenLinks:
    """Links between words as links between the gold file's tokens."""
    source, target = word_tokens(pair.source), word_tokens(pair.target)
    return frozenset(zip(source[links[:, 0]].tolist(), target[links[:, 1]].tolist(), strict=True))


def gold_links(pair: GoldPair) -> Links:
    """The sure links between words: all words of one token with all words of the other."""
    source, target = word_tokens(pair.source).tolist(), word_tokens(pair.target).tolist()
    rows = [(i, j) for i, a in enumerate(source) for j, b in enumerate(target) if (a, b) in pair.sure]
    return np.array(rows, dtype=np.int32).reshape(-1, 2)


def phrase_scores(gold: Sequence[GoldPair], links: Sequence[Links]) -> Scores:
    """Scores of the consistent spans of the links against those of the sure gold links."""
    made, wanted = list[Boxes](), list[Boxes]()
    for pair, own in zip(gold, links, strict=True):
        sizes = len(word_spans(pair.source)), len(word_spans(pair.target))
        for spans, of in ((made, own), (wanted, gold_links(pair))):
            spans.append(frozenset((a, b, c, d) for a, b, c, d in consistent_spans(of, *sizes).tolist()))
    return alignment_scores(made, wanted, wanted)


def measure(gold: GoldSet, options: argparse.Namespace) -> None:
    """Print the table of one gold set."""
    pairs = [on_words(pair) for pair in gold.pairs]
    left_out = sum(len(pair.possible) for pair in gold.pairs) - sum(len(pair.possible) for pair in pairs)
    total = sum(len(pair.possible) for pair in gold.pairs)
    print(f"\n{gold.name}: {len(pairs)} sentences, {total} gold links, {left_out} of them with punctuation left out")
    print(f"{'':46s}{'links':>8s}" + "".join(f"{name:>8s}" for name in ("P", "R", "F1", "AER")) + "   phrases P/R/F1")
    systems: dict[str, list[Links]] = {}
    for name in options.aligners.split(","):
        directions = _ALIGNERS[name](gold, options)
        for method in METHODS:
            systems[f"{name} {method}"] = [symmetrise(a, b, method) for a, b in zip(*directions, strict=True)]
    if {"eflomal", "encoder"} <= set(options.aligners.split(",")):
        systems |= {
            f"eflomal {a} & encoder {b}": _agreed(systems[f"eflomal {a}"], systems[f"encoder {b}"])
            for a in METHODS
            for b in ("intersection", "union")
        }
    for name, links in systems.items():
        own = [token_links(pair, made) for pair, made in zip(pairs, links, strict=True)]
        made = alignment_scores(own, [p.sure for p in pairs], [p.possible for p in pairs])
        phrases = phrase_scores(pairs, links)
        numbers = (made.precision, made.recall, made.f1, made.aer)
        print(
            f"{name:46s}{sum(map(len, own)):8d}"
            + "".join(f"{100 * n:8.1f}" for n in numbers)
            + "   "
            + "/".join(f"{100 * n:.1f}" for n in (phrases.precision, phrases.recall, phrases.f1))
        )


def _agreed(first: Sequence[Links], second: Sequence[Links]) -> list[Links]:
    return [symmetrise(a, b, "intersection") for a, b in zip(first, second, strict=True)]


def _eflomal(gold: GoldSet, options: argparse.Namespace) -> tuple[list[Links], list[Links]]:
    """eflomal's links, learnt with the training pairs of the language."""
    along: list[tuple[str, str]] = []
    if gold.pair:
        corpus = read_corpus(training_file(Path(options.data), gold.pair), Skips(shown=0))
        sides = (corpus.targets, corpus.sources) if gold.english_first else (corpus.sources, corpus.targets)
        along = list(zip(*sides, strict=True))[: options.max_pairs]
    note(f"{gold.name}: eflomal with {len(along)} training pairs along")
    forward, backward = EflomalAligner(length=options.length).directed(
        [*((p.source, p.target) for p in gold.pairs), *along]
    )
    return forward[: len(gold.pairs)], backward[: len(gold.pairs)]


def _encoder(gold: GoldSet, options: argparse.Namespace) -> tuple[list[Links], list[Links]]:
    encoder = open_encoder(options.encoder, options.device, options.dtype)
    return EncoderAligner(encoder, options.layer).directed([(p.source, p.target) for p in gold.pairs])


_ALIGNERS: Mapping[str, Callable[[GoldSet, argparse.Namespace], tuple[list[Links], list[Links]]]] = {
    "eflomal": _eflomal,
    "encoder": _encoder,
}


def report(options: argparse.Namespace) -> int:
    """Measure the development set or the test sets."""
    for name in options.aligners.split(","):
        if name not in _ALIGNERS:
            raise UserError(f"unknown aligner {name!r}: choose from {', '.join(_ALIGNERS)}")
    folder = Path(options.data) / "align"
    if options.gold:
        sets = [
            GoldSet("XL-WA en-ru test", "ru-en", True, read_xlwa(folder / "xl-wa.en-ru.test.tsv")),
            GoldSet("WPT 2003 ro-en", "ro-en", False, read_parted(folder / "roen.src-tgt")),
            GoldSet("en-fr", "", True, read_parted(folder / "enfr.src-tgt")),
        ]
    else:
        sets = [GoldSet("XL-WA en-ru dev", "ru-en", True, read_xlwa(folder / "xl-wa.en-ru.dev.tsv"))]
    for gold in sets:
        measure(gold, options)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(prog="python -m eval.alignment", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with align/ and train/")
    parser.add_argument("--gold", action="store_true", help="the test sets in place of the development set")
    parser.add_argument("--aligners", default="eflomal,encoder", help="default: eflomal,encoder")
    parser.add_argument("--max-pairs", type=positive, metavar="N", help="eflomal: training pairs (default: all)")
    parser.add_argument("--length", type=float, default=1.0, help="eflomal: relative number of iterations (default: 1)")
    parser.add_argument("--encoder", default=DEFAULT_ENCODER, help=f"encoder: its name (default: {DEFAULT_ENCODER})")
    parser.add_argument("--layer", type=int, default=6, help="encoder: hidden layer (default: 6)")
    add_model_options(parser)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
