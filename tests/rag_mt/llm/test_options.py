"""What goes along with the prompts of a language model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from rag_mt.base.console import json_object
from rag_mt.base.errors import UserError
from rag_mt.base.types import Prompt
from rag_mt.llm.options import chat_message, checked_options, fields_for

CODES = {"source_lang_code": "de", "target_lang_code": "en"}


def test_fields_of_a_prompt() -> None:
    options = {"lora": [{"id": 0, "note": "{src}"}], "chat_template_kwargs": {"a": 1, "to": "{tgt}"}}
    asked = Prompt("Ja", chat=True, source="de", target="en")
    lora = {"lora": [{"id": 0, "note": "de"}]}
    assert fields_for(options, asked) == {**lora, "chat_template_kwargs": {"a": 1, "to": "en"}}
    assert fields_for(options, Prompt("Ja", source="de")) == lora  # no chat, so no template
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
        ({"chat_template_kwargs": 7}, True, "expected fields with names and values"),
        ([1], True, r"\[1\] are none: expected fields"),
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
