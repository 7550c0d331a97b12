"""Make the examples of the adapter that translates with a memory: sentence pairs of all directions, with the similar
sentences that the rest of the same text has, some wrong ones, or none.

    python -m finetune.lora.memory --config lora-memory --data DIR --output examples.jsonl
    python -m finetune.lora.memory --config lora-memory --data DIR --dev 12 --output dev.jsonl

A pair's hints come from its own text (the fourth column of the data), as those of a user come from the user's
documents; how they are found is said in `finetune.lora.similar`. Pairs of the blocks that the suites of domains hold
out (`DIR/domains/*.excluded.txt`) are in no example and in no hint. Development examples are of such blocks
(`DIR/domains/*.dev.tsv`), with hints from the rest of the text, and of news (`DIR/dev`), without.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eval.data.domains import DOMAINS, cell_file, excluded, normalised
from finetune.lora.config import Config, DataConfig
from finetune.lora.context import MOST as MOST_CONTEXT
from finetune.lora.context import own_translations, sentences_before
from finetune.lora.examples import Example, Pair, manifest_path, unusable, write_examples
from finetune.lora.phrases import RETRIEVER, looked_up, parts_of, phrase_hints
from finetune.lora.similar import Scale, Similar, scale_of, similar_rows
from finetune.training.sampling import random_for, weighted_order
from finetune.training.settings import read_config, settings_parser
from rag_mt import __version__
from rag_mt.base.console import OK, note, positive, progress, run
from rag_mt.base.defaults import DEFAULT_ADAPTER
from rag_mt.base.errors import UserError
from rag_mt.base.files import file_sha256, write_json
from rag_mt.base.types import Hint, Hit, Neighbour, Origin, Sentence, Skips, Span, Unit
from rag_mt.formats.parallel import Corpus, letters_and_digits, read_corpus, training_file
from retrievers.encoders.encoder import ModelEncoder
from retrievers.registry import encoder_for

MEMORY: Unit = "memory"
MOST = 3
"""Hints of an example."""
NUMBERS = (1, 1, 2, 3)
"""Of which the number of an example's hints is drawn, if there are so many."""
LEAST_SIMILARITY = 0.25
MEASURED = 6000
"""Hits whose chrF is computed for the scale of similarity."""
SMALL = 200
"""Texts with fewer pairs than this are searched together with the others of their domain."""


class Asked(NamedTuple):
    """The row of a pair, and whether English is its target."""

    row: int
    forward: bool


@dataclass(frozen=True)
class Pool:
    """The pairs of a language with English, as a corpus, with what may be shown of them: the rows of each text."""

    code: str
    corpus: Corpus
    texts: dict[str, list[int]]
    settings: DataConfig

    def sides(self, to_english: bool) -> tuple[list[str], list[str]]:
        """The source and the target sides of all rows."""
        sides = self.corpus.sources, self.corpus.targets
        return sides if to_english else sides[::-1]

    def pair(self, row: int, to_english: bool) -> Pair:
        corpus = self.corpus
        origin = Origin(corpus.origins[row], corpus.lines[row])
        pair = Pair(self.code, "en", corpus.sources[row], corpus.targets[row], corpus.domains[row], origin)
        return pair if to_english else pair.turned

    def random(self, row: int, purpose: str = "") -> np.random.Generator:
        """What is drawn for a pair and purpose depends on these and the seed alone."""
        return random_for(f"{self.corpus.sources[row]}\n{self.corpus.targets[row]}{purpose}", self.settings.seed)


def pool_of(data: Path, code: str, settings: DataConfig, left_out: set[str], skips: Skips) -> Pool:
    """The pairs of a language but those whose English side is `left_out`; texts that have few count as one with the
    others of their domain."""
    corpus = read_corpus(training_file(data, f"{code}-en"), skips)
    rows = [row for row, english in enumerate(corpus.targets) if normalised(english) not in left_out]
    skips.counts["in a held-out block"] += len(corpus) - len(rows)
    texts: dict[str, list[int]] = {}
    for row in rows:
        texts.setdefault(corpus.origins[row], []).append(row)
    for name in [name for name, rows in texts.items() if len(rows) < SMALL]:
        texts.setdefault(f"other {corpus.domains[texts[name][0]]}", []).extend(texts.pop(name))
    return Pool(code, corpus, texts, settings)


