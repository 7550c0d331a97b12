"""The measurement of glossaries on a cell of two sentences, by a model whose answers are known."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from eval.report.blocks import as_markdown
from eval.terms.__main__ import LARGE, Cell, _report, cells, glossary_of, irrelevant, searching, translated
from rag_mt.base.errors import UserError
from tests.rag_mt.translation.test_terms import DRAFT, TEXT, TeachableLLM

OPTIONS = argparse.Namespace(part="dev", llm="teachable", dtype="float32", limit=2, all_terms=True)
PAIRS = [
    ("Der Stadtrat tagt.", "The assembly meets."),
    ("Ein Stadtrat baut.", "An assembly builds."),
    ("Neuer Stadtrat", "New assembly"),
    ("Die Brücke ist alt.", "The bridge is old."),
    ("Alte Brücke", "Old bridge"),
    ("Lange Brücke", "Long bridge"),
]


@pytest.fixture
def cell() -> Cell:
    glossary = glossary_of(PAIRS, "de", "en")
    assert {term.source: term.allowed for term in glossary.terms} == {"Stadtrat": ("assembly",), "Brücke": ("bridge",)}
    reference = "The assembly builds a crossing."
    required = tuple(m for m in glossary.matches(TEXT) if glossary.used(m, reference).ok)
    assert [match.term.source for match in required] == ["Stadtrat"], "the reference has no bridge"
    return Cell("help", "de", "en", glossary, [TEXT, TEXT], [reference] * 2, ["help.1", "help.2"], [required] * 2)


def test_required_terms_are_shown_alone_and_counted(cell: Cell) -> None:
    llm = TeachableLLM()
    systems = ("plain", "glossary", "all terms")
    results = {(cell.name, name): translated(cell, name, llm, OPTIONS)[0] for name in systems}
    plain, kept, everything = results.values()
    assert plain.texts == [DRAFT] * 2 and plain.used(cell) == 0
    assert kept.texts == ["The assembly builds a bridge."] * 2 and kept.used(cell) == cell.terms == 2
    shown = [[len(made.terms) for made in result.translations] for result in (kept, everything)]
    assert shown == [[1, 1], [2, 2]]
    assert kept.chrf(cell) > plain.chrf(cell) and irrelevant([cell], results, "all terms") == 0
    blocks, facts = _report([cell], systems, results, 0.1, OPTIONS)
    markdown = as_markdown(blocks)
    assert "| help de-en | 2 | 2 | 2 | 0.0 | 100.0 | 100.0 |" in markdown and "--all-terms" in markdown
    assert facts["help de-en"]["used"] == [0, 2, 2]  # type: ignore[index]


def test_a_large_glossary_is_searched(cell: Cell) -> None:
    assert 0 < searching([cell]) < 1000 and LARGE == 10_000


def test_data_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give --data DIR with domains/ and train/"):
        cells(tmp_path, "test", 2, ())
    assert cells(tmp_path, "dev", 2, ()) == []
