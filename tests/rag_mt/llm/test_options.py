"""What goes along with the prompts of a language model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.console import json_object
from rag_mt.base.errors import UserError
from rag_mt.base.types import NOWHERE, Hint, Hit, Prompt, Sentence, Span
from rag_mt.llm.options import chat_message, checked_options, fields_for

HINTS = (Hint(Span(0, 2), Hit(Sentence("yes", "en", NOWHERE), Span(0, 3), 1.0)),)
CODES = {"source_lang_code": "de", "target_lang_code": "en"}


def test_fields_of_each_kind_of_prompt() -> None:
    options = {
        "seed": 1,
        "chat_template_kwargs": {"a": 1, "to": "{tgt}"},
        "with_hints": {"lora": [{"id": 0, "note": "{src}"}], "chat_template_kwargs": {"a": 2}},
        "without_hints": {"seed": 2},
    }
    asked = Prompt("Ja", chat=True, source="de", target="en")
    assert fields_for(options, asked) == {"seed": 2, "chat_template_kwargs": {"a": 1, "to": "en"}}
    hinted = Prompt("Ja", chat=True, hints=HINTS, source="de", target="en")
    assert fields_for(options, hinted) == {
        "seed": 1,
        "lora": [{"id": 0, "note": "de"}],
        "chat_template_kwargs": {"a": 2, "to": "en"},
    }
    assert fields_for(options, Prompt("Ja")) == {"seed": 2}  # no chat, so no template
    assert fields_for({}, asked) == {}


def test_language_codes_are_in_the_message_and_beside_it() -> None:
    coded = Prompt("Ja", chat=True, source="de", target="en", coded=True)
    assert chat_message(coded) == {"role": "user", "content": [{"type": "text", "text": "Ja", **CODES}]}
    assert fields_for({}, coded) == {"chat_template_kwargs": CODES}
    own = {"chat_template_kwargs": {"target_lang_code": "en-GB"}}
    assert fields_for(own, coded)["chat_template_kwargs"] == {**CODES, "target_lang_code": "en-GB"}
    assert chat_message(Prompt("Ja", chat=True)) == {"role": "user", "content": "Ja"}


@pytest.mark.parametrize(
    ("options", "served", "said"),
    [
        ({"stream": False}, True, "option stream is set by rag_mt in every request"),
        ({"with_hints": {"model": "a"}}, True, "option model is set by rag_mt"),
        ({"chat_template_kwargs": 7}, True, "expected fields with names and values"),
        ({"without_hints": [1]}, True, r"hold \[1\]: expected fields"),
        ({"seed": 1}, False, "option seed is for servers"),
    ],
)
def test_options_that_cannot_be_sent(options: Any, served: bool, said: str) -> None:
    with pytest.raises(UserError, match=said):
        checked_options(options, served)


def test_options_are_json_or_a_file_of_it(tmp_path: Path) -> None:
    (tmp_path / "options.json").write_text('{"seed": 1}')
    assert json_object(' {"seed": 1}') == json_object(str(tmp_path / "options.json")) == {"seed": 1}
    (tmp_path / "list.json").write_text("[1]")
    for text, said in (
        ("{seed: 1}", "is no JSON"),
        ("nowhere.json", "no file"),
        (str(tmp_path / "list.json"), "no fie"),
    ):
        with pytest.raises(argparse.ArgumentTypeError, match=said):
            json_object(text)
