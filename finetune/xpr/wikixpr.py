"""WikiXPR as its authors published it, read into the project's own form.

train/train-en-fr-32-entity.txt               English phrase, tab, French phrase; also dev/dev-... and test/test-...
sentences/en-fr-entity-sentences.32.tsv       English phrase, its translation, then up to 32 sentences, tabs between
sentences/fr-entity-sentences.32.tsv          the same for the French phrases
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from finetune.xpr.build import statistics
from finetune.xpr.sentences import window
from rag_mt.base.errors import UserError
from rag_mt.base.files import remembered_hashes
from rag_mt.base.types import Origin, Sentence, Skips
from rag_mt.formats.opening import MAX_CHARS, read_lines
from retrievers.xpr.examples import SPLITS, ExampleSet, side_of, write_examples

log = logging.getLogger("rag_mt")

MOST_CHARS = 1_000_000
"""A line of 32 sentences of Wikipedia is far longer than a segment may be."""
SETTINGS = {"wikixpr": 1}
"""What the manifest says where else the settings of the builder stand."""


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
    files = wikixpr_files(folder, pair)
    for path in files:
        if not path.is_file():
            raise UserError(f"there is no {path}: give the folder of WikiXPR that holds train, dev, test and sentences")
    lists, languages, skips = files[:3], pair.split("-"), Skips(shown=3)
    examples = [_examples(path, code, skips) for path, code in zip(files[3:], languages, strict=True)]
    rows: list[tuple[int, int, int]] = []
    phrases: tuple[dict[str, str], dict[str, str]] = ({}, {})  # as they are first written, by their small letters
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    for split, path in enumerate(lists):
        for origin, (english, translation, *_) in _rows(path, skips, MAX_CHARS):
            both = translation, english
            keys = [text.lower() for text in both]
            if not all(key in known for key, known in zip(keys, examples, strict=True)):
                skips.add(origin, "without example sentences")
                continue
            for n in (0, 1):
                phrases[n].setdefault(keys[n], both[n])
                numbers[n].setdefault(keys[n], len(numbers[n]))
            rows.append((numbers[0][keys[0]], numbers[1][keys[1]], split))
    if not rows:
        raise UserError(f"no pair of {', '.join(map(str, lists))} has example sentences in both files")
    source, english_side = (
        side_of(languages[n], list(phrases[n].values()), (examples[n][key] for key in phrases[n])) for n in (0, 1)
    )
    log.info("%s: %d pairs; %s", folder, len(rows), skips.summary())
    pairs = np.array(rows, dtype=np.int32)
    facts = {
        "settings": SETTINGS,
        "inputs": remembered_hashes(sorted(files)),
        "skips": dict(skips.counts),
        "statistics": statistics((source, english_side), pairs),
    }
    return write_examples(output, pair, (source, english_side), pairs, facts)


def _rows(path: Path, skips: Skips, most: int) -> Iterator[tuple[Origin, list[str]]]:
    """The columns of each line that has two or more, the first ones of which say something."""
    for line in read_lines(path, skips, most):
        if line.text is not None:
            columns = [column.strip() for column in line.text.split("\t")]
            if len(columns) > 1 and columns[0]:
                yield Origin(str(path), line.number), columns
            else:
                skips.add(Origin(str(path), line.number), "without a phrase and its translation")


def _examples(path: Path, code: str, skips: Skips) -> dict[str, list[tuple[Sentence, int, int]]]:
    """The examples of every phrase of a file, by the phrase in small letters."""
    examples: dict[str, list[tuple[Sentence, int, int]]] = {}
    for origin, (phrase, _, *texts) in _rows(path, skips, MOST_CHARS):
        for text in filter(None, texts):
            if (place := lower_place(text, phrase)) is None:
                skips.add(origin, "sentence without its phrase")
                continue
            cut, start, end = window(text, *place)
            sentence = Sentence(cut, code, Origin(path.name, origin.line))
            examples.setdefault(phrase.lower(), []).append((sentence, start, end))
    return examples


def lower_place(text: str, phrase: str) -> tuple[int, int] | None:
    """Start and end of the first occurrence of a phrase, letter case aside; punctuation in either matches anything but
    a letter or digit. None if there is none."""
    parts = [re.escape(part) for part in re.split(r"[^\w\s]", phrase)]
    match = re.search(r"[^\w]".join(parts), text, re.IGNORECASE) if any(parts) else None
    return match.span() if match else None
