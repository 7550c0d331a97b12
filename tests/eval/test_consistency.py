"""The measurement of consistency, on a document whose right answers are known."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from eval.consistency import LENGTH, Agreement, Document, documents, evaluate, main, translators_of
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.translation.index import Index
from tests.rag_mt.translation.test_consistency import TEXTS, Wavering

ENGLISH = [
    "The river is deep.",
    "The river is broad.",
    "The forest is dark.",
    "The river is cold.",
    "The forest is silent.",
    "The river is near.",
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "domains").mkdir()
    rows = [f"{english}\t{german}\n" for english, german in zip(ENGLISH, TEXTS, strict=True)] * 14
    (tmp_path / "domains" / "help.de-en.dev.tsv").write_text("".join(rows), encoding="utf-8")
    return tmp_path


def asked(data: Path, **more: Any) -> argparse.Namespace:
    """What the command line says of one German document, and more."""
    options = {
        "data": str(data), "part": "dev", "documents": 1, "directions": "de-en", "variants": False, "context": 0,
        "llm": Wavering("kalt."), "dtype": "float32", "quiet": True, "output": [], "adapter": [],
        "index": "", "domains": "",
    }  # fmt: skip
    return argparse.Namespace(**(options | more))


@pytest.mark.parametrize(
    ("changed", "agreed"),
    [({}, 6.0), ({3: "The stream is cold."}, 2 + 4 * 3 * 2 / (4 * 3)), ({4: "The wood is silent."}, 4.0)],
)
def test_agreement_is_the_chance_that_two_occurrences_agree(changed: dict[int, str], agreed: float) -> None:
    """The river stands in four sentences and the forest in two; what stands in one does not count."""
    texts = [changed.get(n, text) for n, text in enumerate(ENGLISH)]
    document = Document("help", "de", "en", 0, TEXTS, ENGLISH)
    assert Agreement().of(document, texts) == (pytest.approx(agreed), 6)


def test_documents_follow_each_other(data: Path) -> None:
    first, second, back, _ = documents(data, "dev", 5, ())
    assert (first.cell, back.cell, [first.number, second.number]) == ("help en-de", "help de-en", [0, 1])
    assert len(second.sources) == LENGTH and second.sources[:2] == (ENGLISH * 14)[LENGTH : LENGTH + 2]
    assert back.sources == first.references and len(documents(data, "dev", 1, ["de-en"])) == 1
    with pytest.raises(UserError, match="there is nothing of the part test"):
        documents(data, "test", 1, ())


def test_consistent_translations_agree_more(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out.json"
    options = asked(data, variants=True, context=2, output=[str(output)])
    assert evaluate(options) == 0
    markdown = capsys.readouterr().out
    facts = json.loads(output.read_text(encoding="utf-8"))
    agreement, chrf = facts["consistent, all"]
    assert agreement[0] > 0 and chrf[0] > 0 and facts["sentences"] == LENGTH
    assert "| all (1) | consistent | 100.0 | 100.00 |" in markdown and "| all (1) | reference | 100.0 |" in markdown
    assert "consistent (3, 0.5, 0.5)" in markdown and "| context |" in markdown


@pytest.mark.slow
def test_another_adapter_translates_too(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = asked(data, llm=DEFAULT_LLM, dtype="bfloat16")
    own = documents(data, "dev", 1, ["de-en"])
    shipped, bare = (translators_of(own, options, adapter)[0].llm for adapter in (DEFAULT_ADAPTER, "none"))
    assert isinstance(shipped, TransformersLLM) and isinstance(bare, TransformersLLM)
    assert shipped.adapter and not bare.adapter
    options = asked(data, context=1, adapter=["my/other"])
    assert evaluate(options) == 0
    markdown = capsys.readouterr().out
    assert "| all (1) | plain, other |" in markdown and "| all (1) | context, other |" in markdown
    assert "--context 1 --directions de-en --adapter other" in markdown


def test_all_translations_may_have_hints(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Index.build(tmp_path / "help.en", texts=ENGLISH, language="en", retriever="bm25")
    options = asked(data, context=1, index=f"{tmp_path}/{{domain}}.{{tgt}}", domains="game,help")
    own = documents(data, "dev", 1, ["de-en"])
    assert translators_of(own, options, DEFAULT_ADAPTER)[0].retriever.name == "bm25"
    assert evaluate(options) == 0
    markdown = capsys.readouterr().out
    assert "float32, with hints of an index:" in markdown and "| all (1) | context |" in markdown


def test_a_wrong_folder_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    assert "give --data DIR with domains/" in capsys.readouterr().err
    assert main(["--data", str(tmp_path), "--domains", "help,hepl"]) == 2
    assert "there is no domain hepl: --domains takes some of " in capsys.readouterr().err
