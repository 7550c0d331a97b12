"""What holds for all texts and terms."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_mt.base.terms import Term
from rag_mt.glossary.entries import LONGEST
from rag_mt.glossary.glossary import Glossary
from rag_mt.glossary.phrases import phrase_of, text_words
from tests.hostile_readers import Readers, too_slow
from tests.test_hostile_inputs import SIZES, hostile_texts

WORDS = [
    "Haus",
    "Häuser",
    "Rechner",
    "Datenbank",
    "IT",
    "it",
    "der",
    "C++",
    "E-Mail",
    "Datenbankrechner",
    "漢",
    "e\u0301",
]
TEXTS = st.lists(st.sampled_from([*WORDS, " ", " ", "-", ", ", ".", "\n", "ß", "\u00ad"]), max_size=20).map("".join)
TERMS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join), min_size=1, max_size=8)


def glossary(terms: list[str]) -> Glossary:
    return Glossary("de", "de", tuple(Term(t, "de", "de", (t,)) for t in terms))


@given(TERMS, TEXTS)
def test_spans_are_ordered_apart_and_of_words_of_the_text(terms: list[str], text: str) -> None:
    matches = glossary(terms).matches(text)
    assert all(a.span.end <= b.span.start for a, b in pairwise(matches))
    bounds = [word.span for word in text_words(text)]
    for match in matches:
        inside = [s for s in bounds if s.overlaps(match.span)]
        assert match.span.of(text).strip() == match.span.of(text) != ""
        assert match.in_compound or (inside[0].start >= match.span.start and inside[-1].end <= match.span.end)
        if match.in_compound:
            assert len(inside) == 1 and len(match.span) < len(inside[0])


@given(TERMS, TEXTS)
def test_the_order_of_the_terms_does_not_matter_for_the_places(terms: list[str], text: str) -> None:
    one, other = ([m.span for m in glossary(t).matches(text)] for t in (terms, terms[::-1]))
    assert one == other


@given(TERMS, TEXTS, TEXTS)
def test_a_term_is_found_as_it_is_written_and_is_its_own_translation(terms: list[str], before: str, after: str) -> None:
    text = f"{before} | {terms[0]} | {after}"
    start = len(before) + 3
    found = glossary(terms[:1])
    (match,) = (m for m in found.matches(text) if m.span.start == start)
    assert match.span.of(text) == terms[0]
    assert match.span in [use.span for use in found.used(match, text).allowed]


@given(st.text(max_size=30))
def test_any_text_is_words_and_gaps(text: str) -> None:
    words = text_words(text)
    assert all(word.span.of(text) == word.text for word in words)
    phrase = phrase_of(text)
    assert phrase.words == tuple(word.text for word in words)
    assert len(phrase.gaps) == len(phrase.words)


@SIZES
def test_no_text_takes_long(size: int, seconds: float) -> None:
    names = list(readers())
    assert list(too_slow([(name, text) for text in hostile_texts(size) for name in names], readers, seconds)) == []


ENTITIES = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
BOMB = f'<!DOCTYPE tbx [<!ENTITY a "ha">{ENTITIES}]><tbx><conceptEntry>&i;</conceptEntry></tbx>'
LARGE = [
    (".tbx", BOMB),
    (".tmx", BOMB.replace("tbx", "tmx")),
    (".tbx", BOMB.replace('"ha"', 'SYSTEM "file:///dev/zero"')),
    (".tbx", "<tbx>" + "<conceptEntry>" * 100_000),
    (".tbx", "<tbx>" + "<conceptEntry/>" * 20_000 + "</tbx>"),
    (".csv", "a," * 100_000),
    (".csv rows", "a," * 100_000),
    (".csv", "w,".join(f"{n:x}" for n in range(15_000))),
    (".csv rows", '"a\n' * 20_000),
    (".csv rows", '"' + "a\n" * 50_000),
    (".tsv", '"' + ("a" * 90_000 + "\n") * 20),
    (".csv", "a,b\n" * 20_000),
    (".csv rows", "a" * 99 + "|b" * 49_000 + ",c"),
    (".csv", "\x00" * 100_000),
]


def test_large_and_hostile_files_take_little_time() -> None:
    assert list(too_slow(LARGE, readers, 2.0)) == []


def readers() -> Readers:
    """Readers of glossaries and of texts with a glossary."""
    import tempfile
    from pathlib import Path

    from rag_mt.base.types import Skips
    from rag_mt.glossary.reading import read_glossary

    folder = Path(tempfile.mkdtemp(prefix="glossary-"))
    found = glossary([*WORDS, "a a a", "a", "1 1", "A A"])
    (match,) = found.matches("Rechner")

    def file(suffix: str, wrap: str = "{}") -> object:
        def read(text: str) -> object:
            path = folder / f"terms{suffix}"
            path.write_bytes(wrap.format(text).encode("utf-8", "surrogatepass"))
            return read_glossary([path], "de", "en", Skips(shown=0))

        return read

    def term(text: str) -> object:
        return glossary([text[:LONGEST], text[: LONGEST // 2] + " a"]).matches(text)

    concept = (
        "<tbx><conceptEntry><langSec xml:lang='de'><termSec><term>a</term></termSec></langSec>"
        "<langSec xml:lang='en'><termSec><term>{}</term></termSec></langSec></conceptEntry></tbx>"
    )
    return {
        **{suffix: file(suffix) for suffix in (".csv", ".tsv", ".tbx", ".tmx")},
        ".csv rows": file(".csv", "de,en\n{}\n"),
        ".tbx term": file(".tbx", concept),
        "sentence": found.matches,
        "output": lambda text: found.used(match, text),
        "term": term,
    }  # type: ignore[dict-item]


@pytest.mark.parametrize("terms", [["a"] * 9, ["a a", "a a a a"], ["a " * n for n in range(1, 99)]])
def test_repeated_words_match_without_overlap(terms: list[str]) -> None:
    matches = glossary(terms).matches("a " * 200)
    assert sum(len(text_words(m.term.source)) for m in matches) == 200
