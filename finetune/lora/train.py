"""The training of a LoRA adapter: examples as tokens, batches of them, steps. What is drawn depends on the seed and the
step alone."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from finetune.lora.config import Config
from finetune.lora.data import Data
from finetune.lora.examples import Example
from finetune.lora.model import Batch, open_trainable
from finetune.lora.vocabulary import Vocabulary
from finetune.training.sampling import rows_of
from finetune.training.trainer import Group, Trainer
from prompts.builder import PromptBuilder
from prompts.safety import Guard, one_line
from rag_mt.base.console import progress
from rag_mt.base.errors import UserError
from rag_mt.base.files import settings_hash
from rag_mt.base.types import Prompt
from rag_mt.llm.prompt_tokens import end_of_turn
from rag_mt.llm.transformers_llm import TransformersLLM

ROW = 256
"""Tokens in a row of a batch: attention takes longer in longer rows, and shorter ones have more padding."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of an example: the prompt's, then from `response` on those of the answer and the end of text."""

    ids: array[int]  # 4 bytes a token, where a tuple of Python's numbers takes about 36
    response: int
    direction: str

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def answers(self) -> int:
        """The number of tokens that are learnt."""
        return len(self.ids) - self.response


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
        """The prompt with the example's hints and context."""
        return self.builder(example).build(example.pair.sentence, example.hints, context=example.context)

    @property
    def settings(self) -> dict[str, object]:
        """What could change a prompt, by direction and unit, of those that were built."""
        return {"-".join(key): builder.settings for key, builder in sorted(self._builders.items())}


