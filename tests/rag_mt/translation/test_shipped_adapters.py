"""Which adapter a translation gets if none is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rag_mt.models.adapter_files import checked_adapter, trained_wrapper
from rag_mt.models.weights import FOLDER, shipped_models
from rag_mt.translation import opening, translator
from rag_mt.translation.opening import chosen_adapter
from rag_mt.translation.translator import Translator
from retrievers.no_hints import NoHints
from tests.ui.conftest import RuleLLM

GEMMA = "embedded:gemma-3-270m"


@pytest.mark.parametrize(
    ("adapter", "llm", "direction", "shipped"),
    [
        ("auto", GEMMA, ("de", "en"), True),
        ("auto", GEMMA, ("en", "fi"), True),
        ("auto", GEMMA, ("de-AT", "en-GB"), True),
        ("auto", GEMMA, ("de", "cs"), False),
        ("auto", GEMMA, ("en-GB", "en-US"), False),
        ("auto", "embedded:smollm2-135m", ("de", "en"), False),
        ("auto", "gemma-3-270m", ("de", "en"), False),
        ("none", GEMMA, ("de", "en"), False),
        (None, GEMMA, ("de", "en"), False),
    ],
)
def test_the_adapter_of_a_translation(adapter: str | None, llm: str, direction: tuple[str, str], shipped: bool) -> None:
    assert chosen_adapter(adapter, llm, *direction) == (str(FOLDER / "gemma-3-270m") if shipped else None)


def test_a_named_adapter_is_taken_as_it_is() -> None:
    assert chosen_adapter("my/adapter", GEMMA, "de", "en") == "my/adapter"
    assert chosen_adapter("my/adapter", GEMMA, "de", "en", context=True) == "my/adapter"


def test_prompts_with_context_have_an_adapter_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen_adapter("auto", GEMMA, "de", "en", context=True) == str(FOLDER / "gemma-3-270m-context")
    assert chosen_adapter("auto", GEMMA, "de", "cs", context=True) is None
    monkeypatch.setattr(opening, "FOLDER", tmp_path)
    (tmp_path / "gemma-3-270m").mkdir()
    assert chosen_adapter("auto", GEMMA, "de", "en", context=True) == str(tmp_path / "gemma-3-270m")


@pytest.mark.parametrize("name", ["none", "sentence", "ccpr", "memory", "passage"])
def test_all_retrievers_have_the_shipped_adapter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    adapters: list[Any] = []

    def opened(llm: str, *, adapter: str | None, **options: Any) -> RuleLLM:
        adapters.append(adapter and Path(adapter).name)
        return RuleLLM()

    monkeypatch.setattr(translator, "open_llm", opened)
    monkeypatch.setattr(translator, "opened_retriever", lambda *options: NoHints())
    for source, target in (("de", "en"), ("en", "cs"), ("de", "cs")):
        Translator(source, target, retriever=name)
    assert adapters == ["gemma-3-270m", "gemma-3-270m", None]
    Translator("de", "en", retriever=name, context=1)
    assert adapters[-1] == "gemma-3-270m-context"


@pytest.mark.parametrize("name", [name for name, model in shipped_models().items() if "gemma" in model.base])
def test_shipped_adapters_tell_their_prompts(name: str) -> None:
    checked_adapter(str(FOLDER / name))
    assert trained_wrapper(str(FOLDER / name)) == "compact"
