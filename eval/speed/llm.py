"""New tokens per second, load time, memory and disk of the engines of a language model, compared in one run.

    python -m eval.speed.llm [--engines generate,transformers,llamacpp] [--batch 1,16] [--adapter auto]
    python -m eval.speed.llm --dtype float32 --output FILE.json

The engines are transformers' own `generate`, one prompt at a time; our batched decoder on transformers; and llama.cpp,
which reads the model's GGUF file. All read the same translation prompts and stop at the same ends: few-shot prompts,
whose instruction with examples all of them share, or with an adapter those that it was trained on. They compute in
turn, each batch size of each engine in a process of its own that has answered a few prompts before: our engines
remember the shared instruction, as in a long text. The load time is counted from the first import on, with the files in
the system's memory; a process's memory is its peak, with the pages of the files that it read. Beside the tokens per
second stand those per second of the processor's time, which other programs disturb less.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from eval.speed.engines import DECODER, ENGINES, GENERATE, System, Worker
from eval.speed.timing import add_output_option, by_turns, write_results
from prompts.builder import PromptBuilder
from rag_mt.base.console import OK, Parser, add_model_options, positive, run
from rag_mt.base.defaults import DEFAULT_ADAPTER, DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.sizes import size
from rag_mt.base.types import Prompt, Sentence

SOURCE, TARGET = "de", "en"
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimddp", "bf16")
"""Names in /proc/cpuinfo of the instructions that decide how quickly a processor multiplies matrices."""


def translation_prompts(number: int, wrapper: str = "few-shot") -> list[Prompt]:
    """Prompts for German sentences of the sample corpus, evenly spread: sentences of all kinds."""
    lines = (SAMPLE_CORPUS / f"{SOURCE}.txt").read_text(encoding="utf-8").splitlines()
    builder = PromptBuilder(SOURCE, TARGET, wrapper)
    step = max(1, len(lines) // number)
    return [builder.build(Sentence(line, SOURCE), ()) for line in lines[::step][:number]]


def batch_sizes(value: str) -> list[int]:
    """The sizes in a list such as `1,16`."""
    sizes = [int(part) if part.strip().isdecimal() else 0 for part in value.split(",")]
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is no list of batch sizes such as 1,16")
    return sizes


def engine_names(value: str) -> list[str]:
    """The engines in a list such as `transformers,llamacpp`."""
    names = [name.strip() for name in value.split(",")]
    if unknown := [name for name in names if name not in ENGINES]:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is no engine: choose from {','.join(ENGINES)}")
    return names


def adapter_of(name: str | None, llm: str) -> str | None:
    """The folder of an adapter: the path, or for `auto` the one that ships. Raises UserError if none ships for the
    model."""
    from rag_mt.translation.opening import chosen_adapter

    folder = chosen_adapter(name, llm, SOURCE, TARGET)
    if name == DEFAULT_ADAPTER and folder is None:
        raise UserError(f"no adapter comes with {llm}: leave out --adapter, or name a folder")
    return folder


def processor() -> str:
    """The processor's cores that may be used and those of its instructions that matter here."""
    from rag_mt.llm.llamacpp_server import available_cores

    try:
        told = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        told = []
    known = [name for name in INSTRUCTIONS if name in told]
    return f"{available_cores()} cores of {platform.machine()}{' with ' if known else ''}{' '.join(known)}"


