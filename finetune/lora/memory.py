"""Make the examples of the adapter that translates with a memory: sentence pairs of all directions, with the similar
sentences that the rest of the same text has, some wrong ones, or none.

    python -m finetune.lora.memory --config lora-memory --data DIR --exclude DIR/domains/help.excluded.txt \\
        --output examples.jsonl

A pair's hints come from its own text (the fourth column of the data), as those of a user come from the user's
documents: of the pairs at least `data.apart` lines away, the most similar ones on the source side, whose target sides
are shown. So nothing of the reference is looked at, and what is found is as good as the text allows. Only pairs whose
target is the same are left out. The similarity that a hint shows is the chrF that hints with such a source side have
on average against the reference, which is the scale of `retrievers.memory`.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rapidfuzz.fuzz import ratio
from sacrebleu.metrics.chrf import CHRF

from finetune.lora.config import Config, DataConfig
from finetune.lora.examples import Example, Pair, manifest_path, unusable, write_examples
from finetune.training.sampling import weighted_order
from finetune.training.settings import read_config, settings_parser
from rag_mt import __version__
from rag_mt.base.console import OK, note, positive, progress, run
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, write_json
from rag_mt.base.types import Hint, Hit, Origin, Sentence, Skips, Span
from rag_mt.formats.parallel import Corpus, excluded_texts, letters_and_digits, read_corpus, training_file
from retrievers.bm25 import Bm25

CANDIDATES = 12
"""Pairs that BM25 proposes for each pair."""
MOST = 3
"""Hints of an example."""
LEAST_SIMILARITY = 0.25
BINS = 12
"""Of source similarities, for the similarity that is shown."""
MEASURED = 6000
"""Hits whose chrF is computed for it."""
SMALL = 200
"""Texts with fewer pairs than this are searched together with the others of their domain."""


@dataclass(frozen=True)
class Found:
    """A pair of the same text, row `row` of the corpus, and how similar its source side is (0 to 1)."""

    row: int
    likeness: float


def drawn_rows(corpus: Corpus, settings: DataConfig, code: str, excluded: set[str], skips: Skips) -> list[int]:
    """The rows of the pairs that become examples, in a random order that prefers domains by their weights."""
    usable, seen = list[int](), set[str]()
    for row, (line, other, english) in enumerate(zip(corpus.lines, corpus.sources, corpus.targets, strict=True)):
        keys = letters_and_digits(other), letters_and_digits(english)
        origin = Origin(f"train/{code}-en", line)
        if letters_and_digits(unicodedata.normalize("NFKC", english)) in excluded:
            skips.add(origin, "excluded")
        elif reason := unusable(other, english, keys, settings):
            skips.add(origin, reason)
        elif seen & set(keys):
            skips.add(origin, "with a side that was seen before")
        else:
            seen.update(keys)
            usable.append(row)
    weights = np.array([settings.domain_weights.get(corpus.domains[row], 1.0) for row in usable])
    order = weighted_order(weights, [settings.seed, *f"memory {code}".encode()])
    return [usable[n] for n in order[: settings.pairs]]


def text_rows(corpus: Corpus, excluded: set[str]) -> dict[str, list[int]]:
    """The rows of each text that may be shown; small texts of a domain count as one."""
    texts: dict[str, list[int]] = {}
    for row, (name, english) in enumerate(zip(corpus.names, corpus.targets, strict=True)):
        if letters_and_digits(unicodedata.normalize("NFKC", english)) not in excluded:
            texts.setdefault(name, []).append(row)
    for name in [name for name, rows in texts.items() if len(rows) < SMALL]:
        texts.setdefault(f"other {corpus.domains[texts[name][0]]}", []).extend(texts.pop(name))
    return texts


def similar_rows(
    queries: Sequence[int], rows: Sequence[int], sides: tuple[Sequence[str], Sequence[str]], code: str, apart: int
) -> list[list[Found]]:
    """For each pair of `queries` those of `rows` with the most similar source sides, the most similar first; `sides`
    are the source sides, in the language `code`, and the target sides of all rows of the corpus."""
    sources, targets = sides
    index = Bm25.build((sources[row] for row in rows), code)
    places = np.asarray(rows)
    found = []
    for begin in range(0, len(queries), 1024):
        block = queries[begin : begin + 1024]
        near = [np.flatnonzero(np.abs(places - row) < max(apart, 1)).tolist() for row in block]
        _, best = index.top(index.queries([sources[row] for row in block], code), CANDIDATES, near)
        for row, candidates in zip(block, best, strict=True):
            others = [int(places[n]) for n in candidates if n >= 0]
            others = [other for other in others if targets[other].strip() != targets[row].strip()]
            likeness = [Found(other, ratio(sources[row], sources[other]) / 100) for other in others]
            found.append(sorted(likeness, key=lambda hit: (-hit.likeness, hit.row)))
    return found


@dataclass(frozen=True)
class Scale:
    """The chrF (0 to 1) that hits have on average against the reference, by the likeness of their source sides."""

    likeness: NDArray[np.float64]
    similarity: NDArray[np.float64]

    def of(self, likeness: float) -> float:
        return float(np.interp(likeness, self.likeness, self.similarity))


def scale_of(likeness: Sequence[float], hits: Sequence[str], references: Sequence[str]) -> Scale:
    """The scale by so many hits, in bins of equal size; it never falls."""
    metric = CHRF()
    scores = np.array([metric.sentence_score(h, [r]).score / 100 for h, r in zip(hits, references, strict=True)])
    order = np.argsort(likeness, kind="stable")
    bins = [part for part in np.array_split(order, BINS) if len(part)]
    means = np.array([[np.asarray(likeness)[part].mean(), scores[part].mean()] for part in bins])
    return Scale(np.append(means[:, 0], 1.0), np.append(np.maximum.accumulate(means[:, 1]), max(means[-1, 1], 0.9)))


def examples_for(data: Path, code: str, settings: DataConfig, excluded: set[str], skips: Skips) -> list[Example]:
    """The examples of a language and English, half of them to English; what is drawn for a pair depends on its text and
    the seed alone."""
    corpus = read_corpus(training_file(data, f"{code}-en"), skips)
    drawn = drawn_rows(corpus, settings, code, excluded, skips)
    if not drawn:
        raise UserError(f"{data}/train/{code}-en.tsv has no usable pair: give more data, or other data.languages")
    texts = text_rows(corpus, excluded)
    text_of = {row: name for name, rows in texts.items() for row in rows}
    to_english = {row: bool(_random(corpus, row, settings.seed, "side").random() < 0.5) for row in drawn}
    found: dict[int, list[Found]] = {}
    groups: dict[tuple[str, bool], list[int]] = {}
    for row in drawn:
        groups.setdefault((text_of[row], to_english[row]), []).append(row)
    bar = progress(len(drawn), "pairs", f"searching {code}")
    for (name, forward), queries in groups.items():
        sides = (corpus.sources, corpus.targets) if forward else (corpus.targets, corpus.sources)
        hits = similar_rows(queries, texts[name], sides, code if forward else "en", settings.apart)
        found.update(zip(queries, hits, strict=True))
        bar.update(len(queries))
    bar.close()
    scales = {forward: _scale(corpus, [row for row in drawn if to_english[row] == forward], found, forward)
              for forward in (True, False)}  # fmt: skip
    file = f"train/{code}-en.tsv"
    examples = []
    for n, row in enumerate(drawn):
        forward, random = to_english[row], _random(corpus, row, settings.seed, "hints")
        pair = Pair(
            code, "en", corpus.sources[row], corpus.targets[row], corpus.domains[row], Origin(file, corpus.lines[row])
        )
        hidden, wrong, both = random.random(3)
        shown = found[row]
        if wrong < settings.wrong_hints:  # those of the nearest pair before it with the same direction
            others = (other for other in (*reversed(drawn[:n]), *drawn[n + 1 :]) if to_english[other] == forward)
            shown = found[next(others, row)]
        sides = (corpus.sources, corpus.targets) if forward else (corpus.targets, corpus.sources)
        hints = [] if hidden < settings.no_hints else _hints(shown, sides, pair if forward else pair.turned,
                                                              scales[forward], both < settings.both_sides, random)  # fmt: skip
        examples.append(Example(pair if forward else pair.turned, "memory", tuple(hints)))
    return examples


def _random(corpus: Corpus, row: int, seed: int, use: str) -> np.random.Generator:
    text = f"{use}\n{corpus.sources[row]}\n{corpus.targets[row]}".encode()
    return np.random.default_rng([seed, *hashlib.blake2b(text, digest_size=8).digest()])


def _scale(corpus: Corpus, rows: Sequence[int], found: dict[int, list[Found]], forward: bool) -> Scale:
    targets = corpus.targets if forward else corpus.sources
    hits = [(row, hit) for row in rows for hit in found[row][:MOST]][:MEASURED]
    if not hits:
        return Scale(np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    return scale_of([h.likeness for _, h in hits], [targets[h.row] for _, h in hits], [targets[r] for r, _ in hits])


def _hints(
    shown: Sequence[Found],
    sides: tuple[Sequence[str], Sequence[str]],
    pair: Pair,
    scale: Scale,
    both: bool,
    random: np.random.Generator,
) -> list[Hint]:
    """One to three of the most similar ones, different from each other."""
    sources, targets = sides
    hints: list[Hint] = []
    texts: set[str] = set()
    most = int(random.choice([1, 1, 2, 3]))
    for hit in shown:
        similarity, text = scale.of(hit.likeness), targets[hit.row].strip()
        if similarity < LEAST_SIMILARITY or len(hints) == most or not text or text in texts:
            continue
        texts.add(text)
        sentence = Sentence(text, pair.target_language)
        original = sources[hit.row].strip() if both else ""
        hints.append(Hint(Span(0, len(pair.source)), Hit(sentence, Span(0, len(text)), similarity, original)))
    return hints


def make_examples(options: argparse.Namespace) -> int:
    """Write the examples of all languages in a random order, with a manifest; prints what they are like."""
    changes = {"data.pairs": str(options.pairs)} if options.pairs else {}
    settings = read_config(options, Config, changes).data
    skips, output = Skips(shown=0), Path(options.output)
    excluded = excluded_texts(map(Path, options.exclude), skips)
    examples: list[Example] = []
    for code in settings.languages:
        examples += examples_for(Path(options.data), code, settings, excluded, skips)
    order = np.random.default_rng(settings.seed).permutation(len(examples)).tolist()
    output.parent.mkdir(parents=True, exist_ok=True)
    write_examples(output, (examples[n] for n in order))
    facts: dict[str, Any] = {
        "version": __version__,
        "method": "memory",
        "settings": asdict(settings),
        "exclude": [Path(path).name for path in options.exclude],
        "examples": len(examples),
        "sha256": file_sha256(output),
        "domains": _by(examples, lambda example: example.pair.domain),
        "directions": _by(examples, lambda example: example.pair.direction),
        "skipped": dict(skips.counts),
    }
    write_json(manifest_path(output), facts)
    for kind in ("domains", "directions"):
        for name, (count, hinted, similarity) in facts[kind].items():
            sys.stdout.write(f"{name}: {count} pairs, {hinted} with hints, similarity {similarity:.2f}\n")
    note(f"{output}: {len(examples)} examples; {skips.summary() or 'no pair was unusable'}")
    return OK


def _by(examples: Sequence[Example], key: Any) -> dict[str, tuple[int, int, float]]:
    """For each key the pairs, those with hints, and the mean similarity of their best hints."""
    groups: dict[str, list[Example]] = {}
    for example in examples:
        groups.setdefault(key(example), []).append(example)
    rows = {}
    for name, group in sorted(groups.items()):
        best = [max(hint.hit.score for hint in example.hints) for example in group if example.hints]
        rows[name] = (len(group), len(best), round(float(np.mean(best)), 3) if best else 0.0)
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = settings_parser(
        "lora.memory",
        __doc__,
        Config,
        examples=["--config lora-memory --data DATA --exclude DATA/domains/help.excluded.txt --output examples.jsonl"],
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv")
    parser.add_argument("--pairs", type=positive, metavar="N", help="pairs per language (default: the settings')")
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="FILE", help="texts that may be in no example (repeatable)"
    )
    parser.add_argument("--output", "-o", required=True, metavar="FILE.jsonl", help="file of the examples")
    return run(make_examples, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
