"""A language model in this process: batched greedy generation that computes shared instructions once."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import torch

from rag_mt.base.errors import UserError
from rag_mt.base.fingerprints import settings_hash
from rag_mt.base.types import Completion, Prompt, Watch
from rag_mt.llm.batching import EncodedPrompt, longest_first, share_unmarked, shared_tokens
from rag_mt.llm.chat import chat_tuned, control_tokens, render_chat
from rag_mt.llm.decoding import Newcomers, Prefix, Row, compute_prefix, decode, once
from rag_mt.llm.stopping import AnswerText
from rag_mt.models.adapters import trained_wrapper
from rag_mt.models.loading import LoadedLLM

log = logging.getLogger("rag_mt")

ALGORITHM = 7  # raised whenever the decoding below may give other outputs
REMEMBERED = 4  # shared instructions whose keys and values are kept between calls
SUPPORTED_LAYERS = frozenset({"full_attention", "sliding_attention"})
DEFAULT_CONTEXT, LARGEST_CONTEXT = 4096, 131_072
"""Tokens: of models that do not say how many they take, and of those that claim a fancy number."""


class TransformersLLM:
    """A loaded causal language model as a `LanguageModel`; decoding is greedy.

    Equal calls give equal outputs, whatever was asked before. In float32 a prompt's output does not depend on the
    other prompts of its call; in bfloat16 and float16 it may, through rounding, which is why `batch_size`
    is part of the `fingerprint`.
    """

    def __init__(self, loaded: LoadedLLM, batch_size: int = 16, adapter: str | None = None) -> None:
        """`adapter` names what is merged into `loaded`; prompts are chosen by it.

        Raises UserError if `batch_size` is below 1 or the model has layers other than attention.
        """
        if batch_size < 1:
            raise UserError(f"batch size {batch_size} is not possible: give 1 or more")
        self.model: Any = loaded.model
        self.tokenizer: Any = loaded.tokenizer
        config = self.model.config.get_text_config(decoder=True)
        unknown = set(getattr(config, "layer_types", None) or ()) - SUPPORTED_LAYERS
        if unknown:
            raise UserError(
                f"{loaded.name} has {', '.join(sorted(unknown))} layers, which cannot be batched here: choose a model "
                "with full or sliding-window attention only, or serve it and name it openai:MODEL@URL"
            )
        self.id = loaded.name
        self.batch_size, self.adapter = batch_size, adapter
        self.trained_wrapper = trained_wrapper(adapter) if adapter else None
        self.context_length = min(getattr(config, "max_position_embeddings", 0) or DEFAULT_CONTEXT, LARGEST_CONTEXT)
        self.reserved = control_tokens(self.tokenizer)
        self.has_chat_template = chat_tuned(self.tokenizer, config, loaded.folder)
        self.fingerprint = settings_hash(
            ["transformers", ALGORITHM, loaded.fingerprint, str(loaded.dtype), loaded.device.type, batch_size]
        )
        ends = self.model.generation_config.eos_token_id
        self._ends = frozenset(ends if isinstance(ends, list) else [] if ends is None else [ends])
        self._pad: int = self.tokenizer.pad_token_id or 0
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()
        self._lock = threading.Lock()

    def count_tokens(self, prompt: Prompt) -> int:
        """The number of tokens the prompt takes, begin-of-text and chat template included."""
        return len(self.encode(prompt))

    def encode(self, prompt: Prompt, answer: str = "") -> tuple[int, ...]:
        """The tokens of the prompt as generation reads them, with an answer right behind it."""
        return self._encode(0, prompt, answer).ids

    def generate(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> list[Completion]:
        """One completion per prompt, in order; `tokens` counts the end-of-text token too.

        `watch` is asked after each token of an answer, and an answer that it gives up gets no further one. After
        a lack of memory it is told of the same answers from their beginning, and of one that leaves a loop from there.

        A prompt that fills the model's window is answered with an empty unfinished completion and a warning, and no
        answer grows beyond the window. An answer that is stuck in a loop, or ends and has one in a line, goes on once
        after the loop's first round with the likeliest other token, and says no run of five tokens again from there on.
        Where a batch does not fit into memory, this call goes on with batches of half its size. Raises UserError if not
        even one prompt fits.
        """
        waiting = longest_first(self._encode_all(prompts))

        def more(free: int) -> list[EncodedPrompt]:
            taken = waiting[:free]
            del waiting[:free]
            return taken

        done = dict(filter(None, self._answers(more, dict(enumerate(prompts)), max_new_tokens, watch)))
        return [done.get(i, Completion("", 0, False)) for i in range(len(prompts))]

    def answer(
        self, more: Callable[[int], Sequence[Prompt]], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> Iterator[tuple[int, Completion]]:
        """Completions of prompts that come on the way, each as soon as it is there, with the number of its prompt.

        `more(n)` is asked for up to n prompts whenever there is room in the batch, and must not wait for any. Prompts
        are numbered from 0 as they come. It ends when all are answered and no more come. All else is as in `generate`;
        closing the iterator ends the computation.
        """
        for item in self.steps(more, max_new_tokens, watch):
            if item is not None:
                yield item

    def steps(
        self, more: Callable[[int], Sequence[Prompt]], max_new_tokens: int = 256, watch: Watch | None = None
    ) -> Iterator[tuple[int, Completion] | None]:
        """As `answer`, with a None after each token, so that several models can work by turns."""
        prompts: dict[int, Prompt] = {}  # those that are not answered
        refused: list[int] = []
        numbers = count()

        def encoded(free: int) -> list[EncodedPrompt]:
            fitting: list[EncodedPrompt] = []
            while not fitting and (come := {n: p for p, n in zip(more(free), numbers, strict=False)}):
                prompts.update(come)
                fitting = self._encode_all(list(come.values()), min(come))
                refused.extend(come.keys() - {p.index for p in fitting})
            return fitting

        for item in self._answers(encoded, prompts, max_new_tokens, watch):
            if item is not None:
                del prompts[item[0]]
            yield item
            yield from _empty(refused)
        yield from _empty(refused)

    def _answers(
        self,
        more: Callable[[int], Sequence[EncodedPrompt]],
        prompts: Mapping[int, Prompt],
        limit: int,
        watch: Watch | None,
    ) -> Iterator[tuple[int, Completion] | None]:
        """The completions of the encoded prompts that `more` gives, as they end, and a None after each token.

        Answers that are stuck, and those that a lack of memory has interrupted, are begun again before others.
        """
        room = self.batch_size
        again: list[_Asked] = []
        going: list[_Asked] = []
        over: list[tuple[int, Completion]] = []

        def admit(free: int) -> Newcomers:
            fresh: list[_Asked] = []
            while not fresh:
                taken = again[:free]
                del again[:free]
                taken += [_Asked(p) for p in more(free - len(taken))] if free > len(taken) else []
                if not taken:
                    break
                for asked in taken:
                    number = asked.prompt.index
                    asked.row = row = self._row(asked.prompt, prompts[number], limit, asked.before)
                    if row.limit < 1 or (watch and not watch(number, row.answer.text)):
                        over.append((number, _completion(row)))
                    else:
                        fresh.append(asked)
            going.extend(fresh)
            return [(asked.row, self._prefix(asked.prompt.prefix)) for asked in fresh]

        def settle() -> list[tuple[int, Completion]]:
            for asked in going:
                if watch:
                    asked.tell(watch)
                if asked.row.stuck and not asked.row.unwanted and asked.before is None:
                    again.append(_Asked(asked.prompt, asked.row))
                elif asked.row.done:
                    over.append((asked.prompt.index, _completion(asked.row)))
            going[:] = [asked for asked in going if not asked.row.done]
            ended = over[:]
            over.clear()
            return ended

        while True:
            try:
                for _ in decode(self.model, admit, room, self._ends, self._pad):
                    yield from settle()
                    yield None
                yield from settle()
                return
            except RuntimeError as error:
                if not _is_lack_of_memory(error):
                    raise
                if len(going) == 1:
                    raise UserError(self._too_large(going[0].prompt)) from error
            room = (len(going) + 1) // 2
            log.warning("%d prompts at once do not fit into memory: going on with %d at once", len(going), room)
            self._make_room()
            again[:0] = going
            going.clear()

    def stream(self, prompt: Prompt, max_new_tokens: int = 256) -> Generator[str, None, Completion]:
        """Pieces of the completion as they are decoded: whole characters, and never part of a stop string.

        The return value is the completion that `generate([prompt])` gives, save that a loop stays in it, and ends an
        answer that does not end by itself: what was given out cannot be taken back. Closing the generator ends the
        computation. Raises UserError if the prompt does not fit into memory.
        """
        fitting = self._encode_all([prompt])
        if not fitting:
            return Completion("", 0, False)
        encoded, shown = fitting[0], 0
        row = self._row(encoded, prompt, max_new_tokens)
        if row.limit < 1:
            return _completion(row)
        try:
            alone = once([(row, self._prefix(encoded.prefix))])
            for _ in decode(self.model, alone, 1, self._ends, self._pad):
                safe = len(row.answer.text) if row.done else row.answer.safe
                if safe > shown:
                    yield row.answer.text[shown:safe]
                    shown = safe
        except RuntimeError as error:
            if not _is_lack_of_memory(error):
                raise
            raise UserError(self._too_large(encoded)) from error
        return _completion(row)

    def _encode_all(self, prompts: Sequence[Prompt], first: int = 0) -> list[EncodedPrompt]:
        """The tokens of prompts that are numbered from `first`, without those that leave no room for an answer."""
        fitting = []
        for encoded in (self._encode(i, prompt) for i, prompt in enumerate(prompts, first)):
            if 0 < len(encoded.ids) < self.context_length:
                fitting.append(encoded)
            else:
                log.warning(
                    "prompt %d of the call has %d tokens and gets no answer: %s takes 1 to %d",
                    *(encoded.index + 1, len(encoded.ids), self.id, self.context_length - 1),
                )
        return share_unmarked(fitting)

    def _encode(self, index: int, prompt: Prompt, answer: str = "") -> EncodedPrompt:
        text, shared = render_chat(self.tokenizer, prompt) if prompt.chat else (prompt.text, prompt.shared)
        # A rendered template brings its own begin-of-text token; a completion prompt may, and needs it once.
        begin = self.tokenizer.bos_token
        special = not prompt.chat and not (begin and text.startswith(begin))
        encoding = self.tokenizer(text + answer, add_special_tokens=special, return_offsets_mapping=True)
        count = shared_tokens(encoding["offset_mapping"], text, shared) if shared else 0
        return EncodedPrompt(index, tuple(encoding["input_ids"]), count)

    def _row(self, encoded: EncodedPrompt, prompt: Prompt, limit: int, before: Row | None = None) -> Row:
        """A row that begins with its prompt, or with what a stuck one has before its loop's second round."""
        made, barred = (before.way_out() if before else None) or ([], None)
        answer = AnswerText(self._text, prompt.stop)
        for token in made:
            answer.push(token)
        limit = min(limit, self.context_length - len(encoded.ids))
        return Row((*encoded.ids, *made), limit, answer, made, barred, prompt.text)

    def _text(self, ids: list[int]) -> str:
        text: str = self.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _prefix(self, ids: tuple[int, ...]) -> Prefix | None:
        """The keys and values of shared tokens, computed once while they are remembered.

        They are always computed alone, so that remembering changes the time and not the numbers.
        """
        if not ids:
            return None
        with self._lock:
            prefix = self._prefixes.pop(ids, None) or compute_prefix(self.model, ids)
            self._prefixes[ids] = prefix
            while len(self._prefixes) > REMEMBERED:
                self._prefixes.popitem(last=False)
        return prefix

    def _make_room(self) -> None:
        with self._lock:
            self._prefixes.clear()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _too_large(self, prompt: EncodedPrompt) -> str:
        return (
            f"{self.id} ran out of memory on one prompt of {len(prompt.ids)} tokens: use dtype bfloat16, quantization "
            "4bit (CUDA), a smaller model or device cpu"
        )


@dataclass(eq=False)
class _Asked:
    """A prompt whose answer is wanted, its row, and the stuck one that this row leaves, if any."""

    prompt: EncodedPrompt
    before: Row | None = None
    row: Row = field(init=False)

    def tell(self, watch: Watch) -> None:
        """Tell of a new token; the row is done if nobody wants more of it."""
        row = self.row
        if not watch(self.prompt.index, row.answer.text if row.done else row.answer.text[: row.answer.safe]):
            row.done = row.unwanted = True


def _empty(numbers: list[int]) -> Iterator[tuple[int, Completion]]:
    """Empty unfinished completions of these prompts, which are then forgotten."""
    while numbers:
        yield numbers.pop(0), Completion("", 0, False)


def _is_lack_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _completion(row: Row) -> Completion:
    return Completion(row.answer.text, row.new, row.ended or row.answer.stopped, row.answer.stopped)
