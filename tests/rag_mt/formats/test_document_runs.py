"""Documents in a file of sentence pairs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rag_mt.base.types import Skips
from rag_mt.formats.document_runs import Document, document_runs, is_heading, passages


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        ("Food: Where European inflation slipped up", True),
        ("Правительство готовит реформу", True),
        ("2014 Spring collection", True),
        ("It rained.", False),
        ('He said: "It rained."', False),
        ("Prices", False),
        ("и так далее", False),
        ("über die Straße", False),
        ("Ärger im Rathaus", True),
        ("यह एक पंक्ति है", False),
        ("Following last October's rioting, the public thought it best to keep the government and its minister", False),
        ("To do this, choose one of:", False),
    ],
)
def test_headings(text: str, heading: bool) -> None:
    assert is_heading(text) == heading


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_runs_end_at_headings_other_sources_and_gaps(tmp_path: Path) -> None:
    def rows(count: int, source: str, domain: str = "news") -> list[str]:
        return [f"Line {n} is here.\tZeile {n} ist hier.\t{domain}\t{source}" for n in range(count)]

    heading = "A good title\tEin guter Titel\tnews\ta"
    path = write(
        tmp_path / "de-en.tsv",
        [
            *rows(4, "a"),  # below no heading
            heading,
            *rows(3, "a"),
            heading,
            *rows(2, "a"),  # too short
            heading.replace("A good", "Another good"),
            *rows(4, "a"),
            *rows(4, "b"),  # another source, below no heading
            heading.replace("news", "ui"),
            *rows(4, "a", "ui"),
            heading,
            *rows(3, "a"),
            "\tohne Englisch\tnews\ta",
            *rows(5, "a"),
        ],
    )
    made = list(document_runs(path, "de", Skips()))
    assert [(english.title, len(english.sentences)) for english, _ in made] == [
        ("A good title", 3),
        ("Another good title", 4),
        ("A good title", 3),
    ]
    other = made[0][1]
    assert other == Document("Ein guter Titel", tuple(f"Zeile {n} ist hier." for n in range(3)), "de", other.origin)
    assert str(other.origin) == "de-en.tsv:5"


def test_passages_are_whole_sentences() -> None:
    document = Document("Title here", ("one two three", "four five", "six", "seven " * 9), "en")
    assert [p.text for p in passages(document, 5)] == ["one two three four five", "six", ("seven " * 9).strip()]
    assert " ".join(p.text for p in passages(document, 100)).split() == " ".join(document.sentences).split()