def ratios(rows: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> list[float | None]:
    """The speed of a row of results against `generate`, against the decoder at the same batch size, and against the
    decoder at the batch size at which it was fastest; None where that was not measured."""
    decoder = [other for other in rows if other["engine"] == ENGINES[DECODER]]
    groups = (
        [other for other in rows if other["engine"] == ENGINES[GENERATE]],
        [other for other in decoder if other["batch"] == row["batch"]],
        decoder,
    )
    best = [max((other["tokens_per_second"] for other in group), default=0) for group in groups]
    return [row["tokens_per_second"] / rate if rate else None for rate in best]


def report(options: argparse.Namespace) -> int:
    """Time all in turn; print medians, ratios, and how many answers are those of the first system."""
    adapter = adapter_of(options.adapter, options.llm)
    limit, wrapper = options.max_new_tokens, "few-shot"
    if adapter:
        from rag_mt.models.adapter_files import trained_wrapper

        wrapper = trained_wrapper(adapter) or wrapper
    prompts = translation_prompts(options.prompts, wrapper)
    systems = [
        System(engine, batch, options.llm, adapter, options.device, options.dtype)
        for engine in options.engines
        for batch in ([1] if engine == GENERATE else options.batch)
    ]
    with ExitStack() as stack:
        workers = {str(system): stack.enter_context(Worker(system, prompts, limit)) for system in systems}
        rounds = by_turns({name: worker.answer for name, worker in workers.items()}, options.rounds)
        peaks = {name: worker.peak() for name, worker in workers.items()}
    first = rounds[str(systems[0])][1]
    rows: list[dict[str, Any]] = []
    for system in systems:
        (seconds, answers), loaded = rounds[str(system)], workers[str(system)].loaded
        tokens = sum(answer.tokens for answer in answers)
        rows.append(
            {
                "engine": ENGINES[system.engine],
                "batch": system.batch,
                "dtype": loaded.dtype,
                "instructions": loaded.instructions,
                "tokens_per_second": round(tokens / statistics.median(seconds), 2),
                "tokens": tokens,
                "tokens_per_cpu_second": round(tokens / statistics.median(workers[str(system)].cpu_seconds), 2),
                "seconds": [round(value, 3) for value in seconds],
                "as_first": sum(a.text == b.text for a, b in zip(answers, first, strict=True)),
                "load_seconds": round(loaded.seconds, 2),
                "peak_bytes": peaks[str(system)],
                "file_bytes": loaded.file_bytes,
            }
        )
    told = workers[str(systems[0])].loaded
    length = round(statistics.mean(told.prompt_tokens))
    print(
        f"{options.llm} on {told.device}, {processor()}; {len(prompts)} {wrapper} prompts of {length} tokens, "
        f"{'the adapter ' + Path(adapter).name + ', ' if adapter else ''}at most {limit} new ones, median of "
        f"{options.rounds} rounds"
    )
    _show(rows, len(prompts))
    facts: dict[str, Any] = {"llm": options.llm.removeprefix("embedded:"), "device": told.device}
    facts |= {"dtype": " and ".join(dict.fromkeys(row["dtype"] for row in rows)), "machine": processor()}
    facts |= {"wrapper": wrapper, "adapter": Path(adapter).name if adapter else None, "prompts": len(prompts)}
    facts |= {"prompt_tokens": length, "max_new_tokens": limit}
    write_results(options.output, "python -m eval.speed.llm", facts, rows)
    return OK


def _show(rows: Sequence[Mapping[str, Any]], prompts: int) -> None:
    """Print a table of results."""
    heads = f"{'generate':>10s}{'decoder':>9s}{'its best':>10s}{'load':>9s}{'memory':>9s}{'files':>9s}"
    print(f"{'':32s}{'weights':>10s}{'tokens/s':>10s}{'by CPU':>8s}{heads}  answers as the first")
    for row in rows:
        name = f"{row['engine']}, batch {row['batch']}"
        shown = ["-" if ratio is None else f"{ratio:.2f} x" for ratio in ratios(rows, row)]
        print(
            f"{name:32s}{row['dtype']:>10s}{row['tokens_per_second']:10.1f}{row['tokens_per_cpu_second']:8.1f}"
            f"{shown[0]:>10s}{shown[1]:>9s}{shown[2]:>10s}{row['load_seconds']:7.1f} s"
            f"{size(row['peak_bytes']):>9s}{size(row['file_bytes']):>9s}  {row['as_first']} of {prompts}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point."""
    parser = Parser(
        prog="python -m eval.speed.llm",
        description=__doc__,
        examples=[
            "",
            "--adapter auto --dtype float32",
            "--engines generate,transformers --batch 1,64 --device cuda",
        ],
    )
    add = parser.add_argument
    add("--llm", default=DEFAULT_LLM, metavar="ID", help="language model")
    engines_help = f"what computes it (default: {','.join(ENGINES)})"
    add("--engines", type=engine_names, default=list(ENGINES), metavar="NAME,NAME", help=engines_help)
    add("--batch", type=batch_sizes, default=[1, 16], metavar="N,N", help="batch sizes (default: 1,16)")
    add("--adapter", metavar="DIR", help=f"a LoRA adapter: a folder, or {DEFAULT_ADAPTER} for the one that ships")
    add("--prompts", type=positive, default=16, metavar="N", help="prompts of each round")
    add("--rounds", type=positive, default=3, metavar="N", help="times that each is measured")
    add("--max-new-tokens", type=positive, default=64, metavar="N", help="longest answer")
    add_model_options(parser)
    add_output_option(parser)
    return run(report, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
