"""The engines that `eval.speed.llm` compares, each in a process of its own, so that each has its own peak of memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, NamedTuple, Self

from eval.speed.timing import peak_bytes, resource_module
from rag_mt.base.errors import UserError
from rag_mt.base.sizes import bytes_below
from rag_mt.base.types import Completion, Prompt

GENERATE, DECODER, LLAMACPP = "generate", "transformers", "llamacpp"
ENGINES = {
    GENERATE: "Hugging Face generate",
    DECODER: "rag_mt by transformers",
    LLAMACPP: "rag_mt by llama.cpp",
}
"""What they are called in tables, by the name that the user gives."""
WARM_UP = 4  # new tokens of the answers that do not count
Answer = Callable[[Sequence[Prompt], int], list[Completion]]


@dataclass(frozen=True)
class System:
    """An engine with a model and a batch size; `adapter` is a PEFT folder, `dtype` the format of transformers' weights
    (llama.cpp computes with those in the file)."""

    engine: str
    batch: int
    llm: str
    adapter: str | None = None
    device: str = "auto"
    dtype: str = "auto"

    def __str__(self) -> str:
        return f"{ENGINES[self.engine]}, batch {self.batch}"


class Loaded(NamedTuple):
    """What is known of a system that has loaded: seconds from the first import on, bytes of the model's files, the
    number format and device, the instructions it was built or asked to compute with, and the tokens of each prompt."""

    seconds: float
    file_bytes: int
    dtype: str
    device: str
    instructions: str
    prompt_tokens: list[int]


class Worker:
    """A process with one system, ready to answer some prompts again and again with up to `limit` new tokens; a context
    manager. Raises UserError for what the system raises it for."""

    def __init__(self, system: System, prompts: Sequence[Prompt], limit: int) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, system, list(prompts), limit), daemon=True)
        self._process.start()
        theirs.close()
        self._name = str(system)
        self.loaded: Loaded = self._received()
        """What is known of it."""
        self.cpu_seconds: list[float] = []
        """What the process took of the processor for each round of answers."""

    def answer(self) -> list[Completion]:
        """The answers to all prompts, computed once more."""
        self._connection.send(True)
        answers: list[Completion]
        answers, seconds = self._received()
        self.cpu_seconds.append(seconds)
        return answers

    def peak(self) -> int:
        """The most memory that the process had at once until it ends with this call, in bytes."""
        self._connection.send(False)
        peak: int = self._received()
        return peak

    def _received(self) -> Any:
        try:
            received = self._connection.recv()
        except EOFError:
            raise UserError(f"{self._name} has died: see above, and leave it out with --engines") from None
        if isinstance(received, UserError):
            raise received
        return received

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()  # at which it ends by itself, unless it is busy
        self._process.join(timeout=0 if kind else 10)
        self._process.kill()
        self._process.join()


def _work(connection: Connection, system: System, prompts: list[Prompt], limit: int) -> None:
    """What the process does: load, then answer whenever it is asked to, and tell its peak of memory at the end."""
    try:
        usage = resource_module()
        begin = time.perf_counter()
        answer, count, facts = _opened(system)
        seconds = time.perf_counter() - begin
        answer(prompts[: system.batch], WARM_UP)
        connection.send(Loaded(seconds, *facts, [count(prompt) for prompt in prompts]))
        while connection.recv():
            before = time.process_time()
            answers = answer(prompts, limit)
            connection.send((answers, time.process_time() - before))
        connection.send(peak_bytes(usage.getrusage(usage.RUSAGE_SELF)))
    except UserError as error:
        connection.send(error)
    except (EOFError, BrokenPipeError):  # nobody asks any more
        pass


def _opened(system: System) -> tuple[Answer, Callable[[Prompt], int], tuple[int, str, str, str]]:
    """What answers and counts tokens, and the facts that `Loaded` holds."""
    from rag_mt.llm.opening import gguf_file, open_llm
    from rag_mt.llm.queue import complete

    if system.engine == LLAMACPP:
        llm = open_llm(
            system.llm, adapter=system.adapter, engine=LLAMACPP, device=system.device, batch_size=system.batch
        )
        facts = (bytes_below(gguf_file(system.llm)), "GGUF", system.device.replace("auto", "cpu"), _instructions())
        return lambda prompts, limit: complete(llm, prompts, limit), llm.count_tokens, facts
    import torch

    from rag_mt.llm.transformers_llm import TransformersLLM
    from rag_mt.models.loading import load_llm, resolve_model

    loaded = load_llm(system.llm, system.adapter, system.device, system.dtype)
    ours = TransformersLLM(loaded, system.batch, system.adapter)
    dtype = str(loaded.dtype).removeprefix("torch.")
    instructions = torch.backends.cpu.get_cpu_capability()
    facts = (bytes_below(resolve_model(system.llm)), dtype, str(loaded.device), instructions)
    if system.engine == DECODER:
        return lambda prompts, limit: complete(ours, prompts, limit), ours.count_tokens, facts
    return lambda prompts, limit: one_by_one(loaded, prompts, limit), ours.count_tokens, facts


def _instructions() -> str:
    """The instructions that llama.cpp was built for."""
    import xllamacpp

    pairs = (part.partition(" = ") for part in str(xllamacpp.get_system_info()).split(" | "))
    built = [name.strip().removeprefix("CPU : ") for name, _, value in pairs if value.strip() == "1"]
    return " ".join(name for name in built if name.startswith(("AVX", "AMX", "NEON", "MATMUL", "SVE")))


def one_by_one(loaded: Any, prompts: Sequence[Prompt], limit: int) -> list[Completion]:
    """The baseline: `model.generate` of a `LoadedLLM` for each prompt, ended as soon as its answer holds a stop."""
    import torch
    from transformers import StoppingCriteria

    from rag_mt.llm.generation import first_stop

    class StopAt(StoppingCriteria):  # a class of transformers, which only the processes that need it load
        def __init__(self, stop: Sequence[str], length: int) -> None:
            self.stop, self.length = stop, length

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            text = tokenizer.decode(input_ids[0, self.length :])
            return torch.tensor([first_stop(text, self.stop) >= 0], device=input_ids.device)

    model, tokenizer = loaded.model, loaded.tokenizer
    completions = []
    for prompt in prompts:
        encoded = tokenizer(prompt.text, return_tensors="pt").to(model.device)
        length = encoded.input_ids.shape[1]
        ends = [StopAt(prompt.stop, length)]
        ids = model.generate(**encoded, max_new_tokens=limit, stopping_criteria=ends)[0, length:].tolist()
        text = tokenizer.decode(ids, skip_special_tokens=True)
        at = first_stop(text, prompt.stop)
        completions.append(Completion(text[:at] if at >= 0 else text, len(ids), at >= 0))
    return completions
