"""Sets of phrase queries with their true translations: from human alignments, and from two aligners that agree.

Queries are phrases of another language, answers are English. A set holds every consistent pair of spans of up to six
words that passes the paper's filters (CCPR, section 4.3), or a seeded sample of them. Those of the sample corpus are
there to try the commands out: they measure nothing.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

import numpy as np

from eval.data.alignments import GoldPair, number_words, read_gold, word_links
from eval.data.phrase_pairs import MAX_WORDS, Frequent, Spans, all_phrase_pairs, frequent_words
from eval.data.suites import sample_lines
from eval.data.written import BEFORE_MARK, WAYS
from rag_mt.base.defaults import DEFAULT_ENCODER
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS, cache_dir, read_json, remembered_sha256, settings_hash
from rag_mt.base.languages import WMT16
from rag_mt.base.types import Skips
from rag_mt.formats.parallel import Corpus, letters_and_digits, read_corpus
from rag_mt.text.words import surface, word_spans
from retrievers.encoders.alignment import Aligner, EncoderAligner, Links
from retrievers.encoders.encoder import open_encoder
from retrievers.xpr.examples import MANIFEST, SPLITS, ExampleSet, Side, sentence_table, write_examples

Row = tuple[int, str, str]
"""Line in its file, source, English."""

QUERIES = 2000
SEED = 12345
HALVES = ("A", "B")
"""Development sentences of half A serve choices, those of half B the final silver score."""
QUICK = "quick form on the sample corpus, aligned by an encoder alone: measures nothing"
SAMPLE_PAIRS = 400
"""Aligned phrases of a language, at most."""

GOLD = (
    ("gold ro-en", "ro", "roen.src-tgt", False),
    ("gold ru-en", "ru", "xl-wa.en-ru.test.tsv", True),
    ("gold fr-en", "fr", "enfr.src-tgt", True),
)
"""Human alignments: name, language, file in `align/`, and whether English stands first in it."""
GOLD_DEV = (("gold ru-en dev", "ru", "xl-wa.en-ru.dev.tsv", True),)


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


def written(own: PhraseSet, way: str) -> PhraseSet:
    """The same queries in sentences that are written in one of WAYS; the English side stays."""
    sources, queries = tuple(WAYS[way](text) for text in own.sources), own.queries.copy()
    if way == "tokenised":
        bounds = np.searchsorted(queries[:, 0], np.arange(len(sources) + 1))
        for text, begin, end in zip(own.sources, bounds[:-1], bounds[1:], strict=True):
            blanks = [match.start() for match in BEFORE_MARK.finditer(text)]
            queries[begin:end, 1] += np.searchsorted(blanks, queries[begin:end, 1], side="right").astype(np.int32)
            queries[begin:end, 2] += np.searchsorted(blanks, queries[begin:end, 2], side="left").astype(np.int32)
    return replace(own, name=f"{own.name} {way}", sources=sources, queries=queries)


def phrase_set(
    name: str,
    language: str,
    alignment: str,
    rows: Sequence[Row],
    links: Sequence[Sequence[Links]],
    frequent: Frequent | None = None,
    limit: int = QUERIES,
) -> PhraseSet:
    """The set of sentence pairs `rows` (line, source, English).

    Each of `links` aligns all pairs; what counts are the phrase pairs that all of them have. Pairs of equal text are
    taken once, and of more than `limit` queries a sample that depends on the name of the set alone.
    Without `frequent` the too frequent words are counted in the rows.
    """
    if frequent is None:
        frequent = counted([source for _, source, _ in rows], [english for _, _, english in rows])
    different = {(source, english): n for n, (_, source, english) in reversed(list(enumerate(rows)))}
    chosen = sorted(different.values())
    lines = tuple(rows[n][0] for n in chosen)
    sources, targets = tuple(rows[n][1] for n in chosen), tuple(rows[n][2] for n in chosen)
    by_aligner = [all_phrase_pairs(sources, targets, [own[n] for n in chosen], frequent, MAX_WORDS) for own in links]
    queries: list[tuple[int, ...]] = []
    for number, aligned in enumerate(zip(*by_aligner, strict=True)):
        common = set.intersection(*(set(map(tuple, spans.tolist())) for spans in aligned))
        queries += [(number, *spans) for spans in sorted(common)]
    every = np.array(queries, dtype=np.int32).reshape(-1, 5)
    sampled = every
    if len(every) > limit:
        rng = np.random.default_rng([SEED, *name.encode()])
        sampled = every[np.sort(rng.choice(len(every), limit, replace=False))]
    return PhraseSet(name, language, alignment, sources, targets, lines, sampled, len(every))


def gold_set(
    name: str, language: str, pairs: Sequence[GoldPair], english_first: bool, frequent: Frequent | None, limit: int
) -> PhraseSet:
    """The set of human alignments; sure and possible links count alike."""
    rows, links = list[Row](), list[Links]()
    for line, pair in enumerate(pairs, 1):
        texts, word_pairs = (pair.source, pair.target), word_links(pair, pair.possible)
        rows.append((line, *(texts[::-1] if english_first else texts)))
        links.append(word_pairs[:, ::-1] if english_first else word_pairs)
    return phrase_set(name, language, "human", rows, [links], frequent, limit)


def counted(sources: Sequence[str], targets: Sequence[str]) -> Frequent:
    """The too frequent words of both sides of sentence pairs, counted in them."""
    return Frequent(*(frequent_words(*number_words(side), len(side)) for side in (sources, targets)))


def silver_set(data: Path, pairs: Path, aligner: Aligner, language: str, half: str, limit: int = QUERIES) -> PhraseSet:
    """The phrase pairs that two aligners find in one half of the development sentences of a language.

    `data` has `dev/xx-en.tsv`; `pairs`, a folder of `finetune.ccpr.pairs`, has `xx-en.dev.jsonl` (the links of the
    other aligner) and `xx-en/frequent.json`.
    """
    corpus, rows = development_half(data, language, half, Skips())
    first = read_alignments(pairs / f"{language}-en.dev.jsonl", rows)
    second = aligner.align([(s, t) for _, s, t in rows])
    frequent = frequent_of(pairs, language) or counted(corpus.sources, corpus.targets)
    name = f"silver {language}-en dev {half}"
    return phrase_set(name, language, "two aligners agree", rows, [first, second], frequent, limit)


def development_half(data: Path, language: str, half: str, skips: Skips) -> tuple[Corpus, list[Row]]:
    """All development pairs of a language, and the rows (line, source, English) of one half of them."""
    path = data / "dev" / f"{language}-en.tsv"
    if not path.is_file():
        raise UserError(f"there is no {path}: give --data DIR with dev/{language}-en.tsv, or other --languages")
    corpus = read_corpus(path, skips)
    rows = zip(corpus.lines, corpus.sources, corpus.targets, strict=True)
    return corpus, [row for row in rows if half_of(row[2]) == half]


def half_of(english: str) -> str:
    """The half of the development data that a sentence pair belongs to, by its English side."""
    digest = hashlib.blake2b(letters_and_digits(english).encode(), digest_size=8, person=b"half").digest()
    return HALVES[int.from_bytes(digest) % 2]


def read_alignments(path: Path, rows: Sequence[Row]) -> list[Links]:
    """The links of each of `rows` (line, source, English) from a file with an object of `line`, `source`, `target` and
    `links` (pairs of word numbers) in each line. Raises UserError where the file is of other sentences."""
    if not path.is_file():
        raise UserError(
            f"there are no alignments {path}: make them with `python -m finetune.ccpr.pairs` and give its --output "
            "as --pairs, or use --suite gold"
        )
    try:
        objects = [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n") if text]
        texts = {row["line"]: (row.get("source"), row.get("target")) for row in objects}
        links = {row["line"]: np.array(row["links"], dtype=np.int32).reshape(-1, 2) for row in objects}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path} is no file of alignments ({error}): make it with `python -m finetune.ccpr.pairs`"
        ) from None
    for line, source, target in rows:
        if texts.get(line) != (source, target):
            raise UserError(f"{path} was made of another file (line {line} differs): make it again from the same data")
        word_pairs, sizes = links[line], (len(word_spans(source)), len(word_spans(target)))
        if len(word_pairs) and (word_pairs.min() < 0 or (word_pairs >= sizes).any()):
            raise UserError(f"{path} has a link out of the sentence in line {line}: make it again")
    return [links[line] for line, _, _ in rows]


def frequent_of(pairs: Path | None, language: str) -> Frequent | None:
    """The too frequent words of a language and of English that `finetune.ccpr.pairs` counted, if it did."""
    path = pairs / f"{language}-en" / "frequent.json" if pairs else None
    if path is None or not path.is_file():
        return None
    words = read_json(path)
    return Frequent(frozenset(words[language]), frozenset(words["en"]))


def undiacritic(text: str) -> str:
    """The text without its combining marks (`și` -> `si`)."""
    apart = unicodedata.normalize("NFD", text)
    return unicodedata.normalize("NFC", "".join(c for c in apart if not unicodedata.combining(c)))


def gold_sets(
    data: Path, pairs: Path | None, languages: Sequence[str], dev: bool = False, limit: int = QUERIES
) -> list[PhraseSet]:
    """The human alignments in `data/align` of those languages, test or development."""
    return [
        gold_set(name, code, read_gold(data / "align" / file), first, _gold_frequent(data, pairs, code), limit)
        for name, code, file, first in (GOLD_DEV if dev else GOLD)
        if code in languages
    ]


def _gold_frequent(data: Path, pairs: Path | None, language: str) -> Frequent | None:
    """The counts of the training data, else of the development data, else none."""
    dev = data / "dev" / f"{language}-en.tsv"
    frequent = frequent_of(pairs, language)
    if frequent is None and dev.is_file():
        corpus = read_corpus(dev, Skips(shown=0))
        frequent = counted(corpus.sources, corpus.targets)
    if frequent is not None and language == "ro":  # its gold text has no diacritics
        frequent = Frequent(frequent.source | {undiacritic(w) for w in frequent.source}, frequent.target)
    return frequent


def sample_sets(aligner: Aligner, languages: Sequence[str], limit: int = QUERIES) -> list[PhraseSet]:
    """Sets of the sample corpus by a single aligner, of those languages that it has."""
    sets = []
    for code in languages:
        if (SAMPLE_CORPUS / f"{code}.txt").is_file():
            sources, targets = sample_lines(code), sample_lines("en")
            links = aligner.align(list(zip(sources, targets, strict=True)))
            rows = list(zip(range(1, len(sources) + 1), sources, targets, strict=True))
            sets.append(phrase_set(f"sample {code}-en", code, "one aligner", rows, [links], limit=limit))
    return sets


def sample_phrases(device: str = "auto", dtype: str = "auto") -> Path:
    """A folder of phrase sets like those of `finetune.xpr.data`, made once and kept in the cache.

    The pairs are phrases that an encoder's own states align, their examples the sentences that they are aligned in:
    translations of each other, unlike those of real sets.
    """
    corpus = [remembered_sha256(path) for path in sorted(SAMPLE_CORPUS.glob("*.txt"))]
    folder = cache_dir() / "xpr-sample" / settings_hash([corpus, DEFAULT_ENCODER, SAMPLE_PAIRS])
    missing = [code for code in WMT16 if not (folder / f"{code}-en" / MANIFEST).is_file()]
    if missing:
        aligner = EncoderAligner(open_encoder(DEFAULT_ENCODER, device, dtype))
        for own in sample_sets(aligner, missing, SAMPLE_PAIRS):
            as_examples(own, folder / f"{own.language}-en")
    return folder


def as_examples(own: PhraseSet, folder: Path) -> ExampleSet:
    """Write aligned phrases as a set of examples: a phrase stands in one pair, further translations are `known`."""
    texts = own.sources, own.targets
    phrases: tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]] = ({}, {})
    examples: tuple[set[tuple[int, ...]], set[tuple[int, ...]]] = (set(), set())
    rows: dict[tuple[int, int], int] = {}
    for sentence, *spans in own.queries.tolist():
        counts, pair = [len(side) for side in phrases], [0, 0]
        for side, (start, end) in enumerate((spans[:2], spans[2:])):
            text = texts[side][sentence][start:end]
            pair[side], _ = phrases[side].setdefault(surface(text), (counts[side], text))
            examples[side].add((pair[side], sentence, start, end))
        fifth = crc32(surface(text).encode()) % 5
        rows.setdefault((pair[0], pair[1]), (0, 0, 0, 1, 2)[fifth] if pair == counts else SPLITS.index("known"))
    source, target = (
        Side(
            language,
            tuple(text for _, text in phrases[side].values()),
            sentence_table(texts[side], [f"{language}.txt"] * len(own.lines), own.lines),
            np.array(sorted(examples[side]), np.int32).reshape(-1, 4),
        )
        for side, language in enumerate((own.language, "en"))
    )
    pairs = np.array([(*pair, split) for pair, split in rows.items()], np.int32).reshape(-1, 3)
    sizes = {split: {"pairs": int((pairs[:, 2] == n).sum())} for n, split in enumerate(SPLITS)}
    return write_examples(folder, f"{own.language}-en", (source, target), pairs, {"made": QUICK, "statistics": sizes})