def answered(llm: TransformersLLM, prompt: Prompt, answer: str) -> tuple[Sequence[int], int]:
    """The token ids of a prompt with its answer, and how many are the prompt's."""
    asked, whole = llm.encode(prompt), llm.encode(prompt, answer)
    if whole[: len(asked)] != asked:  # the first word of the answer joined the prompt's last token
        whole = (*asked, *llm.tokenizer(answer, add_special_tokens=False)["input_ids"])
    return whole, len(asked)


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
        ids, response = answered(llm, prompt, answer)
        end = end_of_turn(llm.tokenizer) if prompt.chat else llm.tokenizer.eos_token_id
        if end is None:
            raise UserError(f"the tokenizer of {llm.id} has no end-of-text token, which answers must end with")
        if len(ids) < longest:
            tokens.append(Tokens(array("i", (*ids, end)), response, example.pair.direction))
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
    have so many tokens together (at least one)."""
    parts: list[list[Tokens]] = []
    room = 0
    for example in sorted(examples, key=len, reverse=True):
        size = len(example) if budget else 1
        if not parts or size > room:
            parts.append([])
            room = budget or most
        parts[-1].append(example)
        room -= size
    return parts


def places(lengths: Sequence[int], width: int) -> list[tuple[int, int]]:
    """The row of each example and where in it the example begins: the longest first, each in the first row that has
    room. Rows have up to `width` tokens, or as many as the longest example; with a width of 0 one example each."""
    if not width:
        return [(row, 0) for row in range(len(lengths))]
    limit, filled, found = max(width, *lengths), list[int](), [(0, 0)] * len(lengths)
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        fits = (row for row, end in enumerate(filled) if end + lengths[number] <= limit)
        row = next(fits, len(filled))
        filled += [0] * (row == len(filled))
        found[number] = row, filled[row]
        filled[row] += lengths[number]
    return found


def collated(tokens: Sequence[Tokens], pad: int, width: int = ROW) -> Batch:
    """A batch of those examples, several in a row, as `places` has them; the responses are in the order of the
    examples."""
    found = places([len(example) for example in tokens], width)
    each = list(zip(tokens, found, strict=True))
    shape = 1 + max(row for row, _ in found), max(begin + len(example) for example, (_, begin) in each)
    ids, positions = np.full(shape, pad, dtype=np.int64), np.tile(np.arange(shape[1]), (shape[0], 1))
    for example, (row, begin) in each:
        ids[row, begin : begin + len(example)] = example.ids
        positions[row, begin : begin + len(example)] = np.arange(len(example))
    rows = np.repeat([row for row, _ in found], [example.answers for example in tokens])
    columns = np.concatenate([begin + np.arange(e.response, len(e)) for e, (_, begin) in each])
    return Batch(*map(torch.from_numpy, (ids, positions, rows, columns - 1, ids[rows, columns])))


LoraBatch = tuple[list[tuple[int, Batch]], int]
"""The numbered parts of a batch that this process computes, and the response tokens of the whole batch."""


class LoraTrainer(Trainer[LoraBatch]):
    """A training run of an adapter. The loss is over the response tokens of all processes."""

    shares_batches = True

    def __init__(
        self, config: Config, data: Data, output: Path, device: str = "auto", command: str = "python -m finetune.lora"
    ) -> None:
        super().__init__(output, device, command)
        self.config, self.data = config, data
        self.model = open_trainable(config, self.device_name)
        self.before = self.model.before
        training, show = config.training, self.accelerator.is_main_process
        self.prompts = ExamplePrompts(self.model.llm, training.wrapper)
        self.tokens, self.left_out = tokens_of(self.prompts, data.train, training.cutoff, show)
        self.dev, self.dev_left_out = list[Tokens](), 0
        if data.dev:
            self.dev, self.dev_left_out = tokens_of(self.prompts, data.dev, training.cutoff, show)
        self.pad: int = self.model.loaded.tokenizer.pad_token_id or 0
        self.vocabulary: Vocabulary | None = None
        if training.vocabulary:
            answers = (example.ids[example.response :] for example in self.tokens)
            self.vocabulary = Vocabulary.of(answers, training.vocabulary, self.model.responses.head.weight.shape[0])
        start = self.before and self.before["weights"]
        data_hashes = _tokens_hash(self.tokens), _tokens_hash(self.dev)
        key = settings_hash(
            [asdict(config.model), asdict(training), self.model.loaded.fingerprint, *data_hashes, start]
        )
        self.begin(training, [Group(self.model.parameters, training.learning_rate)], [self.model.adapted], key)

    @property
    def wrapper(self) -> str:
        """The shape of the prompts, such as `alpaca` (see `prompts.builder`)."""
        return self.prompts.builder(self.data.train[0]).wrapper

    def batch(self, step: int) -> LoraBatch:
        """This process's share of the batch of a step."""
        rows = rows_of(step, self.config.training.batch, len(self.tokens), self.config.training.seed)
        examples = [self.tokens[row] for row in sorted(rows)]
        parts = [(number, self._collated(part)) for number, part in self._own_parts(examples)]
        return parts, sum(example.answers for example in examples)

    def _own_parts(self, examples: Iterable[Tokens]) -> list[tuple[int, list[Tokens]]]:
        """The parts of the examples that this process computes, with their numbers."""
        parts = micro_batches(examples, self.config.training.micro, self.config.training.micro_tokens)
        return list(enumerate(parts))[self.accelerator.process_index :: self.accelerator.num_processes]

    def _collated(self, examples: Sequence[Tokens]) -> Batch:
        """A batch of those examples, several in a row if the model keeps them apart."""
        return collated(examples, self.pad, ROW if self.model.packs else 0)

    def backward(self, batch: LoraBatch) -> dict[str, float]:
        """The loss per response token of the whole batch."""
        parts, answers = batch
        total = torch.zeros((), device=self.model.loaded.device)
        for number, part in parts:
            self.seed_dropout(self.step, number)
            candidates = None
            if self.vocabulary:
                seed = hash((self.config.training.seed, self.step, number)) % 2**63
                candidates = self.vocabulary.candidates(part.wanted, seed)
            total += self.model.backward(part, answers, candidates)
        return {"loss": float(self._sum(total)) / answers}

    def loss_weight(self, batch: LoraBatch) -> float:
        """The curve shows means over response tokens."""
        return batch[1]

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum of all processes' tensors."""
        summed: torch.Tensor = self.accelerator.reduce(tensor, "sum")
        return summed

    def evaluate(self) -> dict[str, float]:
        """The loss per response token of the development examples: `dev`, and by direction where there are several."""
        directions = sorted({example.direction for example in self.dev})
        sums = torch.zeros(2, len(directions), device=self.model.loaded.device)
        self.set_training(False)
        for _, examples in self._own_parts(self.dev):
            losses = self.model.losses(self._collated(examples))
            for example, loss in zip(examples, losses.split([e.answers for e in examples]), strict=True):
                sums[:, directions.index(example.direction)] += torch.stack([loss.sum(), loss.new_tensor(len(loss))])
        loss, count = self._sum(sums).double().cpu()
        scores = {"dev": loss.sum() / count.sum()} if directions else {}
        if len(directions) > 1:
            scores |= dict(zip(directions, loss / count, strict=True))
        return {name: round(float(value), 4) for name, value in scores.items()}

    def write(self, folder: Path) -> Mapping[str, Any]:
        """The adapter; its facts name folders, but not where they lie."""
        self.model.save(folder)
        model, training = self.config.model, self.config.training
        start = Path(model.start).name
        return {
            "settings": {"model": asdict(replace(model, start=start)), "training": asdict(training)},
            "base_fingerprint": self.model.loaded.fingerprint,
            "dtype": str(self.model.loaded.dtype).removeprefix("torch."),
            **self.data.facts,
            "wrapper": self.wrapper,
            "examples_used": len(self.tokens),
            "examples_too_long": self.left_out,
            "dev_examples_used": len(self.dev),
            "dev_examples_too_long": self.dev_left_out,
            "tokens_per_example": round(self.mean_tokens, 1),
            "response_tokens_per_example": round(self.mean_answers, 1),
            "prompts": self.prompts.settings,
        }

    @property
    def mean_tokens(self) -> float:
        """Tokens of an example to train on."""
        return float(np.mean([len(example) for example in self.tokens]))

    @property
    def mean_answers(self) -> float:
        """Tokens of an example that are learnt."""
        return float(np.mean([example.answers for example in self.tokens]))


def _tokens_hash(examples: Sequence[Tokens]) -> str:
    digest = hashlib.sha256()
    for example in examples:
        digest.update(np.array([example.response, *example.ids], dtype=np.int64).tobytes())
    return digest.hexdigest()
