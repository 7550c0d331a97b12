"""Translation of one's own documents: held-out blocks of five domains, DATA/domains/DOMAIN.XX-en.{dev,test}.tsv.

A block is 40 consecutive pairs of a domain's collection in `DATA/train/LEAD-en.tsv`, counted from its first pair. A
file of the suite has only some pairs of each block, in order, and every language has others: line numbers do not tell
where a block ends. The English side does. `DOMAIN.excluded.txt` holds that of all blocks, normalised, so that 40 pairs
of the lead language whose English is all excluded are a block, and a pair belongs to the first one that holds its
English. Pairs of one block stand in all languages and both directions of a domain.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from rag_mt.base.errors import UserError
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Skips
from rag_mt.formats.opening import read_lines
from rag_mt.formats.parallel import Corpus, read_corpus, training_file

SPLITS = {"domains": "test", "domains-dev": "dev"}
"""The suites, and what their files end in."""
BLOCK = 40


class Domain(NamedTuple):
    """`collection`: what the fourth column of training files calls its pairs, before `.XX-en`; `lead`: the language in
    whose file the blocks were cut."""

    collection: str
    lead: str


DOMAINS = {
    "help": Domain("lohelp", "de"),
    "manual": Domain("phpdoc", "de"),
    "packages": Domain("ddtp", "de"),
    "game": Domain("wesnoth", "de"),
    "site": Domain("mozilla-www", "ro"),
}


def cell_file(data: Path, domain: str, language: str, split: str) -> Path:
    """`DIR/domains/DOMAIN.XX-en.SPLIT.tsv`, which may not be there."""
    return data / "domains" / f"{domain}.{language}-en.{split}.tsv"


def languages_of(data: Path, domain: str, split: str = "test") -> list[str]:
    """The languages that the domain has a file for."""
    return [language for language in WMT16 if cell_file(data, domain, language, split).is_file()]


def normalised(text: str) -> str:
    """The words of a text, as `DOMAIN.excluded.txt` has them: NFKC, casefolded, single blanks for what is no word."""
    return " ".join(re.sub(r"\W+", " ", unicodedata.normalize("NFKC", text).casefold()).split())


def excluded(data: Path, domain: str) -> set[str]:
    """The normalised English sentences whose pairs may be in no training, no fit and no index; raises UserError where
    the file is not there."""
    path = data / "domains" / f"{domain}.excluded.txt"
    if not path.is_file():
        raise UserError(f"there is no {path}: give --data DIR with the held-out sentences of {domain}")
    return {line.text for line in read_lines(path, Skips(shown=0)) if line.text}


@lru_cache(maxsize=len(WMT16))
def collections(path: Path) -> dict[str, Corpus]:
    """The pairs of the domains' collections in a training file, by domain; a file is read once."""
    corpus = read_corpus(path, Skips(shown=0))
    names = {domain.collection: name for name, domain in DOMAINS.items()}
    rows: dict[str, list[int]] = {name: [] for name in DOMAINS}
    for n, origin in enumerate(corpus.origins):
        if name := names.get(origin.partition(".")[0]):
            rows[name].append(n)
    return {name: corpus.rows(own) for name, own in rows.items()}


@lru_cache
def _block_of(data: Path, domain: str) -> dict[str, str]:
    """The block of each normalised English sentence that is in one."""
    file = training_file(data, f"{DOMAINS[domain].lead}-en")
    english, held_out = [*map(normalised, collections(file)[domain].targets)], excluded(data, domain)
    blocks: dict[str, str] = {}
    for begin in range(0, len(english), BLOCK):
        sentences = english[begin : begin + BLOCK]
        if held_out.issuperset(sentences):
            for sentence in sentences:
                blocks.setdefault(sentence, f"{domain}.{begin // BLOCK}")
    return blocks


def blocks_of(data: Path, domain: str, english: Sequence[str]) -> tuple[str, ...]:
    """The block of each pair by its English side, such as `help.17`; raises UserError for one that is in none."""
    blocks, keys = _block_of(data, domain), [*map(normalised, english)]
    if missing := next((text for text, key in zip(english, keys, strict=True) if key not in blocks), None):
        raise UserError(
            f"the pair {missing[:60]!r} of {domain} stands in no block of {data / 'train'}: give --data DIR whose "
            "folders domains and train belong together"
        )
    return tuple(blocks[key] for key in keys)
