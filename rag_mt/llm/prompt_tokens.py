"""A prompt as a model reads it: its chat template, its tokens, and those computed once for many prompts."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rag_mt.base.errors import UserError
from rag_mt.base.files import read_json
from rag_mt.base.types import LanguageModel, Prompt
from rag_mt.llm.options import NO_OPTIONS, TEMPLATE, Options, chat_message, fields_for

log = logging.getLogger("rag_mt")

REMEMBERED_PROMPTS = 1024
"""Prompts that were counted and are not answered yet."""
AT_ONCE: dict[str, Any] = {"enable_thinking": False, "date_string": "26 Jul 2024"}
"""What chat templates are told: reasoning models answer at once, and a date that a template writes is a fixed one, so
that a prompt is the same tomorrow."""
SHORTEST_PREFIX = 16
"""Tokens; a shorter shared beginning costs a computation of its own and saves less."""


def control_tokens(tokenizer: Any) -> frozenset[str]:
    """The tokens that steer the model: those that the tokenizer flags as special.

    Added words that are text (runs of blanks, HTML tags) are not flagged and not among them.
    """
    flagged = (str(token) for token in tokenizer.added_tokens_decoder.values() if token.special)
    return frozenset([*tokenizer.all_special_tokens, *flagged])


def takes_language_codes(template: Any) -> bool:
    """Whether a chat template asks for language codes beside the text, as that of TranslateGemma does."""
    return "source_lang_code" in str(template or "")


def template_values(prompt: Prompt, options: Options) -> dict[str, Any]:
    """The values that a chat template gets for a prompt."""
    return {**AT_ONCE, **fields_for(options, prompt).get(TEMPLATE, {})}


def chat_tuned(tokenizer: Any, config: Any, folder: Path | None) -> bool:
    """Whether a model answers chats, judged from its own files.

    Tokenizers of base models often carry a template too (Qwen2.5, some Gemma copies). A model was tuned
    for chat if the token that its template sets after an assistant's turn is one of those at which the model's
    own generation settings (else its configuration or tokenizer) say that it stops.
    """
    end = end_of_turn(tokenizer) if tokenizer.chat_template else None
    return end is not None and end in _end_tokens(tokenizer, config, folder)


def end_of_turn(tokenizer: Any) -> int | None:
    """The token that a chat template sets after an assistant's turn, if it sets any."""
    after = after_answer(tokenizer.chat_template, partial(tokenizer.apply_chat_template, tokenize=False))
    ids: list[int] = tokenizer(after, add_special_tokens=False)["input_ids"][:1]
    return ids[0] if ids else None


def after_answer(template: Any, rendered: Callable[[list[dict[str, Any]]], str]) -> str:
    """What a chat template sets after an assistant's turn; `rendered` fills it with messages."""
    marker, coded = "answer", takes_language_codes(template)
    asked = Prompt("question", chat=True, source="de", target="en", coded=coded)
    return rendered([chat_message(asked), {"role": "assistant", "content": marker}]).rpartition(marker)[2].strip()


def _end_tokens(tokenizer: Any, config: Any, folder: Path | None) -> set[int]:
    file = folder / "generation_config.json" if folder else None
    configured = read_json(file).get("eos_token_id") if file and file.is_file() else None
    ends = configured if configured is not None else getattr(config, "eos_token_id", None)
    return {*(ends if isinstance(ends, list) else [ends]), tokenizer.eos_token_id} - {None}


def render_chat(tokenizer: Any, prompt: Prompt, options: Options = NO_OPTIONS) -> tuple[str, int]:
    """A chat prompt in the model's template, ready for the answer, and how many of its first characters are shared.
    Raises UserError if the template refuses the prompt."""
    from jinja2 import TemplateError

    message, values = chat_message(prompt), template_values(prompt, options)
    try:
        text: str = tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True, **values)
    except (TemplateError, TypeError) as error:
        wrapper = "translategemma" if takes_language_codes(tokenizer.chat_template) else "few-shot"
        raise UserError(
            f"the model's chat template refuses the prompt ({error}): try another one, such as --wrapper {wrapper}"
        ) from error
    return text, shared_in_chat(prompt, text)


