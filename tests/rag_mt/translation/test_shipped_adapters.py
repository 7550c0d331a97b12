"""Which adapter a translation gets if none is named."""

import pytest

from rag_mt.models.adapter_files import checked_adapter, trained_wrapper
from rag_mt.models.weights import FOLDER, shipped_models
from rag_mt.translation import translator
from rag_mt.translation.translator import Adapters, chosen_adapters, method_of
from tests.ui.conftest import RuleMemory


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A folder of shipped adapters for one model."""
    monkeypatch.setattr(translator, "FOLDER", tmp_path)
    for name in ("phrase.to-en", "plain.to-en", "phrase.from-en"):
        (tmp_path / "some-llm" / name).mkdir(parents=True)
    return tmp_path / "some-llm"


@pytest.mark.parametrize(
    ("adapter", "llm", "retriever", "direction", "expected"),
    [
        ("auto", "embedded:some-llm", "ccpr", ("de", "en"), ("phrase.to-en", "plain.to-en")),
        ("auto", "embedded:some-llm", "phrases", ("de-AT", "en-GB"), ("phrase.to-en", "plain.to-en")),
        ("auto", "embedded:some-llm", "ccpr", ("en", "fi"), ("phrase.from-en", None)),
        ("auto", "embedded:some-llm", "none", ("cs", "en"), ("plain.to-en", None)),
        ("auto", "embedded:some-llm", "none", ("en", "cs"), (None, None)),
        ("auto", "embedded:some-llm", "sentence", ("cs", "en"), (None, None)),
        ("auto", "embedded:some-llm", "ccpr", ("de", "cs"), (None, None)),
        ("auto", "embedded:some-llm", "ccpr", ("en-GB", "en-US"), (None, None)),
        ("auto", "embedded:other", "ccpr", ("de", "en"), (None, None)),
        ("auto", "some-llm", "ccpr", ("de", "en"), (None, None)),
        ("none", "embedded:some-llm", "ccpr", ("de", "en"), (None, None)),
        (None, "embedded:some-llm", "ccpr", ("de", "en"), (None, None)),
    ],
)
def test_the_adapters_of_a_translation(shipped, adapter, llm, retriever, direction, expected):
    found = chosen_adapters(adapter, llm, retriever, *direction)
    assert found == Adapters(*(name and str(shipped / name) for name in expected))


def test_a_named_adapter_is_taken_as_it_is(shipped):
    assert chosen_adapters("my/adapter", "embedded:some-llm", "ccpr", "de", "en") == Adapters("my/adapter")


def test_the_adapter_of_a_memory_serves_for_its_drafts_too(shipped):
    """Until one ships, hints have that for sentences and drafts that of plain prompts."""
    asked = ("auto", "embedded:some-llm", RuleMemory(), "de", "en")
    (shipped / "sentence.to-en").mkdir()
    assert chosen_adapters(*asked) == Adapters(str(shipped / "sentence.to-en"), str(shipped / "plain.to-en"))
    (shipped / "memory").mkdir()
    assert chosen_adapters(*asked) == Adapters(str(shipped / "memory"))
    assert chosen_adapters("auto", "embedded:some-llm", "memory", "de", "cs") == Adapters()
    (shipped / "memory.to-en").mkdir()
    assert chosen_adapters(*asked) == Adapters(str(shipped / "memory.to-en"))
    assert chosen_adapters("auto", "embedded:some-llm", "none", "de", "en") == Adapters(str(shipped / "plain.to-en"))


def test_methods():
    names = ("none", "sentence", "phrases", "ccpr")
    assert [method_of(name) for name in names] == ["plain", "sentence", "phrase", "phrase"]


@pytest.mark.parametrize("name", [name for name, model in shipped_models().items() if "gemma" in model.base])
def test_shipped_adapters_tell_their_prompts(name):
    checked_adapter(str(FOLDER / name))
    assert trained_wrapper(str(FOLDER / name)) == "compact"
