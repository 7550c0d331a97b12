"""Sets of phrase queries with their true translations: from human alignments, and from two aligners that agree.

Queries are phrases of another language, answers are English. A set holds every consistent pair of spans of up to six
words that passes the paper's filters (CCPR, section 4.3), or a seeded sample of them.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from eval.data.alignments import GoldPair, read_parted, read_xlwa, word_tokens
from eval.data.eflomal import number_words
from eval.data.phrase_pairs import MAX_WORDS, Frequent, all_phrase_pairs, frequent_words
from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import read_json
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import Corpus, letters_and_digits, read_corpus
from rag_mt.text.words import surface, word_spans
from retrievers.encoders.alignment import Aligner, Links

QUERIES = 2000
SEED = 12345
HALVES = ("A", "B")
"""Development sentences of half A serve choices, those of half B the final silver score."""

Spans = NDArray[np.int32]


@dataclass(frozen=True)
class PhraseSet:
    """Queries (n, 5) of a language: number of the sentence pair, start and end of the source span, start and end of
    the English span. `lines[i]` is the line of pair i in its file; `alignment` says where the spans come from, and
    `available` how many queries there were before sampling."""

    name: str
    language: str
    alignment: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    lines: tuple[int, ...]
    queries: Spans
    available: int

    @property
    def ids(self) -> list[str]:
        """A name for each query: line, source span, English span."""
        return [f"{self.lines[n]}:{a}-{b}:{c}-{d}" for n, a, b, c, d in self.queries.tolist()]

    @property
    def sha256(self) -> str:
        """A hash of all queries with their sentences, and of the sentences without queries: those are distractors."""
        pairs = list(zip(self.lines, self.sources, self.targets, strict=True))
        text = json.dumps([self.name, pairs, self.queries.tolist()], ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def surfaces(self) -> list[str]:
        """The true English phrase of each query, as it is compared."""
        return [surface(self.targets[n][c:d]) for n, _, _, c, d in self.queries.tolist()]


def phrase_set(
    name: str,
    language: str,
    alignment: str,
    rows: Sequence[tuple[int, str, str]],
    links: Sequence[Sequence[Links]],
    frequent: Frequent,
    limit: int = QUERIES,
) -> PhraseSet:
    """The set of sentence pairs `rows` (line, source, English).

    Each of `links` aligns all pairs; what counts are the phrase pairs that all of them have. Pairs of equal text are
    taken once, and of more than `limit` queries a sample that depends on the name of the set alone.
    """
    first = {pair: n for n, pair in reversed(list(enumerate((s, t) for _, s, t in rows)))}
    kept = sorted(first.values())
    sources, targets = tuple(rows[n][1] for n in kept), tuple(rows[n][2] for n in kept)
    made = [all_phrase_pairs(sources, targets, [own[n] for n in kept], frequent, MAX_WORDS) for own in links]
    queries = [np.zeros((0, 5), np.int32)]
    for number, found in enumerate(zip(*made, strict=True)):
        same = set.intersection(*(set(map(tuple, spans.tolist())) for spans in found))
        queries.append(np.array([(number, *spans) for spans in sorted(same)], dtype=np.int32).reshape(-1, 5))
    every = np.concatenate(queries)
    chosen = every
    if len(every) > limit:
        rng = np.random.default_rng([SEED, *name.encode()])
        chosen = every[np.sort(rng.choice(len(every), limit, replace=False))]
    lines = tuple(rows[n][0] for n in kept)
    return PhraseSet(name, language, alignment, sources, targets, lines, chosen, len(every))


def gold_set(
    name: str, language: str, pairs: Sequence[GoldPair], english_first: bool, frequent: Frequent | None, limit: int
) -> PhraseSet:
    """The set of human alignments; sure and possible links count alike.

    Without `frequent` the too frequent words are counted in the set itself.
    """
    rows, links = [], []
    for line, pair in enumerate(pairs, 1):
        made = word_links(pair)
        rows.append((line, pair.target, pair.source) if english_first else (line, pair.source, pair.target))
        links.append(made[:, ::-1] if english_first else made)
    if frequent is None:
        frequent = counted([s for _, s, _ in rows], [t for _, _, t in rows])
    return phrase_set(name, language, "human", rows, [links], frequent, limit)


def word_links(pair: GoldPair) -> Links:
    """The links between words, (n, 2): the words in a token are linked with those in each token it is linked with."""
    sides = [word_tokens(text) for text in (pair.source, pair.target)]
    wanted = np.zeros([len(text.split()) for text in (pair.source, pair.target)], dtype=bool)
    for i, j in pair.possible:
        if not (0 <= i < wanted.shape[0] and 0 <= j < wanted.shape[1]):
            raise UserError(
                f"the human alignment has a link {i}-{j} that leads out of its sentences ({pair.source[:40]!r}): "
                "give the untouched files"
            )
        wanted[i, j] = True
    return np.argwhere(wanted[np.ix_(*sides)]).astype(np.int32)


def counted(sources: Sequence[str], targets: Sequence[str]) -> Frequent:
    """The too frequent words of both sides of sentence pairs, counted in them."""
    return Frequent(*(frequent_words(*number_words(side), len(side)) for side in (sources, targets)))


@dataclass(frozen=True)
class SilverSource:
    """Where silver sets come from: `data` with `dev/xx-en.tsv`; `pairs`, a folder of `eval.data.phrase_pairs`, with
    `xx-en.dev.jsonl` (the links of one aligner) and `xx-en/frequent.json`; and a second `aligner`."""

    data: Path
    pairs: Path
    aligner: Aligner
    limit: int = QUERIES


def silver_set(source: SilverSource, language: str, half: str) -> PhraseSet:
    """The phrase pairs that both aligners find in one half of the development sentences of a language."""
    corpus, rows = development_half(source.data, language, half, Skips())
    first = read_alignments(source.pairs / f"{language}-en.dev.jsonl", rows)
    second = source.aligner.align([(s, t) for _, s, t in rows])
    frequent = frequent_of(source.pairs, language) or counted(corpus.sources, corpus.targets)
    name = f"silver {language}-en dev {half}"
    return phrase_set(name, language, "two aligners agree", rows, [first, second], frequent, source.limit)


def development_half(data: Path, language: str, half: str, skips: Skips) -> tuple[Corpus, list[tuple[int, str, str]]]:
    """All development pairs of a language, and the rows (line, source, English) of one half of them."""
    path = data / "dev" / f"{language}-en.tsv"
    if not path.is_file():
        raise UserError(f"there is no {path}: give --data DIR with dev/{language}-en.tsv, or other --languages")
    corpus = read_corpus(path, skips)
    rows = zip(corpus.lines, corpus.sources, corpus.targets, strict=True)
    return corpus, [row for row in rows if half_of(row[2]) == half]


def half_of(english: str) -> str:
    """The half of the development data that a sentence pair belongs to, by its English side."""
    number = int.from_bytes(
        hashlib.blake2b(letters_and_digits(english).encode(), digest_size=8, person=b"half").digest()
    )
    return HALVES[number % 2]


def read_alignments(path: Path, rows: Sequence[tuple[int, str, str]]) -> list[Links]:
    """The links of each of `rows` (line, source, English) from a file with an object of `line`, `source`, `target` and
    `links` (pairs of word numbers) in each line. Raises UserError where the file is of other sentences."""
    if not path.is_file():
        raise UserError(
            f"there are no alignments {path}: make them with `python -m finetune.ccpr.pairs` and give its --output "
            "as --pairs, or use --suite gold"
        )
    found: dict[int, Mapping[str, object]] = {}
    try:
        for text in path.read_text(encoding="utf-8").split("\n"):
            if text:
                row = json.loads(text)
                found[row["line"]] = row
        links = {line: np.array(row["links"], dtype=np.int32).reshape(-1, 2) for line, row in found.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no file of alignments ({error}): make it with `eval.data.phrase_pairs`") from None
    for line, source, target in rows:
        row = found.get(line, {})
        if (row.get("source"), row.get("target")) != (source, target):
            raise UserError(f"{path} was made of another file (line {line} differs): make it again from the same data")
        own, sizes = links[line], (len(word_spans(source)), len(word_spans(target)))
        if len(own) and (own.min() < 0 or (own >= sizes).any()):
            raise UserError(f"{path} has a link out of the sentence in line {line}: make it again")
    return [links[line] for line, _, _ in rows]


def frequent_of(pairs: Path | None, language: str) -> Frequent | None:
    """The too frequent words of a language and of English that `eval.data.phrase_pairs` counted, if it did."""
    path = pairs / f"{language}-en" / "frequent.json" if pairs else None
    if path is None or not path.is_file():
        return None
    found = read_json(path)
    return Frequent(frozenset(found[language]), frozenset(found["en"]))


def undiacritic(text: str) -> str:
    """The text without its combining marks (`și` -> `si`)."""
    apart = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))


GOLD = (
    ("gold ro-en", "ro", "roen.src-tgt", False),
    ("gold ru-en", "ru", "xl-wa.en-ru.test.tsv", True),
    ("gold fr-en", "fr", "enfr.src-tgt", True),
)
GOLD_DEV = (("gold ru-en dev", "ru", "xl-wa.en-ru.dev.tsv", True),)


def gold_sets(
    data: Path, pairs: Path | None, languages: Sequence[str], dev: bool = False, limit: int = QUERIES
) -> list[PhraseSet]:
    """The human alignments in `data/align` of those languages, test or development."""
    made = []
    for name, code, file, english_first in GOLD_DEV if dev else GOLD:
        if code in languages:
            path = data / "align" / file
            read = read_xlwa(path) if path.suffix == ".tsv" else read_parted(path)
            made.append(gold_set(name, code, read, english_first, _gold_frequent(data, pairs, code), limit))
    return made


def _gold_frequent(data: Path, pairs: Path | None, language: str) -> Frequent | None:
    """The counts of the training data, else of the development data, else none."""
    dev = data / "dev" / f"{language}-en.tsv"
    found = frequent_of(pairs, language)
    if found is None and dev.is_file():
        corpus = read_corpus(dev, Skips(shown=0))
        found = counted(corpus.sources, corpus.targets)
    if found is not None and language == "ro":  # its gold text has no diacritics
        found = Frequent(found.source | {undiacritic(w) for w in found.source}, found.target)
    return found


def sample_sets(corpus: Path, aligner: Aligner, languages: Sequence[str], limit: int = QUERIES) -> list[PhraseSet]:
    """Sets of the sample corpus by a single aligner: enough to see the command at work, no measurement."""
    texts = {path.stem: path.read_text(encoding="utf-8").splitlines() for path in sorted(corpus.glob("*.txt"))}
    made = []
    for code in languages:
        if code in texts:
            rows = [(n, *pair) for n, pair in enumerate(zip(texts[code], texts["en"], strict=True), 1)]
            links = aligner.align([(s, t) for _, s, t in rows])
            name, frequent = f"sample {code}-en", counted(texts[code], texts["en"])
            made.append(phrase_set(name, code, "one aligner", rows, [links], frequent, limit))
    return made
