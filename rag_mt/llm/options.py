"""What users send along with the prompts of a language model: fields of the requests to a server, values for its chat
template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.types import Prompt

TEMPLATE = "chat_template_kwargs"
"""The field that holds values for chat templates; vLLM, SGLang and llama.cpp know it by this name."""
OURS = frozenset(("model", "messages", "prompt", "stream", "stream_options", "stop", "max_tokens"))
"""What requests say by themselves."""

Options = Mapping[str, Any]
"""Fields of a request; in every text `{src}` and `{tgt}` stand for the language codes of the prompt."""
NO_OPTIONS: Options = {}


def checked_options(options: Options | None, served: bool) -> Options:
    """The options for a model that is `served`, or loaded here; raises UserError for what it cannot take."""
    options = options or {}
    if not isinstance(options, Mapping) or not isinstance(options.get(TEMPLATE, {}), Mapping):
        raise UserError(
            f"the LLM options {options!r:.80} are none: expected fields with names and values, also in {TEMPLATE}"
        )
    if not served and (unknown := sorted(options.keys() - {TEMPLATE})):
        raise UserError(
            f"the LLM option {unknown[0]} is for servers: a model that is loaded here takes {TEMPLATE} only, so leave "
            "it out or name a server, openai:MODEL@URL"
        )
    if refused := sorted(options.keys() & OURS):
        raise UserError(f"the LLM option {refused[0]} is set by rag_mt in every request: leave it out")
    return options


def fields_for(options: Options, prompt: Prompt) -> dict[str, Any]:
    """The fields that go with a prompt; values for the chat template are merged name by name, and go with chats only.

    Prompts with language codes have them there too, where llama.cpp's server takes them from.
    """
    fields = dict(options)
    template = {**(language_codes(prompt) if prompt.coded else {}), **fields.pop(TEMPLATE, {})}
    if template and prompt.chat:
        fields[TEMPLATE] = template
    filled: dict[str, Any] = _filled(fields, {"{src}": prompt.source, "{tgt}": prompt.target})
    return filled


def chat_message(prompt: Prompt) -> dict[str, Any]:
    """The user's message of a chat prompt: plain text, or one part of text with language codes."""
    if not prompt.coded:
        return {"role": "user", "content": prompt.text}
    return {"role": "user", "content": [{"type": "text", **language_codes(prompt), "text": prompt.text}]}


def language_codes(prompt: Prompt) -> dict[str, str]:
    """The languages of a prompt by the names that TranslateGemma's chat template gives them."""
    return {"source_lang_code": prompt.source, "target_lang_code": prompt.target}


def _filled(value: Any, places: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        for place, text in places.items():
            value = value.replace(place, text)
        return value
    if isinstance(value, Mapping):
        return {name: _filled(part, places) for name, part in value.items()}
    return [_filled(part, places) for part in value] if isinstance(value, list | tuple) else value