def drawn_rows(pool: Pool, skips: Skips) -> list[int]:
    """The rows of the pairs that can be examples, in a random order that prefers domains by their weights."""
    corpus, settings = pool.corpus, pool.settings
    usable, seen = list[int](), set[str]()
    for row in sorted(row for rows in pool.texts.values() for row in rows):
        keys = letters_and_digits(corpus.sources[row]), letters_and_digits(corpus.targets[row])
        origin = Origin(f"train/{pool.code}-en.tsv", corpus.lines[row])
        if reason := unusable(corpus.sources[row], corpus.targets[row], keys, settings):
            skips.add(origin, reason)
        elif seen & set(keys):
            skips.add(origin, "with a side that was seen before")
        else:
            seen.update(keys)
            usable.append(row)
    weights = np.array([settings.domain_weights.get(corpus.domains[row], 1.0) for row in usable])
    order = weighted_order(weights, [settings.seed, *f"memory {pool.code}".encode()])
    return [usable[n] for n in order]


def development_rows(pool: Pool, data: Path, each: int, skips: Skips) -> list[int]:
    """The rows of so many development pairs of each domain and of news, which are put into the pool's corpus but not
    among what is shown."""
    corpus, drawn = pool.corpus, list[int]()
    texts = {domain: f"{own.collection}.{pool.code}-en" for domain, own in DOMAINS.items()}
    files = {domain: cell_file(data, domain, pool.code, "dev") for domain in DOMAINS}
    for domain, file in {**files, "news": data / "dev" / f"{pool.code}-en.tsv"}.items():
        if file.is_file():
            pairs = read_corpus(file, skips)
            order = random_for(f"{domain} {pool.code}", pool.settings.seed).permutation(len(pairs))
            pairs = pairs.rows(sorted(order[:each].tolist()))
            pairs.domains = [domain] * len(pairs)
            pairs.origins = [texts.get(domain, domain)] * len(pairs)
            drawn += range(len(corpus), len(corpus) + len(pairs))
            corpus.extend(pairs)
    return drawn


def examples_for(
    pool: Pool, drawn: Sequence[int], phrases: Mapping[Asked, Sequence[Hint]] | None = None
) -> list[Example]:
    """The examples of the pairs in the rows `drawn`, half of them to English, and of those that `phrases` were looked
    up for; half of these show similar sentences besides, if there are any."""
    settings, phrases = pool.settings, phrases or {}
    halves = [Asked(row, bool(pool.random(row).random() < 0.5)) for row in drawn]
    asked = list(dict.fromkeys([*halves, *phrases]))
    # 1. What is similar in the text of each pair, on the side that is its source.
    text_of = {row: name for name, rows in pool.texts.items() for row in rows}
    groups: dict[tuple[str, bool], list[int]] = {}
    for row, forward in asked:
        groups.setdefault((text_of.get(row, pool.corpus.origins[row]), forward), []).append(row)
    similar: dict[Asked, list[Similar]] = {}
    with closing(progress(len(asked), "pairs", f"searching {pool.code}")) as bar:
        for (name, forward), rows in groups.items():
            language = pool.code if forward else "en"
            hits = similar_rows(rows, pool.texts.get(name, []), *pool.sides(forward), language, settings.apart)
            similar.update((Asked(row, forward), own) for row, own in zip(rows, hits, strict=True))
            bar.update(len(rows))
    # 2. What such similarity is worth, by the side that is shown.
    scales = {}
    for forward in (True, False):
        targets = pool.sides(forward)[1]
        found = [(each.row, hit) for each in asked if each.forward == forward for hit in similar[each][:MOST]]
        likeness, shown, right = [], [], []
        for row, hit in found[:MEASURED]:
            likeness.append(hit.likeness)
            shown.append(targets[hit.row])
            right.append(targets[row])
        scales[forward] = scale_of(likeness, shown, right)
    # 3. The hints of each example.
    examples, before = [], dict[bool, Asked]()
    for each in asked:
        row, forward = each
        random = pool.random(row, f" {forward}" if each in phrases else "")
        _, hidden, wrong, both = random.random(4)  # the first has decided the direction
        pair, hints, unit = pool.pair(row, forward), list[Hint](), MEMORY
        if hidden >= settings.no_hints:
            shown_for = before.get(forward, each) if wrong < settings.wrong_hints else each
            sides, most = pool.sides(forward), int(random.choice(NUMBERS))
            hints = hints_of_rows(pair, similar[shown_for], sides, scales[forward], most, both < settings.both_sides)
            if each in phrases:
                unit, hints = (MEMORY, hints) if hints and random.random() < 0.5 else ("phrase", [])
                low, high = settings.least_confidence or (0.0, 0.0)
                least = random.uniform(low, high)
                hints = [*hints, *(hint for hint in phrases[each] if hint.hit.score >= least)]
            elif random.random() < settings.related:
                unit, hints = "sentence", hints[:1]
        shown, number = pool.random(row, f" {forward} context").random(2)
        context: tuple[Neighbour, ...] = ()
        if shown < settings.context:
            context = sentences_before(pool.corpus, text_of, row, forward, 1 + int(number * MOST_CONTEXT))
        examples.append(Example(pair, unit, tuple(hints), context))
        before[forward] = each
    return examples