def shared_in_chat(prompt: Prompt, text: str) -> int:
    """How many of the first characters of `text`, a prompt in a chat template, are shared.

    Those before the user's message are the same in every prompt, so they are shared with the prompt's own shared ones.
    Templates may strip the message.
    """
    at = text.find(prompt.text)
    stripped = 0
    if at < 0:
        at = text.find(prompt.text.strip())
        stripped = len(prompt.text) - len(prompt.text.lstrip())
    return at + max(0, prompt.shared - stripped) if at >= 0 and prompt.shared else 0


@dataclass(frozen=True)
class EncodedPrompt:
    """The tokens of a prompt, and how many of the first of them are shared with other prompts."""

    ids: tuple[int, ...]
    shared: int

    @property
    def prefix(self) -> tuple[int, ...]:
        """The tokens that are computed once for all prompts that begin with them; empty where it does not pay."""
        return self.ids[: self.shared] if self.shared >= SHORTEST_PREFIX else ()


class CountedPrompts:
    """Prompts that were counted, which are mostly answered next: their tokens, as `encode` makes them, are kept until
    they are taken. Threads may share it."""

    def __init__(self) -> None:
        self._counted: OrderedDict[tuple[Any, ...], EncodedPrompt] = OrderedDict()
        self._lock = threading.Lock()

    def count(self, prompt: Prompt, encode: Callable[[Prompt], EncodedPrompt]) -> int:
        """The number of a prompt's tokens."""
        encoded = self.take(prompt, encode)
        with self._lock:
            self._counted[_token_key(prompt)] = encoded
            while len(self._counted) > REMEMBERED_PROMPTS:
                self._counted.popitem(last=False)
        return len(encoded.ids)

    def take(self, prompt: Prompt, encode: Callable[[Prompt], EncodedPrompt]) -> EncodedPrompt:
        """A prompt's tokens, which are not kept any longer."""
        with self._lock:
            counted = self._counted.pop(_token_key(prompt), None)
        return encode(prompt) if counted is None else counted


def _token_key(prompt: Prompt) -> tuple[Any, ...]:
    """All of a prompt that can change its tokens."""
    return (prompt.text, prompt.chat, prompt.shared, prompt.coded, prompt.source, prompt.target, prompt.begun)


def prompt_fits(llm: LanguageModel, number: int, prompt: EncodedPrompt) -> bool:
    """Whether a model's window has room for the prompt of that number of a call and an answer; a warning says where it
    has not."""
    if 0 < len(prompt.ids) < llm.context_length:
        return True
    log.warning(
        "prompt %d of the call has %d tokens and gets no answer: %s takes 1 to %d",
        *(number + 1, len(prompt.ids), llm.id, llm.context_length - 1),
    )
    return False


def shared_tokens(offsets: Sequence[tuple[int, int]], text: str, shared: int) -> int:
    """The number of first tokens that lie wholly in the first `shared` characters of `text`.

    White space at the end of the shared part is not counted, because tokenizers join it with the word that follows
    or not, depending on the word. The result depends on this prompt alone, so that a prompt's numbers do not change
    with what was asked before it. The last token is never counted: it is what the model goes on from.
    """
    end = len(text[:shared].rstrip())
    inside = next((i for i, (_, stop) in enumerate(offsets) if stop > end), len(offsets))
    return max(0, min(inside, len(offsets) - 1))


def encode_prompt(tokenizer: Any, prompt: Prompt, answer: str = "", options: Options = NO_OPTIONS) -> EncodedPrompt:
    """The tokens of a prompt as generation reads them, with the beginning of the answer and an answer behind it."""
    text, shared = render_chat(tokenizer, prompt, options) if prompt.chat else (prompt.text, prompt.shared)
    # A rendered template brings its own begin-of-text token; a completion prompt may, and needs it once.
    special = not prompt.chat and not (tokenizer.bos_token and text.startswith(tokenizer.bos_token))
    encoding = tokenizer(text + prompt.begun + answer, add_special_tokens=special, return_offsets_mapping=True)
    count = shared_tokens(encoding["offset_mapping"], text, shared) if shared else 0
    return EncodedPrompt(tuple(encoding["input_ids"]), count)
