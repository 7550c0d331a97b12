"""Examples as tokens, and batches of them. What is drawn depends on the seed and the step alone."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

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

    ids: tuple[int, ...]
    response: int
    direction: str

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answers(self) -> int:
        """The number of tokens that are learnt."""
        return len(self.ids) - self.response


class TokenTable(Sequence[Tokens]):
    """The tokens of many examples in a few arrays: 4 bytes a token, where a tuple of Python's numbers takes about 36.

    `lengths` (examples,) are numbers of tokens, `answers` (examples,) of those that are learnt; `directions` are those
    that occur, in alphabetical order.
    """

    def __init__(self, examples: Iterable[Tokens] = ()) -> None:
        """Reads `examples` once, one at a time."""
        ids, bounds, responses, numbers = array("i"), array("q", [0]), array("i"), array("i")
        names: dict[str, int] = {}
        for example in examples:
            ids.extend(example.ids)
            bounds.append(len(ids))
            responses.append(example.response)
            numbers.append(names.setdefault(example.direction, len(names)))
        self._ids, self._bounds, self._responses = np.asarray(ids), np.asarray(bounds), np.asarray(responses)
        self._names, self._numbers = tuple(names), np.asarray(numbers)
        self.lengths = np.diff(self._bounds)
        self.answers = self.lengths - self._responses
        self.directions = tuple(sorted(names))

    def __len__(self) -> int:
        return len(self._responses)

    @overload
    def __getitem__(self, row: int) -> Tokens: ...
    @overload
    def __getitem__(self, row: slice) -> list[Tokens]: ...
    def __getitem__(self, row: int | slice) -> Tokens | list[Tokens]:
        if isinstance(row, slice):
            return [self[n] for n in range(len(self))[row]]
        number = range(len(self))[row]
        ids = self._ids[self._bounds[number] : self._bounds[number + 1]].tolist()
        return Tokens(tuple(ids), int(self._responses[number]), self._names[self._numbers[number]])


@dataclass(frozen=True)
class Batch:
    """Token ids and mask (examples, tokens), padded at the end; and for every token of a response, row by row, the
    place that predicts it, `rows` and `columns` (tokens,), with the token itself, `wanted`."""

    input_ids: torch.Tensor
    mask: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor
    wanted: torch.Tensor


class ExamplePrompts:
    """The prompts of examples, word for word those that a translation with the adapter will have."""

    def __init__(self, llm: TransformersLLM, wrapper: str = "auto") -> None:
        """`llm` must say that it has an adapter, because that decides what the wrapper `auto` is."""
        self.llm, self.wrapper = llm, wrapper
        self._builders: dict[tuple[str, str, str], PromptBuilder] = {}

    def builder(self, example: Example) -> PromptBuilder:
        """The prompt builder of an example's direction and unit."""
        pair = example.pair
        key = pair.source_language, pair.target_language, example.unit
        if key not in self._builders:
            self._builders[key] = PromptBuilder(key[0], key[1], self.wrapper, example.unit, llm=self.llm)
        return self._builders[key]

    def prompt(self, example: Example) -> Prompt:
        """The prompt with the example's hints."""
        return self.builder(example).build(example.sentence, example.hints)

    @property
    def settings(self) -> dict[str, object]:
        """What could change a prompt, by direction and unit, of those that were built."""
        return {"-".join(key): builder.settings for key, builder in sorted(self._builders.items())}


def tokens_of(
    prompts: ExamplePrompts, examples: Sequence[Example], cutoff: int, show: bool = True
) -> tuple[TokenTable, int]:
    """The tokens of the examples that have at most `cutoff` of them and fit the model's window, and how many have more.

    An answer is on one line with the prompt's look-alikes for control tokens, and ends with the token at which the
    model stops. Raises UserError if no example is left or the model has no such token.
    """
    longest = min(cutoff, prompts.llm.context_length)
    tokens = TokenTable(_shorter(prompts, examples, longest, show))
    if not tokens:
        raise UserError(
            f"none of {len(examples)} examples has at most {longest} tokens: give a larger training.cutoff or shorter "
            "examples"
        )
    return tokens, len(examples) - len(tokens)


def _shorter(prompts: ExamplePrompts, examples: Sequence[Example], longest: int, show: bool) -> Iterator[Tokens]:
    """The tokens of the examples that have at most `longest`."""
    llm = prompts.llm
    guard = Guard(llm.reserved)
    bar = progress(len(examples), "examples", "reading examples", show=show)
    for example in examples:
        prompt, answer = prompts.prompt(example), guard.neutral(one_line(example.pair.target))
        asked, whole = llm.encode(prompt), llm.encode(prompt, answer)
        if whole[: len(asked)] != asked:  # the first word of the answer joined the prompt's last token
            whole = (*asked, *llm.tokenizer(answer, add_special_tokens=False)["input_ids"])
        if len(whole) < longest:
            yield Tokens((*whole, _end(llm, prompt)), len(asked), example.pair.direction)
        bar.update()
    bar.close()


def _end(llm: TransformersLLM, prompt: Prompt) -> int:
    """The token that ends an answer."""
    end: int | None = end_of_turn(llm.tokenizer) if prompt.chat else llm.tokenizer.eos_token_id
    if end is None:
        raise UserError(f"the tokenizer of {llm.id} has no end-of-text token, which answers must end with")
    return end


def micro_batches(rows: Iterable[int], tokens: Sequence[Tokens], most: int, budget: int) -> list[list[int]]:
    """Rows in parts of similar length, the longest first: `most` at a time or, if `budget` is not 0, as many as have so
    many tokens together with their padding (at least one)."""
    order = sorted(rows, key=lambda row: (-len(tokens[row]), row))
    made: list[list[int]] = []
    for row in order:
        room = max(1, budget // len(tokens[made[-1][0]])) if budget and made else most
        if made and len(made[-1]) < room:
            made[-1].append(row)
        else:
            made.append([row])
    return made


def collated(tokens: Sequence[Tokens], pad: int) -> Batch:
    """A batch of those examples."""
    ids, mask = padded([own.ids for own in tokens], pad)
    rows = np.repeat(np.arange(len(tokens)), [own.answers for own in tokens])
    columns = np.concatenate([np.arange(own.response, len(own)) for own in tokens])
    wanted = ids[rows, columns]
    return Batch(*map(torch.from_numpy, (ids, mask, rows, columns - 1, wanted)))