def phrases_for(pool: Pool, usable: Sequence[int], encoder: ModelEncoder) -> dict[Asked, tuple[Hint, ...]]:
    """Phrases for pairs of parts of `settings.phrase_texts` texts, in both directions."""
    found: dict[Asked, tuple[Hint, ...]] = {}
    parts, able = parts_of(pool.texts, usable, pool.settings.phrase_texts), set(usable)
    with closing(progress(2 * len(parts), "texts", f"phrases of {pool.code}")) as bar:
        for part in parts:
            rows = looked_up(part, able, pool.corpus.targets)
            for forward in (True, False):
                pairs = {row: pool.pair(row, forward) for row in rows}
                hints = phrase_hints(part, pairs, pool.sides(forward)[1], pool.settings, encoder) if pairs else {}
                found.update((Asked(row, forward), own) for row, own in hints.items())
                bar.update()
    return found


def hints_of_rows(
    pair: Pair,
    similar: Sequence[Similar],
    sides: tuple[Sequence[str], Sequence[str]],
    scale: Scale,
    most: int,
    both_sides: bool,
) -> list[Hint]:
    """Up to `most` of the similar rows that are similar enough and different from each other."""
    hints: dict[str, Hint] = {}
    for row, likeness in similar:
        similarity, text = scale.of(likeness), sides[1][row].strip()
        if similarity >= LEAST_SIMILARITY and len(hints) < most and text and text not in hints:
            original = sides[0][row].strip() if both_sides else ""
            hit = Hit(Sentence(text, pair.target_language), Span(0, len(text)), similarity, original)
            hints[text] = Hint(Span(0, len(pair.source)), hit)
    return list(hints.values())


def make_examples(options: argparse.Namespace) -> int:
    """Write the examples of all languages in a random order, with a manifest; prints what they are like."""
    changes = {"data.pairs": str(options.pairs)} if options.pairs else {}
    config = read_config(options, Config, changes)
    settings = config.data.for_development if options.dev else config.data
    skips, output = Skips(shown=0), Path(options.output)
    data, examples = Path(options.data), list[Example]()
    left_out = {text for domain in DOMAINS for text in excluded(data, domain)}
    encoder = encoder_for(RETRIEVER) if settings.phrase_texts and not options.dev else None
    for code in settings.languages:
        pool = pool_of(data, code, settings, left_out, skips)
        drawn = development_rows(pool, data, options.dev, skips) if options.dev else drawn_rows(pool, skips)
        if not drawn:
            raise UserError(f"{data} has no usable pair of {code}: give more data, or other data.languages")
        phrases = phrases_for(pool, drawn, encoder) if encoder is not None else None
        examples += examples_for(pool, drawn if options.dev else drawn[: settings.pairs], phrases)
    adapter = config.model.start or DEFAULT_ADAPTER
    examples = own_translations(examples, settings.own_context, settings.seed, config.model.llm, adapter)
    order = np.random.default_rng(settings.seed).permutation(len(examples)).tolist()
    output.parent.mkdir(parents=True, exist_ok=True)
    write_examples(output, (examples[n] for n in order))
    facts: dict[str, Any] = {
        "version": __version__,
        "method": "memory",
        "settings": asdict(settings),
        "examples": len(examples),
        "sha256": file_sha256(output),
        "domains": _by(examples, lambda example: example.pair.domain),
        "directions": _by(examples, lambda example: example.pair.direction),
        "with_context": sum(bool(example.context) for example in examples),
        "skipped": dict(skips.counts),
    }
    write_json(manifest_path(output), facts)
    for kind in ("domains", "directions"):
        for name, (count, hinted, similarity) in facts[kind].items():
            sys.stdout.write(f"{name}: {count} pairs, {hinted} with hints, similarity {similarity:.2f}\n")
    note(f"{output}: {len(examples)} examples; {skips.summary() or 'no pair was unusable'}")
    return OK


def _by(examples: Sequence[Example], key: Callable[[Example], str]) -> dict[str, tuple[int, int, float]]:
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
        examples=[
            f"--config lora-memory --data DATA {rest}"
            for rest in ("--output train.jsonl", "--dev 12 --output dev.jsonl")
        ],
    )
    parser.add_argument("--data", required=True, metavar="DIR", help="folder with train/XX-en.tsv and domains/")
    parser.add_argument("--pairs", type=positive, metavar="N", help="pairs per language (default: the settings')")
    dev_help = "make development examples instead: so many of each domain and of news, in each language"
    parser.add_argument("--dev", type=positive, metavar="N", help=dev_help)
    parser.add_argument("--output", "-o", required=True, metavar="FILE.jsonl", help="file of the examples")
    return run(make_examples, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
