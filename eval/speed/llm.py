"""New tokens per second of our batched generation and of transformers' own `generate`, one prompt at a time.

    python -m eval.speed.llm [--llm ID] [--batch 1,16] [--prompts 16] [--rounds 3] [--dtype auto]

Both read the same translation prompts (an instruction with examples that all of them share, then a sentence) with
the same weights in the same number format, and stop at the same ends. They run in turn; loading is left out, and
each of our runs computes the shared instruction anew.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import resources
from typing import Any

import torch
from transformers import StoppingCriteria

from prompts.builder import PromptBuilder
from rag_mt.base.console import Parser, positive, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.types import Completion, Prompt, Sentence
from rag_mt.llm import TransformersLLM
from rag_mt.llm.generation import first_stop
from rag_mt.llm.queue import complete
from rag_mt.models.loading import LoadedLLM, load_llm


class StopAt(StoppingCriteria):
    """Ends `generate` for one prompt of `length` tokens as soon as its answer holds a stop string."""

    def __init__(self, tokenizer: Any, stop: Sequence[str], length: int) -> None:
        self.tokenizer, self.stop, self.length = tokenizer, stop, length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        text = self.tokenizer.decode(input_ids[0, self.length :])
        return torch.tensor([first_stop(text, self.stop) >= 0], device=input_ids.device)


def one_by_one(loaded: LoadedLLM, prompts: Sequence[Prompt], limit: int) -> list[Completion]:
    """The baseline: `model.generate` for each prompt."""
    model: Any = loaded.model
    tokenizer: Any = loaded.tokenizer
    completions = []
    for prompt in prompts:
        encoded = tokenizer(prompt.text, return_tensors="pt").to(model.device)
        length = encoded.input_ids.shape[1]
        stopping = [StopAt(tokenizer, prompt.stop, length)]
        ids = model.generate(**encoded, max_new_tokens=limit, stopping_criteria=stopping)[0, length:].tolist()
        text = tokenizer.decode(ids, skip_special_tokens=True)
        at = first_stop(text, prompt.stop)
        completions.append(Completion(text[:at] if at >= 0 else text, len(ids), at >= 0))
    return completions


def _batched(loaded: LoadedLLM, size: int, prompts: Sequence[Prompt], limit: int) -> list[Completion]:
    """Our answers by a back-end that has nothing computed yet."""
    return complete(TransformersLLM(loaded, size), prompts, limit)


def translation_prompts(number: int) -> list[Prompt]:
    """Few-shot prompts for German sentences of the sample corpus."""
    file = resources.files("rag_mt") / "sample_corpus" / "de.txt"
    lines = file.read_text(encoding="utf-8").splitlines()
    builder = PromptBuilder("de", "en", "few-shot")
    step = max(1, len(lines) // number)  # sentences of all kinds
    return [builder.build(Sentence(line, "de"), ()) for line in lines[::step][:number]]


def batch_sizes(value: str) -> list[int]:
    """The sizes in a list such as `1,16`."""
    try:
        sizes = [int(part) for part in value.split(",")]
    except ValueError:
        sizes = []
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is no list of batch sizes such as 1,16")
    return sizes


def report(options: argparse.Namespace) -> int:
    """Time all in turn; print medians, ratios and how many answers are the baseline's."""
    loaded = load_llm(options.llm, device=options.device, dtype=options.dtype)
    prompts = translation_prompts(options.prompts)
    if not prompts:
        raise UserError("the sample corpus holds no sentences: install rag-mt again")
    limit = options.max_new_tokens
    systems: dict[str, Callable[[], list[Completion]]] = {
        "generate, one by one": partial(one_by_one, loaded, prompts, limit)
    }
    for size in options.batch:
        systems[f"ours, batch {size}"] = partial(_batched, loaded, size, prompts, limit)
    one_by_one(loaded, prompts[:1], 4)
    complete(TransformersLLM(loaded, options.batch[-1]), prompts, 4)
    answers: dict[str, list[Completion]] = {}
    rates: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(options.rounds):
        for name, answer in systems.items():
            begin = time.perf_counter()
            answers[name] = answer()
            rates[name].append(sum(c.tokens for c in answers[name]) / (time.perf_counter() - begin))
    baseline, *_ = systems
    llm = TransformersLLM(loaded)
    lengths = [llm.count_tokens(prompt) for prompt in prompts]
    dtype = str(loaded.dtype).removeprefix("torch.")
    print(
        f"{llm.id}, {dtype} on {loaded.device} with {torch.get_num_threads()} threads, "
        f"{len(prompts)} prompts of {statistics.mean(lengths):.0f} tokens, at most {limit} new ones, "
        f"median of {options.rounds} rounds"
    )
    slow = statistics.median(rates[baseline])
    for name, found in answers.items():
        rate = statistics.median(rates[name])
        same = sum(a.text == b.text for a, b in zip(found, answers[baseline], strict=True))
        print(
            f"{name:22s}{rate:8.1f} tokens/s {rate / slow:6.2f} x  {sum(c.tokens for c in found):5d} tokens, "
            f"{same} of {len(found)} answers as one by one"
        )
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(prog="python -m eval.speed.llm", description=__doc__)
    parser.add_argument("--llm", default=DEFAULT_LLM)
    parser.add_argument("--batch", type=batch_sizes, default=[1, 16], help="batch sizes, such as 1,16")
    parser.add_argument("--prompts", type=positive, default=16)
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--max-new-tokens", type=positive, default=64)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
