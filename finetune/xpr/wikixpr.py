"""WikiXPR as its authors published it, read into the project's own form.

train/train-en-fr-32-entity.txt               English phrase, tab, French phrase; also dev/dev-... and test/test-...
sentences/en-fr-entity-sentences.32.tsv       English phrase, its translation, then up to 32 sentences, tabs between
sentences/fr-entity-sentences.32.tsv          the same for the French phrases
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from finetune.xpr.build import statistics
from finetune.xpr.sentences import window
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import remembered_hashes
from rag_mt.base.types import Origin, Skips
from rag_mt.formats.opening import read_lines
from retrievers.xpr.examples import SPLITS, ExampleSet, Side, sentence_table, write_examples

log = logging.getLogger("rag_mt")

MOST_CHARS = 1_000_000
"""A line of 32 sentences of Wikipedia is far longer than a segment may be."""

SETTINGS = {"wikixpr": 1}
"""What the manifest says where else the settings of the builder stand."""
WITHOUT = "without a phrase and its translation"

Example = tuple[str, int, int, int]
"""A sentence, start and end of the phrase in it, and its line in the file."""


def wikixpr_files(folder: Path, pair: str) -> list[Path]:
    """The files of `xx-en`: the lists of pairs by split, then the sentences of the other language and of English."""
    other = pair.removesuffix("-en")
    lists = [folder / split / f"{split}-en-{other}-32-entity.txt" for split in SPLITS[:3]]
    return [*lists, *(folder / "sentences" / f"{name}-entity-sentences.32.tsv" for name in (other, f"en-{other}"))]


def read_wikixpr(folder: Path, pair: str, output: Path) -> ExampleSet:
    """Write WikiXPR's pairs of `xx-en` to the folder `output`.

    Phrases are compared without regard to letter case, and found in their sentences so, as in the authors' code; a
    sentence that does not hold its phrase is left out, a pair without sentences too: both are counted. Of a sentence
    longer than the encoder is given, the part around the phrase is kept. Raises UserError for missing files.
    """
    other = pair.removesuffix("-en")
    skips = Skips(shown=3)
    files = wikixpr_files(folder, pair)
    lists, sentences = dict(zip(SPLITS, files[:3], strict=False)), files[3:]
    for path in files:
        if not path.is_file():
            raise UserError(f"there is no {path}: give the folder of WikiXPR that holds train, dev, test and sentences")
    examples = [_examples(path, skips) for path in sentences]
    rows: list[tuple[int, int, int]] = []
    phrases: tuple[dict[str, str], dict[str, str]] = ({}, {})
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for split, path in lists.items():
        for line in read_lines(path, skips):
            if line.text is None:
                continue
            english, _, translation = (part.strip() for part in line.text.partition("\t"))
            if not (english and translation):
                skips.add(Origin(str(path), line.number), WITHOUT)
                continue
            both = (translation.lower(), english.lower())
            if not all(key in known for key, known in zip(both, examples, strict=True)):
                skips.add(Origin(str(path), line.number), "without example sentences")
                continue
            for side, text in enumerate((translation, english)):
                phrases[side].setdefault(both[side], text)
                numbers[side].setdefault(both[side], len(numbers[side]))
            rows.append((numbers[0][both[0]], numbers[1][both[1]], SPLITS.index(split)))
    if not rows:
        raise UserError(f"no pair of {', '.join(str(p) for p in lists.values())} has example sentences in both files")
    sides = (
        _side(other, phrases[0], examples[0], sentences[0].name),
        _side("en", phrases[1], examples[1], sentences[1].name),
    )
    log.info("%s: %d pairs; %s", folder, len(rows), skips.summary())
    pairs = np.array(rows, dtype=np.int32)
    facts = {
        "settings": SETTINGS,
        "inputs": remembered_hashes(sorted(files)),
        "skips": dict(skips.counts),
        "statistics": statistics(sides, pairs),
    }
    return write_examples(output, pair, sides, pairs, facts)


def _examples(path: Path, skips: Skips) -> dict[str, list[Example]]:
    """The examples of every phrase of a file, by the phrase in small letters."""
    found: dict[str, list[Example]] = {}
    for line in read_lines(path, skips, MOST_CHARS):
        if line.text is None:
            continue
        phrase, *rest = line.text.split("\t")
        if not (phrase.strip() and rest):
            skips.add(Origin(str(path), line.number), WITHOUT)
            continue
        texts = rest[1:]
        own = found.setdefault(phrase.strip().lower(), [])
        for text in filter(None, map(str.strip, texts)):
            if (place := lower_place(text, phrase.strip())) is None:
                skips.add(Origin(str(path), line.number), "sentence without its phrase")
            else:
                own.append((*window(text, *place), line.number))
    return {phrase: own for phrase, own in found.items() if own}


def lower_place(text: str, phrase: str) -> tuple[int, int] | None:
    """Start and end of the first occurrence of a phrase, letter case aside; punctuation in either matches anything but
    a letter or digit. None if there is none."""
    parts = [re.escape(part) for part in re.split(r"[^\w\s]", phrase)]
    match = re.search(r"[^\w]".join(parts), text, re.IGNORECASE) if any(parts) else None
    return match.span() if match else None


def _side(language: str, phrases: Mapping[str, str], examples: Mapping[str, list[Example]], file: str) -> Side:
    rows: list[tuple[int, int, int, int]] = []
    numbers: dict[str, int] = {}
    lines: list[int] = []
    for phrase, key in enumerate(phrases):
        for text, start, end, line in examples[key]:
            if text not in numbers:
                numbers[text] = len(numbers)
                lines.append(line)
            rows.append((phrase, numbers[text], start, end))
    table = sentence_table(list(numbers), [file] * len(numbers), lines)
    return Side(language, tuple(phrases.values()), table, np.array(rows, dtype=np.int32))
