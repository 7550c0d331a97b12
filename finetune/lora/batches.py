"""Examples as tokens, and batches of them. What is drawn depends on the seed and the step alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from finetune.lora.examples import Example
from prompts.builder import PromptBuilder
from prompts.safety import Guard, one_line
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.types import Prompt
from rag_mt.llm.prompt_tokens import end_of_turn
from rag_mt.llm.transformers_llm import TransformersLLM
from retrievers.encoders.encoder import padded


@dataclass(frozen=True)
class Tokens:
    """The tokens of an example: the prompt's, then from `response` on those of the answer and the end of text."""

    ids: array[int]
    response: int
    direction: str

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answers(self) -> int:
        """The number of tokens that are learnt."""
        return len(self.ids) - self.response


@dataclass(frozen=True)
class Batch:
    """Token ids and mask (examples, tokens), padded at the end; and for every token `wanted` of a response, row by row,
    the place that predicts it, `rows` and `columns` (all three (tokens,))."""

    input_ids: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    wanted: torch.Tensor


class ExamplePrompts:
    """The prompts of examples, word for word those that a translation with the adapter will have."""

    def __init__(self, llm: TransformersLLM, wrapper: str = "auto") -> None:
        """`llm` must say that it has an adapter, which decides what the wrapper `auto` is."""
        self.llm, self.wrapper = llm, wrapper
        self._builders: dict[tuple[str, str, str], PromptBuilder] = {}

    def builder(self, example: Example) -> PromptBuilder:
        """The prompt builder of an example's direction and unit."""
        key = example.pair.source_language, example.pair.target_language, example.unit
        if key not in self._builders:
            self._builders[key] = PromptBuilder(key[0], key[1], self.wrapper, example.unit, llm=self.llm)
        return self._builders[key]

    def prompt(self, example: Example) -> Prompt:
        """The prompt with the example's hints."""
        return self.builder(example).build(example.pair.sentence, example.hints)

    @property
    def settings(self) -> dict[str, object]:
        """What could change a prompt, by direction and unit, of those that were built."""
        return {"-".join(key): builder.settings for key, builder in sorted(self._builders.items())}


def tokens_of(
    prompts: ExamplePrompts, examples: Sequence[Example], cutoff: int, show: bool = True
) -> tuple[list[Tokens], int]:
    """The tokens of the examples that have at most `cutoff` of them and fit the model's window, and how many have more.
    An answer is on one line with the prompt's look-alikes for control tokens, and ends where the model stops.

    Raises UserError if no example is left or the model has no end-of-text token.
    """
    llm = prompts.llm
    longest, guard = min(cutoff, llm.context_length), Guard(llm.reserved)
    tokens: list[Tokens] = []
    bar = progress(len(examples), "examples", "reading examples", show=show)
    for example in examples:
        prompt, answer = prompts.prompt(example), guard.neutral(one_line(example.pair.target))
        asked, whole = llm.encode(prompt), llm.encode(prompt, answer)
        if whole[: len(asked)] != asked:  # the first word of the answer joined the prompt's last token
            whole = (*asked, *llm.tokenizer(answer, add_special_tokens=False)["input_ids"])
        end = end_of_turn(llm.tokenizer) if prompt.chat else llm.tokenizer.eos_token_id
        if end is None:
            raise UserError(f"the tokenizer of {llm.id} has no end-of-text token, which answers must end with")
        if len(whole) < longest:
            tokens.append(Tokens(array("i", (*whole, end)), len(asked), example.pair.direction))
        bar.update()
    bar.close()
    if not tokens:
        raise UserError(
            f"none of {len(examples)} examples has at most {longest} tokens: give a larger training.cutoff or shorter "
            "examples"
        )
    return tokens, len(examples) - len(tokens)


def micro_batches(examples: Iterable[Tokens], most: int, budget: int) -> list[list[Tokens]]:
    """Examples in parts of similar length, the longest first: `most` at a time or, if `budget` is not 0, as many as
    have so many tokens together with their padding (at least one)."""
    parts: list[list[Tokens]] = []
    for example in sorted(examples, key=len, reverse=True):
        room = max(1, budget // len(parts[-1][0])) if budget and parts else most
        if parts and len(parts[-1]) < room:
            parts[-1].append(example)
        else:
            parts.append([example])
    return parts


def collated(tokens: Sequence[Tokens], pad: int) -> Batch:
    """A batch of those examples."""
    ids, mask = padded([example.ids for example in tokens], pad)
    rows = np.repeat(np.arange(len(tokens)), [example.answers for example in tokens])
    columns = np.concatenate([np.arange(example.response, len(example)) for example in tokens])
    return Batch(*map(torch.from_numpy, (ids, mask, rows, columns - 1, ids[rows, columns])))
