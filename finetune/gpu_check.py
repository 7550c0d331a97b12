"""What a GPU does with rag_mt: quantized loading, encoding, search with faiss-gpu and steps of LoRA tuning, each tried.

    python -m finetune.gpu_check [--llm embedded:gemma-3-270m] [--vectors 1000000]

For every part a line says what was seen: seconds, memory, an output; or why it does not work here. The exit code is 1
if a part failed. Needs a CUDA device, bitsandbytes for quantization and faiss-gpu for search.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import faiss
import numpy as np
import torch

from eval.data.vectors import CENTRES, QUERIES, SyntheticUnits, milliseconds
from finetune.lora.config import Config
from finetune.lora.data import sample_data
from finetune.lora.train import LoraTrainer
from prompts.builder import PromptBuilder
from rag_mt.base.console import OK, Parser, positive, run
from rag_mt.base.defaults import DEFAULT_ENCODER, DEFAULT_LLM
from rag_mt.base.errors import UserError
from rag_mt.base.files import SAMPLE_CORPUS
from rag_mt.base.settings import config_file
from rag_mt.base.types import Floats, Sentence
from rag_mt.llm.opening import open_llm
from rag_mt.llm.queue import complete
from rag_mt.models.errors import first_line
from rag_mt.models.loading import Quantization
from retrievers.encoders.encoder import open_encoder
from retrievers.index.build import build_index
from retrievers.index.opening import open_index

CONFIG = "lora-embedded"
QUANTIZATIONS: tuple[Quantization, ...] = ("none", "8bit", "4bit")
SOURCE = Sentence("Die Brücke über den Fluss bleibt bis zum Sommer gesperrt.", "de")
STEPS = 3
SENTENCES = 20
"""Sentences that are searched for."""
ENCODED = 2000
"""Sentences that are encoded, at most."""
FAILED = 1


@contextmanager
def measured() -> Iterator[list[str]]:
    """A list that gets, when the block ends, its seconds and peak of GPU memory as a text."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begin, costs = time.perf_counter(), list[str]()
    yield costs
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() / 2**30
    costs.append(f"{time.perf_counter() - begin:.1f} s, at most {peak:.2f} GiB")


def loading(llm: str) -> Iterator[str]:
    """Loads the language model in every number format and translates a sentence."""
    for quantization in QUANTIZATIONS:
        with measured() as costs:
            model = open_llm(llm, device="cuda", quantization=quantization, adapter=None)
            prompt = PromptBuilder(SOURCE.language, "en", "auto", llm=model).build(SOURCE, ())
            answer = complete(model, [prompt], 40)[0]
        yield f"{llm}, quantization {quantization}: {costs[0]}: {answer.text.strip()!r}"
        del model


def encoding(device: str = "cuda") -> Iterator[str]:
    """Encodes sentences on the GPU and on the CPU and compares their vectors."""
    texts = [Path(file).read_text("utf-8").splitlines() for file in sorted(SAMPLE_CORPUS.glob("*.txt"))]
    lines = [line for text in texts for line in text if line.strip()][:ENCODED]
    rates, vectors = list[float](), list[Floats]()
    for where in ("cpu", device):
        encoder = open_encoder(DEFAULT_ENCODER, where)
        encoder.encode(lines[:64], "passage")  # kernels are chosen at the first call
        begin = time.perf_counter()
        vectors.append(encoder.encode(lines, "passage"))
        rates.append(len(lines) / (time.perf_counter() - begin))
    least = float((vectors[0] * vectors[1]).sum(axis=1).min())
    yield (
        f"{DEFAULT_ENCODER}: {rates[0]:.0f} sentences/s on the CPU, {rates[1]:.0f} on the GPU, in batches by length; "
        f"least cosine of the two vectors of a sentence {least:.4f}"
    )


def searching(vectors: int) -> Iterator[str]:
    """Searches both forms of a synthetic index on the GPU and compares what is found with the CPU's hits."""
    texts = [Sentence(f"{n:0{QUERIES}d}", "en") for n in range(max(1, vectors // QUERIES))]
    rng = np.random.default_rng(2)
    for form in ("exact", "ivf"):
        with TemporaryDirectory() as folder:
            path = Path(folder) / form
            build_index(path, texts, SyntheticUnits(), retriever="phrases", language="en", form=form, show=False)
            index = open_index(path)
            rows = rng.integers(0, len(index), SENTENCES * QUERIES)
            queries = np.split(index.reconstruct(rows), SENTENCES)
            cpu_time, cpu_hits = milliseconds(index, queries, 1), index.search(np.concatenate(queries), 1)[1]
            if not index.to_gpu():
                raise UserError(f"faiss {faiss.__version__} searches on no GPU: install the extra gpu in place of cpu")
            gpu_time, gpu_hits = milliseconds(index, queries, 1), index.search(np.concatenate(queries), 1)[1]
            yield (
                f"{form} index of {len(index)} vectors around {CENTRES} centres: {cpu_time:.1f} ms a sentence on the "
                f"CPU, {gpu_time:.1f} on the GPU, equal hits {float((gpu_hits == cpu_hits).mean()):.4f}"
            )


def tuning(llm: str) -> Iterator[str]:
    """Trains a few steps of LoRA in every number format."""
    for quantization in QUANTIZATIONS:
        changes = {"model.llm": llm, "model.quantization": quantization, "training.steps": str(STEPS)}
        config = Config.read(config_file(CONFIG), changes)
        data = sample_data(config.data, "cuda")
        with TemporaryDirectory() as folder, measured() as costs:
            trainer = LoraTrainer(config, data, Path(folder), "cuda")
            losses = ", ".join(f"{trainer.run_step()['loss']:.3f}" for _ in range(STEPS))
        yield f"LoRA on {llm}, quantization {quantization}: {STEPS} steps, {costs[0]}: loss {losses}"
        del trainer


def check(options: argparse.Namespace) -> int:
    """Try every part; returns the exit code."""
    if not torch.cuda.is_available():
        raise UserError(
            f"torch {torch.__version__} sees no CUDA device: run this on a machine with a GPU and its torch"
        )
    card = torch.cuda.get_device_properties(0)
    print(f"{card.name}, {card.total_memory / 2**30:.0f} GiB; torch {torch.__version__}, faiss {faiss.__version__}")
    parts = {
        "loading": loading(options.llm),
        "encoding": encoding(),
        "search": searching(options.vectors),
        "LoRA": tuning(options.llm),
    }
    ended = [came_to_end(name, lines) for name, lines in parts.items()]
    return OK if all(ended) else FAILED


def came_to_end(name: str, lines: Iterator[str]) -> bool:
    """Print the lines of a part, or why it stopped; says whether it came to its end."""
    try:
        for line in lines:
            print(line, flush=True)
    except Exception as error:  # whatever the libraries raise: the other parts are tried all the same
        print(f"{name} stopped: {first_line(error)}", flush=True)
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = Parser(
        prog="python -m finetune.gpu_check",
        description=__doc__,
        examples=["", "--llm MODEL --vectors 100000"],
    )
    parser.add_argument("--llm", default=DEFAULT_LLM, metavar="ID", help="language model")
    parser.add_argument("--vectors", type=positive, default=1_000_000, metavar="N", help="in the index (default: 1 M)")
    return run(check, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main())
