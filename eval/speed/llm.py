"""New tokens per second of our batched generation and of transformers' own `generate`, one prompt at a time.

    python -m eval.speed.llm [--llm ID] [--batch 1,16] [--prompts 16] [--rounds 3] [--dtype auto] [--output FILE.json]

Both read the same translation prompts (an instruction with examples that all of them share, then a sentence) with
the same weights in the same number format, and stop at the same ends. They run in turn; loading is left out, and
each of our runs computes the shared instruction anew.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from transformers import StoppingCriteria

from eval.speed.timing import add_output_option, by_turns, write_results
from prompts.builder import PromptBuilder
from rag_mt.base.console import OK, Parser, add_model_options, positive, run
from rag_mt.base.defaults import DEFAULT_LLM
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.types import Completion, Prompt, Sentence
from rag_mt.llm.generation import first_stop
from rag_mt.llm.queue import complete
from rag_mt.llm.transformers_llm import TransformersLLM
from rag_mt.models.loading import LoadedLLM, load_llm

GENERATE, OURS = "Hugging Face generate", "rag_mt"
"""The engines that are compared."""


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


def batched(loaded: LoadedLLM, size: int, prompts: Sequence[Prompt], limit: int) -> list[Completion]:
    """Our answers by a back-end that has nothing computed yet."""
    return complete(TransformersLLM(loaded, size), prompts, limit)


def translation_prompts(number: int) -> list[Prompt]:
    """Few-shot prompts for German sentences of the sample corpus, evenly spread: sentences of all kinds."""
    lines = (SAMPLE_CORPUS / "de.txt").read_text(encoding="utf-8").splitlines()
    builder = PromptBuilder("de", "en", "few-shot")
    step = max(1, len(lines) // number)
    return [builder.build(Sentence(line, "de"), ()) for line in lines[::step][:number]]


def batch_sizes(value: str) -> list[int]:
    """The sizes in a list such as `1,16`."""
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in value.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is no list of batch sizes such as 1,16")
    return sizes


def report(options: argparse.Namespace) -> int:
    """Time all in turn; print medians, ratios and how many answers are the baseline's."""
    loaded = load_llm(options.llm, device=options.device, dtype=options.dtype)
    prompts, limit = translation_prompts(options.prompts), options.max_new_tokens
    baseline = "generate, one by one"
    systems = {baseline: partial(one_by_one, loaded)}
    systems |= {f"ours, batch {size}": partial(batched, loaded, size) for size in options.batch}
    engines = dict(zip(systems, [(GENERATE, 1), *((OURS, size) for size in options.batch)], strict=True))
    one_by_one(loaded, prompts[:1], 4)
    batched(loaded, options.batch[-1], prompts, 4)
    rounds = by_turns({name: partial(answer, prompts, limit) for name, answer in systems.items()}, options.rounds)
    llm = TransformersLLM(loaded)
    length = statistics.mean(llm.count_tokens(prompt) for prompt in prompts)
    dtype = str(loaded.dtype).removeprefix("torch.")
    print(
        f"{llm.id}, {dtype} on {loaded.device} with {torch.get_num_threads()} threads, "
        f"{len(prompts)} prompts of {length:.0f} tokens, at most {limit} new ones, "
        f"median of {options.rounds} rounds"
    )
    tokens = {name: sum(answer.tokens for answer in answers) for name, (_, answers) in rounds.items()}
    rates = {name: tokens[name] / statistics.median(seconds) for name, (seconds, _) in rounds.items()}
    for name, (_, answers) in rounds.items():
        same = sum(a.text == b.text for a, b in zip(answers, rounds[baseline][1], strict=True))
        print(
            f"{name:22s}{rates[name]:8.1f} tokens/s {rates[name] / rates[baseline]:6.2f} x  {tokens[name]:5d} tokens, "
            f"{same} of {len(answers)} answers as one by one"
        )
    results = [
        {
            "engine": engine,
            "batch": size,
            "tokens_per_second": round(rates[name], 2),
            "tokens": tokens[name],
            "seconds": [round(value, 3) for value in rounds[name][0]],
        }
        for name, (engine, size) in engines.items()
    ]
    facts: dict[str, Any] = {"llm": llm.id.removeprefix("embedded:"), "dtype": dtype, "device": str(loaded.device)}
    facts |= {"prompts": len(prompts), "prompt_tokens": round(length), "max_new_tokens": limit}
    write_results(options.output, "python -m eval.speed.llm", facts, results)
    return OK


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.llm",
        description=__doc__,
        examples=["", "--batch 1,16,64 --device cuda"],
    )
    parser.add_argument("--llm", default=DEFAULT_LLM, metavar="ID", help="language model")
    parser.add_argument("--batch", type=batch_sizes, default=[1, 16], metavar="N,N", help="batch sizes (default: 1,16)")
    parser.add_argument("--prompts", type=positive, default=16, metavar="N", help="prompts of each round")
    parser.add_argument("--rounds", type=positive, default=3, metavar="N", help="times that each is measured")
    parser.add_argument("--max-new-tokens", type=positive, default=64, metavar="N", help="longest answer")
    add_model_options(parser)
    add_output_option(parser)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
